"""Minimum of a function of one variable whose exact slope is known, be it smooth or before a cliff."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deeplinear._learning_rate.cliff import Cliff, approach_cliff, secant

# Why not scipy.optimize: measured on seven problems at the same tolerance, this takes up to 4 slopes (of 2.5 solutions
# each), bounded Brent 6 to 15 solutions, and brentq 5 to 11 slopes. Where a cliff follows the minimum (momentum 0.9),
# Brent stopped 0.2 % above the lowest loss and brentq found another place; neither gives the curvature.

_MOST_POINTS = 60
_MUCH_STEEPER = 10.0
"""How much faster than it falls a function may rise for a parabola to be of use."""

_STEEPEST = 50.0
"""Growth, as an exponent, of a slope over the points from which it is interpolated."""

_VANISHED = 0.3
"""Part of a slope at one point that the slope at the next may have, for its zero to be near."""

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
    value: Callable[[float], float],
    known: Sequence[tuple[float, float]],
    tolerance: float,
    steepness: float,
    floor: float = 0.0,
    shape: tuple[float, float] | str | None = "look",
) -> Minimum:
    """Find a minimum of a positive function between the first and the third of some known points.

    If these look like a parabola, its minimum is the first point of the search. If not, the function is taken to fall
    down to a cliff, an edge of stability. It is approached with values alone, until the rise is near enough to be an
    exponential; the slope there is a constant and the exponential. Either way, the next points come from a constant and
    an exponential through the slopes at three points, which is a line where the function is smooth. Bisection stands in
    where that leaves the interval or does not shorten it fast enough.

    Parameters
    ----------
    evaluate
        The function and its slope at x.
    value
        The function alone, at less cost.
    known
        Pairs (x, value), at least three. The second has the least value of the first three; that of the third, and of
        those after it, may be inf.
    tolerance
        Distance from the last point to the next at which to stop. The latter is returned: its error is of higher order.
    steepness
        Rate at which the function rises at a cliff, roughly.
    floor
        Value that is as good as zero, and ends the search.
    shape
        Where the minimum is expected and the second derivative there, or None at a cliff, if that is known better than
        from three points.

    Examples
    --------
    >>> cosh = lambda x: Point(x, math.cosh(x - 0.3), math.sinh(x - 0.3))
    >>> known = [(-1.0, 2.0), (0.0, 1.05), (1.0, 1.3)]
    >>> minimum = find_minimum(cosh, lambda x: cosh(x).value, known, tolerance=1e-4, steepness=100.0)
    >>> round(minimum.x, 6), round(minimum.value, 12), round(minimum.curvature, 4)
    (0.3, 1.0, 1.0)
    """
    parabola = _parabola(*known[:3]) if isinstance(shape, str) else shape
    if parabola is not None:
        x, bend = parabola
        new = evaluate(x)
        if new.value <= known[1][1] or x == known[1][0]:
            return _follow_slopes(evaluate, known[:3], new, new.x - new.slope / bend, tolerance, floor, bend)
        # There was no parabola.
        place = (x, new.value)
        known = [place, *known[1:]] if x < known[1][0] else [*known[:2], place, *known[2:]]
    near = approach_cliff(value, known, steepness, floor)
    if near[-2][1] <= floor:
        return Minimum(*near[-2], math.nan)
    cliff = Cliff.through(near, steepness)
    new = evaluate(near[-2][0] if cliff is None else cliff.foot)
    guess = math.nan if cliff is None else cliff.foot_from(new.x, new.relative.slope)
    return _follow_slopes(evaluate, near[-3:], new, guess, tolerance, floor)


def _follow_slopes(
    evaluate: Callable[[float], Point],
    around: Sequence[tuple[float, float]],
    new: Point,
    guess: float,
    tolerance: float,
    floor: float,
    bend: float | None = None,
) -> Minimum:
    """Find the zero of the slope, from a first point inside and a guess of the next.

    Where a parabola has been seen, ``bend`` is its second derivative. At a cliff it is None, and it is the logarithm of
    the function that is followed.
    """
    bracket, points = _Bracket(*(Point(*given, math.nan) for given in around)), [new]
    bracket.add(new)
    while len(points) < _MOST_POINTS and new.slope and bracket.width > tolerance and bracket.best.value > floor:
        if not bracket.low.x < guess < bracket.high.x:
            guess = bracket.centre
        elif abs(guess - new.x) <= tolerance and _are_enough(points, bend):
            # The minimum cannot be there if the best point is farther below than the slope leads.
            if new.value - bracket.best.value <= abs(new.slope) * tolerance:
                break
            guess = bracket.centre
        new = evaluate(guess)
        points.append(new)
        bracket.add(new)
        fit = _SlopeFit.through([point.relative if bend is None else point for point in points[-3:]])
        guess = math.nan if fit is None else fit.zero
        if len(points) > 3 and not abs(guess - new.x) < 0.5 * abs(points[-2].x - points[-3].x):
            guess = math.nan
    best = bracket.best
    if bracket.low.x <= guess <= bracket.high.x and math.isfinite(new.slope):
        value = new.value + 0.5 * new.slope * (guess - new.x)
        if value <= best.value:
            return Minimum(guess, value, _curvature(points, guess, bend))
    return Minimum(best.x, best.value, _curvature(points, best.x, bend))


def _parabola(
    left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]
) -> tuple[float, float] | None:
    """Minimum and second derivative of the parabola through three points; None if they do not look like one."""
    fall, rise = secant(left, middle), secant(middle, right)
    bend = 2 * (rise - fall) / (right[0] - left[0])
    is_smooth = rise < -_MUCH_STEEPER * fall < math.inf and bend > 0
    return (0.5 * (left[0] + middle[0]) - fall / bend, bend) if is_smooth else None


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


def _are_enough(points: list[Point], bend: float | None) -> bool:
    """Whether the next guess cannot be near the last point by chance.

    Two points are enough if their slopes fit the second derivative to within a factor of two, or if, at a cliff, most
    of the slope has vanished from one to the other.
    """
    if len(points) != 2:
        return len(points) > 2
    first, second = points
    if bend is None:
        return abs(second.slope) < _VANISHED * abs(first.slope)
    return 0.5 * bend < _divided(first, second) < 2 * bend


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


def _curvature(points: list[Point], x: float, bend: float | None) -> float:
    """Derivative of the slope at x, from the three points nearest to it, or fewer if three fit nothing."""
    if len(points) == 1 and bend is not None:
        return bend
    near = sorted(points, key=lambda point: abs(point.x - x))
    fit = _SlopeFit.through(near[:3]) or _SlopeFit.through(near[:2])
    return math.nan if fit is None else fit.derivative(x)


def _divided(p: Point, q: Point) -> float:
    return (q.slope - p.slope) / (q.x - p.x)
