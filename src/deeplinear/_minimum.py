"""Minimum of a smooth function of one variable whose exact slope is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

_MOST_POINTS = 60
_MUCH_STEEPER = 10.0
"""How much faster than it falls a function may rise for a parabola to be of use."""

_STEEPEST = 50.0
"""Growth, as an exponent, of a slope over the points from which it is interpolated."""

_STRAIGHT = 1e-6
"""Growth below which an exponential is a line."""


@dataclass(frozen=True)
class Point:
    """A function at x; beyond its domain the value is inf, and the slope is taken as rising."""

    x: float
    value: float
    slope: float

    @property
    def rises(self) -> bool:
        """Whether the function rises with x."""
        return not self.slope <= 0

    @property
    def relative(self) -> "Point":
        """The logarithm of the function, which has to be positive."""
        return Point(self.x, math.log(self.value), self.slope / self.value)


@dataclass(frozen=True)
class Minimum:
    """Where a function is least, its value there and its second derivative."""

    x: float
    value: float
    curvature: float


def find_minimum(
    evaluate: Callable[[float], Point],
    left: tuple[float, float],
    middle: tuple[float, float],
    right: tuple[float, float],
    tolerance: float,
) -> Minimum:
    """Find a minimum of a positive function between ``left`` and ``right``, where ``middle`` has the least value.

    The zero of the slope is enclosed. The first point comes from the parabola through the three given, if these look
    like one; otherwise it is the middle one. The next ones come from a constant and an exponential through the slopes
    at three points: a line where the function is smooth, and what a slope is like that turns at an edge of stability.
    Bisection stands in where that leaves the interval or does not shorten it fast enough.

    Parameters
    ----------
    evaluate
        The function and its slope at x.
    left, middle, right
        What encloses the minimum, pairs (x, value). The value on the right may be inf.
    tolerance
        Distance from the last point to the next at which to stop. The latter is returned: its error is of higher order.

    Examples
    --------
    >>> cosh = lambda x: Point(x, math.cosh(x - 0.3), math.sinh(x - 0.3))
    >>> minimum = find_minimum(cosh, (-1.0, 2.0), (0.0, 1.05), (1.0, 1.3), tolerance=1e-4)
    >>> round(minimum.x, 6), round(minimum.value, 12), round(minimum.curvature, 4)
    (0.3, 1.0, 1.0)
    """
    fall = (middle[1] - left[1]) / (middle[0] - left[0])
    rise = (right[1] - middle[1]) / (right[0] - middle[0])
    bend = 2 * (rise - fall) / (right[0] - left[0])  # of the parabola through the three
    is_smooth = rise < -_MUCH_STEEPER * fall and bend > 0
    bracket = _Bracket(*(Point(*given, math.nan) for given in (left, middle, right)))
    points: list[Point] = []

    def add(x: float) -> Point:
        points.append(evaluate(x))
        bracket.add(points[-1])
        return points[-1]

    new = add(0.5 * (left[0] + middle[0]) - fall / bend if is_smooth else middle[0])
    if new.value > middle[1] and new.x != middle[0]:
        is_smooth, new = False, add(middle[0])
    guess = new.x - new.slope / bend if is_smooth else math.nan
    while len(points) < _MOST_POINTS and new.slope and bracket.width > tolerance:
        if not bracket.low.x < guess < bracket.high.x:
            guess = bracket.centre
        # With fewer than three points, a guess may be near the last one by chance.
        elif abs(guess - new.x) <= tolerance and (len(points) > 2 or _bends_like(points, bend)):
            break
        new = add(guess)
        fit = _SlopeFit.through(points[-3:] if is_smooth else [point.relative for point in points[-3:]])
        guess = math.nan if fit is None else fit.zero
        if len(points) > 3 and not abs(guess - new.x) < 0.5 * abs(points[-2].x - points[-3].x):
            guess = math.nan
    best = bracket.best
    if bracket.low.x <= guess <= bracket.high.x and math.isfinite(new.slope):
        value = new.value + 0.5 * new.slope * (guess - new.x)
        if value <= best.value:
            return Minimum(guess, value, _curvature(points, guess))
    return Minimum(best.x, best.value, _curvature(points, best.x))


class _Bracket:
    """Two points with a minimum between them, and the best so far, inside or one of the two.

    Slopes of the points given at first are not known.
    """

    def __init__(self, low: Point, best: Point, high: Point) -> None:
        self.low, self.best, self.high = low, best, high

    @property
    def width(self) -> float:
        """Distance of the two."""
        return self.high.x - self.low.x

    @property
    def centre(self) -> float:
        """Half way between the two, or from the best to the farther one if it is inside."""
        below, above = self.best.x - self.low.x, self.high.x - self.best.x
        if below and above:
            return 0.5 * (self.best.x + (self.high.x if above > below else self.low.x))
        return 0.5 * (self.low.x + self.high.x)

    def add(self, new: Point) -> None:
        """Shorten the interval by a point inside."""
        if new.value > self.best.value and new.x != self.best.x:
            worse, is_above = new, new.x > self.best.x
        else:
            worse, is_above = self.best, new.x < self.best.x
            self.best = new
        if worse.x != self.best.x:
            self.low, self.high = (self.low, worse) if is_above else (worse, self.high)
        if self.best is new:
            self.low, self.high = (self.low, new) if new.rises else (new, self.high)


def _bends_like(points: list[Point], bend: float) -> bool:
    """Whether the slopes at two points fit a second derivative to within a factor of two."""
    return len(points) == 2 and 0.5 * bend < _divided(*points) < 2 * bend


@dataclass(frozen=True)
class _SlopeFit:
    """A constant and an exponential of the given growth rate through the slopes at two points; a line at rate 0."""

    first: Point
    second: Point
    rate: float

    @classmethod
    def through(cls, points: list[Point]) -> "_SlopeFit | None":
        """Fit three points, or two and the slope half way that their values imply; None where they determine none."""
        points = sorted((point for point in points if math.isfinite(point.slope)), key=lambda point: point.x)
        if len(points) == 2:
            points.insert(1, _half_way(*points))
        if len(points) < 2 or any(p.x == q.x or p.slope == q.slope for p, q in pairwise(points)):
            return None
        rate = _rate(*points)
        return None if math.isnan(rate) else cls(points[-2], points[-1], rate)

    @property
    def zero(self) -> float:
        """Where the slope is zero, nan if nowhere."""
        length = self.second.x - self.first.x
        along = -self.first.slope / (self.second.slope - self.first.slope)  # of the way between the two, on a line
        if abs(self.rate) * length < _STRAIGHT:
            return self.first.x + along * length
        grown = 1 + along * math.expm1(self.rate * length)
        return self.first.x + math.log(grown) / self.rate if grown > 0 else math.nan

    def derivative(self, x: float) -> float:
        """Derivative of the slope at x."""
        length = self.second.x - self.first.x
        growth = math.exp(self.rate * (x - self.first.x)) / _mean_growth(self.rate * length)
        return _divided(self.first, self.second) * growth


def _half_way(p: Point, q: Point) -> Point:
    """The point between two, with the slope that Simpson's rule then needs for their values."""
    slope = 1.5 * (q.value - p.value) / (q.x - p.x) - 0.25 * (p.slope + q.slope)
    return Point(0.5 * (p.x + q.x), math.nan, slope)


