"""Rows of a panel depend on each other: sweep them until they stand still."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._equations.fixed_point import fixed_point
from deeplinear._equations.two_time import TwoTime

_MEMORY = 12
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
        The function of two times.
    floor
        Changes are judged by the largest entry of the rows, or by this if it is larger.
    """

    function: TwoTime
    floor: float = 0.0


def settle(
    unknowns: Sequence[Unknown], sweep: Callable[[], None], rows: slice, *, tolerance: float, most_sweeps: int
) -> float:
    """Solve for rows of the unknowns, starting from what stands there.

    Parameters
    ----------
    unknowns
        What the sweep reads and then writes.
    sweep
        Fills the rows once, from the unknowns as they are.
    rows
        The rows of a panel.
    tolerance, most_sweeps
        Relative change at which to end, number of sweeps after which to give up.

    Returns
    -------
    residual
        Relative change in the last sweep.
    """
    scales = [max(float(np.abs(each.function[rows]).max()), each.floor, _LEAST) for each in unknowns]
    shapes = [each.function[rows].shape for each in unknowns]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    changes: list[float] = []
    given_up = np.zeros(1, bool)

    def gather() -> Array:
        values = [each.function[rows].ravel() / scale for each, scale in zip(unknowns, scales, strict=True)]
        return np.concatenate(values)[None]

    def swept(z: Array) -> Array:
        for each, scale, shape, part in zip(unknowns, scales, shapes, np.split(z[0], ends), strict=True):
            each.function[rows] = scale * part.reshape(shape)
        sweep()
        new = gather()
        changes.append(float(np.abs(new - z).max()))
        recent, before = changes[-_PATIENCE:], changes[:-_PATIENCE]
        stuck = bool(before) and min(recent) > 0.5 * min(before)
        given_up[:] = stuck or not np.isfinite(changes[-1])
        return new

    fixed_point(swept, gather(), tolerance=tolerance, most_sweeps=most_sweeps, ignore=given_up, memory=_MEMORY)
    return changes[-1]
