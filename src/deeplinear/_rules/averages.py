"""Averages of the weights over training, whose losses are wanted beside those of the last weights.

Every average says how a sum of weights becomes it, step after step: the sum is multiplied by ``carried``, the weights
enter with ``share``, those that are more than ``length`` steps old leave where it ``keeps_past``, and the average is
the sum over ``length``.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, check_fields
from deeplinear._core.refusal import Refusal

_DECAY = About("Decay", "How much of the average is carried over at each step.", check=checks.fraction_below_one)
_PART = About(
    "Part",
    "Fraction of the elapsed time, up to now, over which the mean is taken.",
    check=checks.Number("a number above 0 and at most 1", lambda value: 0 < value <= 1),
)


@dataclass(frozen=True)
class EMA:
    """An exponential moving average: x_0 = W_0 and x_t = decay x_{t-1} + (1 - decay) W_t.

    Parameters
    ----------
    decay
        From 0, which gives the last weights, up to but not including 1.

    Examples
    --------
    >>> EMA(0.5).weights(3)
    array([[1.  , 0.  , 0.  ],
           [0.5 , 0.5 , 0.  ],
           [0.25, 0.25, 0.5 ]])
    """

    decay: float = field(metadata=_DECAY.metadata)
    keeps_past: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def share(self, t: int) -> float:
        """Factor with which the weights of time t enter."""
        return 1.0 - self.decay if t else 1.0

    def carried(self, t: int) -> float:
        """Factor on what was there before time t."""
        return self.decay if t else 0.0

    def length(self, t: int) -> int:
        """What the sum is divided by at time t: 1."""
        return 1

    def weights(self, steps: int) -> NDArray[np.float64]:
        """Share of the weights of each time in the average at time t, shape (steps, steps)."""
        age = np.arange(steps)[:, None] - np.arange(steps)
        share = np.where(np.arange(steps) == 0, 1.0, 1.0 - self.decay)
        with np.errstate(divide="ignore"):
            return np.tril(share * self.decay ** np.maximum(age, 0))


@dataclass(frozen=True)
class TailMean:
    """The mean of the weights over the last part of training so far, or over all of it if ``part`` is 1.

    Parameters
    ----------
    part
        Above 0 and at most 1: the mean at time t is taken over the steps t - floor(part t) .. t.

    Examples
    --------
    >>> TailMean(0.5).weights(3)
    array([[1. , 0. , 0. ],
           [0. , 1. , 0. ],
           [0. , 0.5, 0.5]])
    """

    part: float = field(metadata=_PART.metadata)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def keeps_past(self) -> bool:
        """Whether weights leave the mean again."""
        return self.part < 1.0

    def share(self, t: int) -> float:
        """Factor with which the weights of time t enter the sum: 1."""
        return 1.0

    def carried(self, t: int) -> float:
        """Factor on what was there before time t: 1."""
        return 1.0

    def length(self, t: int) -> int:
        """Number of steps in the mean at time t, which the sum is divided by."""
        return math.floor(self.part * t) + 1

    def weights(self, steps: int) -> NDArray[np.float64]:
        """Share of the weights of each time in the average at time t, shape (steps, steps)."""
        time = np.arange(steps)
        length = np.array([self.length(t) for t in range(steps)])
        inside = (time[None] <= time[:, None]) & (time[None] > (time - length)[:, None])
        return np.asarray(inside / length[:, None])


Average = EMA | TailMean

_KINDS = {kind.__name__: kind for kind in (EMA, TailMean)}


def read_averages(averages: Any) -> tuple[Average, ...]:
    """Return averages as they are kept, checked to be such."""
    if isinstance(averages, Average):
        averages = (averages,)
    if not isinstance(averages, Iterable) or isinstance(averages, str):
        raise Refusal("averages", averages, "a sequence of EMA or TailMean")
    read = tuple(averages)
    for average in read:
        if not isinstance(average, Average):
            raise Refusal("averages", average, "a sequence of EMA or TailMean")
    return read


def averages_to_json(averages: Iterable[Average]) -> str:
    """Return averages as text, as files hold them.

    Examples
    --------
    >>> averages_to_json([EMA(0.5)])
    '[{"type": "EMA", "decay": 0.5}]'
    """
    return json.dumps([{"type": type(average).__name__} | asdict(average) for average in averages])


def averages_from_json(text: str) -> tuple[Average, ...]:
    """Return the averages that ``averages_to_json`` wrote."""
    return tuple(_KINDS[each.pop("type")](**each) for each in json.loads(text))
