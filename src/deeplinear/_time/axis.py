"""Time axes: to which times the values of a solution belong, and what they say about the steps in between."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.arrays import finite
from deeplinear._core.cached import cached_property
from deeplinear._core.refusal import Refusal
from deeplinear._time.grid import Grid, spaced_steps

Array = NDArray[Any]


@dataclass(frozen=True)
class TimeAxis(ABC):
    """The times at which a solution has values.

    1. ``times`` are these times, in steps, shape (n,).
    2. ``at`` takes a curve of n values to whole steps that the axis covers.
    3. ``has_two_time`` says whether functions of two times are known, which they are at all pairs of ``pair_times``.
    4. ``has_every_step`` and ``has_every_pair`` say whether values are those of all steps, and of all pairs of them.
    5. ``stretches`` says where there is a value for each of several steps in a row.
    6. ``to_dict`` and ``read`` write an axis down and read it again.
    """

    kind: ClassVar[str]
    has_two_time: ClassVar[bool]
    has_every_step: ClassVar[bool] = False
    has_every_pair: ClassVar[bool] = False

    @property
    @abstractmethod
    def times(self) -> Array:
        """Times of the values, in steps, shape (n,)."""

    @abstractmethod
    def at(self, curve: Array, steps: NDArray[np.int64]) -> Array:
        """Values of a curve of shape (n,) at whole steps, of shape (steps,)."""

    @property
    def pair_times(self) -> Array:
        """Times at whose pairs functions of two times are known; all of them as a rule."""
        return self.times

    @property
    def stretches(self) -> list[slice]:
        """Positions of values that are those of steps in a row."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the axis as plain values."""
        return {"kind": self.kind} | {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class EveryStep(TimeAxis):
    """A value at each of the steps 0 .. steps - 1.

    Examples
    --------
    >>> EveryStep(4).times
    array([0, 1, 2, 3])
    """

    kind: ClassVar[str] = "every step"
    has_two_time: ClassVar[bool] = True
    has_every_step: ClassVar[bool] = True
    has_every_pair: ClassVar[bool] = True
    steps: int

    @property
    def times(self) -> Array:
        return np.arange(self.steps)

    def at(self, curve: Array, steps: NDArray[np.int64]) -> Array:
        values: Array = curve[steps]
        return values

    @property
    def stretches(self) -> list[slice]:
        return [slice(0, self.steps)]


@dataclass(frozen=True)
class SomePairs(EveryStep):
    """A value at each of the steps 0 .. steps - 1, and at pairs of some of them.

    Attributes
    ----------
    pairs
        How many steps these are, at most: half of them evenly spaced, half on a logarithmic scale.

    Examples
    --------
    >>> SomePairs(1000, 8).pair_times
    array([  0,   1,  10, 100, 333, 666, 999])
    """

    kind: ClassVar[str] = "every step, pairs of some"
    has_every_pair: ClassVar[bool] = False
    pairs: int

    @property
    def pair_times(self) -> Array:
        if self.steps <= self.pairs:
            return self.times
        half, last = self.pairs // 2, self.steps - 1
        spaced = np.concatenate([[0], np.geomspace(1, last, half), np.linspace(0, last, self.pairs - half)])
        return np.unique(spaced.round().astype(np.int64))


@dataclass(frozen=True)
class NodesOfPanels(TimeAxis):
    """Values at the nodes of panels, between which they are polynomials.

    Attributes
    ----------
    lengths
        Steps of each panel; 1 is a single step.

    Examples
    --------
    >>> NodesOfPanels((1, 1, 1, 100, 1, 1)).stretches
    [slice(0, 3, None), slice(11, 13, None)]
    """

    kind: ClassVar[str] = "nodes of panels"
    has_two_time: ClassVar[bool] = True
    lengths: tuple[int, ...]

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self.lengths)

    @property
    def times(self) -> Array:
        return self._grid.times

    def at(self, curve: Array, steps: NDArray[np.int64]) -> Array:
        values: Array = self._grid.interpolation(steps) @ finite(curve)
        return values

    @property
    def stretches(self) -> list[slice]:
        edges = np.flatnonzero(np.diff(self._grid.single, prepend=False, append=False))
        return [slice(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]


@dataclass(frozen=True)
class MergedSteps(TimeAxis):
    """Values at each of the first steps, and then at equally spaced times up to the last step.

    Attributes
    ----------
    steps
        Steps of the whole run.
    exact
        Steps at the start that have a value each.
    intervals
        Intervals into which the whole run is divided; 0 if there is nothing after the first steps.
    """

    kind: ClassVar[str] = "merged steps"
    has_two_time: ClassVar[bool] = False
    steps: int
    exact: int
    intervals: int

    @property
    def times(self) -> Array:
        every = np.arange(self.exact)
        if not self.intervals:
            return every
        spaced = (self.steps - 1) / self.intervals * np.arange(self.intervals + 1)
        return np.append(every, spaced[spaced >= self.exact])

    def at(self, curve: Array, steps: NDArray[np.int64]) -> Array:
        early = steps < self.exact
        values = np.zeros(len(steps), curve.dtype)
        values[early] = curve[steps[early]]
        if not early.all():
            last = self.exact - 1
            values[~early] = spline(self.times[last:], curve[last:])(steps[~early])
        return values

    @property
    def stretches(self) -> list[slice]:
        return [slice(0, self.exact)]


@dataclass(frozen=True)
class SpacedSteps(TimeAxis):
    """Values at some of the steps 0 .. steps - 1, as many in each decade, with a spline in the logarithm between them.

    Examples
    --------
    >>> axis = SpacedSteps(10**6)
    >>> len(axis.times), axis.at(np.log1p(axis.times), np.array([123456])).round(4)
    (332, array([11.7236]))
    """

    kind: ClassVar[str] = "spaced steps"
    has_two_time: ClassVar[bool] = False
    steps: int

    @property
    def times(self) -> Array:
        return spaced_steps(self.steps - 1)

    def at(self, curve: Array, steps: NDArray[np.int64]) -> Array:
        if len(curve) == self.steps:
            known: Array = curve[steps]
            return known
        from scipy.interpolate import CubicSpline  # slow to import

        kept = np.isfinite(curve)
        return np.asarray(CubicSpline(np.log1p(self.times[kept]), curve[kept])(np.log1p(steps)))


def read(values: dict[str, Any], steps: int, count: int) -> TimeAxis:
    """Return the axis that ``to_dict`` wrote down, that of a run of so many steps with so many times.

    Examples
    --------
    >>> read(EveryStep(4).to_dict(), 4, 4)
    EveryStep(steps=4)
    """
    every: tuple[type[TimeAxis], ...] = (EveryStep, SomePairs, NodesOfPanels, MergedSteps, SpacedSteps)
    kinds = {each.kind: each for each in every}
    known = {name: _wholes(name, value) for name, value in values.items() if name != "kind"}
    axis = kinds[values["kind"]](**known)
    length = sum(known["lengths"]) if isinstance(axis, NodesOfPanels) else known["steps"]
    largest = max(known.get(name, 0) for name in ("pairs", "exact", "intervals"))
    # What an axis would make of other numbers may not fit into memory.
    if length != steps or (axis.has_every_step and count != steps) or largest > _MOST_TIMES:
        raise Refusal("axis", values, f"that of {steps} steps at {count} times")
    return axis


_MOST_TIMES = 10**6


def _wholes(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(checks.whole(name, each) for each in value)
    return checks.whole(name, value, at_least=0)


def spline(times: Array, values: Array) -> Any:
    """Smooth curve through values, as a function of time."""
    from scipy.interpolate import make_interp_spline  # slow to import, and rarely needed

    return make_interp_spline(times, values, k=7)
