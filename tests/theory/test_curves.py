"""Loss curves of many problems at once."""

import math

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._problem.edit import replace
from deeplinear._solvers.choose import Choice
from deeplinear._theory.curves import curves, worth_batching
from factories import maker

LONG = Choice(only=("panels", "dense"), most_rows=2400, patience=math.inf)


make = maker("network", "lr", "steps", noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=6)


def test_problems_of_any_shape_keep_their_order():
    problems = [make(network, lr) for lr in (0.02, 3.0) for network in (dl.MLP(2, 1.0), dl.ResNet(3, 0.5))]
    for problem, curve in zip(problems, curves(problems), strict=True):
        solution = dl.solve(problem)
        np.testing.assert_allclose(curve.test_loss, solution.test_loss, rtol=1e-13)
        np.testing.assert_allclose(curve.loss("train"), solution.train_loss, rtol=1e-13)
        assert curve.diverged_at == solution.status.diverged_at


def test_stable_and_unstable_networks_of_infinite_depth_are_solved_together():
    problem = replace(make(dl.ResNet(math.inf, 1.0)), {"sampling": dl.Population()})
    problems = [replace(problem, {"lr": lr}) for lr in (0.02, 0.25, 2.0)]
    found = curves(problems)
    assert [curve.diverged_at is None for curve in found] == [True, True, False]
    for each, curve in zip(problems[:2], found, strict=False):
        np.testing.assert_allclose(curve.test_loss, dl.solve(each).test_loss, rtol=1e-6)


def test_advance_sums_to_the_number_of_problems():
    problems = [make(dl.MLP(2, 1.0), lr) for lr in (0.02, 0.05)] + [make(dl.MLP(3, 1.0), 100.0, steps=60)]
    parts = []
    curves(problems, advance=parts.append)
    assert sum(parts) == pytest.approx(3)
    assert len(parts) > 6  # every step
    assert min(parts) >= 0


def test_large_problems_are_not_batched():
    assert worth_batching(make(dl.MLP(3, 1.0), steps=10), 8) == 8
    assert worth_batching(make(dl.MLP(3, 1.0), steps=1000), 8) == 1


def test_what_does_not_fit_into_memory_is_refused():
    with pytest.raises(MemoryError, match="solving needs about"):
        curves([make(dl.MLP(3, 1.0), steps=100_000)], Choice("dense"))


def test_long_runs_can_be_solved_by_panels():
    problem = make(dl.MLP(1, 1.0), lr=0.01, steps=1100)
    (curve,), solution = curves([problem], choice=LONG), dl.solve(problem)
    assert solution.stats["method"] == "panels"
    assert (curve.times[0], curve.times[-1]) == (0, problem.steps - 1)
    expected = solution.at(curve.times)
    np.testing.assert_allclose(curve.test_loss, expected.test_loss, rtol=1e-12)
    np.testing.assert_allclose(curve.train_loss, expected.train_loss, rtol=1e-12, atol=1e-12)


def test_long_and_short_runs_keep_their_order():
    problems = [make(dl.MLP(1, 1.0), lr=0.01, steps=steps) for steps in (1100, 10, 1050)]
    parts = []
    assert [curve.times[-1] for curve in curves(problems, advance=parts.append, choice=LONG)] == [1099, 9, 1049]
    assert sum(parts) == pytest.approx(3)


def test_a_long_run_at_the_edge_of_stability_is_not_made_up():
    # The kernel of rich features grows until the rate is too high for it.
    data = dl.Spectrum.power_law(1.5, 0.5)
    problem = dl.Problem(dl.MLP(1, "infinite", 5.0), data, dl.Population(), dl.GradientDescent(0.05), 20_000)
    with pytest.raises(ArithmeticError, match="edge of stability"):
        curves([problem], choice=LONG)


def test_a_long_run_that_diverges_ends_there():
    problem = make(dl.MLP(2, 1.0), lr=0.4, steps=3000)
    (curve,), solution = curves([problem], choice=LONG), dl.solve(replace(problem, {"steps": 300}))
    assert solution.status.diverged
    assert curve.diverged_at == solution.status.diverged_at
    assert np.isfinite(curve.test_loss[curve.times < curve.diverged_at]).all()
    assert np.isposinf(curve.test_loss[curve.times >= curve.diverged_at]).all()
