"""One training run: losses at logged steps, and the learning rate at every step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import keep
from deeplinear._core.refusal import Refusal
from deeplinear._rules.schedules import Schedule

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

FEWEST = 8
"""Logged losses that a run must have."""

_MOST_STEPS = 10**7
"""Most training steps, each of which has a rate, and most numbers of a list."""

_PEAK = 1.0 - 1e-6
"""Fraction of the peak at which the warm-up of a run has ended."""


@dataclass(frozen=True, eq=False)
class Run:
    """Losses of a training run, and the learning rate that it had.

    Parameters
    ----------
    steps
        Steps at which the loss was logged, rising. At step s, s updates have been made.
    loss
        Loss at these steps, with whatever noise it has.
    lr
        Learning rate: one number for each logged step, or one for each training step (as many as the last logged step,
        or more), or a ``schedules`` object, whose length is then ``total`` steps, or one number.
    warmup
        Steps over which the rate rose linearly to its peak, where ``lr`` is one number, or one for each logged step and
        the first of these came later.
    smoothing
        Steps over which a logged loss is a mean, the logged one being the last of them. For an exponential average
        with factor f, which is applied at every step, this is 2 f / (1 - f).
    total
        Length of the schedule in steps; the last logged step by default.
    name
        How messages and pictures call the run.

    Attributes
    ----------
    rates
        Learning rate at every training step up to the last logged one.

    Examples
    --------
    >>> import numpy as np
    >>> steps = np.arange(100, 2001, 100)
    >>> Run(steps, 2.0 + 5.0 / steps**0.5, lr=3e-4, warmup=50, name="short")
    Run('short': 20 losses from 2.5 to 2.11, steps 100 to 2000, rate 0.0003)
    """

    steps: Steps
    loss: Array = field(repr=False)
    lr: Any = field(repr=False)
    warmup: int = 0
    smoothing: int = 0
    total: int | None = None
    name: str = "run"
    rates: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        steps, loss = _numbers("steps", self.steps), _numbers("loss", self.loss)
        _check_steps(steps, self.name)
        _check_loss(loss, steps, self.name)
        keep(self, steps=steps.astype(np.int64), loss=loss)
        keep(self, smoothing=checks.whole("smoothing", self.smoothing, at_least=0))
        keep(self, rates=rates_of(self.lr, self.steps, self.warmup, self.total))

    @property
    def peak(self) -> float:
        """The largest learning rate."""
        return float(self.rates.max())

    @property
    def rises(self) -> int:
        """Steps of the warm-up: until the rate first is at its peak."""
        first = int(np.argmax(self.rates >= _PEAK * self.peak))
        return first + 1 if first else 0

    def renamed(self, name: str) -> "Run":
        """Return the same run with another name."""
        return replace(self, name=name)

    def __repr__(self) -> str:
        first, last = self.loss[0], self.loss[-1]
        low, high = float(self.rates[self.rises :].min()), self.peak
        rates = f"{high:.3g}" if low > 0.999 * high else f"{high:.3g} to {low:.3g}"
        return (
            f"Run({self.name!r}: {len(self.steps)} losses from {first:.3g} to {last:.3g}, "
            f"steps {self.steps[0]} to {self.steps[-1]}, rate {rates})"
        )


def rates_of(lr: Any, steps: Steps, warmup: int = 0, total: int | None = None) -> Array:
    """Return the rate at every training step up to the last of ``steps``, from any of the forms that ``Run`` takes."""
    last = int(steps[-1])
    warmup = checks.whole("warmup", warmup, at_least=0)
    if warmup and warmup >= last:
        raise Refusal("warmup", warmup, f"below the last step ({last})")
    length = last if total is None else checks.whole("total", total, at_least=last)
    if isinstance(lr, Schedule):
        return _checked_rates(lr.values(length)[:last])
    values = _checked_rates(_numbers("lr", lr, single=True))
    if values.size == 1:
        return _checked_rates(values * np.minimum(1.0, (np.arange(last) + 1.0) / max(warmup, 1)))
    if len(values) == len(steps):
        return _checked_rates(_between(values, steps, warmup))
    if len(values) < last:
        allowed = f"one number for each of {len(steps)} logged steps, or for each training step up to the last ({last})"
        raise Refusal("lr", lr, allowed, got=f"{len(values)} numbers")
    return _checked_rates(values[:last])


def _between(values: Array, steps: Steps, warmup: int) -> Array:
    """Interpolate rates at logged steps, after a linear rise over the warm-up as far as they do not say."""
    first, at = int(steps[0]), np.arange(int(steps[-1]))
    rates = np.interp(at, steps, values)
    rise = min(warmup, max(first, 1))
    top = float(values[0]) if first < warmup else float(np.interp(warmup, steps, values))
    rates[:first] = top * np.minimum(1.0, (at[:first] + 1.0) / max(rise, 1))
    return rates


def _checked_rates(rates: Array) -> Array:
    wrong = np.flatnonzero(~np.isfinite(rates) | (rates < 0))
    if wrong.size:
        at = int(wrong[0])
        raise Refusal("lr", float(rates[at]), "finite and zero or above", rest=f" at step {at}")
    if not rates.any():
        raise Refusal("lr", 0.0, "above zero at some step", got="zero at all of them")
    return rates


def _numbers(name: str, values: Any, single: bool = False) -> Array:
    if isinstance(values, Sequence) and len(values) > _MOST_STEPS:
        raise Refusal(name, values, f"at most {_MOST_STEPS} numbers", got=f"{len(values)}")
    try:
        found = np.asarray(values, dtype=float)
    except (ValueError, TypeError, OverflowError):
        raise Refusal(name, values, "numbers, one for each logged step") from None
    if single and found.ndim == 0:
        found = found[None]
    if found.ndim != 1 or not found.size:
        raise Refusal(name, values, "numbers, one for each logged step", got=f"shape {found.shape}")
    return found


def _check_steps(steps: Array, name: str) -> None:
    wrong = steps[~np.isfinite(steps) | (steps < 0) | (steps != np.round(steps))]
    if wrong.size:
        raise Refusal("steps", float(wrong[0]), "whole numbers, zero or above", rest=f" in {name}")
    if steps.max() > _MOST_STEPS:
        why = f" in {name}: count updates, not tokens or examples"
        raise Refusal("steps", float(steps.max()), f"at most {_MOST_STEPS}", rest=why)
    back = np.flatnonzero(np.diff(steps) <= 0)
    if not back.size:
        return
    at, first, second = int(back[0]), int(steps[back[0]]), int(steps[back[0] + 1])
    if first == second:
        text = f"steps of {name} must rise: step {first} stands there twice; keep one loss for each step"
    elif len(back) == 1 and at > 0:
        text = (
            f"steps of {name} must rise: they go back from {first} to {second}; after a restart leave out what was "
            f"logged from step {second} on before it"
        )
    else:
        text = f"steps of {name} must rise: they go back {len(back)} times, first from {first} to {second}; sort them"
    raise Refusal("steps", second, "rising", text=text)


def _check_loss(loss: Array, steps: Array, name: str) -> None:
    if len(loss) != len(steps):
        allowed = f"one number for each of {len(steps)} logged steps"
        raise Refusal("loss", loss, allowed, got=f"{len(loss)}", rest=f" in {name}")
    wrong = np.flatnonzero(~np.isfinite(loss))
    if wrong.size:
        at, value = int(steps[wrong[0]]), loss[wrong[0]]
        advice = "leave out steps without a loss" if np.isnan(value) else "a run that diverged cannot be fitted"
        raise Refusal("loss", float(value), "finite", rest=f" at step {at} of {name}: {advice}")
    if (loss < 0).any():
        at = int(steps[np.argmax(loss < 0)])
        raise Refusal("loss", float(loss.min()), "zero or above", rest=f" at step {at} of {name}")
    if len(loss) < FEWEST:
        raise Refusal("steps", len(loss), f"at least {FEWEST}", text=f"{name} has {len(loss)} losses; log {FEWEST}")
