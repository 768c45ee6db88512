"""Checks of user input: each error names the argument, its value and what is allowed.

A check is called with the name of an argument and its value, and returns the value or raises a ``Refusal``. Its
``allowed`` says in words what it takes, so that others can show it before anybody is refused.
"""

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Any, Protocol

from deeplinear._core.refusal import Refusal
from deeplinear._core.words import did_you_mean


class Check(Protocol):
    """What all checks have in common."""

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        ...

    def __call__(self, name: str, value: Any, /) -> Any:
        """Return the value as it is kept, or refuse it."""
        ...


@dataclass(frozen=True)
class Number:
    """A number within a range, which is returned as a float."""

    allowed: str
    holds: Callable[[Any], bool]

    def __call__(self, name: str, value: Any, /) -> float:
        """Return value as a float if it is a number in the range."""
        if not isinstance(value, Real) or isinstance(value, bool) or not self.holds(value):  # type: ignore[redundant-expr]
            raise Refusal(name, value, self.allowed)
        return _as_float(name, value, self.allowed)


positive = Number("a positive finite number", lambda value: 0 < value < math.inf)
non_negative = Number("a finite number, zero or above", lambda value: 0 <= value < math.inf)
precision = Number("a number from 1e-12 up to 1", lambda value: 1e-12 <= value <= 1)
fraction_below_one = Number("a number from 0 up to but not including 1", lambda value: 0 <= value < 1)


@dataclass(frozen=True)
class Whole:
    """A whole number, which is returned as an int; floats such as 3.0 are taken, 3.5 and True are not."""

    at_least: int = 1
    at_most: int | None = None

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        if self.at_most is None:
            return f"a whole number, at least {self.at_least}"
        return f"a whole number from {self.at_least} to {self.at_most}"

    def __call__(self, name: str, value: Any, /) -> int:
        """Return value as an int if it is whole and large enough."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        is_whole = is_number and (_as_float(name, value, self.allowed).is_integer() or isinstance(value, Integral))
        if not is_whole or value < self.at_least or (self.at_most is not None and value > self.at_most):
            raise Refusal(name, value, self.allowed)
        return int(value)


def _as_float(name: str, value: Any, allowed: str) -> float:
    """Return a number as a float, or refuse one that is larger than any of these."""
    try:
        return float(value)
    except OverflowError:
        raise Refusal(name, value, allowed, rest=", which is too large") from None


def whole(name: str, value: Any, at_least: int = 1, at_most: int | None = None) -> int:
    """Return value as an int; floats such as 3.0 are taken, 3.5 and True are not."""
    return Whole(at_least, at_most)(name, value)


@dataclass(frozen=True)
class Flag:
    """True or False."""

    allowed: str = "True or False"

    def __call__(self, name: str, value: Any, /) -> bool:
        """Return value if it is True or False."""
        if not isinstance(value, bool):
            raise Refusal(name, value, self.allowed)
        return value


flag = Flag()


@dataclass(frozen=True)
class Word:
    """One of a few words; where ``any_case`` is set in small or capital letters, as it may be printed."""

    words: tuple[str, ...]
    any_case: bool = False

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        return " or ".join(repr(each) for each in self.words)

    def __call__(self, name: str, value: Any, /) -> str:
        """Return the word that value is, as it is listed."""
        given = value.lower() if self.any_case and isinstance(value, str) else value
        if not isinstance(given, str) or given not in self.words:
            raise Refusal(name, value, self.allowed, rest=did_you_mean(str(value), self.words))
        return str(given)


@dataclass(frozen=True)
class Wider:
    """What the check ``one`` takes, and more."""

    one: Check


@dataclass(frozen=True)
class OrNone(Wider):
    """What another check takes, or None."""

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        return f"{self.one.allowed}, or None"

    def __call__(self, name: str, value: Any, /) -> Any:
        """Return None, or what the other check returns."""
        return None if value is None else self.one(name, value)


def listed(name: str, values: Any, most: int, of: str = "numbers") -> list[Any]:
    """Return the values of a sequence or an iterator; more than ``most`` are refused without going through them.

    Examples
    --------
    >>> listed("at", (step for step in (3, 1, 2)), most=10)
    [3, 1, 2]
    >>> listed("at", range(10**12), most=10)
    Traceback (most recent call last):
    ...
    deeplinear._core.refusal.Refusal: at must be at most 10 numbers, got 1000000000000
    """
    allowed = f"a sequence of {of}"
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise Refusal(name, values, allowed)
    try:
        found = list(islice(values, most + 1))
    except TypeError:  # an array of no dimension says that it is iterable
        raise Refusal(name, values, allowed) from None
    if len(found) > most:
        raise Refusal(
            name, values, f"at most {most} {of}", got=f"{len(values)}" if isinstance(values, Sized) else "more"
        )
    return found


def word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return value if it is one of the allowed words."""
    return Word(tuple(allowed))(name, value)
