"""Rows of a panel depend on each other: sweep them until they stand still."""

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
        self._ends = np.cumsum([int(np.prod(shape[1:])) for shape in self._shapes])[:-1].tolist()
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
        scales, alone = [self._scale(each) for each in self._unknowns], self._batch == 1
        given_up, held = ignore.copy(), ignore.copy()
        changes: list[NDArray[np.float64]] = []
        residual = np.full(self._batch, np.inf)
        self.count[:] = 0

        def swept(z: Array) -> Array:
            holds = None if alone or not held.any() else beside(held, z)
            self._write(z, scales, holds)
            sweep()
            new = self._gather(scales)
            change, settled = self._measured(new - z, z, tolerance)
            changes.append(change)
            recent, before = changes[-_PATIENCE:], changes[:-_PATIENCE]
            stuck = np.min(recent, axis=0) > 0.5 * np.min(before, axis=0) if before else np.zeros(self._batch, bool)
            fails, moving = stuck | ~np.isfinite(change), ~held
            residual[moving] = change[moving]
            self.count[moving] += 1
            if alone:
                given_up[:] = fails
                return new
            given_up[moving] = fails[moving]
            held[moving] = fails[moving] | (settled[moving] & (len(changes) > 1))
            swept_on: Array = new if holds is None else namespace(z).where(holds[:, None], z, new)
            return swept_on

        start = self._gather(scales)
        fixed_point(swept, start, tolerance=tolerance, most_sweeps=most_sweeps, ignore=given_up, memory=MEMORY)
        return residual

    def _scale(self, unknown: Unknown) -> Array:
        """What changes of an unknown are judged by, shape (batch,)."""
        xp = namespace(unknown.function.matrix)
        size = xp.max(xp.abs(unknown.function[self._rows].reshape(self._batch, -1)), axis=1)
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
        starts, written = [0, *self._ends], []
        for each, scale, shape, start, stop in zip(
            self._unknowns, scales, self._shapes, starts, [*self._ends, z.shape[1]], strict=True
        ):
            one = (self._batch, *[1] * (len(shape) - 1))
            values = scale.reshape(one) * z[:, start:stop].reshape(shape)
            if holds is not None and self._written:
                values = namespace(z).where(holds.reshape(one), self._written[len(written)], values)
            each.function[self._rows] = values
            written.append(values)
        self._written = written

    def _measured(self, change: Array, z: Array, tolerance: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Largest change of each problem, and whether it has settled, shape (batch,); real and imaginary parts must."""
        xp = namespace(z)
        is_complex = xp.isdtype(z.dtype, "complex floating")
        parts = [(change.real, z.real), (change.imag, z.imag)] if is_complex else [(change, z)]
        every = [change, *(each for part in parts for each in part)] if self._batch > 1 else [change]
        # All that is looked at comes from a device at once.
        largest = to_numpy(xp.stack([xp.max(xp.abs(each), axis=1) for each in every]))
        settled = (largest[1::2] <= tolerance * largest[2::2]).all(axis=0)
        return largest[0], settled


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
