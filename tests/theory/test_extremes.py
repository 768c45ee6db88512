"""Problems at the ends of what can be asked for: an answer, or a refusal that says why; never a warning or NaN."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._equations.depth_nodes import Nodes
from deeplinear._solvers.dense import Dense
from factories import checkerboard, maker, some_slow

problem = maker("network", "sampling", "data", noise=0.1, sampling=dl.FullBatch(2.0), lr=0.05, steps=6)


# Branches that amplify -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", some_slow([255, 256, 300, math.inf], 300))  # nodes in depth from 256 on
def test_branches_that_amplify_much_are_solved_or_diverge(depth):
    at_once = dl.solve(problem(dl.ResNet(depth, 1.0, branch=4.0), lr=0.01))
    assert at_once.status.diverged_at == 1
    if depth == math.inf:
        return
    slowly = dl.solve(problem(dl.ResNet(depth, 1.0, branch=4.0), lr=0.01 * math.exp(-16), steps=3))
    assert not slowly.status.diverged
    assert slowly.test_loss[0] == pytest.approx(1.01 + (1 + 16 / depth) ** (depth - 1), rel=1e-9)


@pytest.mark.parametrize(
    ("branch", "lr"), [(4.0, 1e-9), pytest.param(3.5, 0.03 * math.exp(-12.25), marks=pytest.mark.slow)]
)
def test_what_nodes_in_depth_do_not_resolve_is_no_divergence(branch, lr):
    with pytest.raises(ArithmeticError, match="infinite depth was not resolved"):
        dl.solve(problem(dl.ResNet(math.inf, 1.0, branch=branch), lr=lr))


def test_a_doubtful_divergence_is_looked_at_layer_by_layer():
    lr, network = math.exp(-6.25), dl.ResNet(256, 1.0, branch=2.5, centered=True)
    (layers,) = Dense(depth_nodes=0).solve([problem(network, lr=lr, steps=5)])
    solution = dl.solve(problem(network, lr=lr, steps=5))
    assert not solution.status.diverged
    assert solution.test_loss == pytest.approx(layers.curves.test_loss, rel=1e-12)


def test_branches_beyond_all_numbers_are_refused():
    for depth, branch, scaling in [(math.inf, 16.0, "depth-mup"), (300, 2.0, "none"), (10**9, 20.0, "depth-mup")]:
        with pytest.raises(ValueError, match="branch must be smaller at depth"):
            dl.ResNet(depth, 1.0, branch=branch, branch_scaling=scaling)


# Depth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 12, 21])
@pytest.mark.parametrize("edges", [255, 1000])
def test_sums_over_edges_are_sums(count, edges):
    nodes = Nodes(count, edges)
    sums = np.concatenate([np.zeros((1, count)), np.cumsum(nodes.to_layers(), axis=0)])
    at = np.round(nodes.position * edges).astype(int)
    assert np.abs(nodes.below - sums[at]).max() <= 1e-13 * edges
    assert np.abs(nodes.above - (sums[-1] - sums[at + 1])).max() <= 1e-13 * edges
    assert np.abs(nodes.total - sums[-1]).max() <= 1e-13 * edges


def test_a_billion_layers_cost_what_a_thousand_cost():
    # Whatever is held for each layer would need gigabytes.
    deep, limit = (dl.solve(problem(dl.ResNet(depth, 1.0), steps=8)) for depth in (10**9, math.inf))
    assert deep.stats["depth_nodes"] <= 9
    assert deep.test_loss == pytest.approx(limit.test_loss, rel=1e-8)
    with pytest.raises(MemoryError, match="gradient_correlation of 1000000000 layers needs about"):
        _ = deep.gradient_correlation


def test_layers_that_do_not_fit_are_refused_before_they_are_made():
    deep = problem(dl.ResNet(10**9, 1.0, branch=4.0), lr=1e-9)
    with pytest.raises(MemoryError, match="too few nodes in depth, and solving layer by layer fails: solving"):
        dl.solve(deep)


def test_layers_count_even_where_steps_are_few():
    with pytest.raises(MemoryError, match="solving needs about 3"):
        dl.solve(problem(dl.MLP(10**12, 1.0), steps=1))


# Nothing to learn ----------------------------------------------------------------------------------------------

NOTHING = dl.Spectrum([1.0, 0.5], [0.0, 0.0], proportional=True)


@pytest.mark.parametrize("sampling", [dl.Population(), dl.FullBatch(2.0), dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 0.5)])
def test_a_zero_target_without_noise_stays_learned(sampling):
    for depth in (1, 3):
        solution = dl.solve(problem(dl.MLP(depth, 1.0, centered=True), sampling, NOTHING, steps=20))
        assert str(solution.status) == "completed"
        assert not solution.test_loss.any()
        assert not solution.train_loss.any()


def test_a_zero_target_stays_learned_on_panels_and_nodes_in_depth():
    long = problem(dl.MLP(1, 1.0, centered=True), data=NOTHING, steps=1001)
    for solution in (dl.solve(long), dl.solve(problem(dl.ResNet(math.inf, 1.0, centered=True), data=NOTHING))):
        assert str(solution.status) == "completed"
        assert not solution.test_loss.any()


def test_decay_uncovers_what_was_subtracted_and_is_no_divergence():
    # Weights decay to nothing: what is left is the subtracted function, of variance 1 / (nu richness^2).
    network = dl.MLP(1, 2.0, richness=1e-9, centered=True)
    silent = dl.Spectrum([1e-30, 1.0], [1.0, 0.0], proportional=True)
    solution = dl.solve(problem(network, dl.Population(), silent, lr=0.5, weight_decay=1.0, steps=60))
    assert str(solution.status) == "completed"
    assert solution.test_loss[-1] == pytest.approx(0.5 / 2.0 / 1e-18, rel=1e-3)


def test_the_first_step_without_anything_to_learn():
    still = problem(dl.MLP(2, 1.0, centered=True), data=NOTHING)
    assert dl.first_step_growth(still) == 1.0
    nested = problem(dl.ResNet(2, 1.0, centered=True), data=NOTHING)
    assert dl.first_step_growth(nested) == 1.0
    noisy = problem(dl.MLP(2, 1.0, centered=True), data=dl.Spectrum([1.0], [0.0], proportional=True, noise=0.1))
    assert dl.first_step_growth(noisy) == math.inf
    with pytest.raises(ValueError, match="no rate is the smallest that does"):
        dl.first_rise_lr(still)


# Divergence and rounding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "sampling"),
    checkerboard(
        [dl.MLP(3, 1.0), dl.ResNet(3, 0.5, centered=True), dl.ResNet(300, 1.0)], [dl.FullBatch(2.0), dl.OnlineSGD(0.5)]
    ),
)
def test_two_time_functions_are_numbers_before_a_divergence_and_infinite_from_there(network, sampling):
    solution = dl.solve(problem(network, sampling, lr=3.0, steps=30))
    end = solution.status.diverged_at
    assert end is not None
    for name in ("feature_correlation", "gradient_correlation", "error_correlation", "residual_correlation"):
        matrix = getattr(solution, name)
        assert np.isfinite(matrix[..., :end, :end]).all(), name
        assert np.isposinf(matrix[..., end:, :]).all(), name
    for name in ("feature_response", "gradient_response", "error_response", "residual_response"):
        assert np.isfinite(getattr(solution, name)[..., :end, :end]).all(), name


@pytest.mark.parametrize("lr", [1e6, 1e200, 1e308])
def test_rates_beyond_all_training_overflow_without_a_warning(lr):
    for rule in ({"momentum": 0.999}, {"weight_decay": 10.0}, {}):
        assert dl.solve(problem(dl.MLP(2, 1.0), lr=lr, steps=40, **rule)).status.diverged_at == 1


def test_the_kernel_of_weights_that_decay_to_nothing_is_not_negative():
    data = dl.Isotropic(target_gram=[[0.3665, -0.4357], [-0.4357, 0.6733]])
    decaying = problem(
        dl.MLP(6, 1.101, centered=True), dl.OnlineSGD(0.42), data, lr=0.0021, weight_decay=20.0, steps=110
    )
    assert (dl.solve(decaying).kernel >= 0).all()


# Spectra -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [1000.5, 1e17, 1e300])
def test_sources_beyond_meaning_are_refused(source):
    with pytest.raises(ValueError, match="source must be above 0 and at most 1000, got"):
        dl.Spectrum.power_law(2.0, source)


def test_the_largest_source_is_a_single_mode_with_a_target():
    modes = dl.Spectrum.power_law(2.0, 1000.0).modes
    assert (modes.weight * modes.eigenvalues * modes.target[:, 0, 0]).sum() == pytest.approx(1.0, rel=1e-12)


def test_modes_and_inputs_without_end_are_refused_before_they_are_made():
    with pytest.raises(MemoryError, match=r"a spectrum of so many modes needs about .* lower modes"):
        dl.Spectrum.power_law(2.0, 1.0, modes=10**17)
    endless = dl.Problem(
        dl.MLP(1, 2.0), dl.Spectrum.power_law(2.0, 1.0), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=2
    )
    for ask in (dl.simulate, dl.estimate):
        with pytest.raises(MemoryError, match=r"a power law of so many inputs needs about .* lower dim"):
            ask(endless, dim=10**17, seeds=1)


def test_spectra_beyond_all_numbers_are_not_compressed():
    spectrum = dl.Spectrum(np.geomspace(1.0, 1e-3, 50), np.full(50, 1e300), np.full(50, 1e300))
    with pytest.raises(ValueError, match="the spectrum cannot be compressed"):
        spectrum.compress()


def test_a_loss_whose_products_overflow_has_diverged():
    """Weights that decay uncover what was subtracted, 1 / richness times: a loss of 1e307, correlations beyond."""
    network = dl.MLP(5, 1.0, richness=1e-164, centered=True)
    rule = dl.GradientDescent(6e-3, weight_decay=1e-9)
    solution = dl.solve(dl.Problem(network, dl.Isotropic(0.5), dl.FullBatch(2.0), rule, 2))
    before = solution.status.diverged_at or 2
    assert np.isfinite(solution.feature_correlation[:, :before, :before]).all()
    assert (solution.test_loss[:before] < 1e301).all()


@pytest.mark.parametrize("outputs", [1, 3])
def test_rates_beyond_all_numbers_are_a_divergence(outputs):
    """Weights that decay 10^9 times too fast: what they remember of a gradient overflows after some thirty steps."""
    rule = dl.GradientDescent(4e7, momentum=0.9, nesterov=True, weight_decay=33.0)
    data = dl.Isotropic(0.1, np.eye(outputs).tolist())
    solution = dl.solve(dl.Problem(dl.MLP(2, "infinite", centered=True), data, dl.Population(), rule, 40))
    assert solution.status.diverged_at == 1
    assert np.isfinite(solution.test_loss[0])


def test_parts_of_variance_of_a_divergence_do_not_warn():
    """Seed 1248 of ``make fuzz``: replicas overflow where the network has diverged."""
    data = dl.Isotropic(0.1653, [[6.7045, 4.4145, -0.3977], [4.4145, 3.7166, 0.4322], [-0.3977, 0.4322, 0.8555]])
    network = dl.ResNet(4, 0.9035, richness=5.812, parameterization="ntk", branch=3.533)
    rule = dl.GradientDescent(0.007576, momentum=0.5)
    solution = dl.solve(dl.Problem(network, data, dl.OnlineSGD(0.8308), rule, 6))
    end = solution.status.diverged_at
    whole = sum(vars(solution.variance).values())
    np.testing.assert_allclose(whole[:end], solution.test_loss[:end], rtol=1e-9)
    assert np.isposinf(whole[end:]).all()


def test_residuals_before_a_divergence_are_numbers():
    """Number 2630 of ``make fuzz``: batches of a step that has overflowed were drawn zero times."""
    network = dl.ResNet(6, 0.9882, richness=1.439e-155, branch=1.912, centered=True)
    rule = dl.GradientDescent(0.0365, momentum=dl.schedules.wsd(0.5), weight_decay=8e-5, clip=0.3, clip_by="layer")
    solution = dl.solve(dl.Problem(network, dl.Isotropic(), dl.MultiPassSGD(3.453, 0.3788), rule, 7))
    assert solution.status.diverged_at == 1
    assert solution.residual_correlation[0, 0] == solution.train_loss[0] == 1.0


TOO_LARGE = [10**400, Fraction(10**400), -(10**400), 10**5000]
ONE = dl.Problem(dl.MLP(depth=1, width=1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("width", lambda value: dl.MLP(2, value)),
        ("depth", lambda value: dl.MLP(value, 1.0)),
        ("richness", lambda value: dl.MLP(2, 1.0, value)),
        ("init_scale", lambda value: dl.MLP(2, 1.0, init_scale=[value, 1, 1])),
        ("branch", lambda value: dl.ResNet(3, 1.0, branch=value)),
        ("lr", lambda value: dl.GradientDescent(value)),
        ("lr", lambda value: dl.GradientDescent([0.1, value])),
        ("momentum", lambda value: dl.GradientDescent(0.1, momentum=value)),
        ("noise", lambda value: dl.Isotropic(value)),
        ("target_gram", lambda value: dl.Isotropic(0.0, [[value]])),
        ("samples", lambda value: dl.FullBatch(value)),
        ("eigenvalues", lambda value: dl.Spectrum([value], [1.0])),
        ("target_power", lambda value: dl.Spectrum([1.0], [value])),
        ("capacity", lambda value: dl.Spectrum.power_law(value, 1.0)),
        ("modes", lambda value: dl.Spectrum.power_law(2.0, 1.0, modes=value)),
        ("steps", lambda value: replace(ONE, steps=value)),
        ("dim", lambda value: dl.simulate(ONE, dim=value, seeds=1)),
        ("seeds", lambda value: dl.simulate(ONE, dim=3, seeds=value)),
        ("vectors", lambda value: dl.sharpness(ONE, vectors=value)),
    ],
)
def test_numbers_beyond_all_others_are_refused_by_name(field, make):
    for value in TOO_LARGE:
        with pytest.raises(Refusal) as refused:
            make(value)
        assert refused.value.field == field
        assert len(str(refused.value)) < 200


def test_a_count_of_bytes_may_be_beyond_all_others():
    with pytest.raises(MemoryError, match="needs about"):
        dl.Spectrum.power_law(2.0, 1.0, modes=1e308)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("width", {"network": dl.MLP(2, 1e300)}),
        ("samples", {"sampling": dl.FullBatch(1e300)}),
        ("samples", {"sampling": dl.MultiPassSGD(1e300, 0.5)}),
        ("batch", {"sampling": dl.OnlineSGD(1e300)}),
    ],
)
def test_networks_of_more_parts_than_can_be_counted_are_refused(field, changes):
    with pytest.raises(Refusal, match=rf"^{field} must be at most 1.0e\+14 in a simulation, got 1e\+300"):
        dl.simulate(replace(ONE, **changes), dim=10, seeds=2)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("richness", {"network": dl.MLP(2, 1.0, 1e150)}),
        ("samples", {"sampling": dl.FullBatch(1e-300)}),
        ("target_gram", {"data": dl.Isotropic(0.3, [[1e300]])}),
    ],
)
def test_derivatives_beyond_all_numbers_are_refused_by_what_makes_them_so(field, changes):
    with pytest.raises(Refusal, match=f"^{field} must be closer to 1"):
        dl.sharpness(replace(ONE, **changes))


def test_a_source_next_to_zero_is_refused():
    with pytest.raises(Refusal, match=r"^source must be larger at capacity 2, got 1e-17"):
        dl.Spectrum.power_law(2, 1e-17)


def test_a_branch_of_any_kind_of_number_is_refused_without_a_warning():
    for depth in (3, float("inf")):
        with pytest.raises(Refusal, match=r"^branch must be smaller"):
            dl.ResNet(depth, 1.0, branch=np.float64(1e308))
