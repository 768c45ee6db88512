"""Long runs of stochastic gradient descent, through fewer and larger steps.

The noise of drawn batches is white: correlations have a kink at equal times, so that no polynomial, and no panel,
follows them. But where training changes little from step to step, m steps of rate lr on batches of B examples are
nearly one step of rate m lr on a batch of m B. What is left is a power series in m. A few such runs are solved, step
by step, and extrapolated to m = 1: to the run that was asked for, not to its limit of continuous time. The first
steps, in which training changes fastest, are solved as they are.

The time in which noise is forgotten, 1 / (lr times the largest eigenvalue of the kernel), does not grow as training
goes on, so the number of steps to solve grows as lr * steps. Near the edge of stability every step counts, and
nothing is gained.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.dataset import LOSSES
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._problem.problem import Problem
from deeplinear._solvers import depth
from deeplinear._solvers.base import Answer, Curves, Solver, Unresolved, Work, not_plain
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.rounding import LOSS_FLOOR
from deeplinear._time import axis as axes
from deeplinear._time.axis import spline

Array = NDArray[Any]

EXACT = 256
"""Steps at the start that are solved as they are."""

_GROUPS = ((4, 8), (2, 4, 6, 8), (2, 3, 4, 6, 8))
"""Steps of each run between two times that all runs share. Runs of the first groups share more times than that, which
lets a first, large correction of the finest run be found there, before the small rest."""

_RUNS, _FINEST = _GROUPS[-1], _GROUPS[-1][-1]

_JOINT = 32
"""Steps at the end of these in which what is extrapolated is compared with them."""

_FEWEST = 16
"""Shared times of the first attempt."""

_MOST_ROWS = 4000
"""Steps times outputs of the finest run at which to give up."""

_ALL_RUNS = 2.5
"""Cost of all runs, in units of the finest."""

_MORE = 1.25
"""Steps that the finest run may have, in units of what is foreseen: there must be memory for these."""

_GAIN = 0.7
"""Nothing is gained if the finest run has this fraction of all steps."""


@dataclass(frozen=True)
class MergedSteps(Solver):
    """Solve long runs of stochastic gradient descent by larger steps, extrapolated to those of the run.

    Attributes
    ----------
    tolerance
        Relative error of the losses.
    device
        Where the matrices live.
    """

    name: ClassVar[str] = "coarse"
    tolerance: float = 1e-6
    device: Device = CPU

    @property
    def error_in_time(self) -> float:
        """Relative error of the losses."""
        return self.tolerance

    def why_not(self, problem: Problem) -> str | None:
        """Steps are merged where they are alike, and many."""
        if problem.phases:
            return "with phases"
        if not problem.sampling.subsamples:
            return "where no batches are drawn"
        if reason := not_plain(problem):
            return reason
        if problem.optimizer.has_schedule or problem.sampling.changes_in_time:
            return "with a schedule"
        if problem.steps <= 2 * EXACT:
            return f"for {2 * EXACT} steps or fewer"
        return None

    def estimate(self, problem: Problem) -> Work:
        """The finest run needs more steps the more relaxation times of the first kernel, and decades of loss, it has.

        Losses fall to the label noise, and below a fraction of the initial one they need not be accurate. The law is
        one through what runs of 2000 to 100 000 steps have needed, and right to about a quarter; the time then to about
        a factor of two.
        """
        start = Dense(depth_nodes=depth.likely_nodes(problem), device=self.device)  # enough for an estimate
        first = start.solve([replace(problem, steps=1)])[0].curves
        times = float(_rate(problem, float(first.kernel[0]))) * problem.steps
        noise = max(float(problem.label_noise[0]) / max(float(first.test_loss[0]), 1e-300), LOSS_FLOOR)
        decades = max(0.0, -math.log10(max(noise, _remaining(problem, times))))
        steps = max(EXACT, _FEWEST * _FINEST, round((12 + 6 * decades) * times**0.8 * problem.steps**0.15))
        shape = replace(self._dense.shape(problem), steps=min(problem.steps, steps))
        longer = replace(shape, steps=max(EXACT, min(self.most_steps(problem), round(_MORE * shape.steps))))
        return Work(
            shape, depth.passes(shape) * _ALL_RUNS, round(depth.most_nodes(problem, longer) * system.memory(longer))
        )

    def most_steps(self, problem: Problem) -> int:
        """Return the steps of a finest run beyond which this gives up."""
        return max(1, int(min(_GAIN * problem.steps, _MOST_ROWS / problem.data.outputs)))

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems one by one."""
        return [self._solve(problem, progress or _silent) for problem in problems]

    @property
    def _dense(self) -> Dense:
        return Dense(self.tolerance, device=self.device)

    def _solve(self, problem: Problem, progress: Progress) -> Answer:
        """Solve a run with finer and finer steps; each attempt counts half of the progress that is left."""
        started = time.perf_counter()
        (start,) = self._dense.solve([replace(problem, steps=EXACT)])
        if start.diverged_at is not None:
            return self._answer(start, problem, started, 0, start.curves, 0.0)
        # The largest steps, of the coarsest run, must be stable to be of any use.
        rate = float(_rate(problem, float(start.curves.kernel.max())))
        start = replace(start, run=None)  # whose matrices would be kept
        count, error, left = max(_FEWEST, math.ceil(rate * problem.steps / (2 * _RUNS[0]))), math.inf, 1.0
        while True:
            self._check_size(problem, count, error)

            def attempt(part: float, left: float = left) -> None:
                progress(round((1.0 - left + 0.5 * left * part) * problem.steps), problem.steps)

            curves, error = _extrapolated(problem, count, self._dense, attempt)
            if math.isfinite(error):
                error = max(error, _error_at_the_joint(problem, start.curves, curves))
            if error <= self.tolerance:
                break
            left *= 0.5
            growth = 1.2 * (error / self.tolerance) ** (1 / len(_RUNS)) if np.isfinite(error) else 2.0
            count = math.ceil(count * min(max(growth, 1.3), 2.5))
        progress(problem.steps, problem.steps)
        return self._answer(start, problem, started, count * _FINEST, curves, error)

    def _check_size(self, problem: Problem, count: int, error: float) -> None:
        """Raise Unresolved if the finest run has nearly as many steps as the problem, or too many."""
        finest = count * _FINEST
        if finest > _GAIN * problem.steps or finest * problem.data.outputs > _MOST_ROWS:
            raise Unresolved(
                f"{problem.steps} steps of stochastic gradient descent were not resolved to tolerance "
                f"{self.tolerance:g} by {finest} larger ones (error {error:.1g}): raise tolerance, or lower lr or steps"
            )

    def _answer(
        self, start: Answer, problem: Problem, started: float, intervals: int, curves: Curves, error: float
    ) -> Answer:
        """Join the first steps, which are exact, and what was extrapolated for all later ones."""
        axis = axes.MergedSteps(problem.steps, EXACT, intervals)
        late = len(axis.times) - EXACT
        early = start.curves.map(_positive)
        pairs = zip(early, curves, strict=True)
        joined = Curves(*(np.append(first, then[-late:]) for first, then in pairs)) if late else early
        stats = {
            "method": self.name,
            "nodes": len(axis.times),
            "exact": EXACT,
            "tolerance": self.tolerance,
            "error": error,
            "error_floor": LOSS_FLOOR,
            "seconds": time.perf_counter() - started,
            "batch": 1,
        }
        return replace(start, solver=replace(self, device=CPU), axis=axis, curves=joined, stats=stats, run=None)


