"""Which solver takes which problem, and how a list of problems is solved."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from deeplinear._core.arrays import usual_arithmetic
from deeplinear._core.cached import cached_property
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.threads import one_blas_thread
from deeplinear._core.words import in_bytes, in_time
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average, averages_from_json, averages_to_json
from deeplinear._solvers.base import Answer, Solver, Unresolved, Work
from deeplinear._solvers.condensed.solver import PAIRS, Condensed
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.merged_steps import MergedSteps
from deeplinear._solvers.panels.solver import Panels
from deeplinear._solvers.slow import Reference

SOLVERS: tuple[type[Solver], ...] = (Dense, Panels, MergedSteps, Condensed, Reference)
"""Every solver; those that "auto" asks before the last of all are in the order in which it does."""

AUTO = "auto"
METHODS = (AUTO, *(kind.name for kind in SOLVERS))
_BY_NAME = {kind.name: kind for kind in SOLVERS}

SHORT, _SHORT_ON_DEVICE = 1000, 4000
"""Steps times outputs up to which every step is solved, unless asked otherwise."""

SHORT_CURVE = 400
"""Steps times outputs up to which curves are found so too. Beyond, a condensed past has them as exactly: it is 1.0 to
2.1 times as fast from here on, as measured for one and three layers, with and without noise, momentum and oscillations.
Functions of two times of runs that are not long are solved for when they are asked for, step by step."""

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
        Options of every solver; a condensed past runs on the processor, and so do panels of few problems.
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
    >>> [solver.name for solver in Choice().solvers]
    ['panels', 'coarse', 'condensed', 'dense']
    """

    method: str = AUTO
    tolerance: float = 1e-6
    device: Device = CPU
    only: tuple[str, ...] = METHODS
    most_rows: float = math.inf
    patience: float = 0.5
    hurries: bool = True
    two_time: bool = True
    averages: tuple[Average, ...] = ()

    @cached_property
    def solvers(self) -> list[Solver]:
        """The solvers in the order in which they are asked."""
        asked = [kind for kind in SOLVERS if self._may_take(kind) and kind.name in self.only]
        return [self._made(kind) for kind in sorted(asked, key=lambda kind: kind.is_last)]

    def _may_take(self, kind: type[Solver]) -> bool:
        return kind.is_automatic if self.method == AUTO else kind.name == self.method

    def _made(self, kind: type[Solver]) -> Solver:
        """Return a solver with those of the options that it has."""
        options: dict[str, Any] = {
            "tolerance": self.tolerance,
            "device": self.device,
            "averages": self.averages,
            "pairs": PAIRS if self.two_time else 0,
        }
        return kind(**{each.name: options[each.name] for each in fields(kind) if each.name in options})

    def check(self) -> None:
        """Refuse a method that was asked for and has no averages, or does not run on the device."""
        if self.method == AUTO:
            return
        kind = _BY_NAME[self.method]
        if self.device != CPU and kind.why_processor:
            allowed = _methods(each for each in SOLVERS if not each.why_processor)
            got, why = f'"{self.method}"', f": {kind.why_processor}"
            raise Refusal("method", self.method, f"{allowed} on {self.device.name}", got=got, rest=why)
        if self.averages and not kind.has_averages:
            allowed = _methods(each for each in SOLVERS if each.has_averages)
            raise Refusal("method", self.method, f"{allowed} with averages")

    def solver(self, problem: Problem) -> Solver:
        """Return the solver of a problem; ValueError if a method was asked for that cannot solve it."""
        if self.method != AUTO:
            (solver,) = self.solvers
            if reason := solver.why_not(problem):
                raise Refusal("method", self.method, f'"dense" or "auto" {reason}', got=f'"{self.method}"')
            return self._bounded(problem, solver)
        if self._is_long(problem) and not self.averages:
            able = [each for each in self.solvers if not each.is_last and each.why_not(problem) is None]
            if able:
                return self._hurried(problem, self._first(problem, able))
        if self._is_long_curve(problem) and (condensed := self._taking_over(problem)):
            return self._hurried(problem, condensed.with_every_pair())
        return self.solvers[-1]

    def instead(self, problem: Problem, solver: Solver) -> Solver | None:
        """Return what solves a problem that a solver could not resolve, None if nothing may or can within minutes."""
        if self.method != AUTO or solver.is_last:
            return None
        if not solver.takes_over and (other := self._taking_over(problem)):
            return self._hurried(problem, other) if _is_quick(other.estimate(problem)) else None
        dense, rows = Dense(self.tolerance, averages=self.averages), problem.steps * problem.data.outputs
        return dense if rows <= self.most_rows and _is_quick(dense.estimate(problem)) else None

    def _taking_over(self, problem: Problem) -> Solver | None:
        """Return what solves a problem that others have not resolved, short of every step; None if it cannot."""
        able = (each for each in self.solvers if each.takes_over and each.why_not(problem) is None)
        return next(able, None)

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
        if not self.hurries or solver.is_last or _is_quick(Dense(self.tolerance).estimate(problem)):
            return solver
        return solver.hurried(math.inf)

    def _is_long(self, problem: Problem) -> bool:
        """Whether there are so many steps that it is not worth solving every one of them."""
        return problem.steps * problem.data.outputs > (SHORT if self.device == CPU else _SHORT_ON_DEVICE)

    def _is_long_curve(self, problem: Problem) -> bool:
        """Whether curves are found sooner with a condensed past."""
        if self.averages or self.device != CPU:
            return False
        return problem.steps * problem.data.outputs > SHORT_CURVE


