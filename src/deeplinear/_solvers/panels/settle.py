"""Rows of a panel depend on each other: sweep them until they stand still."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, namespace, to_numpy
from deeplinear._equations.fixed_point import fixed_point
from deeplinear._equations.two_time import TwoTime

MEMORY = 12
"""Number of earlier sweeps that are combined."""

_LEAST = 1e-300
"""Size by which the changes of an unknown that is zero are judged."""

_PATIENCE = 12
"""A sweep that has not halved the residual for as long is taken to be at the limit of rounding, or stuck."""


@dataclass(frozen=True)
class Unknown:
    """A function of two times of which a sweep reads rows before it writes them.

    Attributes
    ----------
    function
        The function of two times, with the axis of the batch first.
    floor
        Changes are judged by the largest entry of the rows, or by this if it is larger; a number, or of shape (batch,).
    """

    function: TwoTime
    floor: Array | float = 0.0


class Sweeps:
    """Sweeps over rows of some unknowns, each problem of a batch until it stands still.

    A problem that has come to a standstill, or is not waited for, is swept again and again from what it was swept from
    last, so that its rows stay what they are, whatever the others still need.

    Parameters
    ----------
    unknowns
        What a sweep reads and then writes.
    rows
        The rows of a panel.

    Attributes
    ----------
    count
        Sweeps in the last call until each problem stood still, shape (batch,).
    """

    def __init__(self, unknowns: Sequence[Unknown], rows: slice) -> None:
        self._unknowns, self._rows = unknowns, rows
        self._shapes = [each.function[rows].shape for each in unknowns]
        self._ends = list(itertools.accumulate(math.prod(shape[1:]) for shape in self._shapes))
        self._batch = self._shapes[0][0]
        self._written: list[Array] = []  # from which the rows were swept last
        self.count: NDArray[np.int64] = np.zeros(self._batch, np.int64)

    def settle(
        self, sweep: Callable[[], None], *, tolerance: float, most_sweeps: int, ignore: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Solve for the rows, starting from what stands there.

        Parameters
        ----------
        sweep
            Fills the rows once, from the unknowns as they are.
        tolerance, most_sweeps
            Relative change at which to end, number of sweeps after which to give up.
        ignore
            Problems that are not waited for, shape (batch,).

        Returns
        -------
        residual
            Relative change in the last sweep, shape (batch,).
        """
        scales, watch = [self._scale(each) for each in self._unknowns], _Watch(ignore, tolerance, most_sweeps)
        unseen: list[Array] = []

        def swept(z: Array) -> Array:
            if unseen:
                watch.look(to_numpy(unseen.pop()))
            holds = beside(watch.held, z) if watch.holds_some else None
            self._write(z, scales, holds)
            sweep()
            new = self._gather(scales)
            largest = self._largest(new - z, z)
            if watch.is_alone:
                watch.look(to_numpy(largest))
            else:  # a batch is looked at before the next sweep, when its device has been waited for anyway
                unseen.append(largest)
            swept_on: Array = new if holds is None else namespace(z).where(holds[:, None], z, new)
            return swept_on

        start, given_up = self._gather(scales), watch.given_up
        fixed_point(swept, start, tolerance=tolerance, most_sweeps=most_sweeps, ignore=given_up, memory=MEMORY)
        if unseen:
            watch.look(to_numpy(unseen.pop()))
        self.count = watch.count
        return watch.residual

    def _scale(self, unknown: Unknown) -> Array:
        """What changes of an unknown are judged by, shape (batch,)."""
        xp = namespace(unknown.function.matrix)
        size: Array = xp.max(xp.abs(unknown.function[self._rows].reshape(self._batch, -1)), axis=1)
        for least in (unknown.floor, _LEAST):
            size = xp.where(size < least, least, size)
        return size

    def _gather(self, scales: Sequence[Array]) -> Array:
        """The rows in units of their scales, shape (batch, numbers)."""
        values = [
            each.function[self._rows].reshape(self._batch, -1) / scale[:, None]
            for each, scale in zip(self._unknowns, scales, strict=True)
        ]
        joined: Array = namespace(values[0]).concat(values, axis=1)
        return joined

    def _write(self, z: Array, scales: Sequence[Array], holds: Array | None) -> None:
        """Fill the rows; those of problems that are held as they were before."""
        written: list[Array] = []
        places = itertools.pairwise([0, *self._ends])
        for each, scale, shape, (start, stop) in zip(self._unknowns, scales, self._shapes, places, strict=True):
            one = (self._batch, *[1] * (len(shape) - 1))
            values = scale.reshape(one) * z[:, start:stop].reshape(shape)
            if holds is not None and self._written:
                values = namespace(z).where(holds.reshape(one), self._written[len(written)], values)
            each.function[self._rows] = values
            written.append(values)
        self._written = written

    def _largest(self, change: Array, z: Array) -> Array:
        """Largest change of each problem; in a batch also what tells whether it has settled, shape (numbers, batch).

        These are the largest change, and number, of real parts and of imaginary parts, which must settle too.
        """
        xp = namespace(z)
        if self._batch == 1:
            only: Array = xp.max(xp.abs(change), axis=1)[None]
            return only
        is_complex = xp.isdtype(z.dtype, "complex floating")
        parts = [change.real, z.real, change.imag, z.imag] if is_complex else [change, z]
        largest: Array = xp.stack([xp.max(xp.abs(each), axis=1) for each in (change, *parts)])
        return largest


