"""Slopes of a function at some points, and a constant and an exponential through them."""

import math
from dataclasses import dataclass
from itertools import pairwise

_FLAT = 0.1
"""How fast a slope may fall beside a rise, as a part of that, to count as flat."""

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
class SlopeFit:
    """A constant and an exponential of the given growth rate through the slopes at two points; a line at rate 0."""

    first: Point
    second: Point
    rate: float

    @classmethod
    def through(cls, points: list[Point]) -> "SlopeFit | None":
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
        return divided(self.first, self.second) * growth


def _half_way(p: Point, q: Point) -> Point:
    """The point between two, with the slope that Simpson's rule then needs for their values."""
    slope = 1.5 * (q.value - p.value) / (q.x - p.x) - 0.25 * (p.slope + q.slope)
    return Point(0.5 * (p.x + q.x), math.nan, slope)


def _rate(p: Point, q: Point, r: Point) -> float:
    """Growth rate of the exponential that, with a constant, passes through three slopes; nan if they turn back."""
    first, second = divided(p, q), divided(q, r)
    if not first * second > 0:  # what is flat beside a steep rise may fall a little
        is_flat = q.slope < 0 < r.slope and -first < _FLAT * second
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


def divided(p: Point, q: Point) -> float:
    return (q.slope - p.slope) / (q.x - p.x)