def _methods(kinds: Iterable[type[Solver]]) -> str:
    """Name methods to take instead, without those that are not for everyday use."""
    names = [f'"{kind.name}"' for kind in kinds if kind.is_automatic]
    return f'{", ".join(names)} or "{AUTO}"'


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
    Dense(tolerance=1e-08, depth_nodes=None, device=Device(name='cpu', torch_device=None), averages=(), roots=False)
    """
    options = dict(values)
    if "averages" in options:
        options["averages"] = averages_from_json(options["averages"])
    return _BY_NAME[options.pop("name")](**options)


@dataclass(frozen=True)
class Batch:
    """Problems that are solved together, by their positions in a list."""

    solver: Solver
    members: list[int]


@usual_arithmetic
def batches(problems: Sequence[Problem], choice: Choice) -> list[Batch]:
    """Say which problems are solved together, and how; those in which every step is solved come first."""
    groups: dict[Solver, list[int]] = {}
    for index, problem in enumerate(problems):
        groups.setdefault(choice.solver(problem), []).append(index)
    found = []
    for solver, members in sorted(groups.items(), key=lambda each: not each[0].is_last):
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


@usual_arithmetic
def by_roots(problem: Problem, answer: Answer, choice: Choice) -> Answer:
    """Return the answer; if its losses depend on rounding, one whose correlations are kept by their roots."""
    solver = Dense(choice.tolerance, device=choice.device, averages=choice.averages, roots=True)
    is_allowed = choice.method in (AUTO, Dense.name) and solver.why_no_roots(problem) is None
    if answer.rounding_at is None or not is_allowed or solver.memory([problem]) > CPU.available():
        return answer
    with one_blas_thread():
        (steady,) = solver.solve([problem])
    return steady


@usual_arithmetic
def _solved(members: list[Problem], solver: Solver, choice: Choice, progress: Progress) -> list[Answer]:
    """Solve a batch; what is not resolved is solved in another way, if the choice was free."""
    try:
        return solver.solve(members, progress)
    except Unresolved as reason:
        outcomes = reason.outcomes or [reason] * len(members)
    return [
        _solved_instead(member, solver, outcome, choice, progress) if isinstance(outcome, Unresolved) else outcome
        for member, outcome in zip(members, outcomes, strict=True)
    ]


def _solved_instead(problem: Problem, solver: Solver, reason: Unresolved, choice: Choice, progress: Progress) -> Answer:
    """Solve a problem in another way than by a solver that did not resolve it; raise the reason if there is none."""
    other = choice.instead(problem, solver)
    if other is None:
        raise Unresolved(f"{reason}{_or_every_step(problem, solver, choice)}") from reason
    (answer,) = _solved([problem], other, choice, progress)
    return answer


def _or_every_step(problem: Problem, solver: Solver, choice: Choice) -> str:
    """End of a sentence: what it would take to solve every step, where that was left out for the time it takes."""
    if choice.method != AUTO or solver.is_last:
        return ""
    condensed, work = Condensed(choice.tolerance), Dense(choice.tolerance).estimate(problem)
    if not solver.takes_over and condensed.why_not(problem) is None:
        takes = in_time(condensed.estimate_of_oscillations(problem).numbers / _NUMBERS_PER_SECOND)
        return f'; or take method="condensed", which may take some {takes} where training oscillates'
    if work.bytes > CPU.available():
        return ""
    takes = f"{in_bytes(work.bytes)} and some {in_time(work.numbers / _NUMBERS_PER_SECOND)}"
    return f'; or take method="dense", which solves every step in {takes}'
