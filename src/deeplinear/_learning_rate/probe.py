"""A rate that was solved, and what its run says about rates near it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_FEW = 8
"""Steps in which a fast oscillation comes down once, at least."""


@dataclass(frozen=True)
class Probe:
    """A rate that was solved.

    Attributes
    ----------
    x
        Logarithm of the rate.
    loss
        What is minimised, at every step; ``inf`` after a divergence.
    """

    x: float
    loss: Array

    @property
    def final(self) -> float:
        """Loss at the last step."""
        return float(self.loss[-1])

    def least(self, h: float = math.inf) -> float:
        """Least loss since step e^-h T, and of the last few steps at least."""
        return float(self._since(h).min())

    def dip(self, h: float) -> float:
        """The same, but where losses oscillate divided by the largest ratio of a peak to the lows around it."""
        return self.least(h) / self.swing(h)

    def swing(self, h: float = 0.0) -> float:
        """Largest ratio of a peak to the lows around it since step e^-h T, and of the last few steps at least."""
        loss = np.maximum(self._since(h), np.finfo(float).tiny)
        before, after = np.minimum.accumulate(loss), np.minimum.accumulate(loss[::-1])[::-1]
        peaks = loss[np.isfinite(loss)] / np.maximum(before, after)[np.isfinite(loss)]
        return float(peaks.max(initial=1.0))

    def _since(self, h: float) -> Array:
        since = math.ceil((len(self.loss) - 1) * math.exp(-h))
        return self.loss[min(since, max(len(self.loss) - _FEW, 0)) :]
