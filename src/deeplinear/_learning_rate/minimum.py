"""Minimum of a function of one variable whose exact slope is known, be it smooth or before a cliff."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeplinear._learning_rate.cliff import Cliff, approach_cliff, secant
from deeplinear._learning_rate.slopes import Point, SlopeFit, divided

# Why not scipy.optimize: measured on seven problems at the same tolerance, this takes up to 4 slopes (of 2.5 solutions
# each), bounded Brent 6 to 15 solutions, and brentq 5 to 11 slopes. Where a cliff follows the minimum (momentum 0.9),
# Brent stopped 0.2 % above the lowest loss and brentq found another place; neither gives the curvature.

_MOST_POINTS = 60
_MUCH_STEEPER = 10.0
"""How much faster than it falls a function may rise for a parabola to be of use."""

_LITTLE = 0.01
"""How much more than the least known value, as a fraction, a function may have where a parabola is least."""

_SCALE = 0.1
"""Distance over which the slope of a smooth function is at least roughly a line."""

_EXACT = 1e-9
"""Fraction of a value by which it is extrapolated."""

_VANISHED = 0.3
"""Part of a slope at one point that the slope at the next may have, for its zero to be near."""


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
        if _is_on_the_way(new, known[1]):
            guess = new.x - new.slope / bend
            return _follow_slopes(evaluate, value, known[:3], new, guess, tolerance, floor, bend)
        # There was no parabola.
        place = (x, new.value)
        known = [place, *known[1:]] if x < known[1][0] else [*known[:2], place, *known[2:]]
    near = approach_cliff(value, known, steepness, floor)
    if near[-2][1] <= floor:
        return Minimum(*near[-2], math.nan)
    cliff = Cliff.through(near, steepness)
    new = evaluate(near[-2][0] if cliff is None else cliff.foot)
    guess = math.nan if cliff is None else cliff.foot_from(new.x, new.relative.slope)
    return _follow_slopes(evaluate, value, near[-3:], new, guess, tolerance, floor)


def _follow_slopes(
    evaluate: Callable[[float], Point],
    value: Callable[[float], float],
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
        elif _is_near(guess, points, bend, tolerance) and _are_enough(points, bend):
            # The minimum cannot be there if the best point is farther below than the slope leads.
            if new.value - bracket.best.value <= abs(new.slope) * tolerance:
                break
            guess = bracket.centre
        new = evaluate(guess)
        points.append(new)
        bracket.add(new)
        fit = SlopeFit.through([point.relative if bend is None else point for point in points[-3:]])
        guess = math.nan if fit is None else fit.zero
        if len(points) > 3 and not abs(guess - new.x) < 0.5 * abs(points[-2].x - points[-3].x):
            guess = math.nan
    best = bracket.best
    if bracket.low.x <= guess <= bracket.high.x and math.isfinite(new.slope):
        change = 0.5 * new.slope * (guess - new.x)
        least = new.value + change if abs(change) <= _EXACT * new.value else value(guess)
        if least <= best.value:
            return Minimum(guess, least, _curvature(points, guess, bend))
    return Minimum(best.x, best.value, _curvature(points, best.x, bend))


def _is_on_the_way(new: Point, best: tuple[float, float]) -> bool:
    """Whether a point is no worse than the best one known, or so little that its slope explains it."""
    rise = new.value - best[1]
    return rise <= 0 or rise <= min(_LITTLE * best[1], new.slope * (new.x - best[0]))


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


def _is_near(guess: float, points: list[Point], bend: float | None, tolerance: float) -> bool:
    """Whether the next guess is within the tolerance of the last point or, two slopes being a line, of the minimum."""
    last = abs(guess - points[-1].x)
    if bend is None or len(points) == 1:
        return last <= tolerance
    return last <= tolerance or last * abs(guess - points[-2].x) <= tolerance * _SCALE


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
    return 0.5 * bend < divided(first, second) < 2 * bend


def _curvature(points: list[Point], x: float, bend: float | None) -> float:
    """Derivative of the slope at x, from the three points nearest to it, or fewer if three fit nothing."""
    if len(points) == 1 and bend is not None:
        return bend
    near = sorted(points, key=lambda point: abs(point.x - x))
    fit = SlopeFit.through(near[:3]) or SlopeFit.through(near[:2])
    return math.nan if fit is None else fit.derivative(x)
