"""What a panel leaves unresolved, and whether training is stable within it."""

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._time.grid import to_legendre

_SLOWEST = 0.5
"""Ratio of coefficients of a polynomial to those two orders lower, at which they are said not to fall."""

NOISE = 1e-12
"""What rounding leaves of correlations, relative to their initial values."""


def rest(values: Array, scale: float) -> float:
    """What comes after the last coefficients of the polynomial through values at the nodes of a panel, over a scale.

    Coefficients are taken to go on falling as they do at the end, but no faster than before that, since one that is
    small by chance says nothing about the next; and all that follow are summed. It is infinite if a value is
    not finite, and zero if nothing is left, whatever the scale.
    """
    sizes = np.abs(to_legendre() @ values)
    earlier, before, last = sizes[-6:-4].max(), sizes[-4:-2].max(), sizes[-2:].max()
    falls = [after / size for size, after in ((earlier, before), (before, last)) if size > 0]
    ratio = min(_SLOWEST, max(falls, default=_SLOWEST))
    rest = last * ratio / (1.0 - ratio)
    if not np.isfinite(rest):
        return np.inf
    return float(rest / scale) if rest else 0.0


def grows(answer: Array) -> bool:
    """Whether what alternates from step to step, in the answer (modes, steps, ...) to a disturbance, does not die out.

    High differences remove what is smooth. Near the edge of a continuous spectrum of rates, what alternates at the edge
    of stability falls as the power 3/2 of the time, so it must fall faster than that. And what grows fast need not
    do so until the end: it lowers the kernel then, and stops.
    """
    differences = np.abs(np.diff(answer, n=8, axis=1)) / 2.0**8
    alternating = differences.reshape(len(answer), differences.shape[1], -1).max(axis=(0, 2))
    third, last = np.split(alternating * (1.0 + np.arange(len(alternating))) ** 1.5, 4)[2:]
    at_first, later = np.split(alternating, [len(alternating) // 4])
    lasts = last.max() > third.max() and alternating[-len(last) :].max() > NOISE
    return bool(lasts or not later.max() <= at_first.max())
