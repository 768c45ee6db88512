"""Checks of user input: each error names the argument, its value and what is allowed."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _refuse(name: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{name} must be {allowed}, got {value!r}")


def positive(name: str, value: Any) -> float:
    """Return value as a float that is finite and above zero."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise _refuse(name, value, "a positive finite number")
    return float(value)


def non_negative(name: str, value: Any) -> float:
    """Return value as a float that is finite and zero or above."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise _refuse(name, value, "a finite number, zero or above")
    return float(value)


def fraction_below_one(name: str, value: Any) -> float:
    """Return value as a float in [0, 1)."""
    if not _is_number(value) or not 0 <= value < 1:
        raise _refuse(name, value, "a number from 0 up to but not including 1")
    return float(value)


def whole(name: str, value: Any, at_least: int = 1) -> int:
    """Return value as an int; floats such as 3.0 are taken, 3.5 and True are not."""
    is_whole = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    if isinstance(value, bool) or not is_whole or value < at_least:
        raise _refuse(name, value, f"a whole number, at least {at_least}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return value if it is True or False."""
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")
    return value


def word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return value if it is one of the allowed words."""
    if value not in allowed:
        raise _refuse(name, value, " or ".join(repr(w) for w in allowed))
    return str(value)