def _rate(p: Point, q: Point, r: Point) -> float:
    """Growth rate of the exponential that, with a constant, passes through three slopes; nan if they turn back."""
    first, second = _divided(p, q), _divided(q, r)
    if not first * second > 0:  # what is flat beside a steep rise may fall a little
        is_flat = q.slope < 0 < r.slope and -first < second / _MUCH_STEEPER
        return _STEEPEST / (r.x - p.x) if is_flat else math.nan
    low, high = -_STEEPEST / (r.x - p.x), _STEEPEST / (r.x - p.x)
    for _ in range(60):
        rate = 0.5 * (low + high)
        # What the ratio of the divided differences would be; it grows with the rate.
        if _mean_growth(rate * (r.x - q.x)) < second / first * _mean_growth(-rate * (q.x - p.x)):
            low = rate
        else:
            high = rate
    return rate


def _mean_growth(x: float) -> float:
    """(e^x - 1) / x."""
    return math.expm1(x) / x if abs(x) > _STRAIGHT else 1.0


def _curvature(points: list[Point], x: float) -> float:
    """Derivative of the slope at x, from the three points nearest to it, or two if three fit nothing."""
    near = sorted(points, key=lambda point: abs(point.x - x))
    fit = _SlopeFit.through(near[:3]) or _SlopeFit.through(near[:2])
    return math.nan if fit is None else fit.derivative(x)


def _divided(p: Point, q: Point) -> float:
    return (q.slope - p.slope) / (q.x - p.x)
