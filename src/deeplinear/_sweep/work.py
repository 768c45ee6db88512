"""One batch of a sweep: from problems to arrays, with errors as a part of the answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.dataset import LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.simulate import simulate
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution
from deeplinear._theory.solve import solve

Result = dict[str, NDArray[Any]]
"""Arrays by name, the points of the batch first."""


SOLVED = {"method": "auto", "tolerance": 1e-6}
"""How theory is solved, which belongs to what a sweep is."""

FAILURES = ("failure", "failure_type")
"""Arrays with the errors of points that could not be computed, and with their types."""

STEPS = ("diverged_at", "rounding_at")
"""Steps of the status of a solution, -1 where it has none."""

OUT_OF_MEMORY = MemoryError.__name__
"""Type of the failures that are worth trying again."""


class Failure(NamedTuple):
    """An error as it is recorded: the name of its type, and what it says."""

    type: str
    words: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Return what is recorded of an error; a refusal is the ``ValueError`` that people know."""
        name = ValueError.__name__ if isinstance(error, Refusal) else type(error).__name__
        return cls(name, str(error))

    def __str__(self) -> str:
        return f"{self.type}: {self.words}"


class Task(NamedTuple):
    """Problems, the steps at which their losses are kept, arguments of ``simulate`` (None to solve), and where."""

    problems: tuple[Problem, ...]
    times: NDArray[np.int64]
    experiment: dict[str, Any] | None
    device: str = "cpu"


def run_task(task: Task) -> Result:
    """Compute a batch; a point that fails has its error in ``failure``, and nan elsewhere."""
    try:
        return _simulated(task) if task.experiment is not None else _solved(task)
    except Exception as error:
        if len(task.problems) == 1:
            return failed(task, Failure.of(error))
    return join([run_task(single) for single in singles(task)])


def singles(task: Task) -> list[Task]:
    """Return a task for each of the problems alone."""
    return [task._replace(problems=(problem,)) for problem in task.problems]


def join(parts: Sequence[Result]) -> Result:
    """Put results one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def failed(task: Task, failure: Failure) -> Result:
    """Return what is recorded of a batch that could not be computed."""
    count = len(task.problems)
    return empty(count, len(task.times), task.experiment is not None) | {
        "failure": np.array([str(failure)] * count),
        "failure_type": np.array([failure.type] * count),
    }


def empty(count: int, times: int, measured: bool) -> Result:
    """Return the arrays of points that have no results."""
    curves = [*LOSSES, *(f"{name}_error" for name in LOSSES)] if measured else list(LOSSES)
    result: Result = {name: np.full((count, times), np.nan) for name in curves}
    result |= {"diverged": np.zeros(count, int)} if measured else {name: np.full(count, -1) for name in STEPS}
    return result | no_failures(count)


def no_failures(count: int) -> Result:
    """Return what is recorded of the errors of points that have none."""
    return {name: np.full(count, "", dtype=np.str_) for name in FAILURES}


def out_of_memory(result: Result) -> bool:
    """Return whether nothing but memory was missing, so that it is worth trying again."""
    return bool((result["failure_type"] == OUT_OF_MEMORY).all())


def _solved(task: Task) -> Result:
    solutions = solve(task.problems, device=task.device, **SOLVED)  # type: ignore[call-overload]
    return (
        {name: np.stack([_losses(each, name, task.times) for each in solutions]) for name in LOSSES}
        | {name: np.array([_step(getattr(each.status, name)) for each in solutions]) for name in STEPS}
        | no_failures(len(solutions))
    )


def _step(found: int | None) -> int:
    return -1 if found is None else found


def _losses(solution: Solution, name: str, times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Losses at the steps that are kept; a long run may have been solved at other times."""
    if solution.axis.has_every_step:
        return _kept(getattr(solution, name), times)
    known = times[times < solution.problem.steps]
    return _filled(np.asarray(solution.at(known)[name]), times)


def _simulated(task: Task) -> Result:
    (problem,), arguments = task.problems, task.experiment or {}
    ensemble = simulate(problem, **arguments, workers=1, record="losses", device=task.device)
    result = {name: _kept(ensemble.mean(name), task.times)[None] for name in LOSSES}
    result |= {f"{name}_error": _kept(ensemble.standard_error(name), task.times)[None] for name in LOSSES}
    return result | {"diverged": np.array([(ensemble.diverged_at >= 0).sum()])} | no_failures(1)


def _kept(curve: NDArray[np.float64], times: NDArray[np.int64]) -> NDArray[np.float64]:
    return _filled(curve[times[times < len(curve)]], times)


def _filled(curve: NDArray[np.float64], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Put nan where a curve has ended and others go on."""
    return np.pad(curve, (0, len(times) - len(curve)), constant_values=np.nan)
