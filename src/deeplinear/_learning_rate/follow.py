"""Losses at lower rates from the earlier steps of a run.

Training time is rate times steps. So the loss at the last of T steps with a rate lower by a factor e^-h is about what
this run had at step e^-h T. Where the lower rate is known too, the ratio of the two says by how much that is wrong
there; it goes to 1 as h goes to 0, about as a power of h. That holds for runs below the edge of stability, which fall,
or overfit slowly, but do not go up and down. It is an observation and no bound: with momentum the loss can oscillate
with the rate where it does not in time, so whoever uses this must see that it goes on from what is solved beside it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PEAK = 1e-3
"""Height of a peak, in log(loss), that a run may have come over."""

_RISING = 1.0
"""Largest slope of log(loss) with log(step) towards the end of a run: what blows up is much steeper."""

_OFF = 0.2
"""Largest error at the lower rate, in log(loss)."""

_BENT = 0.5
"""Part of that error that may be left in between once a line of it is subtracted."""


@dataclass(frozen=True)
class Followed:
    """Losses between two rates, as they follow from the run at the higher one.

    Attributes
    ----------
    places
        Logarithms of rates, increasing; the ends are the two rates.
    heights
        Logarithms of the losses there, those of the two rates exactly.
    off
        How far earlier steps of the run are off at the lower rate, before that is subtracted.
    """

    places: Array
    heights: Array
    off: float

    @property
    def least(self) -> float:
        """Logarithm of the least loss that may be expected."""
        return float(self.heights.min()) - _BENT * self.off

    def at(self, x: float) -> float:
        """Logarithm of the loss at a rate."""
        return float(np.interp(x, self.places, self.heights))


def follow(low: float, height: float, high: float, run: Array) -> Followed | None:
    """Predict losses between two rates; None where earlier steps do not tell them.

    Parameters
    ----------
    low, height
        Logarithm of the lower rate, and of its loss at the last step.
    high, run
        Logarithm of the higher rate, and those of its losses at all steps.

    Examples
    --------
    A loss that falls as 1 / (rate * step):

    >>> run = -np.log(np.arange(1.0, 102.0))
    >>> found = follow(-0.5, -math.log(100) + 0.45, 0.0, run)
    >>> round(found.at(-0.25) + math.log(100), 2)
    0.22
    """
    last = len(run) - 1
    since = math.floor(last * math.exp(low - high)) + 1
    if since > last - 1 or not np.isfinite(run).all():
        return None
    lows = np.maximum(np.minimum.accumulate(run), np.minimum.accumulate(run[::-1])[::-1])
    late = np.arange(since - 1, last + 1)
    slopes = np.diff(run[late]) / np.diff(np.log(np.maximum(late, 0.5)))
    if (run - lows).max() > _PEAK or slopes.max() > _RISING:
        return None
    places = high + np.log(np.arange(since, last + 1) / last)
    off = height - float(np.interp(low, high + np.log(np.maximum(late, 0.5) / last), run[late]))
    if abs(off) > _OFF:
        return None
    heights = run[since:] + off * (high - places) / (high - low)
    return Followed(np.concatenate([[low], places]), np.concatenate([[height], heights]), abs(off))
