"""Descents to minima whose values come in batches and are infinite beyond cliffs.

This is the quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno within bounds. It differs from SciPy's in
three things that the losses of training need: several lengths of a step are tried at once, which are solved in one
batch; descents from several starts go on side by side, so that one batch has the steps of all of them; and a length at
which training diverges is one that is not taken, rather than an infinity inside an interpolation.
"""

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

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
        Whether steps brought less than the tolerance at last, and the gradient is small: none of its free components is
        above twice the root of the tolerance. False where the steps allowed were used up, or at a cliff.
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
    slopes
        Values and gradients at several places; gradients are not finite where there is none.
    """

    values: Callable[[Sequence[Array]], Sequence[float]]
    slopes: Callable[[Sequence[Array]], Sequence[tuple[float, Array]]]


def descend(surface: Surface, start: Array, **options: Any) -> Bottom:
    """Go down from a place; see ``descend_all``.

    Examples
    --------
    >>> def slopes(places):
    ...     return [(float((x - 1) @ (x - 1)), 2 * (x - 1)) for x in places]
    >>> bowl = Surface(lambda places: [value for value, _ in slopes(places)], slopes)
    >>> descend(bowl, np.zeros(2), most_steps=20, tolerance=1e-12, high=np.array([0.5, 3.0])).x.round(6)
    array([0.5, 1. ])
    """
    return descend_all(surface, [start], **options)[0]


def descend_all(
    surface: Surface,
    starts: Sequence[Array],
    *,
    most_steps: int,
    tolerance: float,
    low: Array | None = None,
    high: Array | None = None,
    weights: Array | None = None,
) -> list[Bottom]:
    """Go down from several places until steps bring less than the tolerance; no end is higher than its start.

    Parameters
    ----------
    surface
        What is minimised.
    starts
        Where to begin, each of shape (n,), with finite values.
    most_steps
        Number of steps at most.
    tolerance
        Decrease of the value that is not worth a step.
    low, high
        Bounds, shape (n,); none by default.
    weights
        First guess of how the curvatures along the coordinates compare, shape (n,); all equal by default.
    """
    n = len(starts[0])
    bounds = (np.full(n, -np.inf) if low is None else low, np.full(n, np.inf) if high is None else high)
    first = np.diag(1.0 / (np.ones(n) if weights is None else weights))
    ways = [_descent(np.array(start), first, bounds, most_steps, tolerance) for start in starts]
    return _together(surface, ways)


_Way = Generator[tuple[bool, list[Array]], Any, Bottom]
"""A descent on its way: it yields places, of which it asks for values with gradients (True) or for values alone."""


def _together(surface: Surface, ways: Sequence[_Way]) -> list[Bottom]:
    """Let descents go on side by side: what they ask for is answered together."""
    ends: dict[int, Bottom] = {}
    asked = {index: next(way) for index, way in enumerate(ways)}
    while asked:
        answers: dict[int, list[Any]] = {}
        for with_slope, solve in ((True, surface.slopes), (False, surface.values)):
            who = [index for index, (wants, _) in asked.items() if wants == with_slope]
            if who:
                found = iter(solve([place for index in who for place in asked[index][1]]))
                answers |= {index: list(itertools.islice(found, len(asked[index][1]))) for index in who}
        for index, answer in answers.items():
            try:
                asked[index] = ways[index].send(answer)
            except StopIteration as stop:
                ends[index] = stop.value
                del asked[index]
    return [ends[index] for index in range(len(ways))]


def _descent(x: Array, first: Array, bounds: tuple[Array, Array], most_steps: int, tolerance: float) -> _Way:
    """Go down from a place."""
    low, high = bounds
    (value,) = yield False, [x]
    ((_, slope),) = yield True, [x]
    inverse, is_first, idle, taken = first, True, 0, 0
    while np.isfinite(slope).all():
        free = ((x > low) | (slope < 0)) & ((x < high) | (slope > 0))
        is_flat = bool((np.abs(slope[free]) <= 2.0 * math.sqrt(tolerance)).all())
        if taken == most_steps or idle > _PATIENCE or (is_flat and idle == _PATIENCE):
            return Bottom(x, value, slope, taken, is_flat and taken < most_steps)
        if idle == _PATIENCE:
            inverse, is_first = first, True  # what is known of the curvature may mislead
        step = _step(inverse, slope, free, _FIRST if is_first else _FARTHEST)
        place, lower = yield from _lower(x, value, step, low, high)
        if lower < value:
            ((_, turned),) = yield True, [place]
            inverse = _updated(inverse if not is_first else None, first, place - x, turned - slope)
            idle = idle + 1 if value - lower < tolerance else 0
            x, value, slope, is_first, taken = place, lower, turned, False, taken + 1
        elif is_first:
            return Bottom(x, value, slope, taken, is_flat)
        else:
            inverse, is_first = first, True
    return Bottom(x, value, slope, taken, has_converged=False)


def _step(inverse: Array, slope: Array, free: NDArray[np.bool_], farthest: float) -> Array:
    """Quasi-Newton step of the free coordinates, no longer than allowed."""
    step = np.zeros_like(slope)
    if free.any():
        step[free] = -np.linalg.solve(np.linalg.inv(inverse)[np.ix_(free, free)], slope[free])
    size = np.abs(step).max()
    is_short = farthest == _FARTHEST and size <= farthest
    return step if is_short or size == 0 else step * (farthest / size)


def _lower(
    x: Array, value: float, step: Array, low: Array, high: Array
) -> Generator[tuple[bool, list[Array]], list[float], tuple[Array, float]]:
    """Best place along a step and its value; the place where it starts if none is lower."""
    if step.any():
        for lengths in _LENGTHS:
            places = [np.clip(x + length * step, low, high) for length in lengths]
            values = np.array((yield False, places))
            best = int(np.argmin(values))
            if values[best] < value:
                return places[best], float(values[best])
    return x, value


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
