"""Weights that are only looked at wait for each other, and lose rounding by that, also where training diverges."""

from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from agreement import assert_close
from deeplinear._equations import aside
from deeplinear._solvers.reference import reference

FULL, NOISE = dl.FullBatch(2.0), dl.Isotropic(0.3)
AVERAGES = [dl.EMA(0.9), dl.TailMean(0.5)]
PLAIN = dl.Problem(dl.MLP(2, 1.0), NOISE, FULL, dl.GradientDescent(0.03), 41)
FREE = replace(PLAIN, optimizer=dl.ScheduleFree(0.03))
PHASES = (
    dl.Phase(11),
    dl.Phase(13, target_overlap=0.5, new_samples=True, noise=0.1, optimizer=dl.GradientDescent(0.03)),
    dl.Phase(17, sampling=dl.OnlineSGD(1.0)),
)
PROBLEMS = {
    "plain": PLAIN,
    "schedule-free": FREE,
    "small batches": replace(FREE, sampling=dl.MultiPassSGD(2.0, 0.5)),
    "fresh batches": replace(FREE, sampling=dl.OnlineSGD(0.5)),
    "two outputs": replace(FREE, data=dl.Isotropic(0.3, [[1.0, 0.3], [0.3, 0.5]])),
    "centered": replace(
        PLAIN, network=dl.MLP(2, 1.0, 0.3, centered=True), optimizer=dl.GradientDescent(0.03, weight_decay=0.1)
    ),
    "residual": replace(PLAIN, network=dl.ResNet(3, 1.0), optimizer=dl.GradientDescent(0.02, 0.5)),
    "SAM": replace(PLAIN, sampling=dl.MultiPassSGD(2.0, 0.5), optimizer=dl.SAM(0.03, 0.2)),
    "phases": replace(FREE, phases=PHASES),
}


def curves(solution):
    return np.stack([solution.test_loss, solution.train_loss, *solution.averaged_test_loss])


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_rows_that_wait_are_those_of_their_own_step(problem, monkeypatch):
    together = curves(dl.solve(problem, averages=AVERAGES, method="dense"))
    monkeypatch.setattr(aside, "_TOGETHER", 1)
    assert_close(curves(dl.solve(problem, averages=AVERAGES, method="dense")), together, 1e-13)


def test_training_does_not_feel_what_is_looked_at():
    averaged = dl.solve(PLAIN, averages=AVERAGES, method="dense")
    assert (averaged.test_loss == dl.solve(PLAIN, method="dense").test_loss).all()


GROWING = {
    "full batch": PLAIN,
    "drawn batches": replace(PLAIN, sampling=dl.MultiPassSGD(2.0, 0.5)),
    "fresh batches": replace(PLAIN, sampling=dl.OnlineSGD(0.5)),
    "drawn batches, two outputs": replace(PROBLEMS["two outputs"], sampling=dl.MultiPassSGD(2.0, 0.5)),
    "drawn batches, SAM": PROBLEMS["SAM"],
}


@pytest.mark.parametrize("lr", [0.8, 50.0, 1e9])
@pytest.mark.parametrize("problem", GROWING.values(), ids=GROWING)
def test_a_problem_that_diverges_while_others_go_on(problem, lr, monkeypatch):
    """Averages up to the divergence are known, and those of the other problem too."""
    problems = [problem, replace(problem, optimizer=replace(problem.optimizer, lr=lr))]
    together = dl.solve(problems, averages=AVERAGES, method="dense")
    monkeypatch.setattr(aside, "_TOGETHER", 1)
    one_by_one = dl.solve(problems, averages=AVERAGES, method="dense")
    end = np.isfinite(one_by_one[1].test_loss).sum()
    assert 0 < end < PLAIN.steps
    assert np.isfinite(together[1].averaged_test_loss).sum() == 2 * end
    assert_close(curves(together[0]), curves(one_by_one[0]), 1e-13)
    assert_close(curves(together[1])[:, :end], curves(one_by_one[1])[:, :end], 1e-13)


@pytest.mark.parametrize("sampling", [FULL, dl.OnlineSGD(2.0), dl.MultiPassSGD(2.0, 0.5)])
def test_a_loss_that_grows_does_not_feel_what_is_looked_at(sampling):
    """Once a loss has grown, a row is filled again after weights that waited have been looked at in its place."""
    problem = replace(PLAIN, sampling=sampling, optimizer=dl.GradientDescent(0.5))
    alone, averaged = dl.solve(problem), dl.solve(problem, averages=[dl.EMA(0.0), *AVERAGES])
    end = alone.status.diverged_at
    assert alone.test_loss[end - 1] > 1e3 * alone.test_loss[0]
    assert (averaged.test_loss == alone.test_loss).all()
    assert (averaged.train_loss == alone.train_loss).all()
    losses = averaged.averaged_test_loss[:, :end]
    assert_close(losses[0], alone.test_loss[:end], 1e-13)
    expected = reference(replace(problem, steps=end), AVERAGES)["averaged_test_loss"]
    assert np.abs(losses[1:] / expected - 1).max() < 1e-12


@pytest.mark.parametrize("steps", [2, 3, 8])
@pytest.mark.parametrize("rule", [dl.GradientDescent(0.02, weight_decay=1e-3), dl.ScheduleFree(1e160)])
def test_weights_that_overflow_leave_those_that_wait_with_them_alone(steps, rule):
    """Training diverges at step 1, whose weights no average before it has seen."""
    problem = replace(PLAIN, network=dl.MLP(1, 1.0, 1e-200, centered=True), optimizer=rule, steps=steps)
    found = dl.solve(problem, averages=[dl.EMA(0.0), *AVERAGES])
    assert found.status.diverged_at == 1
    assert_close(found.averaged_test_loss[:, 0], found.test_loss[0], 1e-13)
    assert np.isposinf(found.averaged_test_loss[:, 1:]).all()
