"""Descent to a minimum whose values come in batches and are infinite beyond cliffs.

This is the quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno within bounds. It differs from SciPy's in two
things that the losses of training need: several lengths of a step are tried at once, which are solved in one batch, and
a length at which training diverges is one that is not taken, rather than an infinity inside an interpolation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LENGTHS = ((2.0, 1.0, 0.5, 0.2), (0.06, 0.02, 0.006, 0.002))
"""Parts of the quasi-Newton step that are tried together, and those that are tried if none of them goes down."""

_FARTHEST = 0.7
"""Largest change of a coordinate in a step; coordinates are logarithms, of which this is a factor of two."""

_FIRST = 0.2
"""Largest change of a coordinate in the first step, before anything is known of the curvature."""

_PATIENCE = 2
"""Steps in a row that may bring less than the tolerance before the end."""


@dataclass(frozen=True)
class Bottom:
    """Where a descent ends.

    Attributes
    ----------
    x
        The place, shape (n,).
    value, slope
        Value and gradient there, shape (n,).
    steps
        Number of steps taken.
    has_converged
        Whether another step would have brought less than the tolerance; False where the steps allowed were used up.
    """

    x: Array
    value: float
    slope: Array
    steps: int
    has_converged: bool


@dataclass(frozen=True)
class Surface:
    """What is minimised.

    Attributes
    ----------
    values
        Values at several places, ``inf`` where there is none.
    slope
        Value and gradient at one place.
    """

    values: Callable[[Sequence[Array]], Sequence[float]]
    slope: Callable[[Array], tuple[float, Array]]


def descend(
    surface: Surface,
    start: Array,
    *,
    most_steps: int,
    tolerance: float,
    low: Array | None = None,
    high: Array | None = None,
    weights: Array | None = None,
) -> Bottom:
    """Go down from a place until steps bring less than the tolerance; the end is never higher than the start.

    Parameters
    ----------
    surface
        What is minimised.
    start
        Where to begin, shape (n,), with a finite value.
    most_steps
        Number of steps at most.
    tolerance
        Decrease of the value that is not worth a step.
    low, high
        Bounds, shape (n,); none by default.
    weights
        First guess of how the curvatures along the coordinates compare, shape (n,); all equal by default.

    Examples
    --------
    >>> def slope(x):
    ...     return float((x - 1) @ (x - 1)), 2 * (x - 1)
    >>> bowl = Surface(lambda places: [slope(x)[0] for x in places], slope)
    >>> descend(bowl, np.zeros(2), most_steps=20, tolerance=1e-12, high=np.array([0.5, 3.0])).x.round(6)
    array([0.5, 1. ])
    """
    n = len(start)
    low = np.full(n, -np.inf) if low is None else low
    high = np.full(n, np.inf) if high is None else high
    first = np.diag(1.0 / (np.ones(n) if weights is None else weights))
    x, (value, slope) = np.array(start), surface.slope(start)
    inverse, is_first, idle, taken = first, True, 0, 0
    while taken < most_steps and idle < _PATIENCE:
        free = ((x > low) | (slope < 0)) & ((x < high) | (slope > 0))
        step = _step(inverse, slope, free, _FIRST if is_first else _FARTHEST)
        place = _lower(surface, x, value, step, low, high) if step.any() else None
        if place is None:
            if is_first:
                return Bottom(x, value, slope, taken, has_converged=True)
            inverse, is_first = first, True  # what is known of the curvature misleads
            continue
        after, turned = surface.slope(place)
        if not np.isfinite(turned).all():
            return Bottom(x, value, slope, taken, has_converged=False)
        inverse = _updated(inverse if not is_first else None, first, place - x, turned - slope)
        idle = idle + 1 if value - after < tolerance else 0
        x, value, slope, is_first, taken = place, after, turned, False, taken + 1
    return Bottom(x, value, slope, taken, has_converged=idle >= _PATIENCE)


def _step(inverse: Array, slope: Array, free: NDArray[np.bool_], farthest: float) -> Array:
    """Quasi-Newton step of the free coordinates, no longer than allowed."""
    step = np.zeros_like(slope)
    if free.any():
        step[free] = -np.linalg.solve(np.linalg.inv(inverse)[np.ix_(free, free)], slope[free])
    size = np.abs(step).max()
    is_short = farthest == _FARTHEST and size <= farthest
    return step if is_short or size == 0 else step * (farthest / size)


def _lower(surface: Surface, x: Array, value: float, step: Array, low: Array, high: Array) -> Array | None:
    """Best place along a step; None if none is lower than where it starts."""
    for lengths in _LENGTHS:
        places = [np.clip(x + length * step, low, high) for length in lengths]
        values = np.array(surface.values(places))
        best = int(np.argmin(values))
        if values[best] < value:
            return places[best]
    return None


def _updated(inverse: Array | None, first: Array, moved: Array, turned: Array) -> Array:
    """Inverse curvature after a step, which is left as it was where the surface bends down."""
    along = float(moved @ turned)
    if inverse is None:  # the first guess has a shape; the first step gives it a size
        size = float(turned @ first @ turned)
        inverse = first * (along / size) if along > 0 and size > 0 else first
    if along <= 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(turned)):
        return inverse
    rest = np.eye(len(moved)) - np.outer(moved, turned) / along
    updated: Array = rest @ inverse @ rest.T + np.outer(moved, moved) / along
    return updated
