"""Descents in several fields of a problem together, from many starts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate import optimal_lr
from deeplinear._learning_rate.ladder import solve_or_none
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.axes import Axis, at
from deeplinear._planning.descent import Bottom, Surface, descend
from deeplinear._problem.edit import get_field
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import rate_of, with_rate
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.sensitivity import derivatives

Array = NDArray[np.float64]

_STEPS, _TOLERANCE = 40, 1e-6
"""Steps of a descent, and the decrease of log(loss) that is not worth one."""

_SAME = 0.02
"""Largest distance in any coordinate of two ends of descents that are one minimum."""

_BETWEEN = np.arange(1, 8) / 8
"""Parts of a way at which its heights are looked at."""

_BARRIER = 0.01
"""How much higher than both ends log(loss) rises on any way between two minima that are not one."""

_BENDS = 2
"""How often such a way, and then each part of it, is bent into a valley: flat ones are often curved."""

_BETTER = 1e-4
"""Decrease of log(loss) that makes another learning rate worth another descent."""

_TRIES = 3
"""How often a better rate elsewhere is followed."""

_APART = 1e-4
"""Distance of the slopes that curvatures are made of."""

_ALLOWED, _STIFFNESS = 0.1, 50.0
"""Rise of log(loss) that is allowed at the rate with its margin, and what the square of a larger one counts."""

SEARCH = 30
"""Solutions that the search for a rate takes, about."""

_AROUND, _POINTS = 1.5, 41
"""How far profiles go to either side of the optimum, in coordinates, and how many points they have."""


class JointSearch:
    """The loss of a problem over the coordinates of its axes, with what counts against places at an edge."""

    def __init__(
        self,
        problem: Problem,
        axes: Sequence[Axis],
        objective: str,
        margin: float,
        counter: Counter,
        *,
        tolerance: float = _TOLERANCE,
    ) -> None:
        self.problem, self.axes, self.counter, self._tolerance = problem, axes, counter, tolerance
        self._factors = (1.0, 1.0 + margin) if margin else (1.0,)
        self.excess = Excess.of(problem, objective)
        self.low = np.array([axis.coordinate(axis.low) for axis in axes])
        self.high = np.array([axis.coordinate(axis.high) for axis in axes])
        self._rate = next((index for index, axis in enumerate(axes) if axis.name == "lr"), None)

    def run(self, count: int) -> list[Bottom]:
        """Descend from every start; return distinct ends, best first."""
        ends: list[Bottom] = []
        for start in self._starts(count):
            placed = self._with_best_rate(start)
            if math.isfinite(self._heights([placed])[0]):
                ends.append(self._settled(self.descend(placed)))
        if not ends:
            raise ArithmeticError(f"training diverges at every one of {count} starts")
        return self.distinct(ends)

    def distinct(self, ends: Sequence[Bottom]) -> list[Bottom]:
        """Return ends of descents that are minima of their own, best first."""
        ends = sorted(ends, key=lambda end: end.value)
        return [end for i, end in enumerate(ends) if not any(self._are_one(end, other) for other in ends[:i])]

    def descend(self, start: Array) -> Bottom:
        """Descend from a place at which training does not diverge."""
        surface = Surface(self._heights, lambda places: [self._slope(place) for place in places])
        return descend(surface, start, most_steps=_STEPS, tolerance=self._tolerance, low=self.low, high=self.high)

    def values(self, place: Array) -> dict[str, float]:
        """Values of the fields at a place."""
        return {axis.name: axis.value(float(x)) for axis, x in zip(self.axes, place, strict=True)}

    def losses(self, places: Sequence[Array]) -> list[float]:
        """Loss at the last step, with nothing against the place."""
        return [math.exp(heights[0]) + self.excess.label_noise for heights in self._solved(places)]

    def penalty(self, place: Array) -> float:
        """What counts against a place."""
        (heights,) = self._solved([place])
        return _counted(heights) - heights[0]

    def binding(self, end: Bottom) -> dict[str, str]:
        """Fields at bounds beyond which the loss would be lower."""
        found = {}
        for axis, x, slope, low, high in zip(self.axes, end.x, end.slope, self.low, self.high, strict=True):
            if x == low and slope > 0:
                found[axis.name] = "low"
            elif x == high and slope < 0:
                found[axis.name] = "high"
        return found

    def curvature(self, end: Bottom) -> Array:
        """Second derivatives of the loss, from slopes on the side of each place that is within the bounds."""
        here, rows = self._raw_slope(end.x), []
        with np.errstate(over="ignore", invalid="ignore"):  # the least decay changes a lazy network without bounds
            for index in range(len(self.axes)):
                step = np.zeros(len(self.axes))
                step[index] = _APART if end.x[index] + _APART <= self.high[index] else -_APART
                rows.append((self._raw_slope(end.x + step) - here) / step[index])
            matrix: Array = np.array(rows)
            symmetric: Array = 0.5 * matrix + 0.5 * matrix.T
        return symmetric

    def profiles(self, end: Bottom) -> dict[str, tuple[Array, Array]]:
        """Values of each field around the optimum, and the loss there with all others held."""
        found = {}
        for index, axis in enumerate(self.axes):
            low, high = np.clip(end.x[index] + np.array([-_AROUND, _AROUND]), self.low[index], self.high[index])
            places = np.repeat(end.x[None], _POINTS, axis=0)
            places[:, index] = np.linspace(low, high, _POINTS)
            values = np.array([axis.value(float(x)) for x in places[:, index]])
            found[axis.name] = (values, np.array(self.losses(list(places))))
        return found

    def _starts(self, count: int) -> list[Array]:
        """The problem itself, and places spread evenly over the bounds; rates are still to be found."""
        own = [axis.low if axis.name == "lr" else _own(self.problem, axis) for axis in self.axes]
        first = np.array([axis.coordinate(value) for axis, value in zip(self.axes, own, strict=True)])
        if count == 1 or len(self.axes) == (self._rate is not None):
            return [first]
        # Multiples of powers of the root of x^(n+1) = x + 1 fill a box of n dimensions evenly.
        root = 2.0
        for _ in range(60):
            root = (1.0 + root) ** (1.0 / (len(self.axes) + 1))
        parts = [(0.5 + k * root ** -np.arange(1.0, len(self.axes) + 1)) % 1.0 for k in range(count - 1)]
        return [first, *(self.low + part * (self.high - self.low) for part in parts)]

    def _with_best_rate(self, place: Array) -> Array:
        """Return a place with the best of all rates within the bounds, if the rate is searched over."""
        self.counter.advance(SEARCH)
        if self._rate is None:
            return place
        rest = {name: value for name, value in self.values(place).items() if name != "lr"}
        found = optimal_lr(at(self.problem, rest), objective=self.excess.objective)
        placed = [place.copy(), place.copy()]
        for each, rate in zip(placed, (found.lr, found.safe_lr), strict=True):
            each[self._rate] = np.clip(math.log(rate), self.low[self._rate], self.high[self._rate])
        return placed[int(np.argmin(self._heights(placed)))]

    def _settled(self, end: Bottom) -> Bottom:
        """Follow a better rate elsewhere, if there is one."""
        for _ in range(_TRIES if self._rate is not None else 0):
            placed = self._with_best_rate(end.x)
            if not self._heights([placed])[0] < end.value - _BETTER:
                break
            end = self.descend(placed)
        return end

    def _heights(self, places: Sequence[Array]) -> list[float]:
        """What is minimised."""
        return [_counted(heights) for heights in self._solved(places)]

    def _solved(self, places: Sequence[Array]) -> list[list[float]]:
        """Logarithms of the excess loss at the last step, at each place with its rate and with its margin."""
        problems = [_with_factor(at(self.problem, self.values(place)), f) for place in places for f in self._factors]
        solved = solve_or_none(problems, self.counter.advance)
        heights = [math.inf if curve is None else self._log(float(self.excess(curve)[-1])) for curve in solved]
        return [heights[i : i + len(self._factors)] for i in range(0, len(heights), len(self._factors))]

    def _slope(self, place: Array) -> tuple[float, Array]:
        """What is minimised, and its derivatives with respect to the coordinates."""
        solved = [self._one_slope(place, factor) for factor in self._factors]
        heights = [height for height, _ in solved]
        slopes, rise = solved[0][1], heights[-1] - heights[0] - _ALLOWED
        if rise > 0:
            slopes = slopes + 2.0 * _STIFFNESS * rise * (solved[-1][1] - slopes)
        return _counted(heights), slopes

    def _raw_slope(self, place: Array) -> Array:
        """Derivatives of the loss with respect to the coordinates."""
        height, slope = self._one_slope(place, 1.0)
        return slope * math.exp(height)

    def _one_slope(self, place: Array, factor: float) -> tuple[float, Array]:
        """Logarithm of the excess loss and its derivatives with respect to the coordinates, with a factor on rates."""
        values, none = self.values(place), np.full(len(self.axes), np.nan)
        problem = _with_factor(at(self.problem, values), factor)
        try:
            solved = derivatives([(problem, axis.name) for axis in self.axes], self.counter.advance)
        except Unresolved:
            return math.inf, none
        final = float(self.excess(solved[0].value)[-1])
        if final <= self.excess.rounding or not math.isfinite(final):
            return self._log(final), 0.0 * none if math.isinf(final) else np.zeros(len(self.axes))
        slopes = [float(each.slope.loss(self.excess.objective)[-1]) for each in solved]
        speeds = [rate_of(problem) if axis.name == "lr" else axis.speed(values[axis.name]) for axis in self.axes]
        return self._log(final), np.array(slopes) * speeds / final

    def _log(self, final: float) -> float:
        return math.log(max(final, self.excess.rounding))

    def _are_one(self, one: Bottom, other: Bottom) -> bool:
        """Whether two ends are near each other, or some way between them has no barrier: a flat valley."""
        is_level = abs(one.value - other.value) < _BARRIER
        bends = _BENDS if is_level and len(self.axes) > 1 else 0
        return self._is_open(one.x, other.x, max(one.value, other.value) + _BARRIER, bends)

    def _is_open(self, start: Array, end: Array, level: float, bends: int) -> bool:
        """Whether a way stays below a level: a straight one, or one that is bent down at its middle."""
        between = [start + part * (end - start) for part in _BETWEEN]
        heights = self._heights(between)
        if max(heights) < level:
            return True
        middle = len(between) // 2
        if not bends or math.isinf(heights[middle]):
            return False
        below = self._below(between[middle], (end - start) / np.linalg.norm(end - start))
        return all(self._is_open(*leg, level, bends - 1) for leg in ((start, below), (below, end)))

    def _below(self, start: Array, along: Array) -> Array:
        """Descend from a place on a way, across the way, so that the end is not one of those of the way."""

        def slopes(places: Sequence[Array]) -> list[tuple[float, Array]]:
            found = [self._slope(place) for place in places]
            return [(value, each - (each @ along) * along) for value, each in found]

        surface, enough = Surface(self._heights, slopes), 0.1 * _BARRIER
        return descend(surface, start, most_steps=_STEPS, tolerance=enough, low=self.low, high=self.high).x


def _own(problem: Problem, axis: Axis) -> float:
    """The problem's own value of a field, or the bound that is nearest to it."""
    value: Any = get_field(problem, axis.name)
    return min(max(float(value), axis.low), axis.high)


def _counted(heights: Sequence[float]) -> float:
    """Height with what counts against a place whose loss rises too far within the margin."""
    if math.isinf(max(heights)):
        return math.inf
    return heights[0] + _STIFFNESS * max(heights[-1] - heights[0] - _ALLOWED, 0.0) ** 2


def _with_factor(problem: Problem, factor: float) -> Problem:
    """Return the problem with all learning rates multiplied by a factor."""
    return problem if factor == 1.0 else with_rate(problem, factor * rate_of(problem))
