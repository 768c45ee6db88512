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
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Progress
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import MultiPassSGD, OnlineSGD
from deeplinear._solvers.panels.solver import Unresolved
from deeplinear._solvers.rounding import LOSS_FLOOR
from deeplinear._theory.solution import PARTS, Decomposition, Solution, spline

Array = NDArray[Any]

EXACT = 256
"""Steps at the start that are solved as they are."""

_GROUPS = ((4, 8), (2, 4, 6, 8), (2, 3, 4, 6, 8))
"""Steps of each run between two times that all runs share. Runs of the first groups share more times than that, which
lets a first, large correction of the finest run be found there, before the small rest."""

_RUNS, _FINEST = _GROUPS[-1], _GROUPS[-1][-1]

_FEWEST = 16
"""Shared times of the first attempt."""

_MOST_ROWS = 4000
"""Steps times outputs of the finest run at which to give up."""

_GAIN = 0.7
"""Nothing is gained if the finest run has this fraction of all steps."""


def no_coarse(problem: Problem) -> str | None:
    """Why larger steps cannot stand for those of a problem, None if they can."""
    if not problem.sampling.subsampling:
        return "where no batches are drawn"
    if not isinstance(problem.optimizer.lr, float):
        return "with a schedule"
    if problem.optimizer.momentum:
        return "with momentum"
    if problem.steps <= 2 * EXACT:
        return f"for {2 * EXACT} steps or fewer"
    return None


def solve_coarse(
    problem: Problem,
    tolerance: float,
    solve_steps: Callable[[Problem, Progress | None], Solution],
    advance: Progress,
) -> Solution:
    """Solve a long run of stochastic gradient descent.

    Parameters
    ----------
    problem
        What to solve; ``no_coarse`` is None for it.
    tolerance
        Relative error of the losses.
    solve_steps
        Solves every step of a problem, and says how far it is.
    advance
        Called as ``advance(done, total)``, counted in steps of the problem. Each attempt takes half of what is left,
        as it is not known which will be the last.

    Raises
    ------
    Unresolved
        If that takes nearly as many steps as the run has, or too many.
    """
    start = solve_steps(replace(problem, steps=EXACT), None)
    if start.status.diverged:
        return replace(start, problem=problem)
    # The largest steps, of the coarsest run, must be stable to be of any use.
    rate = problem.optimizer.rates(1)[0] * problem.data.modes.eigenvalues.max() * start.kernel.max()
    count, error, left = max(_FEWEST, math.ceil(rate * problem.steps / (2 * _RUNS[0]))), math.inf, 1.0
    while True:
        finest = count * _FINEST
        if finest > _GAIN * problem.steps or finest * problem.data.outputs > _MOST_ROWS:
            raise Unresolved(
                f"{problem.steps} steps of stochastic gradient descent were not resolved to tolerance {tolerance:g} "
                f"by {finest} larger ones (error {error:.1g}): raise tolerance, or lower lr or steps"
            )

        def attempt(part: float, left: float = left) -> None:
            advance(round((1.0 - left + 0.5 * left * part) * problem.steps), problem.steps)

        times, curves, error = _extrapolated(problem, count, solve_steps, attempt)
        if error <= tolerance:
            break
        left *= 0.5
        growth = 1.2 * (error / tolerance) ** (1 / len(_RUNS)) if np.isfinite(error) else 2.0
        count = math.ceil(count * min(max(growth, 1.3), 2.5))

    late = times >= EXACT
    curves = {name: np.append(curve, curves[name][late]) for name, curve in _curves(start).items()}
    return Solution(
        problem=problem,
        times=np.append(start.times, times[late]),
        test_loss=curves["test_loss"],
        train_loss=curves["train_loss"],
        kernel=curves["kernel"],
        decomposition=Decomposition(**{name: curves[name] for name in PARTS}),
        status=start.status,
        stats={
            "method": "coarse",
            "nodes": EXACT + int(late.sum()),
            "exact": EXACT,
            "tolerance": tolerance,
            "error": error,
            "error_floor": LOSS_FLOOR,
        },
    )


def _extrapolated(
    problem: Problem,
    count: int,
    solve_steps: Callable[[Problem, Progress | None], Solution],
    attempt: Callable[[float], None],
) -> tuple[Array, dict[str, Array], float]:
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

        runs[run] = _curves(solve_steps(_merged(problem, spacing / run, count * run + 1), part))
    times = spacing / _FINEST * np.arange(count * _FINEST + 1)
    late = times >= EXACT
    curves, error = {}, 0.0
    with np.errstate(invalid="ignore"):
        for name, finest in runs[_FINEST].items():
            curve = finest
            for group in _GROUPS:
                shared = math.gcd(*group)
                values = [runs[run][name][:: run // shared] for run in group]
                at = slice(None, None, _FINEST // shared)
                rest = _at_one([spacing / run for run in group], values) - curve[at]
                if not np.isfinite(rest).all():  # a run of larger steps diverges
                    return times, {}, math.inf
                correction = spline(times[at], rest)(times)
                curve = curve + correction
            curves[name] = curve
            if name in ("test_loss", "train_loss"):
                between = spline(times[::2], curve[::2])(times) - curve
                scale = np.maximum(curve, LOSS_FLOOR * curve[0])
                error = max(error, float(((np.abs(correction) + np.abs(between)) / scale)[late].max()))
    return times, curves, error


def _merged(problem: Problem, merged: float, steps: int) -> Problem:
    """The problem in which one step stands for several, with as much noise as all of them."""
    sampling, optimizer = problem.sampling, problem.optimizer
    if isinstance(sampling, MultiPassSGD):  # keep b' with (1 - b') / b' = (1 - b) / (merged b)
        keep = merged * sampling.keep / (1.0 - sampling.keep + merged * sampling.keep)
        sampling = replace(sampling, batch=keep * sampling.samples)
    elif isinstance(sampling, OnlineSGD):
        sampling = replace(sampling, batch=merged * sampling.batch)
    assert isinstance(optimizer.lr, float)
    return replace(problem, sampling=sampling, optimizer=replace(optimizer, lr=merged * optimizer.lr), steps=steps)


def _curves(solution: Solution) -> dict[str, Array]:
    """Everything that is a function of one time."""
    return vars(solution.decomposition) | {
        name: getattr(solution, name) for name in ("test_loss", "train_loss", "kernel")
    }


def _at_one(merged: Sequence[float], values: Sequence[Array]) -> Array:
    """Value at 1 of the polynomial through values at several numbers of merged steps."""
    total = np.zeros_like(values[0])
    for index, (m, value) in enumerate(zip(merged, values, strict=True)):
        others = np.array([*merged[:index], *merged[index + 1 :]])
        total = total + np.prod((1.0 - others) / (m - others)) * value
    return total
