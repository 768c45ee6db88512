"""Minimum of a smooth function of one variable whose exact slope is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_MOST_POINTS = 60
_MUCH_STEEPER = 10.0
"""How much faster than it falls a function may rise for a parabola to be of use."""


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
    """Find a minimum between ``left`` and ``right``, pairs (x, value) of which ``middle`` has the least value.

    The zero of the slope is enclosed. The first points come from the parabola through the three given, if these look
    like one; the next from inverse interpolation of the slope through the last points, compressed, since slopes grow
    exponentially beyond an edge of stability; and from bisection where that leaves the interval or does not shorten
    it fast enough.

    Parameters
    ----------
    evaluate
        The function and its slope at x.
    left, middle, right
        What encloses the minimum. The value on the right may be inf.
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
    start = evaluate(0.5 * (left[0] + middle[0]) - fall / bend if is_smooth else middle[0])
    if not start.value <= middle[1]:
        is_smooth, start = False, evaluate(middle[0])
    points = [start]
    # Slopes to the left of the minimum are of this order, even if the first one happens to be near zero.
    scale = max(abs(start.slope), -fall) or 1.0
    low, high = (left[0], start.x) if start.rises else (start.x, right[0])
    floor = left[1] if start.rises else start.value  # value at the lower end
    guess = start.x - start.slope / bend if is_smooth else math.nan
    if not low < guess < high:
        guess = 0.5 * (low + high) if start.slope else start.x
    # With fewer than three points, a guess may be near the last one by chance.
    while len(points) < _MOST_POINTS and (len(points) < 3 or abs(guess - points[-1].x) > tolerance):
        if guess == points[-1].x:
            break
        new = evaluate(guess)
        points.append(new)
        # Where the function is higher than at the lower end there is a minimum before, even if it falls here.
        if new.rises or new.value > floor:
            high = new.x
        else:
            low, floor = new.x, new.value
        guess = _interpolate(points, scale)
        shrinks = len(points) < 4 or abs(guess - points[-1].x) < 0.5 * abs(points[-2].x - points[-3].x)
        if not (low < guess < high and shrinks) and high - low > tolerance:
            guess = 0.5 * (low + high)
        elif not low <= guess <= high:
            guess = min(max(guess, low), high)
    last = points[-1]
    value = last.value + 0.5 * last.slope * (guess - last.x) if math.isfinite(last.slope) else last.value
    return Minimum(guess, value, _curvature(points, guess))


def _interpolate(points: list[Point], scale: float) -> float:
    """Where the compressed slope is zero, by inverse interpolation through the last two or three points."""
    last = [(p.x, math.asinh(p.slope / scale)) for p in points[-3:] if math.isfinite(p.slope)]
    (x1, y1), (x0, y0) = (last[-1], last[-2]) if len(last) > 1 else ((math.nan, 0.0), (math.nan, 1.0))
    if y0 == y1:
        return x1
    if len(last) == 3 and last[0][1] not in (y0, y1):
        x2, y2 = last[0]
        return (
            x0 * y1 * y2 / ((y0 - y1) * (y0 - y2))
            + x1 * y0 * y2 / ((y1 - y0) * (y1 - y2))
            + x2 * y0 * y1 / ((y2 - y0) * (y2 - y1))
        )
    return x1 - y1 * (x1 - x0) / (y1 - y0)


def _curvature(points: list[Point], x: float) -> float:
    """Derivative at x of the polynomial through the slopes of the three points nearest to it."""
    unique = {p.x: p for p in points if math.isfinite(p.slope)}
    near = sorted(unique.values(), key=lambda p: abs(p.x - x))[:3]
    if len(near) < 2:
        return math.nan
    first = _divided(near[0], near[1])
    if len(near) < 3:
        return first
    second = (_divided(near[1], near[2]) - first) / (near[2].x - near[0].x)
    return first + second * (2 * x - near[0].x - near[1].x)


def _divided(p: Point, q: Point) -> float:
    return (q.slope - p.slope) / (q.x - p.x)