def _extrapolated(problem: Problem, count: int, dense: Dense, attempt: Callable[[float], None]) -> tuple[Curves, float]:
    """Curves at the times of the finest run, and their relative error after the exact steps.

    ``attempt`` is told which part of the work is done, which goes as the cube of the steps.
    """
    spacing = (problem.steps - 1) / count
    work = {run: sum(each**3 for each in _RUNS if each < run) for run in _RUNS}
    total = work[_FINEST] + _FINEST**3
    runs = {}
    for run in _RUNS:

        def part(step: int, steps: int, run: int = run) -> None:
            attempt((work[run] + (run * step / steps) ** 3) / total)

        (answer,) = dense.solve([_merged(problem, spacing / run, count * run + 1)], part)
        runs[run], diverged_at = answer.curves.map(_positive), answer.diverged_at
        del answer  # its matrices would be kept beside those of the next run
        if diverged_at is not None:
            return runs[run], math.inf
    times = spacing / _FINEST * np.arange(count * _FINEST + 1)
    late = times >= EXACT
    found, error = {}, 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, finest in runs[_FINEST]._asdict().items():
            curve = finest
            for group in _GROUPS:
                shared = math.gcd(*group)
                values = [getattr(runs[run], name)[:: run // shared] for run in group]
                at = slice(None, None, _FINEST // shared)
                rest = _at_one([spacing / run for run in group], values) - curve[at]
                if not np.isfinite(rest).all():  # kernels of a run of larger steps overflow
                    return runs[_FINEST], math.inf
                correction = spline(times[at], rest)(times)
                curve = curve + correction
            found[name] = curve
            if name in LOSSES:
                between = spline(times[::2], curve[::2])(times) - curve
                off = (np.abs(correction) + np.abs(between))[late]
                scale = np.maximum(curve, LOSS_FLOOR * curve[0])[late]  # a loss may stay at zero
                error = max(error, float((off / np.where(off > 0, scale, 1.0)).max()))
    return Curves(**found), error


def _error_at_the_joint(problem: Problem, exact: Curves, curves: Curves) -> float:
    """Relative error of the losses where they are known, in the last of the exact steps.

    Training changes fastest at the start, so that what comes after these steps is no worse than they are. Corrections
    are known at shared times only, which may be far apart, and say little of what is between the first two.
    """
    known = np.arange(EXACT - _JOINT, EXACT)
    error = 0.0
    for name in LOSSES:
        true, found = _positive(getattr(exact, name)), getattr(curves, name)
        times = (problem.steps - 1) / (len(found) - 1) * np.arange(len(found))
        off = np.abs(spline(times, found)(known) - true[known])
        scale = np.maximum(true[known], LOSS_FLOOR * true[0])
        error = max(error, float((off / np.where(off > 0, scale, 1.0)).max()))  # a loss may stay at zero
    return error


def _merged(problem: Problem, merged: float, steps: int) -> Problem:
    """The problem in which one step stands for several, with as much noise as all of them."""
    sampling, optimizer = problem.sampling.merged(merged), problem.optimizer
    assert isinstance(optimizer.lr, float)
    slower = optimizer.scaled(merged, problem.steps)
    return replace(problem, sampling=sampling, optimizer=slower, steps=steps)


def _positive(curve: Array) -> Array:
    """What rounding makes negative is zero."""
    return np.maximum(curve, 0.0)


def _rate(problem: Problem, kernel: float) -> float:
    """Relaxations of the fastest direction in one step."""
    rate: float = problem.optimizer.rates(1)[0] * problem.modes.eigenvalues.max() * kernel
    return rate


def _remaining(problem: Problem, times: float) -> float:
    """Part of the initial error that is left where every direction decays as fast as its variance lets it."""
    modes = problem.modes
    signal = modes.weight * modes.eigenvalues * np.trace(modes.target, axis1=1, axis2=2)
    if not signal.sum() > 0:
        return 1.0
    decay = np.exp(-2 * times * modes.eigenvalues / modes.eigenvalues.max())
    return float(signal @ decay / signal.sum())


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


def _at_one(merged: Sequence[float], values: Sequence[Array]) -> Array:
    """Value at 1 of the polynomial through values at several numbers of merged steps."""
    total = np.zeros_like(values[0])
    for index, (m, value) in enumerate(zip(merged, values, strict=True)):
        others = np.array([*merged[:index], *merged[index + 1 :]])
        total = total + np.prod((1.0 - others) / (m - others)) * value
    return total
