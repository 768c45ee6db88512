"""Searches and derivatives of long runs, whose past is condensed, against those of every step as it is."""

from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.condensed.run import CondensedRun
from deeplinear._theory.curves import choice_of_searches
from factories import maker

make = maker("sampling", depth=1, width=0.8, noise=0.3, sampling=dl.OnlineSGD(0.5), lr=0.02, steps=130)

CASES = {
    "online": {},
    "momentum": {"sampling": dl.FullBatch(2.0), "momentum": 0.4},
    "schedule": {"sampling": dl.MultiPassSGD(1.5, 0.5), "lr": dl.schedules.cosine(0.04, warmup=0.1)},
}


@pytest.fixture
def long(monkeypatch):
    """Let runs count as long from 60 steps on, when told to; what is returned has those that were condensed."""
    seen, fill = [], CondensedRun.fill

    def spy(run, progress=None):
        fill(run, progress)
        seen.append(run)

    def begin():
        monkeypatch.setattr("deeplinear._solvers.choose.SHORT_CURVE", 60)
        monkeypatch.setattr(CondensedRun, "fill", spy)
        return seen

    return begin


def are_condensed(runs):
    """Whether some runs took all steps, and kept fewer of them than there are."""
    return any(run.diverged_at < 0 and run.largest < 0.9 * run.problem.steps for run in runs)


SOME_SLOW = ["online", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "online")]


@pytest.mark.parametrize("name", SOME_SLOW)
def test_best_rates_are_those_of_the_dense_method(name, long):
    problem = make(**CASES[name])
    exact = dl.optimal_lr(problem)
    runs = long()
    found = dl.optimal_lr(problem)
    assert are_condensed(runs)
    assert found.lr == pytest.approx(exact.lr, rel=1e-8)
    assert found.loss == pytest.approx(exact.loss, rel=1e-12)
    assert found.curvature == pytest.approx(exact.curvature, rel=1e-5)
    assert (found.at_edge, found.is_resolved) == (exact.at_edge, exact.is_resolved)


@pytest.mark.parametrize("name", SOME_SLOW)
def test_stable_rates_are_those_of_the_dense_method(name, long):
    problem = make(**CASES[name])
    exact = dl.max_stable_lr(problem)
    runs = long()
    found = dl.max_stable_lr(problem)
    assert are_condensed(runs)
    assert (found.lr, found.unstable_lr) == pytest.approx((exact.lr, exact.unstable_lr), rel=1e-9)
    assert found.largest_lr == pytest.approx(exact.largest_lr, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_the_dense_method(name, long):
    problem, fields = make(**CASES[name]), ["lr", "width", "momentum", "noise"]
    exact = dl.sensitivity(problem, fields)
    runs = long()
    found = dl.sensitivity(problem, fields)
    assert are_condensed(runs)
    np.testing.assert_array_equal(found.times, exact.times)
    for field in fields:
        ours, theirs = found.d_test_loss[field], exact.d_test_loss[field]
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9 * np.abs(theirs).max(), err_msg=field)


def test_noisy_long_runs_are_fitted(long):
    problem = make()
    curve = dl.solve(problem).test_loss
    runs = long()
    found = dl.fit({"test_loss": curve}, problem.replace(noise=0.28), "noise")
    assert are_condensed(runs)
    assert found.values == pytest.approx({"noise": 0.3}, rel=1e-6)


@pytest.mark.parametrize(
    ("steps", "name", "of_two_times"),
    [(400, "dense", "dense"), (401, "condensed", "dense"), (1000, "condensed", "dense"), (1001, *["condensed"] * 2)],
)
def test_curves_are_condensed_where_that_is_faster(steps, name, of_two_times):
    problem = make(steps=steps)
    assert replace(choice_of_searches(), two_time=False).solver(problem).name == name
    assert replace(Choice("auto"), two_time=False).solver(problem).name == name
    assert Choice().solver(problem).name == name
    assert Choice().solver(problem).of_two_times.name == of_two_times


def test_searches_give_up_nothing_for_the_time_it_takes():
    """A past that does not condense is kept as it is, however many rows that takes."""
    problem = make(momentum=0.9, steps=10**5)
    assert choice_of_searches().solver(problem).most_rows == np.inf > Choice().solver(problem).most_rows
