"""What condensing the past leaves out of the rows that belong to the last steps."""

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._equations.two_time import Room, Symmetric, shorten
from deeplinear._time.history import Condensation

_LAST = 2
"""Times whose rows are looked at, as what alternates may be hidden from one of them."""

_ROUNDING = 1e-13
"""What rounding leaves of correlations, relative to their initial values, and of responses, relative to the largest
ones that there were: it is never smooth, and what has died out need not be known any better, unless it was weights that
died out and they may come back."""

_SMALL_SLOPE = 1e-3
"""Derivatives that are this fraction of the largest one of a function, or less, are judged by that scale."""


class LastRows:
    """Rows of every function of two times at the last times.

    Later rows vary more slowly over a part of the past than the last ones do.

    Parameters
    ----------
    room
        All functions of two times.
    outputs, end
        Rows of a time, and times that are filled.
    allowed
        Part of a row that may be lost.
    before
        The rows that were looked at before these, if there were any.
    left
        What is left of the kernel at each time, at most 1, where weights that have died out may come back: then all
        that is made of them must be known as closely as before, relative to what is left. None if they may not.
    """

    def __init__(
        self,
        room: Room,
        outputs: int,
        end: int,
        allowed: float,
        before: "LastRows | None" = None,
        left: Array | None = None,
    ) -> None:
        self._outputs, self._end, size = outputs, outputs * end, room.size
        floor = min(1.0, _ROUNDING / allowed) * (np.ones(self._end) if left is None else np.repeat(left, outputs))
        last = slice(max(0, self._end - _LAST * outputs), self._end)
        moments, sums, norms, values, scales, sizes = [], [], [], [], [], []
        for function in room.two_time:
            matrices = function.matrix.reshape(-1, size, size)
            rows = matrices[:, last, : self._end].reshape(-1, self._end)
            if not isinstance(function, Symmetric):
                moments += _parts(rows)
                sums += (own := [np.abs(part).sum(axis=1) for part in _parts(rows)])
                norms += _of_slopes(own)
                continue
            equal = np.abs(np.diagonal(matrices, axis1=1, axis2=2)[:, : self._end].real)
            root = np.sqrt(np.maximum(equal, floor * equal[:, :1]))
            largest = [root[:, last].ravel(), *(np.abs(part).max(axis=1) for part in _parts(rows)[1:])]
            over_columns = np.repeat(root, last.stop - last.start, axis=0)
            values += _parts(rows)
            scales += _of_slopes(largest)
            sizes += [over_columns, *(np.ones_like(over_columns) for _ in largest[1:])]
        self._moments, self._largest_sums = np.concatenate(moments), np.concatenate(sums)
        if before is not None:
            self._largest_sums = np.maximum(self._largest_sums, before._largest_sums)
        self._norms = np.maximum(np.concatenate(norms), floor[last].min() * self._largest_sums)
        self._values, self._scales, self._sizes = (np.concatenate(each) for each in (values, scales, sizes))

    def left_out(self, how: Condensation) -> float:
        """Largest part of a row that is lost: of the sum of its sizes, or of the largest value that it could have."""
        how = how.of_outputs(self._outputs)
        part = slice(how.first, how.first + how.replaced)
        of_sums = np.abs(self._moments[:, part] @ how.lost).sum(axis=1)
        of_values = np.abs(self._values[:, part] @ how.lost.T).max(axis=1)
        scale = self._scales * self._sizes[:, part].max(axis=1)
        return max(_largest(of_sums, self._norms), _largest(of_values, scale))

    def condense(self, how: Condensation) -> None:
        """Follow what becomes of the past."""
        how = how.of_outputs(self._outputs)
        for array, factors in ((self._moments, how.moments), (self._values, how.values), (self._sizes, how.values)):
            shorten(array, how, factors, self._end)
        np.abs(self._sizes, out=self._sizes)
        self._end -= how.replaced - len(how.values)


def _parts(rows: Array) -> list[Array]:
    """Real and imaginary parts, of which the second is a derivative with a scale of its own."""
    return [rows.real, rows.imag] if np.iscomplexobj(rows) else [rows]


def _of_slopes(scales: list[Array]) -> list[Array]:
    """Scales of real and of imaginary parts, where some of the latter may be small by chance."""
    return [*scales[:1], *(np.maximum(each, _SMALL_SLOPE * each.max()) for each in scales[1:])]


def _largest(part: Array, whole: Array) -> float:
    """Largest ratio of both; nothing is no part of nothing, and what is not finite is all of it."""
    ratio = np.where(part == 0, 0.0, part / np.where(whole == 0, 1.0, whole))
    largest = float(ratio.max(initial=0.0))
    return largest if np.isfinite(largest) else np.inf
