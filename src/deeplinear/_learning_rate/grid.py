"""A function of one coordinate on a grid that grows where it matters: the search behind every question about a rate.

The function, such as the logarithm of the loss against the logarithm of the rate, is solved at the places of a list.
Each solved place is then predicted by the cubic through the two on either side of it. How far that is off says how much
the function may hide between places: little where it is smooth, much past an edge of stability, where it is rough. An
interval is halved as long as the lowest that its ends and this doubt allow is below the least value that is known.
Nothing but the solved values enters, so that what is halved does not depend on the order in which they came.
"""

import bisect
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EQUAL = 1e-9
"""Distance of places that are taken for one."""

_DOUBT = 2.0
"""How many times farther down than predictions around an interval are off the function may be in it."""

_REACH = math.log(8.0)
"""How far the function may be below the ends of an interval, at most, and beside a place where it is infinite."""

_UNKNOWN = 0.3
"""Error of a prediction where there is none."""

_PARTS = 8
"""Parts of an interval in the curve."""


class Grid:
    """Solved places, in increasing order.

    Parameters
    ----------
    solve
        Values at some places, ``inf`` where there is none.
    together
        How many places are best solved at once.

    Attributes
    ----------
    places, values
        What is solved.
    """

    def __init__(self, solve: Callable[[Sequence[float]], Sequence[float]], together: int) -> None:
        self._solve, self.together = solve, together
        self.places: list[float] = []
        self.values: list[float] = []
        self._errors: Array | None = None

    def add(self, places: Sequence[float]) -> None:
        """Solve at places, but for those that are solved."""
        new: list[float] = []
        for x in places:
            if all(abs(x - each) > EQUAL for each in [*new, *self.places]):
                new.append(x)
        for start in range(0, len(new), self.together):
            some = new[start : start + self.together]
            for x, value in zip(some, self._solve(some), strict=True):
                index = bisect.bisect(self.places, x)
                self.places.insert(index, x)
                self.values.insert(index, value)
                self._errors = None

    def at(self, x: float) -> float:
        """Return the value at a place, solved unless it is known."""
        self.add([x])
        return self.values[self.nearest(x)]

    def nearest(self, x: float) -> int:
        """Return the index of the solved place that is nearest to one."""
        after = bisect.bisect(self.places, x)
        return min(range(max(after - 1, 0), min(after + 1, len(self.places))), key=lambda i: abs(self.places[i] - x))

    @property
    def best(self) -> int:
        """Index of the least value."""
        return int(np.argmin(self.values))

    def minima(self) -> list[int]:
        """Return the indices of values with no lower one on either side; the ends are none."""
        v = self.values
        return [i for i in range(1, len(v) - 1) if v[i] <= min(v[i - 1], v[i + 1]) and math.isfinite(v[i])]

    @property
    def errors(self) -> Array:
        """How far the cubics through the neighbours of each place are off there; nan where there are too few."""
        if self._errors is None:
            self._errors = np.array([self._error(index) for index in range(len(self.places))])
        return self._errors

    def doubt(self, index: int) -> float:
        """Return the largest error around the interval to the right of a place."""
        known = self.errors[max(index - 1, 0) : index + 3]
        return float(np.nanmax(known)) if not np.isnan(known).all() else _UNKNOWN

    def divide(self, resolution: float, most: int, limit: Callable[[], float]) -> None:
        """Halve intervals longer than a resolution until none may hold values below a limit, lowest hopes first."""
        while len(self.places) < most:
            least = limit()
            hopes = [
                (hope, index)
                for index, (low, high) in enumerate(zip(self.places, self.places[1:], strict=False))
                if high - low > resolution * (1 + EQUAL) and (hope := self._hope(index)) < least
            ]
            if not hopes:
                return
            lowest = [index for _, index in sorted(hopes)[: self.together]]
            self.add([0.5 * (self.places[index] + self.places[index + 1]) for index in lowest])

    def between(self, index: int, x: float) -> float:
        """Interpolate to the right of a place; inf beside an infinite value."""
        if math.isinf(max(self.values[index : index + 2])):
            return math.inf
        near = [i for i in range(max(index - 1, 0), min(index + 3, len(self.places))) if math.isfinite(self.values[i])]
        found = _polynomial([self.places[i] for i in near], [self.values[i] for i in near], x)
        low, high = sorted(self.values[index : index + 2])
        most = self.doubt(index) if len(near) > 2 else 0.0
        return min(max(found, low - most), high + most)

    def curve(self) -> tuple[Array, Array]:
        """Return places and values: those that are solved, and those in between by interpolation."""
        places, values = [], []
        for index, (low, high) in enumerate(zip(self.places, self.places[1:], strict=False)):
            inside = np.linspace(low, high, _PARTS + 1)[:-1].tolist()
            places += inside
            values += [self.values[index], *(self.between(index, x) for x in inside[1:])]
        return np.array([*places, self.places[-1]]), np.array([*values, self.values[-1]])

    def _error(self, index: int) -> float:
        if math.isinf(self.values[index]):
            return math.nan
        near = [i for i in range(max(index - 2, 0), min(index + 3, len(self.places))) if math.isfinite(self.values[i])]
        near.remove(index)
        if not near or not near[0] < index < near[-1]:
            return math.nan
        x = self.places[index]
        return abs(_polynomial([self.places[i] for i in near], [self.values[i] for i in near], x) - self.values[index])

    def _hope(self, index: int) -> float:
        """Lowest value that may be in the interval to the right of a place."""
        a, b = self.values[index : index + 2]
        low = min(a, b)
        if math.isinf(max(a, b)):
            return low - _REACH
        middle = self.between(index, 0.5 * (self.places[index] + self.places[index + 1]))
        return min(low, middle) - min(_DOUBT * self.doubt(index), _REACH)


def _polynomial(places: Sequence[float], values: Sequence[float], x: float) -> float:
    """Value at x of the polynomial through points."""
    total = 0.0
    for i, at in enumerate(places):
        factor = values[i]
        for j, other in enumerate(places):
            if j != i:
                factor *= (x - other) / (at - other)
        total += factor
    return total
