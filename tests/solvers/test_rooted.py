"""Correlations that are kept by their roots: the same equations, and runs in which rounding errors would grow."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._equations.coefficients import coefficients
from deeplinear._solvers.dense import Dense, DenseRun
from factories import maker

make = maker("optimizer", "sampling", "network", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), steps=60)

TWO = dl.Spectrum([1.5, 0.5], [1.0, 1.0], [0.4, 0.6], proportional=True, noise=0.2)
GRAM = [[1.0, 0.2], [0.2, 0.5]]
SAME = {
    "plain": make(dl.GradientDescent(0.05, momentum=0.5, weight_decay=0.3)),
    "unlimited": make(dl.SAM(0.05, 0.1), dl.Population()),
    "several outputs": make(dl.SAM(0.03, 0.1), gram=GRAM, network=dl.MLP(3, [0.5, 2.0, 1.0], 0.7)),
    "modes": make(dl.NormalizedDescent(0.05), data=TWO, network=dl.MLP(2, 1.0, centered=True, parameterization="ntk")),
    "multi-pass": make(dl.GradientDescent(0.05), dl.MultiPassSGD(2.0, 0.5), data=TWO),
    "online": make(dl.GradientDescent(0.05, clip=0.5), dl.OnlineSGD(0.5)),
    "residual": make(dl.SAM(0.02, 0.1), network=dl.ResNet(3, 1.5, branch=0.8)),
    "centered, decaying": make(
        dl.GradientDescent(0.05, weight_decay=0.4), gram=GRAM, network=dl.ResNet(3, 0.7, centered=True)
    ),
    "schedule-free": make(dl.ScheduleFree(0.1)),
    "Muon": make(dl.Muon(0.05, momentum=0.5), network=dl.MLP(3, 1.0)),
    "new target": make(dl.GradientDescent(0.05), steps=12, phases=[dl.Phase(6), dl.Phase(6, 0.5, new_samples=False)]),
}


@pytest.mark.parametrize("name", SAME)
def test_roots_give_the_same_curves(name):
    problem = SAME[name].first(12)
    assert Dense(roots=True).why_no_roots(problem) is None
    averages = [dl.EMA(0.5)]
    entries, roots = (Dense(roots=roots, averages=averages).solve([problem])[0] for roots in (False, True))
    for curve, expected in entries.curves._asdict().items():
        np.testing.assert_allclose(getattr(roots.curves, curve), expected, rtol=1e-10, atol=1e-13, err_msg=curve)
    np.testing.assert_allclose(roots.averaged_test_loss, entries.averaged_test_loss, rtol=1e-10)
    np.testing.assert_allclose(roots.task_loss, entries.task_loss, rtol=1e-10)


def filled(problem, *, roots):
    run = DenseRun([problem], coefficients([problem]), roots=roots)
    run.fill()
    return run


def test_a_correlation_is_the_square_of_its_root():
    correlation = filled(SAME["residual"], roots=True).equations.chain.Cg_first
    C, Z = correlation.matrix[0], correlation.Z[0]
    np.testing.assert_allclose(Z @ Z.T, C, atol=1e-14 * np.abs(C).max())
    assert not np.triu(Z, 1).any()


BOUNDED = make(dl.SAM(0.05, 0.05))
"""Directions that have been trained away become unstable once gradients are small, at step 24, and are then bounded by
what they add to the gradient."""


def test_what_rounding_errors_blew_up_goes_on_as_in_networks():
    """Of entries it blows up, or is off, from step 36 on: responses grow to 2e6. Roots lose 1e-16 times that."""
    entries, solution = filled(BOUNDED, roots=False), dl.solve(BOUNDED)
    losses = entries.test_losses(np.arange(60))[:, 0]
    assert entries.diverged_at[0] >= 0 or np.abs(losses / solution.test_loss - 1).max() > 0.01
    assert solution.solver.roots
    assert solution.status == dl.Status()
    networks = dl.simulate(BOUNDED, dim=10**9, seeds=2, method="reduced").test_loss
    assert np.abs(solution.test_loss[36:] / solution.test_loss[35:-1] - 1).max() > 0.01  # it shows that it is bounded
    np.testing.assert_allclose(networks.mean(axis=0), solution.test_loss, rtol=2e-4)


@pytest.mark.slow
def test_the_whole_run_of_sharpness_aware_minimisation():
    """What it depends on rounding for is 1e-3 of its loss."""
    problem = make(dl.SAM(0.01, 0.05), steps=420)
    solution = dl.solve(problem)
    assert not solution.status.diverged
    assert solution.status.rounding_at > 340
    networks = dl.simulate(problem, dim=10**9, seeds=2, method="reduced").test_loss
    np.testing.assert_allclose(networks.mean(axis=0), solution.test_loss, rtol=2e-3)


@pytest.mark.parametrize("number", range(3))
def test_late_instabilities_are_the_same_whatever_the_last_digit_is(number):
    """A rate that jumps above the edge of stability, at random: it does not depend on it as far as is said."""
    rng = np.random.default_rng(number)
    rates = np.repeat([0.05, rng.uniform(0.28, 0.32)], [100 + 20 * number, 60])
    network = dl.MLP(1, rng.uniform(0.8, 1.2), rng.uniform(0.8, 1.2))
    problem = make(dl.GradientDescent(rates), network=network, steps=len(rates))
    solution, nudged = dl.solve([problem, problem.replace(richness=network.richness * (1 + 1e-14))])
    assert solution.solver.roots
    end = solution.status.rounding_at or problem.steps
    assert end > 100 + 20 * number + 20
    np.testing.assert_allclose(nudged.test_loss[:end], solution.test_loss[:end], rtol=1e-6)


def test_what_has_no_roots_says_why():
    assert "small_batch" in Dense(roots=True).why_no_roots(make(dl.SAM(0.05, 0.05), dl.OnlineSGD(0.5)))
    assert "outputs" in Dense(roots=True).why_no_roots(make(dl.GradientDescent(0.05), dl.OnlineSGD(0.5), gram=GRAM))
    assert "steps" in Dense(roots=True).why_no_roots(make(dl.GradientDescent(0.05), steps=3000))
