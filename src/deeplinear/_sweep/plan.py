"""What a sweep computes: every point, in batches that do not depend on who computes them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.build import this_build, version
from deeplinear._core.cached import cached_property
from deeplinear._core.refusal import Refusal
from deeplinear._equations.coefficients import Structure
from deeplinear._experiment.arguments import read_seeds
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._solvers.dense import Dense
from deeplinear._sweep.grid import Axis, points, read_grid
from deeplinear._sweep.work import SOLVED, Failure, Task
from deeplinear._theory.curves import worth_batching
from deeplinear._time.grid import spaced_steps

THEORY, EXPERIMENT = "theory", "experiment"

LARGEST_BATCH = 32
"""Most points of theory in one batch, so that results appear steadily."""

_EVERY_STEP = 1000
"""Longest curve that is kept whole."""

_MOST_SEEDS = 10**6
"""Most networks at a point: the description of a sweep lists their seeds."""

LAYOUT = 5
"""Number of the way in which a store is laid out."""

_IDENTITY = ("problem", "grid", "theory", "experiment", "solved")


class Batch(NamedTuple):
    """Points that are computed together; they have equal numbers of steps."""

    name: str
    kind: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A sweep: the problem that all other values come from, the grid, and what is computed at each point."""

    problem: Problem
    axes: tuple[Axis, ...]
    theory: bool
    experiment: dict[str, Any] | None

    @classmethod
    def read(cls, problem: Any, grid: Any, theory: Any, experiment: Any) -> "Plan":
        """Check the arguments of a sweep."""
        check_problem(problem)
        plan = cls(problem, read_grid(problem, grid), checks.flag("theory", theory), _experiment(experiment))
        if not plan.theory and plan.experiment is None:
            why = ": nothing would be computed"
            raise Refusal("theory", False, "True where experiment is None", rest=why)
        if len(plan.invalid) == plan.size:
            raise ValueError(f"every point of the grid is invalid; the first: {plan.invalid[0]}")
        return plan

    @classmethod
    def from_manifest(cls, manifest: dict[str, Any]) -> "Plan":
        """Return the sweep that a manifest describes."""
        problem = Problem.from_toml(manifest["problem"])
        axes = tuple(Axis(field, tuple(values)) for field, values in manifest["grid"])
        return cls(problem, axes, manifest["theory"], manifest["experiment"])

    def manifest(self) -> dict[str, Any]:
        """Return everything that defines the sweep and its batches, as a file can hold it."""
        return {
            "layout": LAYOUT,
            "deeplinear_version": version(),
            "build": this_build(),
            "problem": self.problem.to_toml(),
            "grid": [[axis.field, list(axis.values)] for axis in self.axes],
            "theory": self.theory,
            "experiment": self.experiment,
            "solved": SOLVED,
            "batches": [list(batch) for batch in self.batches],
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self._points)

    @property
    def kinds(self) -> list[str]:
        """What is computed at each point."""
        return [THEORY] * self.theory + [EXPERIMENT] * (self.experiment is not None)

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """Steps at which losses are kept: every one of a short sweep, of a long one as many in each decade.

        The last step of each point is among them.
        """
        ends = {problem.steps - 1 for problem in self.problems.values()}
        if max(ends) < _EVERY_STEP:
            return np.arange(max(ends) + 1)
        return np.union1d(spaced_steps(max(ends)), sorted(ends))

    @cached_property
    def problems(self) -> dict[int, Problem]:
        """Problems of the valid points, by number."""
        return {index: each for index, each in enumerate(self._points) if isinstance(each, Problem)}

    @cached_property
    def invalid(self) -> dict[int, Failure]:
        """Errors of the points whose values are not allowed, by number."""
        return {index: each for index, each in enumerate(self._points) if isinstance(each, Failure)}

    @cached_property
    def batches(self) -> list[Batch]:
        """Batches of theory, of points of equal structure, then single points of the experiment."""
        found: list[tuple[int, ...]] = []
        if self.theory:
            groups: dict[Structure, list[int]] = {}
            # Points that diverge are best side by side: a batch ends when all of it has diverged.
            for index, problem in sorted(self.problems.items(), key=lambda item: -_highest_rate(item[1])):
                groups.setdefault(Dense().shape(problem), []).append(index)
            for members in groups.values():
                size = worth_batching(self.problems[members[0]], LARGEST_BATCH)
                found += [tuple(members[start : start + size]) for start in range(0, len(members), size)]
        theory = [Batch(f"{THEORY}-{number:06d}", THEORY, members) for number, members in enumerate(found)]
        if self.experiment is None:
            return theory
        return theory + [Batch(f"{EXPERIMENT}-{index:06d}", EXPERIMENT, (index,)) for index in self.problems]

    def task(self, batch: Batch, device: str) -> Task:
        """Return what a batch has to do."""
        problems = tuple(self.problems[index] for index in batch.members)
        return Task(problems, self.times, self.experiment if batch.kind == EXPERIMENT else None, device)

    @cached_property
    def _points(self) -> list[Problem | Failure]:
        return [_point(self.problem, values) for values in points(self.axes)]


def batches_of(manifest: dict[str, Any]) -> list[Batch]:
    """Return the batches that a manifest lists."""
    return [Batch(name, kind, tuple(members)) for name, kind, members in manifest["batches"]]


def fingerprints(manifest: dict[str, Any]) -> dict[str, str]:
    """Return a word for each batch of a sweep, by its name; another sweep has others."""
    sweep = hashlib.sha256(json.dumps([manifest[name] for name in _IDENTITY]).encode())
    found = {}
    for batch in batches_of(manifest):
        own = sweep.copy()
        own.update(json.dumps(batch).encode())
        found[batch.name] = own.hexdigest()
    return found


def differences(manifest: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Say in what two sweeps differ."""
    return [name for name in _IDENTITY if json.dumps(manifest[name]) != json.dumps(other[name])]


def _point(problem: Problem, values: dict[str, Any]) -> Problem | Failure:
    try:
        changed = replace(problem, values)
        if not changed.optimizer.functions:
            return changed
        # A function cannot go to another process; its values can.
        return replace(changed, {"optimizer": changed.optimizer.tabulated(changed.steps)})
    except (ValueError, TypeError) as error:
        return Failure.of(error)


def _highest_rate(problem: Problem) -> float:
    return problem.optimizer.highest_rate(problem.steps)


def _experiment(experiment: Any) -> dict[str, Any] | None:
    """Return the arguments of ``simulate`` in full."""
    if experiment is None:
        return None
    if not isinstance(experiment, Mapping) or not set(experiment) <= {"dim", "seeds"}:
        raise Refusal("experiment", experiment, "a dict of dim and seeds")
    dim, seeds = experiment.get("dim"), read_seeds(experiment.get("seeds", 16))
    if len(seeds) > _MOST_SEEDS:
        raise Refusal("seeds", seeds, f"at most {_MOST_SEEDS} at each point of a sweep", got=f"{len(seeds)}")
    return {
        "dim": None if dim is None else checks.whole("experiment['dim']", dim),
        "seeds": list(seeds),
    }
