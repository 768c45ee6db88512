"""Weights that are only looked at wait for each other, and lose rounding by that, also where training diverges."""

from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from agreement import assert_close
from deeplinear._equations import aside

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


@pytest.mark.parametrize("lr", [0.5, 50.0, 1e9])
def test_a_problem_that_diverges_while_others_go_on(lr, monkeypatch):
    """Averages up to the divergence are known, and those of the other problem too."""
    problems = [PLAIN, replace(PLAIN, optimizer=dl.GradientDescent(lr))]
    together = dl.solve(problems, averages=AVERAGES, method="dense")
    monkeypatch.setattr(aside, "_TOGETHER", 1)
    one_by_one = dl.solve(problems, averages=AVERAGES, method="dense")
    end = np.isfinite(one_by_one[1].test_loss).sum()
    assert 0 < end < PLAIN.steps
    assert np.isfinite(together[1].averaged_test_loss).sum() == 2 * end
    assert_close(curves(together[0]), curves(one_by_one[0]), 1e-13)
    assert_close(curves(together[1])[:, :end], curves(one_by_one[1])[:, :end], 1e-13)
