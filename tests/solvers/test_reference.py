"""The reference solver against known losses, closed forms and what any solution must satisfy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deeplinear as dl
from deeplinear._problem.data import Modes, gram_matrix
from deeplinear._problem.sampling import Sampling
from deeplinear._solvers.reference import reference
from deeplinear._solvers.reference_rules import train
from deeplinear._theory.written import CURVES, MATRICES
from strategies import on_random, optimizers, problems

any_problem = on_random(problems(), few=12, many=200)


class TwoLevels(dl.Isotropic):
    """A third of the directions with variance 2, the rest with 1/2, targets of equal size in all."""

    @property
    def modes(self) -> Modes:
        return Modes(np.array([2.0, 0.5]), np.ones((2, 1, 1)), np.array([1 / 3, 2 / 3]))


# Losses at t = 0, 1, 19 from an independent solution of the same equations.
GOLDEN = {
    "full batch": (
        dl.Problem(
            dl.MLP(depth=3, width=0.5), dl.Isotropic(noise=0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), 20
        ),
        [3.09, 1.6708467940018927, 0.7437339143695689],
        [3.09, 1.4636799879598248, 0.4358334440492243],
    ),
    "full batch, centered": (
        dl.Problem(
            dl.MLP(depth=4, width=0.5, richness=0.5, centered=True),
            dl.Isotropic(noise=0.3),
            dl.FullBatch(1.0),
            dl.GradientDescent(0.03),
            20,
        ),
        [1.09, 0.9498850000000012, 0.5984950968250193],
        [1.09, 0.6924100000000012, 0.12719471988102388],
    ),
    "online": (
        dl.Problem(
            dl.MLP(depth=4, width=1.0), dl.Isotropic(noise=0.3), dl.OnlineSGD(0.3), dl.GradientDescent(0.02), 20
        ),
        [2.09, 1.5906613377229022, 0.5139655508279292],
        [2.09, 1.5906613377229022, 0.5139655508279292],
    ),
    "multi-pass": (
        dl.Problem(
            dl.MLP(depth=2, width=1.0), dl.Isotropic(noise=0.3), dl.MultiPassSGD(2.0, 0.5), dl.GradientDescent(0.05), 20
        ),
        [2.09, 1.4956361465625, 0.4288578100031467],
        [2.09, 1.3037505479687501, 0.17865485240828696],
    ),
    "momentum and weight decay": (
        dl.Problem(
            dl.MLP(depth=3, width=1.0),
            dl.Isotropic(noise=0.2),
            dl.FullBatch(1.5),
            dl.GradientDescent(0.01, momentum=0.8, weight_decay=0.05),
            20,
        ),
        [2.04, 1.7802342479547073, 0.4561732205479525],
        [2.04, 1.6829076290076432, 0.14356829830762152],
    ),
    "unequal widths, population": (
        dl.Problem(
            dl.MLP(depth=3, width=(0.5, 1.0, 2.0)), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.02), 20
        ),
        [1.5, 1.1563433174278783, 0.33208095408186067],
        [1.5, 1.1563433174278783, 0.33208095408186067],
    ),
    "two variances": (
        dl.Problem(dl.MLP(depth=2, width=1.0), TwoLevels(noise=0.2), dl.FullBatch(2.0), dl.GradientDescent(0.03), 20),
        [2.04, 1.44534931639287, 0.40526445779895814],
        [2.04, 1.30295727050766, 0.20247461882308668],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_known_losses(name: str) -> None:
    problem, test_loss, train_loss = GOLDEN[name]
    solution = reference(problem)
    assert solution["test_loss"][[0, 1, 19]] == pytest.approx(test_loss, rel=1e-11)
    assert solution["train_loss"][[0, 1, 19]] == pytest.approx(train_loss, rel=1e-11)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_first_online_step(depth: int) -> None:
    eta, alpha_B, nu, L = 0.1, 0.4, 0.7, depth
    network = dl.MLP(depth, width=nu, richness=1.5, centered=True)
    problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(alpha_B), dl.GradientDescent(eta), steps=2)
    drift = (1 - (L + 1) * eta) ** 2
    batch = (L + 1) ** 2 * eta**2 / alpha_B
    width = eta**2 * L * (L + 1) * (2 * L + 1) / (6 * nu) * (1 + 1 / alpha_B)
    assert reference(problem)["test_loss"] == pytest.approx([1.0, drift + batch + width], rel=1e-13)


def test_first_population_step_at_infinite_width() -> None:
    # All L + 1 layers add the same kernel, so the error shrinks to 1 - (L + 1) eta for any richness.
    network = dl.MLP(depth=3, width="infinite", richness=2.0)
    problem = dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.05), steps=2)
    assert reference(problem)["test_loss"] == pytest.approx([1.0, (1 - 4 * 0.05) ** 2], rel=1e-14)


@any_problem
def test_before_training(problem: dl.Problem) -> None:
    solution = reference(problem)
    outputs, network = problem.data.outputs, problem.network
    modes = problem.data.modes
    variance = modes.weight * modes.eigenvalues
    target = variance @ np.trace(modes.target, axis1=1, axis2=2)
    label_noise = outputs * problem.data.noise**2
    initial = 0.0 if network.centered else variance.sum() * outputs / (network.widths[-1] * network.gamma0**2)
    assert solution["test_loss"][0] == pytest.approx(target + initial + label_noise)
    assert solution["train_loss"][0] == pytest.approx(target + initial + label_noise)
    assert solution["bias"][0] == pytest.approx(target)
    assert solution["width"][0] == pytest.approx(initial)
    assert solution["data"][0] == 0
    assert solution["overlap_data"][0] == pytest.approx(target)
    assert solution["overlap_init"][0] == pytest.approx(target + initial)


@any_problem
def test_parts_and_overlaps_fit_together(problem: dl.Problem) -> None:
    s = reference(problem)
    label_noise = problem.data.outputs * problem.data.noise**2
    error = s["test_loss"] - label_noise
    assert s["bias"] + s["width"] + s["data"] == pytest.approx(error, abs=1e-12)
    # Variances from initialisation, from data, and from the two together.
    slack = 1e-9 * s["test_loss"].max()
    assert (s["overlap_init"] - s["bias"] >= -slack).all()
    assert (s["overlap_data"] - s["bias"] >= -slack).all()
    assert (error - s["overlap_init"] - s["overlap_data"] + s["bias"] >= -slack).all()


@any_problem
def test_correlations_are_covariances(problem: dl.Problem) -> None:
    solution = reference(problem)
    for C in [solution["Cv"], solution["CDelta"], *solution["Ch"], *solution["Cg"]]:
        scale = np.abs(C).max()
        np.testing.assert_allclose(C, C.T, atol=1e-12 * scale)
        assert np.linalg.eigvalsh(C).min() >= -1e-11 * scale


@any_problem
def test_responses_are_causal(problem: dl.Problem) -> None:
    solution = reference(problem)
    C = np.ones((problem.data.outputs, problem.data.outputs))
    later = np.kron(np.triu(np.ones((problem.steps, problem.steps)), 1), C)
    same_or_later = np.kron(np.triu(np.ones((problem.steps, problem.steps))), C)
    for R in [solution["RDelta"], *solution["Rhr"]]:
        np.testing.assert_allclose(R * later, 0, atol=1e-12 * np.abs(R).max())
    for R in [solution["Rvu"], solution["K"], *solution["Rgu"]]:
        np.testing.assert_allclose(R * same_or_later, 0, atol=1e-12 * np.abs(R).max())


@pytest.mark.parametrize(
    ("sampling", "limit"),
    [
        (dl.MultiPassSGD(samples=1.5, batch=1.5), dl.FullBatch(1.5)),
        (dl.MultiPassSGD(samples=1e9, batch=0.5), dl.OnlineSGD(0.5)),
        (dl.FullBatch(1e9), dl.Population()),
        (dl.OnlineSGD(1e9), dl.Population()),
    ],
    ids=["multi-pass to full batch", "multi-pass to online", "full batch to population", "online to population"],
)
def test_samplings_join(sampling: Sampling, limit: Sampling) -> None:
    parts = dl.MLP(depth=2, width=0.8), dl.Isotropic(noise=0.2, target_gram=((1.0, 0.3), (0.3, 0.5)))
    ours, theirs = (reference(dl.Problem(*parts, rule, dl.GradientDescent(0.05), 6)) for rule in (sampling, limit))
    for name in ("test_loss", "train_loss", "bias", "width", "data", "overlap_data", "overlap_init"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-7, atol=1e-7)


def test_rotation_of_outputs_changes_no_loss() -> None:
    cos, sin = np.cos(0.7), np.sin(0.7)
    rotation = np.array([[cos, -sin], [sin, cos]])
    gram = np.diag([1.0, 0.2])
    ours, theirs = (
        reference(
            dl.Problem(
                dl.MLP(depth=3, width=(0.5, 1.0, 0.8)),
                dl.Isotropic(noise=0.2, target_gram=gram_matrix("gram", G)),
                dl.MultiPassSGD(2.0, 0.8),
                dl.GradientDescent(0.04, momentum=0.5, nesterov=True),
                8,
            )
        )
        for G in (gram, rotation @ gram @ rotation.T)
    )
    turn = np.kron(np.eye(8), rotation)
    np.testing.assert_allclose(theirs["test_loss"], ours["test_loss"], rtol=1e-12)
    np.testing.assert_allclose(theirs["train_loss"], ours["train_loss"], rtol=1e-12)
    np.testing.assert_allclose(theirs["Cv"], turn @ ours["Cv"] @ turn.T, atol=1e-12)


def propagator(optimizer: dl.GradientDescent, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """What the rules of the reference make of every weight: d and a at each step."""
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), optimizer, steps)
    training, rows = train(problem, ()), []
    row = next(training)
    while row is not None:
        rows.append(row)
        row = training.send([])
    first = [(each.d[0], np.diag(each.X[0])[:steps]) for each in rows]
    return np.array([d for d, _ in first]), np.array([a for _, a in first])


def test_plain_descent_has_a_constant_propagator() -> None:
    d, a = propagator(dl.GradientDescent(lr=0.3), steps=4)
    np.testing.assert_array_equal(d, np.ones(4))
    np.testing.assert_array_equal(a, 0.3 * np.tri(4, k=-1))


def test_schedule_weighs_each_gradient_by_its_own_rate() -> None:
    _, a = propagator(dl.GradientDescent(lr=(0.1, 0.2, 0.4)), steps=3)
    np.testing.assert_array_equal(a, [[0, 0, 0], [0.1, 0, 0], [0.1, 0.2, 0]])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(optimizers(steps=6), st.integers(0, 2**32 - 1))
def test_propagator_sums_up_the_update_rule(optimizer: dl.GradientDescent, seed: int) -> None:
    G = np.random.default_rng(seed).standard_normal(6)
    W, m, weights = 1.7, 0.0, []
    for eta, force in zip(optimizer.rates(6), G, strict=True):
        weights.append(W)
        force = force - optimizer.weight_decay * W
        m = optimizer.momentum * m + force
        W += eta * (optimizer.momentum * m + force) if optimizer.nesterov else eta * m
    d, a = propagator(optimizer, 6)
    np.testing.assert_allclose(d * 1.7 + a @ G, weights, rtol=1e-12)


def test_lazy_infinite_width_is_refused() -> None:
    network = dl.MLP(depth=1, width="infinite", parameterization="ntk")
    problem = dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), 2)
    with pytest.raises(ValueError, match="gamma0 > 0"):
        reference(problem)


@pytest.mark.parametrize(
    "network", [dl.MLP(3, [0.5, 1.0, 2.0]), dl.ResNet(4, 0.8, branch=1.3), dl.MLP(2, "infinite")], ids=repr
)
def test_the_reference_is_a_solver_like_the_others(network, tmp_path):
    optimizer = dl.GradientDescent(0.03, weight_decay=0.3)
    problem = dl.Problem(network, dl.Isotropic(0.3, [[1.0, 0.3], [0.3, 0.5]]), dl.FullBatch(1.5), optimizer, 7)
    dense, slow = dl.solve(problem), dl.solve(problem, method="reference")
    assert slow.stats["method"] == slow.solver.name == "reference"
    for name in (*CURVES, *MATRICES):
        np.testing.assert_allclose(getattr(slow, name), getattr(dense, name), rtol=1e-10, atol=1e-12)
    slow.save(tmp_path / "slow.nc")
    again = dl.Solution.load(tmp_path / "slow.nc")
    assert again.solver == slow.solver
    np.testing.assert_array_equal(again.feature_correlation, slow.feature_correlation)
    with pytest.raises(ValueError, match='method="reference" does not keep what is needed here: solve with'):
        _ = again.variance


def test_what_the_reference_cannot_solve_is_refused():
    problem = dl.Problem(dl.ResNet(np.inf, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), 3)
    with pytest.raises(ValueError, match='method must be "dense" or "auto" at infinite depth, got "reference"'):
        dl.solve(problem, method="reference")
    lazy = problem.replace(network=dl.MLP(2, "infinite", parameterization="ntk"))
    with pytest.raises(ValueError, match=r'where gamma0 is zero \(NTK at infinite width\), got "reference"'):
        dl.solve(lazy, method="reference")
    data = dl.Spectrum([1.0, 0.5], [1.0, 1.0])
    small = problem.replace(network=dl.MLP(2, 9), data=data, sampling=dl.OnlineSGD(4, small_batch=True))
    with pytest.raises(ValueError, match='with small_batch, got "reference"'):
        dl.solve(small, method="reference")


@pytest.mark.parametrize("width", [0.3, 10.0])
def test_the_reference_loses_small_changes_of_centered_networks_and_says_so(width):
    """Its error is some 1e-14 of the variance of the initial function, 1 / (nu gamma0^2), that it subtracts."""
    network = dl.MLP(3, width, richness=1.01 / np.sqrt(3e4 * width), centered=True)
    problem = dl.Problem(network, dl.Isotropic(0.2), dl.FullBatch(2.0), dl.GradientDescent(0.05), 20)
    slow = dl.solve(problem, method="reference")
    np.testing.assert_allclose(slow.test_loss, dl.solve(problem).test_loss, rtol=1e-9)
    with pytest.raises(ValueError, match=r'for centered networks of so small a richness, .* got "reference"'):
        dl.solve(problem.replace(richness=0.98 * network.richness), method="reference")
    infinite = problem.replace(width="infinite", richness=1e-100)
    np.testing.assert_allclose(
        dl.solve(infinite, method="reference").test_loss, dl.solve(infinite).test_loss, rtol=1e-12
    )


EXPLODING = {
    "full batch": dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.2), dl.FullBatch(2.0), dl.GradientDescent(0.6), 24),
    "centered": dl.Problem(
        dl.MLP(3, 1.0, centered=True), dl.Isotropic(0.2), dl.Population(), dl.GradientDescent(0.5), 16
    ),
    "SAM": dl.Problem(dl.ResNet(2, 1.0), dl.Isotropic(0.2), dl.OnlineSGD(0.5), dl.SAM(0.5, 0.1), 16),
    "schedule-free": dl.Problem(
        dl.MLP(2, 1.8, 0.33, "standard"), dl.Isotropic(), dl.FullBatch(1.0), dl.ScheduleFree(1.07, 0.5), 14
    ),
    "phases": dl.Problem(
        dl.MLP(2, 1.0), dl.Isotropic(0.2), dl.FullBatch(2.0), dl.GradientDescent(0.05), 20,
        (dl.Phase(8), dl.Phase(12, 0.5, optimizer=dl.GradientDescent(0.8))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLODING)
def test_what_comes_before_an_explosion_is_known(name):
    """Large numbers do not reach rows before them, and there are none from the step of the divergence on."""
    problem = EXPLODING[name]
    fast, slow = (dl.solve(problem, method=method, averages=[dl.EMA(0.5)]) for method in ("dense", "reference"))
    end = fast.status.diverged_at
    assert slow.status == fast.status
    for curve in ("test_loss", "train_loss", "averaged_test_loss", "task_loss"):
        expected, found = (getattr(each, curve)[..., :end] for each in (fast, slow))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        assert np.isposinf(getattr(slow, curve)[..., end:]).all()
    np.testing.assert_allclose(slow.error_correlation, fast.error_correlation, rtol=1e-6)
