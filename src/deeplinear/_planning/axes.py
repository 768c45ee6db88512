"""Fields of a problem as coordinates of a search: from where to where, and on which scale."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.measured import Followed
from deeplinear._learning_rate.measured_optimum import Scale
from deeplinear._problem.edit import about_field, field_names, get_field, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate
from deeplinear._theory.sensitivity import CONTINUOUS

Array = NDArray[np.float64]

_MOST_AXES = 20

_BELOW_ONE = ("momentum", "beta2", "beta")
"""Fields that are fractions carried on, whose coordinate is the logarithm of how many steps that lasts, 1 / (1 - x)."""

_OFFSET = 1e-3
"""What is added to a field that may be zero before its logarithm is taken."""

_LOWEST_RATE, _HIGHEST_RATE = 1e-12, 1e12
"""Bounds of a learning rate unless others are given: none that could matter."""


@dataclass(frozen=True)
class Axis:
    """A field, its bounds, and its coordinate.

    Attributes
    ----------
    name
        Of the field.
    low, high
        Bounds of its value.

    Examples
    --------
    >>> axis = Axis("momentum", 0.0, 0.9)
    >>> axis.coordinate(0.9), axis.value(axis.coordinate(0.5)), axis.speed(0.5)
    (2.302585092994046, 0.5, 0.5)
    """

    name: str
    low: float
    high: float

    def coordinate(self, value: float) -> float:
        """Return the coordinate of a value: log(x), log(x + 0.001) where x may be zero, or log(1 / (1 - x))."""
        inside = max(value, self.low)
        return -math.log1p(-inside) if self.name in _BELOW_ONE else math.log(inside + self._offset)

    def value(self, coordinate: float) -> float:
        """Return the value of a coordinate, never beyond the bounds, which it returns without rounding errors."""
        for bound, side in ((self.low, 1.0), (self.high, -1.0)):
            if side * coordinate <= side * self.coordinate(bound):
                return bound
        return -math.expm1(-coordinate) if self.name in _BELOW_ONE else math.exp(coordinate) - self._offset

    @property
    def free(self) -> "Axis":
        """Return the axis without bounds, whose coordinate is the logarithm of what power laws are laws of."""
        return Axis(self.name, np.finfo(float).tiny, math.nextafter(1.0, 0.0) if self.name in _BELOW_ONE else math.inf)

    @property
    def quantity(self) -> str:
        """What power laws are laws of, in words: the field, or how many steps it lasts."""
        return f"1 / (1 - {self.name})" if self.name in _BELOW_ONE else self.name

    def speed(self, value: float) -> float:
        """Return the derivative of the value with respect to the coordinate."""
        return 1.0 - value if self.name in _BELOW_ONE else value + self._offset

    @property
    def _offset(self) -> float:
        return _OFFSET if self.low == 0 else 0.0


def axes_of(problem: Problem, over: Any, bounds: Any) -> tuple[Axis, ...]:
    """Return the axes of a search, or refuse what cannot be searched."""
    names = (over,) if isinstance(over, str) else tuple(checks.listed("over", over, _MOST_AXES, of="names"))
    allowed = searchable(problem)
    if not names or len(set(names)) < len(names):
        raise Refusal("over", list(names), "one or more distinct names")
    for name in names:
        if name not in allowed:
            raise Refusal("over", name, f"among {', '.join(allowed)} for this problem")
        value = get_field(problem, name)
        if name != "lr" and not (isinstance(value, float) and math.isfinite(value)):
            raise Refusal(name, value, "one finite number to be searched over")
    if bounds is not None and not isinstance(bounds, Mapping):
        raise Refusal("bounds", bounds, "a dictionary of fields with their lowest and highest value")
    given = dict(bounds or {})
    for name in given:
        if name not in names:
            raise Refusal("bounds", name, f"given for fields that are searched over ({', '.join(names)})")
    return tuple(_axis(problem, name, given.get(name)) for name in names)


def searchable(problem: Problem) -> list[str]:
    """Fields of a problem that can be searched over, if they have one finite value."""
    return [name for name in CONTINUOUS if name in field_names(problem) and name != "noise"]


def _axis(problem: Problem, name: str, bounds: Any) -> Axis:
    """Return an axis with its bounds, by default the usual ones of the field."""
    if bounds is None:
        usual = (_LOWEST_RATE, _HIGHEST_RATE) if name == "lr" else _usual(problem, name)
        value = usual[0] if name == "lr" else get_field(problem, name)
        return Axis(name, min(float(usual[0]), value), max(float(usual[1]), value))
    ends = tuple(bounds) if isinstance(bounds, Sequence) and not isinstance(bounds, str) else ()
    if len(ends) != 2 or not all(isinstance(end, int | float) and math.isfinite(end) for end in ends):
        raise Refusal(f"bounds[{name!r}]", bounds, "two finite numbers, low and high")
    low, high = map(float, ends)
    if not low < high:
        raise Refusal(f"bounds[{name!r}]", bounds, "two numbers, the second one larger")
    if low < 0 or (low == 0 and name not in ("momentum", "weight_decay", "beta2", "beta", "branch", "rho")):
        raise Refusal(f"bounds[{name!r}]", bounds, "positive")
    if name in _BELOW_ONE and high >= 1:
        raise Refusal(f"bounds[{name!r}]", bounds, "below 1")
    return Axis(name, low, high)


def _usual(problem: Problem, name: str) -> tuple[float, float]:
    """Range of a field that is worth looking at, in the units of the problem."""
    about = about_field(problem, name)
    counted = about.usual_count if problem.data.dimension_free else None
    return counted or about.usual


def check_corners(problem: Problem, axes: Sequence[Axis]) -> None:
    """Refuse bounds between which there are values that contradict each other, or what else a problem refuses."""
    ends = [(axis.low, axis.high) for axis in axes]
    for corner in np.array(np.meshgrid(*ends)).reshape(len(axes), -1).T:
        values = {axis.name: float(value) for axis, value in zip(axes, corner, strict=True)}
        try:
            at(problem, values)
        except Refusal as refusal:
            shown = " and ".join(f"{name} {value:g}" for name, value in values.items() if name != "lr")
            text = f"bounds must leave only values that go together, but with {shown}: {refusal}"
            raise Refusal("bounds", values, "of values that go together", text=text) from None


def at(problem: Problem, values: Mapping[str, float]) -> Problem:
    """Return the problem with other values; that of ``lr`` is a factor where the rate is a schedule."""
    rest = {name: value for name, value in values.items() if name != "lr"}
    changed = replace(problem, rest) if rest else problem
    return with_rate(changed, values["lr"]) if "lr" in values else changed


def followed(axis: Axis) -> Followed:
    """Return how networks are searched for the best value of a field other than the rate."""
    scale = Scale(axis.coordinate, axis.value, axis.coordinate(axis.low), axis.coordinate(axis.high))
    return Followed(axis.name, lambda problem, value: at(problem, {axis.name: value}), scale, axis.free.coordinate)
