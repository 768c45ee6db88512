"""Which solver takes which problem, and how a list of problems is solved."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.threads import one_blas_thread
from deeplinear._core.words import in_bytes, in_time
from deeplinear._problem.averages import Average, averages_from_json, averages_to_json
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Answer, Solver, Unresolved, Work
from deeplinear._solvers.condensed.solver import PAIRS, Condensed
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.merged_steps import MergedSteps
from deeplinear._solvers.panels.solver import Panels
from deeplinear._solvers.slow import Reference

METHODS = ("auto", "dense", "panels", "coarse", "condensed", "reference")

SHORT, _SHORT_ON_DEVICE = 1000, 4000
"""Steps times outputs up to which every step is solved, unless asked otherwise."""

SHORT_CURVE = 400
"""The same where only curves are wanted, which a condensed past has as exactly: it is 1.0 to 2.1 times as fast from
here on, as measured for one and three layers, with and without noise, momentum and oscillations."""

_MOST_NUMBERS, _NUMBERS_PER_SECOND = 1e11, 1.5e9
"""Numbers that are gone through at most in place of what was not resolved, a minute or two; and in a second, about."""


@dataclass(frozen=True)
class Choice:
    """How problems are solved: by the first solver of a list that can, and pays.

    Attributes
    ----------
    method
        A solver's name, or ``"auto"`` for all of them: panels, merged steps, a condensed past and, last of all, every
        step as it is.
    tolerance, device
        Options of every solver; panels and a condensed past run on the processor.
    only
        Names to which ``"auto"`` is limited.
    most_rows
        Most steps times outputs that are solved one by one in place of what was not resolved.
    averages
        Averages of the weights whose losses are wanted too, which only every step has.
    patience
        Part of the work of solving every step after which other solvers are given up, where every step can be solved.
        They are also given up when they do several times their usual work.
    hurries
        False to give up nothing for the time that it takes.
    two_time
        False if functions of two times are not wanted, which a condensed past has to take down on the way, and of which
        it has fewer.

    Examples
    --------
    >>> [solver.name for solver in Choice().solvers()]
    ['panels', 'coarse', 'condensed', 'dense']
    """

    method: str = "auto"
    tolerance: float = 1e-6
    device: Device = CPU
    only: tuple[str, ...] = METHODS
    most_rows: float = math.inf
    patience: float = 0.5
    hurries: bool = True
    two_time: bool = True
    averages: tuple[Average, ...] = ()

    def solvers(self) -> list[Solver]:
        """Return the solvers in the order in which they are asked."""
        every: list[Solver] = [
            Panels(self.tolerance),
            MergedSteps(self.tolerance, self.device),
            self._condensed,
            Dense(self.tolerance, device=self.device, averages=self.averages),
        ]
        if self.method == Reference.name:  # which is never chosen, but asked for
            return [Reference(self.averages)]
        return [each for each in every if self.method in (each.name, "auto") and each.name in self.only]

    @property
    def _condensed(self) -> Condensed:
        return Condensed(self.tolerance, pairs=PAIRS if self.two_time else 0)

    def solver(self, problem: Problem) -> Solver:
        """Return the solver of a problem; ValueError if a method was asked for that cannot solve it."""
        if self.method != "auto":
            (solver,) = self.solvers()
            if reason := solver.why_not(problem):
                raise Refusal("method", self.method, f'"dense" or "auto" {reason}', got=f'"{self.method}"')
            return self._bounded(problem, solver)
        if self._is_long(problem) and not self.averages:
            able = [solver for solver in self.solvers()[:-1] if solver.why_not(problem) is None]
            if able:
                return self._hurried(problem, self._first(problem, able))
        if self._is_long_curve(problem) and self._condensed.why_not(problem) is None:
            return self._hurried(problem, self._condensed)
        return self.solvers()[-1]

    def instead(self, problem: Problem, solver: Solver) -> Solver | None:
        """Return what solves a problem that a solver could not resolve, None if nothing may or can within minutes."""
        if self.method != "auto" or solver.name == Dense.name:
            return None
        condensed = self._condensed
        if solver.name != condensed.name in self.only and condensed.why_not(problem) is None:
            return self._hurried(problem, condensed) if _is_quick(condensed.estimate(problem)) else None
        dense, rows = Dense(self.tolerance, averages=self.averages), problem.steps * problem.data.outputs
        return dense if rows <= self.most_rows and _is_quick(dense.estimate(problem)) else None

    def _first(self, problem: Problem, able: list[Solver]) -> Solver:
        """Return what goes first wherever it can, and otherwise what has least to go through."""
        if able[0].goes_first or len(able) == 1:
            return able[0]
        return min(able, key=lambda solver: solver.estimate(problem).numbers)

    def _hurried(self, problem: Problem, solver: Solver) -> Solver:
        """Return a solver that gives up, where something else can solve the problem."""
        if not self.hurries:
            return solver
        return solver.hurried(self.patience if self.instead(problem, solver) else math.inf)

    def _bounded(self, problem: Problem, solver: Solver) -> Solver:
        """Return what was asked for, with a bound on its work where every step takes too long.

        A past that does not condense, and panels of a run that hardly becomes smooth, would take many minutes.
        """
        bounded = solver.name in (Condensed.name, Panels.name) and self.hurries
        if not bounded or _is_quick(Dense(self.tolerance).estimate(problem)):
            return solver
        return solver.hurried(math.inf)

    def _is_long(self, problem: Problem) -> bool:
        """Whether there are so many steps that it is not worth solving every one of them."""
        return problem.steps * problem.data.outputs > (SHORT if self.device == CPU else _SHORT_ON_DEVICE)

    def _is_long_curve(self, problem: Problem) -> bool:
        """Whether only curves are wanted, and are found sooner with a condensed past."""
        if self.two_time or self.averages or self.device != CPU or Condensed.name not in self.only:
            return False
        return problem.steps * problem.data.outputs > SHORT_CURVE


def _is_quick(work: Work) -> bool:
    """Whether something takes minutes at most, and fits into memory."""
    return work.bytes <= CPU.available() and work.numbers <= _MOST_NUMBERS


def write_solver(solver: Solver) -> dict[str, Any]:
    """Return a solver as plain values; it runs on the processor when it is read again."""
    values = {name: value for name, value in vars(solver).items() if name not in ("device", "averages")}
    averages = {"averages": averages_to_json(solver.averages)} if solver.averages else {}
    return {"name": solver.name} | values | averages


def read_solver(values: dict[str, Any]) -> Solver:
    """Return the solver that ``write_solver`` wrote.

    Examples
    --------
    >>> read_solver(write_solver(Dense(1e-8)))
    Dense(tolerance=1e-08, depth_nodes=None, device=Device(name='cpu', torch_device=None), averages=())
    """
    kinds: dict[str, type[Solver]] = {each.name: each for each in (Panels, MergedSteps, Condensed, Dense, Reference)}
    options = dict(values)
    if "averages" in options:
        options["averages"] = averages_from_json(options["averages"])
    return kinds[options.pop("name")](**options)


@dataclass(frozen=True)
class Batch:
    """Problems that are solved together, by their positions in a list."""

    solver: Solver
    members: list[int]


def batches(problems: Sequence[Problem], choice: Choice) -> list[Batch]:
    """Say which problems are solved together, and how; those in which every step is solved come first."""
    groups: dict[Solver, list[int]] = {}
    for index, problem in enumerate(problems):
        groups.setdefault(choice.solver(problem), []).append(index)
    found = []
    for solver, members in sorted(groups.items(), key=lambda each: each[0].name != Dense.name):
        for positions in solver.batches([problems[index] for index in members]):
            found.append(Batch(solver, [members[position] for position in positions]))
    return found


def answers(
    problems: Sequence[Problem], choice: Choice, todo: Sequence[Batch], progress: Progress | None = None
) -> Iterator[tuple[list[int], list[Answer]]]:
    """Solve batches one after another, and yield the answers of each; nothing is kept of those before.

    ``progress`` counts steps, summed over batches.
    """
    lengths = [problems[batch.members[0]].steps for batch in todo]
    total, done = sum(lengths), 0

    def advance(step: int, _: int) -> None:
        if progress is not None:
            progress(done + step, total)

    with one_blas_thread():
        for batch, length in zip(todo, lengths, strict=True):
            yield batch.members, _solved([problems[index] for index in batch.members], batch.solver, choice, advance)
            done += length


def _solved(members: list[Problem], solver: Solver, choice: Choice, progress: Progress) -> list[Answer]:
    """Solve a batch; what is not resolved is solved in another way, if the choice was free."""
    try:
        return solver.solve(members, progress)
    except Unresolved as reason:
        other = choice.instead(members[0], solver)
        if other is None:
            raise Unresolved(f"{reason}{_or_every_step(members[0], solver, choice)}") from reason
    return _solved(members, other, choice, progress)


def _or_every_step(problem: Problem, solver: Solver, choice: Choice) -> str:
    """End of a sentence: what it would take to solve every step, where that was left out for the time it takes."""
    if choice.method != "auto" or solver.name == Dense.name:
        return ""
    condensed, work = Condensed(choice.tolerance), Dense(choice.tolerance).estimate(problem)
    if solver.name != condensed.name and condensed.why_not(problem) is None:
        takes = in_time(condensed.estimate_of_oscillations(problem).numbers / _NUMBERS_PER_SECOND)
        return f'; or take method="condensed", which may take some {takes} where training oscillates'
    if work.bytes > CPU.available():
        return ""
    takes = f"{in_bytes(work.bytes)} and some {in_time(work.numbers / _NUMBERS_PER_SECOND)}"
    return f'; or take method="dense", which solves every step in {takes}'
