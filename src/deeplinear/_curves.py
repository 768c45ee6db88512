"""Loss curves of many problems, of whose solutions nothing else is kept; fields may be complex."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear import _memory
from deeplinear._coefficients import Structure
from deeplinear._dense import dense_memory
from deeplinear._problem import Problem
from deeplinear._solve import _CACHE, Progress, _batches, plan, run_dense
from deeplinear._threads import one_blas_thread

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """Losses of one problem, shape (T,): inf from a divergence on, complex where a field of the problem is."""

    test_loss: Array
    train_loss: Array
    diverged_at: int | None

    def loss(self, objective: str) -> Array:
        """Return the test or the train loss."""
        return self.train_loss if objective == "train" else self.test_loss


def curves(
    problems: Sequence[Problem], tolerance: float = 1e-6, advance: Callable[[float], object] | None = None
) -> list[Curve]:
    """Solve problems, those of equal structure in batches, and return their losses in the same order.

    A batch ends when all its problems have diverged, so it is best to have problems that diverge side by side.

    Parameters
    ----------
    problems
        Problems, whose fields may be complex.
    tolerance
        As for ``solve``.
    advance
        Called at every step with the number of solutions that it adds; they sum to the number of problems.
    """
    found: dict[int, Curve] = {}
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for shape, members in _batches(list(problems)):
            # Twice, since what is complex takes twice the memory.
            _memory.require(2 * dense_memory(shape, len(members)), "solving", "lower steps or outputs")
            step = None if advance is None else _Advance(len(members), advance)
            solved = _solve_batch([problems[index] for index in members], shape, tolerance, step)
            found |= dict(zip(members, solved, strict=True))
            if step is not None:
                step(1, 1)  # a batch that diverges ends before its last step
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
        cut = slice(end if end >= 0 else shape.steps, None)
        test[position, cut] = train[position, cut] = np.inf
        found.append(Curve(test[position], train[position], None if end < 0 else end))
    return found


def worth_batching(problem: Problem, most: int) -> int:
    """Return how many problems like this one are solved faster together than apart, at most ``most``."""
    return min(most, max(1, int(_CACHE / dense_memory(plan(problem), 1))))
