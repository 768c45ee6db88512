"""A function that falls until it comes to a cliff, as a loss does with the learning rate at the edge of stability.

What is unstable grows exponentially with the rate, so it takes over suddenly. When it has grown large it is bounded, as
a rule in proportion to the distance from the edge.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Place = tuple[float, float]
"""A point x with the value of the function there."""

_REACH = 8.0
"""How far from a cliff, over its steepness, the rise is an exponential."""

_FAST = 0.6
"""Part of an interval that may be left after a step that was worth it."""

_MARGIN = 0.15
"""Least part of an interval that a new point in it cuts off."""

_VISIBLE = 0.1
"""How much a function must have risen for the rise to tell its rate."""


def approach_cliff(
    value: Callable[[float], float], known: Sequence[Place], steepness: float, floor: float = 0.0
) -> list[Place]:
    """Narrow a cliff down until a point beyond it is so near that the rise to there is about an exponential.

    A line through two points farther beyond leads back to the cliff. Bisection stands in where that does not shorten
    the interval fast enough.

    Parameters
    ----------
    value
        The function.
    known
        At least three points, the second with the least value of the first three.
    steepness
        Rate at which the function rises, roughly.
    floor
        Value that is as good as zero, and ends the search.

    Returns
    -------
    list
        The points on the way down, at least two, of which the last is the best; and the one beyond.
    """
    first, best, right, *beyond = known
    before, width = [first], math.inf
    while right[0] - best[0] > _REACH / steepness and best[1] > floor:
        is_fast, width = right[0] - best[0] < _FAST * width, right[0] - best[0]
        x = 0.5 * (best[0] + right[0])
        if is_fast and beyond and right[1] < beyond[0][1] < math.inf:
            cliff = right[0] - (right[1] - best[1]) / secant(right, beyond[0])
            x = min(max(cliff, best[0] + _MARGIN * width), right[0] - _MARGIN * width)
        new = (x, value(x))
        if new[1] < best[1]:
            before, best = [*before, best], new
        else:
            right, beyond = new, [right]
    return [*before, best, right]


@dataclass(frozen=True)
class Cliff:
    """A positive function whose logarithm falls as a line until an exponential is added to the function.

    Attributes
    ----------
    fall
        Slope of the line.
    rate
        Rate of the exponential.
    foot
        Where the function is least.
    """

    fall: float
    rate: float
    foot: float

    @classmethod
    def through(cls, points: Sequence[Place], steepness: float) -> "Cliff | None":
        """Fit what ``approach_cliff`` returns; None where there is no such function.

        The rate is told by the last two points if both have risen, otherwise it is the steepness.
        """
        *before, best, right = points
        p, q = before[-2:] if len(before) > 1 else (before[-1], best)
        if not 0 < q[1] < p[1] < math.inf:
            return None
        fall = math.log(q[1] / p[1]) / (q[0] - p[0])

        def risen(place: Place) -> float:
            return place[1] / (q[1] * math.exp(fall * (place[0] - q[0]))) - 1

        if not 0 < risen(right) < math.inf:
            return None
        is_told = _VISIBLE < risen(best) < risen(right)
        rate = math.log(risen(right) / risen(best)) / (right[0] - best[0]) if is_told else steepness
        foot = right[0] - math.log(rate * risen(right) / -fall) / rate
        return cls(fall, rate, min(max(foot, 0.5 * (before[-1][0] + best[0])), right[0]))

    def foot_from(self, x: float, slope: float) -> float:
        """Where the function is least if its logarithm has this slope at x; nan if the slope is that of the line."""
        rise = slope - self.fall
        return x + math.log(-self.fall / rise) / self.rate if rise > 0 else math.nan


def secant(p: Place, q: Place) -> float:
    """Slope of the line through two points."""
    return (q[1] - p[1]) / (q[0] - p[0])
