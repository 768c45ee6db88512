"""A recorded step fills what Python fills, for any problem whose steps are recorded."""

from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.arrays import computing
from deeplinear._equations import filler
from deeplinear._equations.coefficients import coefficients
from deeplinear._equations.program import compiled
from deeplinear._equations.recorder import recorded
from deeplinear._equations.recording import NotRecordable, Recorded, recording
from deeplinear._solvers import dense
from needs import need
from strategies import on_random, problems, programs

if compiled is None:
    need("compiled", False, "recorded steps need compiled products")

STEPS = 24


def filled(some: list[dl.Problem], at_least: int) -> tuple[list[Any], bool]:
    """Return all functions that a run fills, with steps recorded from so many on, and whether they were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filler, "_FEW", at_least)
        run = dense.DenseRun(some, coefficients(some))
        with computing(run.equations.c.gamma0):
            run.fill()
        room = run.equations.room
        was_recorded = any(program is not None for program in filler._programs.values())
    return [each.matrix for each in room.two_time] + [each.array for each in room.series_of_time], was_recorded


def difference(some: list[dl.Problem]) -> float:
    """Return the largest difference of recorded steps from steps of Python, in units of the largest entry."""
    filler._programs.clear()
    ours, was_recorded = filled(some, 1)
    assert was_recorded
    theirs, _ = filled(some, 10**9)
    return max(float(abs(x - y).max() / (abs(y).max() + 1e-300)) for x, y in zip(ours, theirs, strict=True) if x.size)


def problem(**changes: Any) -> dl.Problem:
    base = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), STEPS)
    return base.replace(**changes)


TWO = [[1.0, 0.2], [0.2, 1.0]]
SPECTRUM = dl.Spectrum([2.0, 0.5], [0.3, 0.7], noise=0.2)
CASES = {
    "mlp": {},
    "one layer": {"network": dl.MLP(1, 0.5)},
    "infinitely wide": {"network": dl.MLP(3, "infinite")},
    "unequal widths": {"network": dl.MLP(3, [0.5, 2.0, 1.0])},
    "residual": {"network": dl.ResNet(3, 1.0)},
    "centered": {"network": dl.MLP(2, 1.0, centered=True), "optimizer": dl.GradientDescent(0.03, weight_decay=0.1)},
    "centered residual": {"network": dl.ResNet(3, 1.0, centered=True)},
    "online": {"sampling": dl.OnlineSGD(0.5)},
    "online with a growing batch": {"sampling": dl.OnlineSGD(dl.schedules.linear(0.5, end=1.0))},
    "multi-pass": {"sampling": dl.MultiPassSGD(2.0, 0.5)},
    "population": {"sampling": dl.Population()},
    "modes": {"data": SPECTRUM},
    "modes and small batches": {"data": dl.Spectrum.power_law(1.5, 1.0, 8), "sampling": dl.OnlineSGD(5)},
    "two outputs": {"data": dl.Isotropic(0.3, TWO)},
    "two outputs, drawn": {"data": dl.Isotropic(0.3, TWO), "sampling": dl.MultiPassSGD(2.0, 0.5)},
    "two outputs, residual, centered": {"data": dl.Isotropic(0.3, TWO), "network": dl.ResNet(2, 1.0, centered=True)},
    "momentum and decay": {"optimizer": dl.GradientDescent(0.02, momentum=0.8, nesterov=True, weight_decay=0.1)},
    "rates by layer": {"optimizer": dl.GradientDescent(0.03, layer_lr=[1.0, 0.5, 2.0])},
    "clipped": {"optimizer": dl.GradientDescent(0.03, clip=0.5)},
    "normalised": {"optimizer": dl.NormalizedDescent(0.01)},
    "a schedule": {"optimizer": dl.GradientDescent(dl.schedules.cosine(0.05))},
}


@pytest.mark.parametrize("name", CASES)
def test_recorded_steps_are_those_of_python(name):
    one = problem(**CASES[name])
    assert difference([one]) < 1e-12
    assert difference([one.replace(lr=factor) for factor in (0.005, 0.01, 0.015)]) < 1e-12  # as one batch


@on_random(problems(), 12, 200)
def test_recorded_steps_of_random_problems(any_problem):
    assert difference([any_problem]) < 1e-11


def test_derivatives_by_complex_numbers(monkeypatch):
    ours = dl.sensitivity(problem(), "lr").test_loss
    monkeypatch.setattr(filler, "_FEW", 10**9)
    np.testing.assert_allclose(ours, dl.sensitivity(problem(), "lr").test_loss, rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_first_rows_are_recorded_too(steps):
    assert difference([problem(steps=steps)]) < 1e-14


@on_random(programs(), 10, 100)
def test_what_cannot_be_recorded_is_left_to_python(program):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filler, "_FEW", 1)
        ours = dl.solve(program, method="dense")
    theirs = dl.solve(program, method="dense")
    np.testing.assert_allclose(ours.test_loss, theirs.test_loss, rtol=1e-9)


def test_equal_problems_have_equal_answers_whatever_was_solved_before():
    filler._programs.clear()
    first = dl.solve(problem(), method="dense").test_loss
    assert (dl.solve(problem(), method="dense").test_loss == first).all()
    together = dl.solve([problem(lr=0.01), problem()], method="dense")[1].test_loss
    assert (together == first).all()


def test_the_number_of_cores_changes_no_bit(monkeypatch):
    some = [problem(lr=0.001 * (1 + i), steps=120) for i in range(12)]
    losses = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("deeplinear._core.threads.count_cores", lambda cores=cores: cores)
        losses.append([each.test_loss for each in dl.solve(some, method="dense")])
    assert np.array_equal(losses[0], losses[1])
    assert np.array_equal(losses[0], losses[2])


class OfValues:
    """Equations that look at a value."""

    def __init__(self, c, room):
        self.function = room.causal(1)

    def fill(self, rows):
        row = self.function[rows]
        self.function[rows] = row if (row > 0).all() else -row


class OfSquares(OfValues):
    """Equations whose places are not linear in the row."""

    def fill(self, rows):
        self.function.matrix[..., rows, : 1 + rows.stop**2 // 30] += 1.0


@pytest.mark.parametrize("kind", [OfValues, OfSquares])
def test_what_is_no_fixed_list_is_refused(kind):
    with pytest.raises((NotRecordable, TypeError)):
        recorded(coefficients([problem()]), kind)


@pytest.mark.parametrize("ask", [bool, float, np.asarray, lambda x: x[x != 0], lambda x: x**3], ids=range(5))
def test_values_are_refused(ask):
    with recording(), pytest.raises((NotRecordable, IndexError)):
        ask(Recorded.of_shape((3,)))