class _Watch:
    """What has become of each problem while it is swept.

    Attributes
    ----------
    is_alone
        Whether there is one problem.
    held
        Problems that stand still, or that are not waited for, shape (batch,); the sweeps of one on its own just end.
    given_up
        Problems that are not waited for, or no more, shape (batch,).
    residual, count
        Change in the last sweep, and number of sweeps until then, shape (batch,).
    """

    def __init__(self, ignore: NDArray[np.bool_], tolerance: float, most_sweeps: int) -> None:
        batch, self._tolerance = len(ignore), tolerance
        self.is_alone = batch == 1
        self.held, self.given_up = ignore.copy(), ignore.copy()
        self.residual: NDArray[np.float64] = np.full(batch, np.inf)
        self.count: NDArray[np.int64] = np.zeros(batch, np.int64)
        self._changes, self._seen = np.zeros((most_sweeps + 1, batch)), 0

    @property
    def holds_some(self) -> bool:
        """Whether some problem stands still while others do not."""
        return not self.is_alone and bool(self.held.any())

    def look(self, largest: NDArray[np.float64]) -> None:
        """Look at what ``Sweeps`` say about the next sweep."""
        change, now = largest[0], self._seen
        self._changes[now] = change
        self._seen = now + 1
        fails = ~np.isfinite(change)
        if now >= _PATIENCE:
            first = now + 1 - _PATIENCE
            fails |= self._changes[first : now + 1].min(axis=0) > 0.5 * self._changes[:first].min(axis=0)
        if self.is_alone:
            self.residual, self.given_up[:], self.count[:] = change, fails, self._seen
            return
        moving = ~self.held
        for known, new in ((self.residual, change), (self.given_up, fails), (self.count, self._seen)):
            np.copyto(known, new, where=moving)
        settled = (largest[1::2] <= self._tolerance * largest[2::2]).all(axis=0)
        self.held |= fails | (settled & (now > 0))


def settle(
    unknowns: Sequence[Unknown],
    sweep: Callable[[], None],
    rows: slice,
    *,
    tolerance: float,
    most_sweeps: int,
    ignore: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Solve for rows of the unknowns in one call, as ``Sweeps`` do; all problems are waited for unless some are not."""
    sweeps = Sweeps(unknowns, rows)
    left_out = np.zeros(len(sweeps.count), bool) if ignore is None else ignore
    return sweeps.settle(sweep, tolerance=tolerance, most_sweeps=most_sweeps, ignore=left_out)
