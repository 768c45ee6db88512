"""Loss curves of many problems, of whose solutions nothing else is kept; fields may be complex."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.device import device_of_searches
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Answer
from deeplinear._solvers.choose import Choice, answers, batches
from deeplinear._solvers.dense import Dense
from deeplinear._time.axis import SpacedSteps, TimeAxis

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """Losses of one problem at every step, or at spaced ones for a long run, as the time axis has them.

    They are inf from a divergence on, and complex where a field of the problem is. From ``rounding_at`` on, rounding
    errors have grown into them.
    """

    axis: TimeAxis
    test_loss: Array
    train_loss: Array
    diverged_at: int | None
    rounding_at: int | None = None

    @property
    def times(self) -> NDArray[np.int64]:
        """Steps of the losses."""
        return self.axis.times

    def spaced(self) -> "Curve":
        """Return the losses at spaced steps."""
        if not self.axis.has_every_step:
            return self
        axis = SpacedSteps(len(self.times))
        test, train = self.test_loss[axis.times], self.train_loss[axis.times]
        return replace(self, axis=axis, test_loss=test, train_loss=train)

    def loss(self, objective: str) -> Array:
        """Return the test or the train loss."""
        return self.train_loss if objective == "train" else self.test_loss


def curves(
    problems: Sequence[Problem],
    choice: Choice | None = None,
    advance: Callable[[float], object] | None = None,
) -> list[Curve]:
    """Solve problems, and return their losses in the same order.

    Those of equal structure are solved in batches. A batch ends when all its problems have diverged, so it is best to
    have problems that diverge side by side.

    Parameters
    ----------
    problems
        Problems, whose fields may be complex.
    choice
        How they are solved; by default as in searches: every step, in long runs with a condensed past, since panels
        give up at rates near the edge of stability, where searches come; and on the device of the search.
    advance
        Called at every step with the number of solutions that it adds; they sum to the number of problems.

    Raises
    ------
    Unresolved
        If a run is not resolved, and too long to be solved step by step.
    """
    choice = replace(choice_of_searches() if choice is None else choice, two_time=False)
    found: dict[int, Curve] = {}
    for batch in batches(problems, choice):
        step = None if advance is None else _Advance(len(batch.members), advance)
        with np.errstate(over="ignore", invalid="ignore"):
            for members, solved in answers(problems, choice, [batch], step):
                found |= {index: _curve(problems[index], each) for index, each in zip(members, solved, strict=True)}
        if step is not None:
            step(1, 1)  # what diverges ends before its last step
    return [found[index] for index in range(len(problems))]


def choice_of_searches() -> Choice:
    """How searches solve their problems: every step, in long runs with a condensed past."""
    return Choice(only=("condensed", "dense"), hurries=False, device=device_of_searches())


class _Advance:
    """Turns the steps of a batch into solutions, each counted once even if a part of the batch is solved again."""

    def __init__(self, problems: int, advance: Callable[[float], object]) -> None:
        self._problems, self._advance = problems, advance
        self._done = 0.0

    def __call__(self, step: int, steps: int) -> None:
        before, self._done = self._done, max(self._done, self._problems * step / steps)
        self._advance(self._done - before)


def _curve(problem: Problem, answer: Answer) -> Curve:
    """Losses at every step, or at spaced ones of a run that was not solved at every step."""
    axis, losses = answer.axis, answer.curves
    if axis.has_every_step:
        return Curve(axis, losses.test_loss, losses.train_loss, answer.diverged_at, answer.rounding_at)
    spaced, end = SpacedSteps(problem.steps), answer.diverged_at
    times = spaced.times
    known = times if end is None else times[times < end]

    def at(curve: Array) -> Array:
        beyond = np.full(len(times) - len(known), np.inf, curve.dtype)
        return np.append(axis.at(curve, known), beyond)

    return Curve(spaced, at(losses.test_loss), at(losses.train_loss), end, answer.rounding_at)


def worth_batching(problem: Problem, most: int) -> int:
    """Return how many problems like this one are solved faster together than apart, at most ``most``."""
    return min(most, Dense(device=device_of_searches()).worth_batching(problem))
