"""What a panel of the paper is: data. What is trained, how it is shown, and what is claimed of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import deeplinear as dl
from deeplinear._reproduce.claim import Claim
from deeplinear._reproduce.jobs import Clock, Job, Limit, Train, Tune
from deeplinear._reproduce.results import Costs, Edges, Lines, Optima, Timed, Trainings


@dataclass(frozen=True)
class Size:
    """How large the experiment of a panel is at one scale.

    Attributes
    ----------
    dim
        Input dimension D of the networks (for power laws, how many modes they see).
    seeds
        Networks per curve.
    steps
        Most training steps, as many as the problem has by default.
    curves
        Most curves, evenly chosen; all by default.
    """

    dim: int
    seeds: int
    steps: int | None = None
    curves: int | None = None


@dataclass(frozen=True)
class Line:
    """One curve: a problem, the value in which it differs from the other curves, and what to call it.

    ``networks`` is False for what can only be solved, such as infinite width, and ``drawn`` for what claims ask for and
    the picture does not show.
    """

    value: float
    label: str
    problem: dl.Problem
    networks: bool = True
    group: str = ""
    drawn: bool = True

    def at(self, size: Size) -> "Line":
        """Return the line with as many steps as the size allows."""
        steps = min(self.problem.steps, size.steps or self.problem.steps)
        return replace(self, problem=replace(self.problem, steps=steps))


def chosen(lines: tuple[Any, ...], size: Size) -> tuple[Any, ...]:
    """Return as many lines as the size allows, the first and the last among them."""
    count = min(len(lines), size.curves or len(lines))
    if count == 1:
        return lines[-1:]
    return tuple(lines[round(index * (len(lines) - 1) / (count - 1))] for index in range(count))


class _Curves(ABC):
    """A study each of whose lines takes one job."""

    lines: tuple[Line, ...]
    results: ClassVar[type[Lines]]

    def at(self, size: Size) -> Self:
        """Return the study with as many lines and steps as the size allows."""
        lines = tuple(line.at(size) for line in chosen(self.lines, size))
        return replace(self, lines=lines)  # type: ignore[type-var]  # a dataclass, as all studies are

    def jobs(self, size: Size) -> tuple[Job, ...]:
        """What it takes, in the order of its lines."""
        return tuple(self._job(line, size) for line in self.lines)

    @abstractmethod
    def _job(self, line: Line, size: Size) -> Job:
        """What one line takes."""

    def gathered(self, data: list[Any]) -> Any:
        """Bring the results of the jobs into the shape that claims and pictures read."""
        make = self.results.make
        return self.results([make(line, each) for line, each in zip(self.lines, data, strict=True)])


@dataclass(frozen=True)
class Training(_Curves):
    """Loss curves: each line is solved, and trained where networks can be."""

    lines: tuple[Line, ...]
    results: ClassVar[type[Lines]] = Trainings
    over_rates = False

    def _job(self, line: Line, size: Size) -> Job:
        return Train(line.problem, size.dim if line.networks else None, size.seeds)


@dataclass(frozen=True)
class Rates(_Curves):
    """Losses against the learning rate, with the optimum of each line; lines differ in the field ``over``.

    ``lrs`` are the rates at which networks are trained: lowest, highest and how many, evenly spaced in the logarithm.
    By default they are a factor sqrt(2) apart, around the optimum of each line. ``method`` is how ``simulate`` keeps
    their matrices.
    """

    over: str
    lines: tuple[Line, ...]
    lrs: tuple[float, float, int] | None = None
    method: str = "auto"
    results: ClassVar[type[Lines]] = Optima
    over_rates = True

    def _job(self, line: Line, size: Size) -> Job:
        return Tune(line.problem, self.over, line.value, self.lrs, size.dim, size.seeds, self.method)


@dataclass(frozen=True)
class Stability(_Curves):
    """The largest learning rate that trains, of each line."""

    lines: tuple[Line, ...]
    results: ClassVar[type[Lines]] = Edges
    over_rates = True

    def _job(self, line: Line, size: Size) -> Job:
        return Limit(line.problem, size.dim if line.networks else None, size.seeds)


@dataclass(frozen=True)
class Series:
    """Problems of growing size, which is the value of their lines; what is timed, and how the paper says it grows.

    ``what`` is "network", "theory" or "panels"; ``kind`` says of which networks too, and ``axis`` is the letter of the
    size. Powers are those of sizes from ``beyond`` on. ``exponent`` is None where the paper says nothing.
    """

    what: str
    kind: str
    axis: str
    lines: tuple[Line, ...]
    beyond: float
    dim: int | None = None
    exponent: float | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.kind}, {self.axis}"


@dataclass(frozen=True)
class Timing:
    """Seconds that problems of growing size take."""

    series: tuple[Series, ...]
    over_rates = False

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines of all series."""
        return tuple(line for each in self.series for line in each.lines)

    def at(self, size: Size) -> "Timing":
        """Return the study with its series cut to their smallest sizes, if the scale says so."""
        cut = (replace(each, lines=each.lines[: size.curves or len(each.lines)]) for each in self.series)
        return Timing(tuple(cut))

    def jobs(self, size: Size) -> tuple[Job, ...]:
        """What it takes, in the order of its lines."""
        return tuple(Clock(line.problem, each.what, each.dim) for each in self.series for line in each.lines)

    def gathered(self, data: list[Any]) -> Costs:
        """Bring the results of the jobs into the shape that claims and pictures read."""
        left = iter(data)
        return Costs([Timed(each, [next(left) for _ in each.lines]) for each in self.series])


