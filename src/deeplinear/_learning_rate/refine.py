"""The minimum of a function between solved places of a grid, from values alone."""

import math
from dataclasses import dataclass

import numpy as np

from deeplinear._learning_rate.grid import Grid

# Why not slopes: measured on seven problems, derivatives of the loss (2.5 solutions each) took 4 of them where values
# take 7 to 13, three at a time, and neither is ahead.

_NEAR = 5
"""Places through which a polynomial goes."""

_CLOSER = 8.0
"""How many times nearer than the neighbours of a minimum the next places are to where it is expected."""

_MARGIN = 0.1
"""Least part of the way to a neighbour at which a new place is."""

_REAL = 1e-6
"""Imaginary part of a zero, as a part of the interval, that rounding makes."""

_CLEAR = 1e3
"""How many rounding errors a value must be above the least to tell the curvature."""

_MOST_ROUNDS = 25


@dataclass(frozen=True)
class Minimum:
    """Where a function is least, its value there and its second derivative."""

    x: float
    value: float
    curvature: float


def find_minimum(grid: Grid, x: float, tolerance: float, floor: float = 0.0) -> Minimum:
    """Find the minimum to which the values around a solved place lead down; what is returned is solved.

    A polynomial through the lowest place and those nearest to it says where the next three are: at its minimum, and on
    either side eight times nearer than the neighbours. Where it has none in between, or values are infinite, the longer
    interval is halved.

    Parameters
    ----------
    grid
        Logarithms of a positive function.
    x
        A solved place.
    tolerance
        Distance from one expected minimum to the next at which to stop.
    floor
        Value that is as good as zero, and ends the search.

    Examples
    --------
    >>> grid = Grid(lambda places: [math.log(math.cosh(x - 0.3)) for x in places], 4)
    >>> grid.add([-1.0, 0.0, 1.0])
    >>> minimum = find_minimum(grid, 0.0, tolerance=1e-4)
    >>> round(minimum.x, 6), round(minimum.value, 12), round(minimum.curvature, 4)
    (0.3, 1.0, 1.0)
    """
    index, expected = _bottom(grid, grid.nearest(x)), math.inf
    for _ in range(_MOST_ROUNDS):
        index = _bottom(grid, index)
        low, middle, high = grid.places[index - 1 : index + 2]
        if high - low < tolerance or math.exp(grid.values[index]) <= floor:
            break
        before, expected = expected, _expected(grid, index)
        if not low < expected < high:
            expected = math.inf
            grid.add([0.5 * (low + middle), 0.5 * (middle + high)])
        elif abs(expected - before) < tolerance:
            grid.add([expected])
            break
        else:
            away = (high - low) / (2 * _CLOSER)
            grid.add([each for each in (expected - away, expected, expected + away) if low < each < high])
        index = grid.nearest(middle)
    index = _bottom(grid, index)
    return Minimum(grid.places[index], math.exp(grid.values[index]), _curvature(grid, index, floor))


def _bottom(grid: Grid, index: int) -> int:
    """Index of the minimum to which values lead down from one of them; the ends are none."""
    index = min(max(index, 1), len(grid.places) - 2)
    while True:
        low = min(range(max(index - 1, 1), min(index + 2, len(grid.places) - 1)), key=lambda i: grid.values[i])
        if not grid.values[low] < grid.values[index]:
            return index
        index = low


def _fit(grid: Grid, index: int, least: float = -math.inf) -> np.polynomial.Polynomial:
    """Polynomial in the distance from a place through it and those nearest to it whose values exceed some least."""
    x = grid.places[index]
    finite = [i for i in range(len(grid.places)) if _is_finite(grid, i) and (i == index or grid.values[i] > least)]
    near = sorted(finite, key=lambda i: abs(grid.places[i] - x))[:_NEAR]
    places = np.array([grid.places[i] - x for i in near])
    size = np.abs(places).max()
    values = np.exp([grid.values[i] for i in near])
    found = np.linalg.solve(np.vander(places / size, increasing=True), values)
    return np.polynomial.Polynomial(found / size ** np.arange(len(near)))


def _is_finite(grid: Grid, index: int) -> bool:
    return math.isfinite(grid.values[index])


def _expected(grid: Grid, index: int) -> float:
    """Where the polynomial around the lowest of three places has its minimum between them; nan if it has none."""
    if not all(_is_finite(grid, i) for i in (index - 1, index + 1)):
        return math.nan
    x, fit = grid.places[index], _fit(grid, index)
    low, high = grid.places[index - 1] - x, grid.places[index + 1] - x
    slope, bend = fit.deriv(), fit.deriv(2)
    roots = [complex(root) for root in slope.roots()]
    zeros = [root.real for root in roots if abs(root.imag) < _REAL * (high - low) and low < root.real < high]
    zeros = [root for root in zeros if bend(root) > 0]
    return x + min(zeros, key=lambda root: float(fit(root))) if zeros else math.nan


def _curvature(grid: Grid, index: int, floor: float) -> float:
    """Second derivative at a solved place; nan beside infinite values.

    Values that differ from the least by hardly more than rounding errors say nothing about it.
    """
    if not all(_is_finite(grid, i) for i in (index - 1, index, index + 1)):
        return math.nan
    value = math.exp(grid.values[index])
    least = math.log(value + _CLEAR * max(floor, np.finfo(float).eps * value))
    return float(_fit(grid, index, least).deriv(2)(0.0))
