"""The solver that condenses the past, as a configuration."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._equations.coefficients import structure
from deeplinear._equations.observables import matrices
from deeplinear._problem.problem import Problem
from deeplinear._solvers import depth
from deeplinear._solvers.answer import curves_of
from deeplinear._solvers.base import Answer, Curves, Overlaps, Solver, Unresolved, Work
from deeplinear._solvers.condensed.pairs import Pairs
from deeplinear._solvers.condensed.run import CondensedRun, rooms
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.reach import check_reach
from deeplinear._solvers.rounding import LOSS_FLOOR
from deeplinear._time.axis import EveryStep, SomePairs
from deeplinear._time.history import BLOCK_NODES

Array = NDArray[Any]

_COARSEST = 1e-2
"""Tolerance above which nothing is gained."""

_FEWEST = 6 * BLOCK_NODES
"""Times that are kept at the start."""

PAIRS, _FEWEST_PAIRS = 200, 32
"""Steps times outputs at whose pairs functions of two times are kept, and steps at least."""

_OSCILLATING = 3.0
"""Times that are kept where training oscillates, in units of those of a smooth run: 2.5 at the edge of stability (416
of 1200 steps, not 169), 4.1 and 4.6 where responses swing with momentum (736 of 1805 and 832 of 1849, not 181)."""

_BEGINNING, _SMOOTH = 13 * BLOCK_NODES, 10 * BLOCK_NODES
"""Steps whose work tells whether the past is condensed, and times that are kept of them at most if it is."""

_MOST_ROWS = 1500
"""Times times outputs at which to give up, unless every step may be kept."""


@dataclass(frozen=True)
class Condensed(Solver):
    """Solve every step of long runs, with fewer and fewer rows for what is longer and longer ago.

    Attributes
    ----------
    tolerance
        Relative error of the losses.
    most_rows
        Times times outputs that are kept at most; beyond this many the run is given up.
    pairs
        Steps times outputs at whose pairs functions of two times are kept, at most; 0 to keep none, and None to have
        them at every pair, where every step is solved once more when they are asked for.
    """

    name: ClassVar[str] = "condensed"
    takes_over: ClassVar[bool] = True
    why_processor: ClassVar[str] = "it needs the processor"
    goes_on: ClassVar[bool] = True
    beginning: ClassVar[int] = _BEGINNING
    tolerance: float = 1e-6
    most_rows: float = math.inf
    pairs: int | None = PAIRS

    @property
    def error_in_time(self) -> float:
        """Relative error of the losses."""
        return self.tolerance

    def why_not(self, problem: Problem) -> str | None:
        """One phase, one evaluation of the network in each step, and a row for every layer."""
        optimizer = problem.optimizer
        if problem.phases:
            return "with phases"
        traits = optimizer.traits
        if optimizer.looks_elsewhere or traits.orthogonal or traits.past:
            return f"with {optimizer.kind.title}"
        if depth.likely_nodes(problem):
            return "where nodes in depth stand for the layers"
        return None

    def estimate(self, problem: Problem) -> Work:
        """Some twenty times are kept for every doubling of the steps."""
        return self._estimate(problem, 1.0)

    def estimate_of_oscillations(self, problem: Problem) -> Work:
        """Return the work where training oscillates: some times as many times are kept."""
        return self._estimate(problem, _OSCILLATING)

    def most(self, problem: Problem) -> Work:
        """Nothing is condensed: all rows that may be kept are, with the copy that is made when there is more room."""
        shape, outputs = structure(problem), problem.data.outputs
        times = min(self.most_rows, problem.steps * outputs) / outputs
        held = sum(system.memory(replace(shape, steps=each)) for each in rooms(problem.steps, times)[-2:])
        return _all_steps(problem, times, held)

    def begins(self, problem: Problem) -> bool:
        """Whether the past of the first steps is condensed, at the largest rate that the run has."""
        steps, rule = problem.steps, problem.optimizer
        first = problem.first(min(self.beginning, steps))
        if (rate := rule.highest_rate(steps)) > 0:
            first = replace(first, optimizer=rule.steady(rate, steps))
        run = CondensedRun(first, min(self.tolerance, _COARSEST))
        with suppress(Unresolved):
            run.fill()
        return run.diverged_at >= 0 or run.count <= _SMOOTH

    def given_up(self, problem: Problem) -> Work:
        """What it takes all the same, where the past is not condensed at first."""
        return self.estimate_of_oscillations(problem)

    def _estimate(self, problem: Problem, factor: float) -> Work:
        times = min(problem.steps, round(factor * (_FEWEST + 20 * math.log2(max(1.0, problem.steps / _FEWEST)))))
        shape = structure(problem)
        # There is room for more times than are kept, and a copy is made where it does not suffice.
        held = system.memory(replace(shape, steps=min(problem.steps, 2 * times)))
        return _all_steps(problem, times, held)

    @property
    def of_two_times(self) -> Solver:
        """Every step as it is, where functions of two times are wanted at every pair."""
        return Dense(self.tolerance) if self.pairs is None else self

    def with_every_pair(self) -> "Condensed":
        """Return the same with functions of two times at every pair, unless none are kept."""
        return replace(self, pairs=None) if self.pairs else self

    def hurried(self, part: float) -> "Condensed":
        """Return the same with a bound on the rows that are kept, unless every step can be kept as well."""
        return replace(self, most_rows=_MOST_ROWS) if part == math.inf else self

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems one by one."""
        return [self._solve(problem, progress) for problem in problems]

    def _solve(self, problem: Problem, progress: Progress | None) -> Answer:
        start = time.perf_counter()
        axis = self._axis(problem)
        wanted = self.pairs and not problem.is_complex
        pairs = Pairs(axis.pair_times, problem.data.outputs) if wanted else None
        run = CondensedRun(problem, min(self.tolerance, _COARSEST), self.most_rows, pairs=pairs)
        run.fill(progress)
        check_reach([problem], run.equations, [run.times_done])
        stats = {
            "method": self.name,
            "nodes": run.largest,
            "tolerance": self.tolerance,
            "error": run.error,
            "error_floor": LOSS_FLOOR,
            "seconds": time.perf_counter() - start,
            "batch": 1,
        }
        return Answer(
            solver=replace(self, most_rows=math.inf),
            axis=axis,
            diverged_at=None if run.diverged_at < 0 else run.diverged_at,
            rounding_at=None if run.rounding_at < 0 else run.rounding_at,
            curves=_curves(run),
            stats=stats | ({} if run.rounding_at < 0 else {"rounding_at": run.rounding_at}),
            task_loss=np.zeros((0, problem.steps)),
            averaged_test_loss=np.zeros((0, problem.steps)),
            matrices={} if pairs is None else pairs.matrices,
        )

    def memory(self, problems: Sequence[Problem]) -> int:
        """Bytes of the functions of two times that are kept; at every pair they are, once they are asked for."""
        if self.pairs is None:
            return 0
        return sum(_bytes_of_pairs(problem, len(self._axis(problem).pair_times)) for problem in problems)

    def overlaps(self, problem: Problem) -> Overlaps:
        """Overlaps of replicas, for which the problem is solved again with them."""
        run = CondensedRun(problem, min(self.tolerance, _COARSEST), self.most_rows, replicas=True)
        run.fill()
        return run.overlaps

    def _axis(self, problem: Problem) -> EveryStep:
        if self.pairs is None:
            return EveryStep(problem.steps)
        return SomePairs(problem.steps, max(_FEWEST_PAIRS, self.pairs // problem.data.outputs) if self.pairs else 0)


def _all_steps(problem: Problem, times: float, held: int) -> Work:
    """The work of all steps with so many times kept, which take so many bytes.

    Every step reads all of the matrices, as the last step of a dense solve does: three times the mean of these.
    """
    steps = min(problem.steps, round(math.sqrt(3.0) * times))
    return Work(replace(structure(problem), steps=steps), problem.steps / steps, held)


def _bytes_of_pairs(problem: Problem, times: int) -> int:
    """Bytes of all functions of two times."""
    return 8 * matrices(problem.network.layers) * (times * problem.data.outputs) ** 2


def _curves(run: CondensedRun) -> Curves:
    """Curves over all steps: inf from a divergence on."""
    end = run.problem.steps if run.diverged_at < 0 else run.diverged_at

    def cut(curve: Array) -> Array:
        whole = np.full(run.problem.steps, np.inf, curve.dtype)
        whole[:end] = curve[0, :end]
        return whole

    return curves_of(run.equations, run.values()).map(cut)