Study = Training | Rates | Stability | Timing


@dataclass(frozen=True)
class OverSteps:
    """Loss against training step. ``guides`` are dotted lines: a label, steps and losses, from the results."""

    x: str = "linear"
    y: str = "log"
    losses: tuple[str, ...] = ("test_loss",)
    xlim: tuple[float, float] | None = None
    ylim: tuple[float, float] | None = None
    guides: Callable[[Any], list[tuple[str, Any, Any]]] | None = None


@dataclass(frozen=True)
class OverValues:
    """Test loss against the value of the lines, at several steps (as fractions of the horizon)."""

    x: str
    at: tuple[float, ...]
    y: str = "log"


@dataclass(frozen=True)
class OverRates:
    """Loss at the last step against the learning rate, optima marked.

    ``beyond`` is how far beyond its optimum a curve is shown, as a factor: far beyond, training is unstable and the
    loss at one step says little.
    """

    beyond: float = math.inf


@dataclass(frozen=True)
class RateOverValues:
    """A rate against the value of the lines, one curve per group."""

    x: str
    guides: Callable[[Any], list[tuple[str, Any, Any]]] | None = None


@dataclass(frozen=True)
class SlopeOverValues:
    """Late exponents of the lines against their value, one curve per group, with laws as functions of the value."""

    x: str
    laws: dict[str, Callable[[Any], Any]] = field(hash=False)


@dataclass(frozen=True)
class OverSizes:
    """Seconds against size, one axis for each kind of work."""


View = OverSteps | OverValues | OverRates | RateOverValues | SlopeOverValues | OverSizes


@dataclass(frozen=True)
class Panel:
    """One panel of the paper.

    Attributes
    ----------
    id, title
        Such as "1a", and what it shows in a few words.
    says
        What the paper concludes from it, in other words.
    given, choices
        Parameters that the paper gives, and those chosen here because it gives none.
    study, view
        What is computed, and how it is shown.
    claims
        Functions of the results.
    sizes
        Size of the experiment at each scale.
    """

    id: str
    title: str
    says: str
    given: str
    choices: str
    study: Study
    view: View
    claims: tuple[Callable[[Any], Claim], ...]
    sizes: dict[str, Size] = field(hash=False)

    @property
    def figure(self) -> str:
        """The figure that it is part of, such as "1"."""
        return self.id.rstrip("abcd")
