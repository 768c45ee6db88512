"""How far a piece of work is, and whether it would end in time."""

import bisect
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._cost.estimate import estimate_every_step
from deeplinear._cost.model import longest_short, method_of_two_times, numbers_of_solving
from deeplinear._explore.problems import is_quick

LONGEST = 600.0
"""Seconds after which theory is ended."""

DENSE = 3.0
"""The time spent grows as this power of the steps done, since each step reads what all earlier steps wrote."""

_BETWEEN_REPORTS = 0.1

_SOON, _FIRST = 0.135, 0.06
"""Seconds within which a curve follows a control, and what the first steps may take of a run that does not."""

_FEWEST = 8
"""Steps that are worth drawing before the rest."""


class Report(Protocol):
    """Tells the page how far the work is."""

    def __call__(self, **message: Any) -> None: ...


def steps(
    report: Report, stage: str, *, power: float = 1.0, estimate: float | None = None, then: float | None = 0.0
) -> Callable[[int, int], None]:
    """Return a ``progress`` for the library; work done goes as the steps done to some power.

    What is left is what the page waits for: that of this stage, and the seconds of what comes ``then``; nothing is said
    of it where these are not known.
    """
    start, last = time.monotonic(), 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        message: dict[str, Any] = {}
        if now - last > _BETWEEN_REPORTS or done == total:
            last = now
            part = (done / total) ** power
            left = (now - start) * (1 / part - 1) if part > 0.05 else estimate and estimate * (1 - part)
            message = {"stage": stage, "part": part, "left": None if left is None or then is None else left + then}
        report(**message)

    return progress


class Pace:
    """How fast this process solves, learned from each run."""

    def __init__(self) -> None:
        self.seconds_per_number = 4e-10

    def learn(self, problem: dl.Problem, seconds: float) -> None:
        """Take the time of a run into account."""
        self.seconds_per_number = (self.seconds_per_number + seconds / numbers_of_solving(problem)) / 2

    def is_soon(self, problem: dl.Problem) -> bool:
        """Whether a problem will be solved while a control is being moved."""
        is_short = problem.steps <= longest_short(problem.data.outputs)
        return is_short and self.seconds_per_number * numbers_of_solving(problem) <= _SOON

    def first_steps(self, problem: dl.Problem) -> int:
        """Number of steps to solve before all of them; all where these come soon, or where too few would."""
        if self.is_soon(problem):
            return problem.steps
        short = problem.first(min(problem.steps, longest_short(problem.data.outputs)))
        numbers = _FIRST / self.seconds_per_number
        found = bisect.bisect(range(1, short.steps), numbers, key=lambda steps: numbers_of_solving(short.first(steps)))
        return found if found >= _FEWEST else problem.steps


PACE = Pace()


def solve_with(
    problem: dl.Problem,
    report: Report,
    averages: Sequence[dl.EMA | dl.TailMean] = (),
    *,
    two_time: bool = False,
) -> dl.Solution:
    """Solve a problem, with averages of its weights and functions of two times, unless that would take too long."""
    method = method_of_two_times(problem) if two_time else "auto"
    estimate = refuse_if_long(problem, report, every_step=method == "dense")
    seconds, dense = (None, True) if estimate is None else (estimate.theory.seconds, estimate.method == "dense")
    progress = steps(report, "solving", power=DENSE if dense and estimate else 1.0, estimate=seconds)
    theory = dl.solve(problem, method=method, progress=progress, averages=averages)
    if theory.stats["method"] == "dense":
        PACE.learn(problem, theory.stats["seconds"])
    return theory


def refuse_if_long(
    problem: dl.Problem,
    report: Report,
    runs: int = 1,
    call: str = "dl.optimal_lr",
    *,
    always: bool = False,
    every_step: bool = False,
) -> dl.Estimate | None:
    """Refuse what would not end in time or not fit; what is quick is not estimated, unless it ``always`` is.

    Many runs are those of a search, or of a look at each of many steps; ``call`` does the same in Python. Where
    ``every_step`` is solved as it is, that is estimated even if the losses alone are found sooner.
    """
    if is_quick(problem) and not always:
        return None
    report(stage="estimating the time")
    estimate, most = dl.estimate(problem), longest_short(problem.data.outputs)
    if runs > 1 and problem.steps > most and estimate.method != "dense":
        text = (
            f"steps is too large for this view, got {problem.steps}: it solves about {runs} runs. "
            f"Lower the steps to {most}, or call {call} in Python."
        )
        raise Refusal("steps", problem.steps, f"at most {most}", text=text)
    if every_step:
        estimate = estimate_every_step(problem)
    if runs * estimate.theory.seconds > LONGEST or not estimate.fits:
        often = f" for each of about {runs} runs" if runs > 1 else ""
        text = (
            f"steps is too large here: {estimate}{often}, and this page stops after {LONGEST:.0f} s. "
            "Lower the steps or the depth."
        )
        raise Refusal("steps", problem.steps, "lower", text=text)
    return estimate
