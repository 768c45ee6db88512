"""What condensing the past leaves out of the rows that belong to the last steps."""

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._equations.two_time import Room, Symmetric, shorten
from deeplinear._time.history import Condensation

_LAST = 2
"""Times whose rows are looked at, as what alternates may be hidden from one of them."""

_FLOOR = 1e-10
"""Correlations that are this fraction of their initial value, or less, are judged by that scale."""


class LastRows:
    """Rows of every function of two times at the last times.

    Later rows vary more slowly over a part of the past than the last ones do.

    Parameters
    ----------
    room
        All functions of two times.
    outputs, end
        Rows of a time, and times that are filled.
    """

    def __init__(self, room: Room, outputs: int, end: int) -> None:
        self._outputs, self._end, size = outputs, outputs * end, room.size
        last = slice(max(0, self._end - _LAST * outputs), self._end)
        moments, values, own, sizes = [], [], [], []
        for function in room.two_time:
            matrices = function.matrix.reshape(-1, size, size)
            rows = matrices[:, last, : self._end]
            if isinstance(function, Symmetric):
                equal = np.abs(np.diagonal(matrices, axis1=1, axis2=2)[:, : self._end])
                floor = _FLOOR * equal[:, :1]
                root = np.sqrt(np.maximum(equal, floor))
                values.append(rows.reshape(-1, self._end))
                own.append(root[:, last].reshape(-1, 1))
                sizes.append(np.repeat(root, rows.shape[1], axis=0))
            else:
                moments.append(rows.reshape(-1, self._end))
        self._moments, self._values = np.concatenate(moments), np.concatenate(values)
        self._norms = np.abs(self._moments).sum(axis=1)
        self._own, self._sizes = np.concatenate(own), np.concatenate(sizes)

    def left_out(self, how: Condensation) -> float:
        """Largest part of a row that is lost: of the sum of its sizes, or of the largest value that it could have."""
        how = how.of_outputs(self._outputs)
        part = slice(how.first, how.first + how.replaced)
        x, y = self._moments[:, part], self._values[:, part]
        of_sums = np.abs(x - (x @ how.moments.T) @ how.values).sum(axis=1)
        of_values = np.abs(y - (y @ how.values.T) @ how.moments).max(axis=1)
        scale = self._own[:, 0] * self._sizes[:, part].max(axis=1)
        return max(_largest(of_sums, self._norms), _largest(of_values, scale))

    def condense(self, how: Condensation) -> None:
        """Follow what becomes of the past."""
        how = how.of_outputs(self._outputs)
        for array, factors in ((self._moments, how.moments), (self._values, how.values), (self._sizes, how.values)):
            shorten(array, how, factors, self._end)
        np.abs(self._sizes, out=self._sizes)
        self._end -= how.replaced - len(how.values)


def _largest(part: Array, whole: Array) -> float:
    """Largest ratio of both; nothing is no part of nothing, and what is not finite is all of it."""
    ratio = np.where(part == 0, 0.0, part / np.where(whole == 0, 1.0, whole))
    largest = float(ratio.max(initial=0.0))
    return largest if np.isfinite(largest) else np.inf
