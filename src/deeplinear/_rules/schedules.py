"""Schedules: how a rate, or another number of training, changes from the first step to the last.

A schedule is a shape over the fraction of training that has passed, so it fits any number of steps. It rises to its
``peak`` during a warm-up, and then follows its shape, which depends on the fraction of the rest that has passed.

Examples
--------
>>> schedule = cosine(0.1, warmup=0.25)
>>> schedule
schedules.cosine(peak=0.1, warmup=0.25, end=0.0)
>>> schedule.values(8).round(3)
array([0.05 , 0.1  , 0.1  , 0.093, 0.075, 0.05 , 0.025, 0.007])
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import keep
from deeplinear._core.refusal import Refusal

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class Schedule:
    """What all schedules have in common; made by the functions of ``deeplinear.schedules``.

    Attributes
    ----------
    peak
        The largest value, zero or above.
    warmup
        Fraction of all steps in which the value rises to the peak, from 0 up to but not including 1.
    """

    shape: ClassVar[str] = ""
    peak: float
    warmup: float = 0.0

    def __post_init__(self) -> None:
        keep(self, peak=checks.non_negative("peak", self.peak))
        keep(self, warmup=checks.fraction_below_one("warmup", self.warmup))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"schedules.{self.shape}({values})"

    def values(self, steps: int) -> Array:
        """Value at each of ``steps`` steps, shape (steps,)."""
        step, rise = np.arange(steps), self.warmup * steps
        passed = np.clip((step - rise) / (steps - rise), 0.0, 1.0)
        factor = self._factor(passed)
        if rise > 0:
            factor = np.where(step < rise, np.minimum((step + 1.0) / rise, 1.0), factor)
        return np.asarray(self.peak * factor)

    def scaled(self, factor: float) -> "Schedule":
        """Return the same shape with the peak multiplied by a factor."""
        return type(self)(**(self._fields() | {"peak": factor * self.peak}))

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule as plain values, as TOML holds it."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self._fields().items()}
        return {"shape": self.shape} | plain

    def _factor(self, passed: Array) -> Array:
        """Fraction of the peak when so much of the time after the warm-up has passed."""
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, repr=False)
class Constant(Schedule):
    """The peak at all steps after the warm-up."""

    shape: ClassVar[str] = "constant"

    def _factor(self, passed: Array) -> Array:
        return np.ones_like(passed)


@dataclass(frozen=True, repr=False)
class _Falling(Schedule):
    """A schedule that falls to a fraction ``end`` of its peak."""

    end: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, end=_fraction("end", self.end))


@dataclass(frozen=True, repr=False)
class Linear(_Falling):
    """A straight line from the peak to a fraction ``end`` of it."""

    shape: ClassVar[str] = "linear"

    def _factor(self, passed: Array) -> Array:
        return 1.0 - (1.0 - self.end) * passed


@dataclass(frozen=True, repr=False)
class Cosine(_Falling):
    """Half a period of a cosine from the peak to a fraction ``end`` of it."""

    shape: ClassVar[str] = "cosine"

    def _factor(self, passed: Array) -> Array:
        return np.asarray(self.end + (1.0 - self.end) * 0.5 * (1.0 + np.cos(np.pi * passed)))


@dataclass(frozen=True, repr=False)
class WSD(_Falling):
    """Warm-up, stable, decay: the peak, and in the last fraction ``decay`` of all time a straight line to the end."""

    shape: ClassVar[str] = "wsd"
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, decay=checks.positive("decay", self.decay))
        if self.decay + self.warmup > 1.0:
            raise Refusal("decay", self.decay, f"at most 1 - warmup ({1.0 - self.warmup:g})")

    def _factor(self, passed: Array) -> Array:
        part = self.decay / (1.0 - self.warmup)  # of the time after the warm-up
        return 1.0 - (1.0 - self.end) * np.clip((passed - (1.0 - part)) / part, 0.0, 1.0)


@dataclass(frozen=True, repr=False)
class Power(Schedule):
    """The peak times a power of the fraction of time that is left; an exponent of 1 is a straight line to zero."""

    shape: ClassVar[str] = "power"
    exponent: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, exponent=checks.non_negative("exponent", self.exponent))

    def _factor(self, passed: Array) -> Array:
        return np.asarray((1.0 - passed) ** self.exponent)


@dataclass(frozen=True, repr=False)
class Piecewise(Schedule):
    """The peak, and from each fraction ``at`` of all time on the peak times another of the ``factors``."""

    shape: ClassVar[str] = "piecewise"
    at: tuple[float, ...] = (0.5,)
    factors: tuple[float, ...] = (0.1,)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(
            self, at=_several("at", self.at, _fraction), factors=_several("factors", self.factors, checks.non_negative)
        )
        if list(self.at) != sorted(set(self.at)):
            raise Refusal("at", self.at, "in rising order")
        if len(self.at) != len(self.factors):
            raise Refusal("factors", self.factors, f"one for each of at ({len(self.at)})")

    def _factor(self, passed: Array) -> Array:
        time = self.warmup + (1.0 - self.warmup) * passed
        return np.array([1.0, *self.factors])[np.searchsorted(self.at, time, side="right")]


_fraction = checks.Number("a number from 0 to 1", lambda value: 0 <= value <= 1)

_SHAPES: dict[str, type[Schedule]] = {each.shape: each for each in (Constant, Linear, Cosine, WSD, Power, Piecewise)}

SHAPES: tuple[str, ...] = tuple(_SHAPES)
"""Words of all shapes, which are the names of the functions below."""


def constant(peak: float, warmup: float = 0.0) -> Schedule:
    """Return the peak at all steps, after a warm-up."""
    return Constant(peak, warmup)


def linear(peak: float, warmup: float = 0.0, end: float = 0.0) -> Schedule:
    """Return a straight line from the peak to ``end`` times it."""
    return Linear(peak, warmup, end)


def cosine(peak: float, warmup: float = 0.0, end: float = 0.0) -> Schedule:
    """Return half a period of a cosine from the peak to ``end`` times it."""
    return Cosine(peak, warmup, end)


def wsd(peak: float, warmup: float = 0.0, decay: float = 0.2, end: float = 0.0) -> Schedule:
    """Return warm-up, stable, decay: a straight line to ``end`` times the peak in the last fraction ``decay``."""
    return WSD(peak, warmup, end, decay)


def power(peak: float, exponent: float, warmup: float = 0.0) -> Schedule:
    """Return the peak times a power of the fraction of time that is left."""
    return Power(peak, warmup, exponent)


def piecewise(peak: float, at: Iterable[float], factors: Iterable[float], warmup: float = 0.0) -> Schedule:
    """Return the peak, multiplied by a new factor from each given fraction of training on.

    Examples
    --------
    >>> piecewise(1.0, at=[0.5, 0.75], factors=[0.1, 0.01]).values(4)
    array([1.  , 1.  , 0.1 , 0.01])
    """
    return Piecewise(peak, warmup, at, factors)  # type: ignore[arg-type]  # which it checks, and keeps as tuples


def from_dict(name: str, values: dict[str, Any]) -> Schedule:
    """Return the schedule that ``Schedule.to_dict`` wrote; ``name`` is the argument that it is given for."""
    options = dict(values)
    shape = checks.word(f"{name}.shape", options.pop("shape", None), tuple(_SHAPES))
    known = [each.name for each in fields(_SHAPES[shape])]
    for key in options:
        if key not in known:
            raise Refusal(name, values, f"a {shape} schedule of {', '.join(known)}", got=repr(key))
    if "peak" not in options:
        raise Refusal(name, values, f"a {shape} schedule with a peak")
    try:
        return _SHAPES[shape](**options)
    except Refusal as refusal:  # in words that name the argument
        raise Refusal(f"{name}.{refusal.field}", refusal.value, refusal.allowed) from None


def _several(name: str, values: Any, check: checks.Number) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise Refusal(name, values, "a list of numbers")
    return tuple(check(f"{name}[{index}]", value) for index, value in enumerate(values))
