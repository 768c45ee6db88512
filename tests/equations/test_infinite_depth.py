"""Nodes in depth: the limit of infinite depth, large finite depths, and their error estimate."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._equations.depth_nodes import Nodes
from deeplinear._problem.rate import up_to
from deeplinear._solvers import depth as in_depth
from deeplinear._solvers.dense import Dense
from factories import checkerboard, maker

SAMPLINGS = [dl.Population(), dl.FullBatch(1.5), dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 1.0)]
GRAM = [[1.0, 0.2], [0.2, 0.5]]


make = maker(
    "depth",
    "sampling",
    network=dl.ResNet,
    depth=math.inf,
    width=1.0,
    branch=0.8,
    richness=1.2,
    noise=0.2,
    sampling=SAMPLINGS[1],
    lr=0.01,
    steps=15,
)


def losses_with(nodes, problem):
    return Dense(depth_nodes=nodes).solve([problem])[0].curves.test_loss


@pytest.mark.parametrize("count", [3, 6, 11])
def test_nodes_integrate_polynomials(count):
    nodes = Nodes(count, None)
    tau, integral = nodes.position, nodes.below
    assert tau[0] == pytest.approx(0.0, abs=1e-15)
    assert tau[-1] == pytest.approx(1.0)
    for power in range(count):
        np.testing.assert_allclose(integral @ tau**power, tau ** (power + 1) / (power + 1), atol=1e-13)


@pytest.mark.parametrize(("sampling", "gram"), checkerboard(SAMPLINGS, [None, GRAM]))
def test_finite_depths_extrapolate_to_it(sampling, gram):
    """Errors at finite depth are a series in 1/L; depths 16 .. 128 cancel four of its terms."""
    rule = dl.GradientDescent(0.01, momentum=0.3, weight_decay=0.2)

    def curves(depth):
        solution = dl.solve(make(depth, sampling, gram=gram, optimizer=rule, steps=8))
        curves = [solution.test_loss, solution.train_loss, solution.kernel, solution.variance.ensemble_loss(4)]
        return np.array(curves), solution

    limit, solution = curves(math.inf)
    table = [curves(depth)[0] for depth in (16, 32, 64, 128)]
    for order in (1, 2, 3):
        table = [(2**order * fine - coarse) / (2**order - 1) for coarse, fine in itertools.pairwise(table)]
    np.testing.assert_allclose(limit, table[0], rtol=1e-5)
    assert solution.stats["depth_error"] < 1e-6


def test_convergence_in_depth_is_of_first_order():
    limit = dl.solve(make()).test_loss
    gaps = [np.abs(dl.solve(make(depth)).test_loss - limit).max() for depth in (32, 64, 128)]
    np.testing.assert_allclose(np.log2(np.array(gaps[:-1]) / gaps[1:]), 1.0, atol=0.1)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("branch", [0.5, 1.2])
def test_the_error_is_within_the_tolerance(tolerance, branch):
    problem = make(branch=branch)
    exact = losses_with(14, problem)
    solution = dl.solve(problem, tolerance=tolerance)
    error = np.abs(solution.test_loss / exact - 1).max()
    assert error <= solution.stats["depth_error"] <= tolerance


def test_convergence_in_nodes_is_exponential():
    exact = losses_with(14, make())
    errors = [np.abs(losses_with(nodes, make()) / exact - 1).max() for nodes in (3, 4, 5, 6)]
    assert all(fine < coarse / 30 for coarse, fine in itertools.pairwise(errors))


def test_without_branches_it_is_one_hidden_layer():
    infinite = dl.solve(make(branch=0.0))
    shallow = dl.solve(dl.Problem(dl.MLP(1, 1.0, 1.2), dl.Isotropic(0.2), SAMPLINGS[1], dl.GradientDescent(0.01), 15))
    np.testing.assert_allclose(infinite.test_loss, shallow.test_loss, rtol=1e-12)


def test_loss_and_kernel_at_initialisation():
    b, nu, gamma0 = 1.1, 0.7, 1.5
    solution = dl.solve(make(branch=b, width=nu, richness=gamma0))
    assert solution.test_loss[0] == pytest.approx(1.04 + math.exp(b**2) / (nu * gamma0**2), rel=1e-8)
    # W_0 and the readout see the whole gain, a branch at tau the gain below and above it.
    assert solution.kernel[0] == pytest.approx((2 + b**2) * math.exp(b**2), rel=1e-8)


def test_observables_are_functions_of_layer_time():
    b = 1.1
    solution = dl.solve(make(branch=b), tolerance=1e-8)
    tau = solution.layer_time
    np.testing.assert_allclose(solution.gradient_correlation[:, 0, 0], np.exp(b**2 * (1 - tau)), rtol=1e-6)
    assert len(solution.feature_correlation) == 1 + len(tau)
    np.testing.assert_allclose(solution.to_xarray().layer_time, tau)
    finite = dl.solve(make(256, branch=b))
    positions = (np.arange(256)) / 255
    expected = np.array([np.interp(tau, positions, finite.feature_correlation[1:, t, t]) for t in (0, 7, 14)])
    actual = np.array([solution.feature_correlation[1:, t, t] for t in (0, 7, 14)])
    np.testing.assert_allclose(actual, expected, rtol=0.05)  # depth 256 is 1 - 2 % away from the limit
    assert dl.solve(make(4)).layer_time is None


def test_divergence_is_an_answer():
    solution, finite = (dl.solve(make(depth, branch=0.5, lr=0.4, steps=20)) for depth in (math.inf, 64))
    assert solution.status.diverged
    assert abs(solution.status.diverged_at - finite.status.diverged_at) <= 3
    assert np.isposinf(solution.test_loss[solution.status.diverged_at :]).all()


def test_a_batch_is_solved_as_one_by_one():
    problems = [make(branch=branch, lr=lr, steps=8) for branch, lr in [(0.5, 0.02), (1.0, 0.01), (0.5, 0.4)]]
    one_by_one = [dl.solve(problem) for problem in problems]
    assert one_by_one[2].status.diverged
    for alone, solution in zip(one_by_one, dl.solve(problems), strict=True):
        assert solution.status.diverged == alone.status.diverged
        if not alone.status.diverged:
            np.testing.assert_allclose(solution.test_loss, alone.test_loss, rtol=1e-6)


def test_a_saved_solution_keeps_its_nodes(tmp_path):
    solution = dl.solve(make())
    solution.save(tmp_path / "deep.nc")
    loaded = dl.Solution.load(tmp_path / "deep.nc")
    np.testing.assert_array_equal(loaded.layer_time, solution.layer_time)
    np.testing.assert_allclose(loaded.variance.interaction, solution.variance.interaction, rtol=1e-9)


def solution_with(nodes, problem):
    return dl.Solution.of(problem, Dense(depth_nodes=nodes).solve([problem])[0])


OBSERVABLES = [
    "test_loss",
    "train_loss",
    "kernel",
    "feature_correlation",
    "gradient_correlation",
    "feature_response",
    "gradient_response",
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_with_a_node_at_every_edge_it_is_the_layered_solution(sampling, monkeypatch):
    monkeypatch.setattr("deeplinear._equations.depth_sweeps.SETTLED", 1e-14)
    rule = dl.GradientDescent(0.02, momentum=0.3, weight_decay=0.2)
    problem = make(7, sampling, gram=GRAM, optimizer=rule, branch=1.5, richness=1.3)
    layers, nodes = dl.solve(problem), solution_with(20, problem)
    for name in OBSERVABLES:
        expected = getattr(layers, name)
        assert np.abs(getattr(nodes, name) - expected).max() <= 1e-11 * np.abs(expected).max(), name
    np.testing.assert_allclose(nodes.variance.data, layers.variance.data, atol=1e-12)
    np.testing.assert_allclose(nodes.variance.initialization, layers.variance.initialization, atol=1e-12)


def test_few_nodes_stand_for_many_layers():
    problem = make(100, branch=1.2)
    layers, nodes = dl.solve(problem), solution_with(9, problem)
    for name in OBSERVABLES:
        expected = getattr(layers, name)
        assert np.abs(getattr(nodes, name) - expected).max() <= 1e-7 * np.abs(expected).max(), name


def test_solve_chooses_nodes_for_many_layers_and_says_so(monkeypatch):
    problem = make(256, steps=8)
    chosen = dl.solve(problem)
    assert chosen.stats["depth_error"] < 1e-6
    assert chosen.feature_correlation.shape[0] == 257
    monkeypatch.setattr("deeplinear._solvers.depth._MANY_LAYERS", 10_000)
    layers = dl.solve(problem)
    assert "depth_nodes" not in layers.stats
    np.testing.assert_allclose(chosen.test_loss, layers.test_loss, rtol=1e-7)


def test_a_finite_depth_that_nodes_do_not_resolve_is_solved_layer_by_layer():
    solution = dl.solve(make(256, steps=3), tolerance=1e-18)
    assert "depth_nodes" not in solution.stats
    assert "depth_nodes" not in dl.solve(make(256, steps=3, branch=0.05, branch_scaling="none")).stats


def test_what_cannot_be_done_at_infinite_depth_says_so():
    with pytest.raises(ValueError, match="depth must be finite in a simulation, got inf"):
        dl.simulate(make(), dim=20, seeds=2)
    with pytest.raises(ValueError, match="neurons can be drawn at finite depth only, got depth inf"):
        dl.solve(make()).sample_sites(3)
    with pytest.raises(ValueError, match="tolerance must be a positive finite number, got 0"):
        dl.solve(make(), tolerance=0)
    with pytest.raises(ArithmeticError, match="infinite depth was not resolved to tolerance 1e-18"):
        dl.solve(make(steps=3), tolerance=1e-18)


@pytest.mark.parametrize(("width", "true_step"), [("infinite", 4), pytest.param(1.0, 4, marks=pytest.mark.slow)])
def test_what_grows_along_a_great_depth_is_followed(width, true_step):
    """A loss that grows 10^5 times is no divergence yet, however hard its layers are to solve for."""
    problem = make(1100, dl.FullBatch(2.0), lr=math.exp(-6.25), steps=6, width=width, branch=2.5, richness=1.0)
    exact = losses_with(0, up_to(problem, true_step - 1))
    solution = dl.solve(problem)
    found = solution.status.diverged_at
    assert true_step - 1 <= found <= true_step
    assert exact[found - 1] > 50 * exact[0]
    np.testing.assert_allclose(solution.test_loss[:found], exact[:found], rtol=1e-3)


def test_nodes_that_part_before_the_loss_has_grown_are_no_divergence():
    """Losses of two numbers of nodes, and the steps at which each of them diverged."""

    def run(losses, diverged_at):
        return SimpleNamespace(
            diverged_at=np.array([diverged_at]), test_losses=lambda steps: np.array(losses)[steps, None]
        )

    one, other = [1.0, 30.0, 90.0, 1e9, 1e13], [1.0, 30.0, 95.0, 1e11, 1e14]
    assert in_depth._parting(run(one, 4), run(other, 4), 5, 1e-6) == 2
    assert in_depth._parting(run(one, 4), run(one, 3), 5, 1e-6) == 3
    assert in_depth._parting(run(one, 4), run(one, -1), 5, 1e-6) == 0, "one of them does not diverge"
    slow, slower = [1.0, 5.0, 90.0, 1e9], [1.0, 5.0, 95.0, 1e9]
    assert in_depth._parting(run(slow, 3), run(slower, 3), 4, 1e-6) == 0, "not grown by then"


VANISHING = {
    "normalised": dl.NormalizedDescent(0.03, per="global"),
    "normalised, with momentum": dl.NormalizedDescent(0.03, per="global", beta2=0.9, momentum=0.5),
    "clipped": dl.GradientDescent(0.05, clip=0.5),
    "SAM": dl.SAM(0.03, rho=0.5),
    "decay of the others": dl.GradientDescent(0.05, weight_decay=0.5, layer_decay={"hidden": 0.0}),
}


@pytest.mark.parametrize("power", [1.0, 1.4])
@pytest.mark.parametrize("name", VANISHING)
def test_norms_do_not_feel_branches_weaker_than_depth_mup(name, power):
    """Finite depths differ from the limit by terms of order 1/L."""
    network = {"centered": True, "branch": 1.0, "branch_scaling": power, "noise": 0.0, "sampling": dl.Population()}
    problem = make(optimizer=VANISHING[name], steps=6, **network)
    limit, near, far = (
        solved.test_loss for solved in dl.solve([problem, *(problem.replace(depth=depth) for depth in (10**5, 10**7))])
    )
    np.testing.assert_allclose(near, limit, rtol=2e-5)
    np.testing.assert_allclose(far, limit, rtol=2e-7)


@pytest.mark.parametrize("field", ["lr", "width", "richness", "branch"])
@pytest.mark.parametrize("rule", [dl.GradientDescent(0.05), dl.SAM(0.03, rho=0.5)])
def test_derivatives_where_branches_begin_at_zero(field, rule):
    """At the first steps the loss does not depend on some fields, whose imaginary parts are rounding there."""
    network = {"centered": True, "branch": 1.0, "branch_scaling": 1.0, "noise": 0.0, "sampling": dl.Population()}
    problem = make(optimizer=rule, steps=6, **network)
    found = dl.sensitivity(problem, field)
    below, above = (found.at[field] * (1 + sign * 1e-3) for sign in (-1, 1))
    low, high = (dl.solve(problem.replace({field: value}), tolerance=1e-8).test_loss for value in (below, above))
    np.testing.assert_allclose(found.d_test_loss[field], (high - low) / (above - below), rtol=1e-5, atol=1e-6)


def test_decay_of_hidden_weights_has_no_limit_where_their_rates_grow_with_depth():
    with pytest.raises(ValueError, match="weight_decay must be 0 for hidden weights at infinite depth"):
        make(branch_scaling=1.0, weight_decay=0.5)
