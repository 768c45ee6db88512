"""Loss curves of many problems, of whose solutions nothing else is kept; fields may be complex."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import memory
from deeplinear._core.arrays import finite
from deeplinear._core.progress import Progress
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.coefficients import Structure
from deeplinear._problem.problem import Problem
from deeplinear._solvers.dense import dense_memory
from deeplinear._solvers.panels.solver import MOST_ROWS, Unresolved
from deeplinear._theory.solve import _CACHE, _batches, chosen_method, plan, run_dense, run_panels
from deeplinear._time.grid import spaced_steps

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """Losses of one problem at every step, or at those of ``spaced_steps`` for a long one, as given by ``times``.

    They are inf from a divergence on, and complex where a field of the problem is.
    """

    times: NDArray[np.int64]
    test_loss: Array
    train_loss: Array
    diverged_at: int | None

    def at(self, times: NDArray[np.int64]) -> "Curve":
        """Return the losses at some of the times."""
        kept = np.isin(self.times, times)
        return Curve(self.times[kept], self.test_loss[kept], self.train_loss[kept], self.diverged_at)

    def loss(self, objective: str) -> Array:
        """Return the test or the train loss."""
        return self.train_loss if objective == "train" else self.test_loss


def curves(
    problems: Sequence[Problem],
    tolerance: float = 1e-6,
    advance: Callable[[float], object] | None = None,
    *,
    by_panels: bool = False,
) -> list[Curve]:
    """Solve problems, and return their losses in the same order.

    They are solved step by step, those of equal structure in batches. A batch ends when all its problems have diverged,
    so it is best to have problems that diverge side by side.

    Parameters
    ----------
    problems
        Problems, whose fields may be complex.
    tolerance
        As for ``solve``.
    advance
        Called at every step with the number of solutions that it adds; they sum to the number of problems.
    by_panels
        Whether long runs are solved by panels where ``solve`` does so. Panels give up at rates near the edge of
        stability, so this is not for searches, which come there.

    Raises
    ------
    Unresolved
        If panels give up a run that is too long to be solved step by step.
    """
    found: dict[int, Curve] = {}

    def solve(members: list[int], solver: Callable[[Progress | None], list[Curve]]) -> None:
        step = None if advance is None else _Advance(len(members), advance)
        found.update(zip(members, solver(step), strict=True))
        if step is not None:
            step(1, 1)  # what diverges ends before its last step

    long = [index for index, problem in enumerate(problems) if by_panels and chosen_method(problem) == "panels"]
    short = [index for index in range(len(problems)) if index not in long]
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for shape, positions in _batches([problems[index] for index in short]):
            members = [short[position] for position in positions]
            batch = [problems[index] for index in members]
            solve(members, partial(_solve_batch, batch, shape, tolerance))
        for index in long:
            solve([index], partial(_solve_long, problems[index], tolerance))
    return [found[index] for index in range(len(problems))]


class _Advance:
    """Turns the steps of a batch into solutions, each counted once even if a part of the batch is solved again."""

    def __init__(self, problems: int, advance: Callable[[float], object]) -> None:
        self._problems, self._advance = problems, advance
        self._done = 0.0

    def __call__(self, step: int, steps: int) -> None:
        before, self._done = self._done, max(self._done, self._problems * step / steps)
        self._advance(self._done - before)


def _solve_batch(batch: list[Problem], shape: Structure, tolerance: float, step: Progress | None) -> list[Curve]:
    """Solve a batch; if its problems cannot be resolved together in depth, in halves."""
    # Twice, since what is complex takes twice the memory.
    memory.require(2 * dense_memory(shape, len(batch)), "solving", "lower steps or outputs")
    try:
        dense, _ = run_dense(batch, shape, tolerance, step)
    except ArithmeticError:
        if len(batch) == 1:
            raise
        half = len(batch) // 2
        parts = (batch[:half], batch[half:])
        return [curve for part in parts for curve in _solve_batch(part, shape, tolerance, step)]
    test = dense.loss_curve(slice(0, shape.steps))
    train = test.copy() if dense.train_losses is None else dense.train_losses
    found = []
    for position, end in enumerate(dense.diverged_at.tolist()):
        found.append(_curve(np.arange(shape.steps), test[position], train[position], end))
    return found


def _solve_long(problem: Problem, tolerance: float, step: Progress | None) -> list[Curve]:
    """Solve one problem by panels; if they give up and steps are not too many, step by step."""
    shape = plan(problem)
    try:
        panels, _ = run_panels(problem, shape, tolerance, step)
    except Unresolved:
        if shape.size > MOST_ROWS:
            raise
        (curve,) = _solve_batch([problem], shape, tolerance, step)
        return [curve.at(spaced_steps(problem.steps - 1))]
    times, equations, grid = spaced_steps(problem.steps - 1), panels.equations, panels.grid
    to_steps = grid.interpolation(np.minimum(times, grid.end))  # which is where a run that diverges ends
    test = to_steps @ finite(equations.loss_curve(slice(0, len(grid)))[0])
    train = test.copy() if equations.train_losses is None else to_steps @ finite(equations.train_losses[0])
    return [_curve(times, test, train, int(panels.diverged_at[0]))]


def _curve(times: Array, test: Array, train: Array, end: int) -> Curve:
    """Cut losses at the step of a divergence, -1 if there is none."""
    if end >= 0:
        test[times >= end] = train[times >= end] = np.inf
    return Curve(times, test, train, None if end < 0 else end)


def worth_batching(problem: Problem, most: int) -> int:
    """Return how many problems like this one are solved faster together than apart, at most ``most``."""
    return min(most, max(1, int(_CACHE / dense_memory(plan(problem), 1))))
