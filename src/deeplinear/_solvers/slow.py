"""The slow reference, as a solver like the others: to see for oneself that the fast ones are right."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._equations.coefficients import structure
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._solvers.base import Answer, Curves, Solver, Work
from deeplinear._solvers.reference import reference
from deeplinear._time.axis import EveryStep

_NAMES = {
    "feature_correlation": "Ch",
    "gradient_correlation": "Cg",
    "error_correlation": "Cv",
    "residual_correlation": "CDelta",
    "feature_response": "Rhr",
    "gradient_response": "Rgu",
    "error_response": "Rvu",
    "residual_response": "RDelta",
}


_MOST_VARIANCE = 3e4
"""Variance of the initial function of a centered network that is formed and subtracted at most: its rounding errors, up
to 1e-14 of it as measured, then stay below 1e-9."""


@dataclass(frozen=True)
class Reference(Solver):
    """Solve every step with whole matrices, which shares no line with the other solvers."""

    name: ClassVar[str] = "reference"
    is_automatic: ClassVar[bool] = False
    has_averages: ClassVar[bool] = True
    averages: tuple[Average, ...] = ()

    def why_not(self, problem: Problem) -> str | None:
        """The reference knows finite depth, features that move, and the limit of large batches."""
        if problem.network.depth == float("inf"):
            return "at infinite depth"
        if problem.network.gamma0 == 0:
            return "where gamma0 is zero (NTK at infinite width)"
        if problem.sampling.small_batch:
            return "with small_batch"
        network = problem.network
        if network.centered and network.initial_variance > _MOST_VARIANCE * network.richness**2:
            return "for centered networks of so small a richness, whose change the reference loses in rounding"
        return None

    def estimate(self, problem: Problem) -> Work:
        """Every step goes through all matrices as a whole, and not only through a row of them."""
        shape = structure(problem)
        return Work(shape, float(shape.size), 3 * system.memory(shape))

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems one by one."""
        return [self._solve(problem, progress) for problem in problems]

    def _solve(self, problem: Problem, progress: Progress | None) -> Answer:
        start = time.perf_counter()
        found = reference(problem, self.averages)
        if progress is not None:
            progress(problem.steps, problem.steps)
        curves = Curves(*(found[name] for name in Curves._fields))
        bad = np.flatnonzero(~np.isfinite(curves.test_loss) | ~np.isfinite(curves.train_loss))
        end = int(bad[0]) if bad.size else None
        if end is not None:
            curves = curves.map(lambda curve: np.where(np.arange(problem.steps) >= end, np.inf, curve))
        return Answer(
            solver=self,
            axis=EveryStep(problem.steps),
            diverged_at=end,
            rounding_at=None,
            curves=curves,
            stats={"method": self.name, "seconds": time.perf_counter() - start, "batch": 1},
            task_loss=found["task_loss"] if len(problem.stages) > 1 else np.zeros((0, problem.steps)),
            averaged_test_loss=found["averaged_test_loss"],
            matrices={name: found[letters] for name, letters in _NAMES.items()},
        )
