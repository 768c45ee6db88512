"""Residual networks: the dense solver against all pairs of layers, closed forms, limits and bad input."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

import deeplinear as dl
from agreement import assert_agrees_with_the_reference, assert_close, z_scores
from deeplinear._core.threads import one_blas_thread
from deeplinear._solvers.reference import reference
from factories import SAMPLINGS, maker
from networks import steps_of
from strategies import between, data, on_random, optimizers, samplings

OBSERVABLES = ("test_loss", "train_loss", "feature_correlation", "gradient_correlation", "feature_response", "kernel")


make = maker("network", "sampling", noise=0.3, sampling=SAMPLINGS[1], lr=0.02, steps=12)


def initial_kernel(network):
    """First layer and readout each meet all branches, a branch all others, at a mean squared gain of 1 + beta^2."""
    branches, beta2 = network.depth - 1, network.beta**2
    return 2 * (1 + beta2) ** branches + branches * beta2 * (1 + beta2) ** (branches - 1)


@st.composite
def residual_networks(draw):
    parameterization = draw(st.sampled_from(["mup", "ntk"]))
    # NTK at infinite width has gamma0 = 0, which the reference does not solve.
    limit = [st.just("infinite")] if parameterization == "mup" else []
    return dl.ResNet(
        depth=draw(st.integers(1, 5)),
        width=draw(st.one_of(between(0.3, 3.0), *limit)),
        richness=draw(between(0.3, 2.0)),
        parameterization=parameterization,
        centered=draw(st.booleans()),
        branch=draw(between(0.0, 1.5)),
        branch_scaling=draw(st.sampled_from(["depth-mup", "none"])),
    )


@st.composite
def residual_problems(draw):
    """Any problem with at most 5 hidden layers, 2 outputs and 7 steps; rates shrink as the initial kernel grows."""
    steps = draw(st.integers(1, 7))
    network, optimizer = draw(residual_networks()), draw(optimizers(steps))
    slow = replace(optimizer, lr=optimizer.rates(steps) * min(1.0, 3 / initial_kernel(network)))
    two_at_most = data().filter(lambda any_data: any_data.outputs <= 2)
    return dl.Problem(network, draw(two_at_most), draw(samplings()), slow, steps)


@on_random(residual_problems(), few=25, many=300)
def test_agrees_with_all_pairs_of_layers(problem):
    assert_agrees_with_the_reference(problem)


# Losses at t = 0, 5, 19 from an independent solution of the same equations.
GOLDEN = {
    "population": (
        make(dl.ResNet(6, 1.0), dl.Population(), lr=0.01, steps=20, noise=0.0),
        [3.1613940329218115, 1.4390001010294218, 0.5949818043682034],
        [3.1613940329218115, 1.4390001010294218, 0.5949818043682034],
    ),
    "full batch, centered": (
        make(
            dl.ResNet(5, 1.0, centered=True, branch=0.6, branch_scaling="none"), dl.FullBatch(1.5), steps=20, noise=0.2
        ),
        [1.04, 0.45881188591522737, 0.22760913919285422],
        [1.04, 0.19052878257829914, 0.04795634275409117],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_known_losses(name):
    problem, test_loss, train_loss = GOLDEN[name]
    solution = dl.solve(problem)
    assert solution.test_loss[[0, 5, 19]] == pytest.approx(test_loss, rel=1e-11)
    assert solution.train_loss[[0, 5, 19]] == pytest.approx(train_loss, rel=1e-11)
    with one_blas_thread():
        slow = reference(replace(problem, steps=6))
    assert slow["test_loss"][[0, 5]] == pytest.approx(test_loss[:2], rel=1e-11)
    assert slow["train_loss"][[0, 5]] == pytest.approx(train_loss[:2], rel=1e-11)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("branch", [0.0, 0.5, 3.0])
def test_one_hidden_layer_has_no_branch(sampling, branch):
    network = {"depth": 1, "width": 0.8, "richness": 1.5}
    residual = dl.solve(make(dl.ResNet(**network, branch=branch), sampling))
    plain = dl.solve(make(dl.MLP(**network), sampling))
    for name in OBSERVABLES:
        np.testing.assert_array_equal(getattr(residual, name), getattr(plain, name))
    np.testing.assert_array_equal(residual.variance.interaction, plain.variance.interaction)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("centered", [False, True])
def test_without_branches_it_is_the_network_of_one_hidden_layer(sampling, centered):
    """h_l = h_1 and g_l = w_L in every layer."""
    network = {"width": 0.8, "richness": 1.5, "centered": centered}
    rule = {"momentum": 0.5, "weight_decay": 0.3}
    residual = dl.solve(make(dl.ResNet(5, **network, branch=0.0), sampling, **rule))
    plain = dl.solve(make(dl.MLP(1, **network), sampling, **rule))
    assert_close(residual.test_loss, plain.test_loss, 1e-13)
    assert_close(residual.train_loss, plain.train_loss, 1e-13)
    assert_close(residual.kernel, plain.kernel, 1e-13)
    for layer in range(5):
        assert_close(residual.feature_correlation[layer + 1], plain.feature_correlation[1], 1e-13)
        assert_close(residual.gradient_correlation[layer], plain.gradient_correlation[0], 1e-13)
    for part, expected in vars(plain.variance).items():
        assert_close(getattr(residual.variance, part), expected, 1e-13)


@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("scaling", ["depth-mup", "none"])
def test_loss_at_initialisation(depth, scaling):
    width, richness = 0.7, 1.3
    network = dl.ResNet(depth, width, richness, branch=0.8, branch_scaling=scaling)
    beta2 = 0.64 / depth if scaling == "depth-mup" else 0.64
    gain = (1 + beta2) ** (depth - 1)
    losses = dl.solve(make(network, noise=0.3, steps=1)).test_loss
    assert losses[0] == pytest.approx(1 + gain / (width * richness**2) + 0.09, rel=1e-13)
    centered = dl.solve(make(replace(network, centered=True), noise=0.3, steps=1)).test_loss
    assert centered[0] == pytest.approx(1.09, rel=1e-13)


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_a_lazy_network_of_infinite_width_is_a_linear_model_with_its_initial_kernel(depth):
    network = dl.ResNet(depth, "infinite", parameterization="ntk", centered=True, branch=1.2)
    solution = dl.solve(make(network, dl.Population(), lr=0.02, noise=0.0))
    kernel = initial_kernel(network)
    np.testing.assert_allclose(solution.kernel, kernel, rtol=1e-13)
    np.testing.assert_allclose(solution.test_loss, (1 - 0.02 * kernel) ** (2 * np.arange(12)), rtol=1e-11)


def test_kernel_is_the_mean_eigenvalue_of_the_tangent_kernel():
    """Response of the predictor to the signal, by explicit Jacobians of finite networks: D = 200, 24 networks."""
    network, seen = dl.ResNet(4, 1.0, branch=1.2), slice(None, None, 10)
    case = make(network, dl.Population(), steps=30, weight_decay=0.4)
    with one_blas_thread():
        measured = np.array(
            [[_tangent_kernel(network.beta, *step) for step in steps_of(case, 200, seed)[seen]] for seed in range(24)]
        )
    theory = dl.solve(case).kernel[seen]
    assert theory[0] == pytest.approx(initial_kernel(network), rel=1e-13)
    assert np.abs(z_scores(measured, theory)).max() < 4.5
    np.testing.assert_allclose(measured.mean(axis=0), theory, rtol=0.05)


def _tangent_kernel(beta, weights, h, g):
    """Trace over D of d(predictor) / d(signal) for one step of unit rate, layer by layer."""
    first, *branches, readout = weights
    width = len(readout)
    trace = np.vdot(g[0], g[0]) / width
    below = first / np.sqrt(first.shape[1])
    for weight, above in zip(branches, g[1:], strict=True):
        trace += beta**2 * np.vdot(below, below) * np.vdot(above, above) / width**2
        below = below + beta * weight @ below / np.sqrt(width)
    return trace + np.vdot(below, below) / width


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_a_list_is_solved_as_one_by_one(sampling):
    networks = [dl.ResNet(4, 1.0), dl.ResNet(4, 0.5, 2.0, branch=0.3), dl.ResNet(4, 3.0, branch_scaling="none")]
    problems = [make(network, sampling) for network in [*networks, dl.MLP(4, 1.0), dl.ResNet(3, 1.0)]]
    together = dl.solve(problems)
    assert [solution.stats["batch"] for solution in together] == [3, 3, 3, 1, 1]
    for problem, solution in zip(problems, together, strict=True):
        alone = dl.solve(problem)
        for name in OBSERVABLES:
            assert_close(getattr(solution, name), getattr(alone, name), 1e-13)
        assert_close(solution.variance.interaction, alone.variance.interaction, 1e-13)


def test_unscaled_branches_in_a_deep_network_diverge_unless_the_rate_is_tiny():
    """Signals double in variance at every layer, so the kernel is near 4e10."""
    network = dl.ResNet(32, 1.0, branch=1.0, branch_scaling="none")
    wild, calm = dl.solve([make(network, lr=lr, steps=20) for lr in (1e-11, 1e-12)])
    assert calm.kernel[0] == pytest.approx(initial_kernel(network), rel=1e-12)
    assert str(wild.status) == f"diverged at step {wild.status.diverged_at}: lower the learning rate"
    assert 1 < wild.status.diverged_at < 19
    assert np.isfinite(wild.test_loss[: wild.status.diverged_at]).all()
    assert np.isposinf(wild.test_loss[wild.status.diverged_at :]).all()
    assert not calm.status.diverged
    assert (np.diff(calm.test_loss) < 0).all()
    assert calm.test_loss[-1] < calm.test_loss[0] / 10


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_losses_converge_with_depth_at_first_order(sampling):
    depths = (8, 16, 32, 64)
    losses = [dl.solve(make(dl.ResNet(L, 1.0, centered=True), sampling, lr=0.01)).test_loss for L in depths]
    gaps = [np.abs(deeper - shallower).max() for shallower, deeper in pairwise(losses)]
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    assert (np.abs(orders - 1.0) < 0.1).all()
    # So twice the deeper less the shallower is the limit up to 1/L^2.
    limits = [2 * deeper - shallower for shallower, deeper in pairwise(losses)]
    assert np.abs(limits[2] - limits[1]).max() < gaps[2] / 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branch": -0.5}, r"branch must be a finite number, zero or above, got -0.5"),
        ({"branch": math.inf}, r"branch must be a finite number, zero or above, got inf"),
        ({"width": [1.0, 2.0]}, r"width must be one number in a residual network, got \[1.0, 2.0\]"),
        ({"width": 0.0}, r"width must be a positive finite number, got 0.0"),
        (
            {"branch_scaling": "muP"},
            r"branch_scaling must be 'depth-mup' or 'none', or a power of 1/depth, zero or above, got 'muP'",
        ),
        ({"depth": 2.5}, r"depth must be a whole number, at least 1, got 2.5"),
        (
            {"depth": math.inf, "branch_scaling": "none"},
            r"branch_scaling must be 'depth-mup' or a power of 0.5 or more at infinite depth, got 'none': without",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dl.ResNet(**{"depth": 2, "width": 1.0} | options)


@pytest.mark.parametrize("depth", [6, math.inf])
def test_a_problem_goes_through_toml(depth):
    problem = make(dl.ResNet(depth, 0.7, 1.5, parameterization="ntk", centered=True, branch=0.4))
    assert dl.Problem.from_toml(problem.to_toml()) == problem
    assert 'type = "ResNet"' in problem.to_toml()
    short = '[network]\ntype = "ResNet"\ndepth = 3\nwidth = 1.0\n'
    rest = problem.to_toml()
    table = rest[rest.index("[network]") : rest.index("[data]")]
    assert dl.Problem.from_toml(rest.replace(table, short)).network == dl.ResNet(3, 1.0)


def test_the_reference_is_for_finite_depth():
    with pytest.raises(ValueError, match="the reference needs a finite depth"):
        reference(make(dl.ResNet(math.inf, 1.0)))
