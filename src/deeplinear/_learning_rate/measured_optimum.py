"""The best learning rate, or value of another field, of networks that differ, and how well some of them determine it.

The best value is the one at which the mean over networks of log(loss) is least, where a loss of more than three times
the least median counts as three times that. How badly a network fails then does not matter, only how often: one in a
thousand that diverges adds a thousandth, where it would make the mean of the losses infinite. So what is estimated is
a property of networks of that size, not of how many were trained. As networks grow they all tend to the loss of
theory, and their best value to that of theory.

Values are tried where they are needed. The gaps on both sides of the least point are halved until a parabola through
three points is the curve, and so are those at the ends of the interval in which the optimum may lie.

That interval holds every value that is not significantly worse than another. The same networks are trained at
every value, so two values are compared by the difference between them in each network, with Student's t. Where the
curve is a parabola this is about the usual interval of an estimate; it remains one where the curve is skew or has
several minima, where errors from resampling networks do not.

Batches of another size are other draws, so between these the differences scatter more, and the intervals are wider
than they have to be: those of curves with a minimum inside hold in 99 % of cases. Where the loss is least at a bound,
and flat there, they hold in 89 to 97 %.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95
"""How often the intervals hold what is estimated."""

FAILED = 3.0
"""Times the least median loss beyond which it does not matter how large a loss is."""

RESOLUTION = 0.02
"""Gap between values, in their coordinate, below which none is halved: to this the optimum of a curve without noise is
known."""

_WELL_INSIDE = 4.0
"""How many gaps the interval of the optimum has at least."""

_SMOOTH = 0.09
"""Gap within which the curve of the networks at hand is a parabola, unless it has a cliff."""

_HIDDEN = 1.7
"""How much deeper a curve may dip between two values than at them, in log(loss), over the square of the gap: other
minima that are worse than the least by no more are refined as well. It is 20 % at a ratio of sqrt(2)."""

_SAME = 1e-3
"""Distance below which two values are one."""

_FARTHEST = 12
"""Steps by which the grid is continued, at most, when the least loss is at its end."""


@dataclass(frozen=True)
class Scale:
    """On which coordinate values are searched, and between which ends of it; learning rates by their logarithm.

    Attributes
    ----------
    coordinate, value
        From a value to its coordinate, and back.
    low, high
        Ends of the coordinate.
    """

    coordinate: Callable[[float], float] = math.log
    value: Callable[[float], float] = math.exp
    low: float = -math.inf
    high: float = math.inf

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.value(self.low), self.value(self.high)


@dataclass(frozen=True, eq=False)
class Best:
    """The best value of some networks.

    Attributes
    ----------
    tried, losses
        Values that were tried, increasing, and the losses of the networks there, shape (values, networks).
    best
        Index of the best among them.
    low, high
        Ends of the interval that holds the optimum with probability ``CONFIDENCE``: those of the scale (0 or inf of
        rates) where all values tried on that side may be the best, nan from one network.
    scale
        The coordinate in which they were searched.
    """

    tried: Array
    losses: Array
    best: int
    low: float
    high: float
    scale: Scale

    @property
    def value(self) -> float:
        """The best value."""
        return float(self.tried[self.best])

    def nearest(self, value: float) -> int:
        """Return the index of the value that was tried nearest to another."""
        return int(np.argmin(np.abs(_places(self.tried, self.scale) - self.scale.coordinate(value))))

    @property
    def diverged(self) -> float:
        """Fraction of the networks that diverge at the best value."""
        return float(np.isinf(self.losses[self.best]).mean())


LOGARITHMIC = Scale()


def quantile(networks: int) -> float:
    """Return how many standard errors the intervals reach to either side; nan from one network.

    This is Student's quantile with half the degrees of freedom. Losses of networks are skew, and with all of them the
    intervals of 8 to 16 networks hold in as little as 86 % of cases; with half, in 93 % or more wherever it was tried
    (``benchmarks/measured_rate.py``).

    Examples
    --------
    >>> round(quantile(16), 2), round(quantile(1000), 2)
    (2.33, 1.96)
    """
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit((networks - 1) / 2, (1 + CONFIDENCE) / 2)) if networks > 1 else math.nan


def find_best(losses_at: Callable[[float], Array], values: Array, scale: Scale = LOGARITHMIC) -> Best:
    """Find the best value of networks, starting from a grid of values.

    Parameters
    ----------
    losses_at
        Losses of the networks at a value, the same networks each time; ``inf`` where they diverge.
    values
        Values to begin with.
    scale
        The coordinate in which to search.

    Examples
    --------
    >>> found = find_best(lambda lr: np.array([np.exp(np.log(lr / 0.05) ** 2)]), np.geomspace(0.01, 0.16, 5))
    >>> round(found.value, 4)
    0.05
    """
    tried: dict[float, tuple[float, Array]] = {}

    def attempt(value: float) -> None:
        x = scale.coordinate(value)
        if all(abs(x - other) > _SAME for other in tried):
            tried[x] = (value, losses_at(value))

    def table() -> tuple[Array, Array]:
        places = sorted(tried)
        return np.array(places), np.stack([tried[x][1] for x in places])

    for value in values.tolist():
        attempt(value)
    for _ in range(_FARTHEST):
        beyond = _beyond(*table(), scale)
        if beyond is None:
            break
        attempt(scale.value(beyond))
    while middles := _wide_gaps(*table()):
        for x in middles:
            attempt(scale.value(x))
    attempt(scale.value(_vertex(*table())))
    places, losses = table()
    low, high = (scale.value(end) for end in _interval(places, losses, scale))
    return Best(np.array([tried[x][0] for x in places.tolist()]), losses, _least(losses), low, high, scale)


def capped_logs(losses: Array) -> Array:
    """Return what is averaged over networks: log(loss), with an end to how badly a network can fail.

    Shape (values, networks).

    Examples
    --------
    >>> np.exp(capped_logs(np.array([[0.1, 0.2, np.inf], [1.0, 0.4, np.inf]]))).round(3)
    array([[0.1, 0.2, 0.6],
           [0.6, 0.4, 0.6]])
    """
    logs = np.log(np.maximum(losses, np.finfo(float).tiny))
    least = np.median(logs, axis=1).min()
    return np.minimum(logs, (least if math.isfinite(least) else 0.0) + math.log(FAILED))


def _least(losses: Array) -> int:
    return int(np.argmin(capped_logs(losses).mean(axis=1)))


def _places(values: Array, scale: Scale) -> Array:
    return np.array([scale.coordinate(value) for value in values.tolist()])


def _beyond(x: Array, losses: Array, scale: Scale) -> float | None:
    """Return a place beyond the end of the grid at which the loss is least, if it is and there is room."""
    best, least = _least(losses), 0.5 * math.log(2)
    if best == 0 and x[0] > scale.low:
        return max(float(x[0] - max([least, *np.diff(x[:2])])), scale.low)
    if best == len(x) - 1 and x[-1] < scale.high:
        return min(float(x[-1] + max([least, *np.diff(x[-2:])])), scale.high)
    return None


def _wide_gaps(x: Array, losses: Array) -> list[float]:
    """Return the middles of gaps that are too wide for where they are."""
    mean = capped_logs(losses).mean(axis=1)
    gaps = np.diff(x)
    possible = _significance(losses) <= _limit(losses)
    inside = np.ptp(x[possible]) / _WELL_INSIDE
    enough = np.where(possible, inside, np.inf)
    nearby = np.maximum(np.append(gaps[:1], gaps), np.append(gaps, gaps[-1:]))
    is_minimum = (np.append(np.inf, mean[:-1]) >= mean) & (np.append(mean[1:], np.inf) >= mean)
    enough[is_minimum & (mean <= mean.min() + _HIDDEN * nearby**2)] = min(inside, _SMOOTH)
    enough = np.maximum(np.minimum(enough[:-1], enough[1:]), RESOLUTION)
    return [0.5 * float(x[i] + x[i + 1]) for i in np.flatnonzero(gaps > enough)]


def _vertex(x: Array, losses: Array) -> float:
    """Return the minimum of the parabola through the least point and its neighbours."""
    mean, best = capped_logs(losses).mean(axis=1), _least(losses)
    if not 0 < best < len(x) - 1:
        return float(x[best])
    left, _, right = x[best - 1 : best + 2] - x[best]
    falling, rising = (mean[best - 1] - mean[best]) / left, (mean[best + 1] - mean[best]) / right
    if rising <= falling:
        return float(x[best])
    return float(x[best] + (left * rising - right * falling) / (2 * (rising - falling)))


def _limit(losses: Array) -> float:
    """Return the significance beyond which a value is worse: any, where there is one network."""
    return quantile(losses.shape[1]) if losses.shape[1] > 1 else 0.0


def _significance(losses: Array) -> Array:
    """Return by how many standard errors each value is worse than another, at most: the largest paired t."""
    scores = capped_logs(losses)
    mean, networks = scores.mean(axis=1), scores.shape[1]
    centered = scores - mean[:, None]
    products = centered @ centered.T
    squares = np.diag(products)
    variance = np.maximum(np.add.outer(squares, squares) - 2 * products, 0.0) / max(networks - 1, 1) / networks
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.subtract.outer(mean, mean) / np.sqrt(variance)
    return np.asarray(np.where(np.isnan(t), 0.0, t).max(axis=1))


def _interval(x: Array, losses: Array, scale: Scale) -> tuple[float, float]:
    """Return the ends of the places that may be the best, between those tried by linear interpolation of t."""
    if losses.shape[1] == 1:
        return math.nan, math.nan
    t, limit = _significance(losses), _limit(losses)
    possible = np.flatnonzero(t <= limit)

    def end(inside: int, outside: int) -> float:
        share = (limit - t[inside]) / (t[outside] - t[inside]) if math.isfinite(t[outside]) else 1.0
        return float(x[inside] + share * (x[outside] - x[inside]))

    first, last = possible[0], possible[-1]
    low = end(first, first - 1) if first > 0 else scale.low
    high = end(last, last + 1) if last < len(x) - 1 else scale.high
    return low, high
