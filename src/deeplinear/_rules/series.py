"""A number of training that may change from step to step: one value, one for each step, a schedule, or a function."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.checks import Check, Number, Wider
from deeplinear._core.refusal import Refusal
from deeplinear._rules.schedules import Schedule, from_dict

Series = float | tuple[float, ...] | Schedule | Callable[[int], float]

MOST_STEPS = 10**7
"""Most steps at which a schedule or a function is evaluated: each of them is a number that is held in memory."""


@dataclass(frozen=True)
class SeriesCheck(Wider):
    """A single value for all steps, which ``one`` checks, one for each step, which ``each`` checks, or a schedule.

    Functions of the step are taken too, unless ``functions`` is False.
    """

    each: Check
    functions: bool = True

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        return f"{self.one.allowed}, one for each step, or a schedule"

    def __call__(self, name: str, value: Any, /) -> Series:
        """Return a series as it is kept."""
        if isinstance(value, Schedule):
            return value
        if callable(value):
            if not self.functions:
                raise Refusal(name, value, self.allowed)
            return value  # type: ignore[no-any-return]
        if isinstance(value, Mapping):
            return from_dict(name, dict(value))
        if isinstance(value, Iterable) and not isinstance(value, str):
            return _checked(name, value, self.each)
        kept: float = self.one(name, value)
        return kept


def series_values(name: str, series: Series, steps: int, each: Check) -> NDArray[Any]:
    """Return the value at each of ``steps`` steps, shape (steps,).

    Examples
    --------
    >>> from deeplinear._core import checks
    >>> series_values("lr", lambda step: 0.1 / (1 + step), 2, checks.non_negative)
    array([0.1 , 0.05])
    """
    if is_function(series) or isinstance(series, Schedule):
        _check_steps(name, steps)
    if isinstance(series, Schedule):
        values = series.values(steps)
        return values if _all_hold(values, each) else np.array(_checked(name, values.tolist(), each))
    if callable(series):
        return np.array(_checked(name, (series(step) for step in range(steps)), each))
    if not isinstance(series, tuple):
        return np.full(steps, series)
    if len(series) != steps:
        allowed = f"one number or one per step (steps is {steps})"
        raise Refusal(name, series, allowed, got=f"{len(series)} values")
    return np.array(series)


def is_constant(series: Series) -> bool:
    """Whether a series is one number for all steps."""
    return not (isinstance(series, tuple | Schedule) or is_function(series))


def is_function(series: Series) -> bool:
    """Whether a series is a function of the step, which says nothing of itself."""
    return callable(series)


def is_listed(series: Series) -> bool:
    """Whether a series changes from step to step and says how: a value for each step, or a schedule."""
    return not is_constant(series) and not is_function(series)


def _check_steps(name: str, steps: int) -> None:
    if steps > MOST_STEPS:
        raise Refusal("steps", steps, f"at most {MOST_STEPS} where {name} depends on the step")


def _all_hold(values: NDArray[Any], each: Check) -> bool:
    """Whether a range holds all values, as it does if it holds the smallest and the largest; of millions, at once."""
    if not isinstance(each, Number) or values.dtype != np.float64 or not values.size:
        return False
    return bool(each.holds(values.min()) and each.holds(values.max()))


def _checked(name: str, values: Iterable[Any], each: Check) -> tuple[float, ...]:
    return tuple(each(f"{name}[{step}]", value) for step, value in enumerate(values))
