"""The best learning rate of networks that differ from one another, and how well a number of them determines it.

The best rate is the one at which the mean over networks of log(loss) is least, where a loss of more than three times
the least median counts as three times that. How badly a network fails then does not matter, only how often: one in a
thousand that diverges adds a thousandth, where it would make the mean of the losses infinite. So what is estimated is
a property of networks of that size, not of how many were trained. As networks grow they all tend to the loss of
theory, and their best rate to that of theory.

Rates are tried where they are needed. The gaps on both sides of the least point are halved until a parabola through
three points is the curve, and so are those at the ends of the interval in which the optimum may lie.

That interval holds every rate that is not significantly worse than another. The same networks are trained at
every rate, so two rates are compared by the difference between them in each network, with Student's t. Where the curve
is a parabola this is about the usual interval of an estimate; it remains one where the curve is skew or has several
minima, where errors from resampling networks do not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]

CONFIDENCE = 0.95
"""How often the intervals hold what is estimated."""

FAILED = 3.0
"""Times the least median loss beyond which it does not matter how large a loss is."""

RESOLUTION = 0.02
"""Gap between rates below which none is halved, relative: what the optimum of a curve without noise is known to."""

_WELL_INSIDE = 4.0
"""How many gaps the interval of the optimum has at least."""

_SMOOTH = 0.09
"""Relative gap within which the curve of the networks at hand is a parabola, unless it has a cliff."""

_HIDDEN = 1.7
"""How much deeper a curve may dip between two rates than at them, in log(loss), over the square of the gap: other
minima that are worse than the least by no more are refined as well. It is 20 % at a ratio of sqrt(2)."""

_SAME = 1e-3
"""Relative distance below which two rates are one."""

_FARTHEST = 12
"""Steps by which the grid is continued, at most, when the least loss is at its end."""


@dataclass(frozen=True, eq=False)
class BestRate:
    """The best rate of some networks.

    Attributes
    ----------
    lrs, losses
        Rates that were tried, increasing, and the losses of the networks there, shape (rates, networks).
    best
        Index of the best rate among them.
    low, high
        Ends of the interval that holds the optimum with probability ``CONFIDENCE``: 0 or inf where all rates tried on
        that side may be the best, nan from one network.
    """

    lrs: Array
    losses: Array
    best: int
    low: float
    high: float

    @property
    def lr(self) -> float:
        """The best rate."""
        return float(self.lrs[self.best])

    def nearest(self, lr: float) -> int:
        """Return the index of the rate that was tried nearest to another."""
        return int(np.argmin(np.abs(np.log(self.lrs / lr))))

    @property
    def diverged(self) -> float:
        """Fraction of the networks that diverge at the best rate."""
        return float(np.isinf(self.losses[self.best]).mean())


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
    return float(stdtrit((networks - 1) / 2, (1 + CONFIDENCE) / 2)) if networks > 1 else math.nan


def find_best_rate(losses_at: Callable[[float], Array], lrs: Array) -> BestRate:
    """Find the best rate of networks, starting from a grid of rates.

    Parameters
    ----------
    losses_at
        Losses of the networks at a rate, the same networks each time; ``inf`` where they diverge.
    lrs
        Rates to begin with.

    Examples
    --------
    >>> found = find_best_rate(lambda lr: np.array([np.exp(np.log(lr / 0.05) ** 2)]), np.geomspace(0.01, 0.16, 5))
    >>> round(found.lr, 4)
    0.05
    """
    tried: dict[float, Array] = {}

    def attempt(lr: float) -> None:
        if all(abs(math.log(lr / other)) > _SAME for other in tried):
            tried[lr] = losses_at(lr)

    def table() -> tuple[Array, Array]:
        rates = sorted(tried)
        return np.array(rates), np.stack([tried[lr] for lr in rates])

    for lr in lrs.tolist():
        attempt(lr)
    for _ in range(_FARTHEST):
        beyond = _beyond(*table())
        if beyond is None:
            break
        attempt(beyond)
    while middles := _wide_gaps(*table()):
        for lr in middles:
            attempt(lr)
    attempt(_vertex(*table()))
    rates, losses = table()
    return BestRate(rates, losses, _least(losses), *_interval(rates, losses))


def capped_logs(losses: Array) -> Array:
    """Return what is averaged over networks: log(loss), with an end to how badly a network can fail, (rates, networks).

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


def _beyond(lrs: Array, losses: Array) -> float | None:
    """Return a rate beyond the end of the grid at which the loss is least, if it is."""
    best = _least(losses)
    if best == 0:
        return float(lrs[0] / max([math.sqrt(2), *(lrs[1:2] / lrs[0])]))
    return float(lrs[-1] * max(math.sqrt(2), lrs[-1] / lrs[-2])) if best == len(lrs) - 1 else None


def _wide_gaps(lrs: Array, losses: Array) -> list[float]:
    """Return the middles of gaps that are too wide for where they are."""
    x, mean = np.log(lrs), capped_logs(losses).mean(axis=1)
    gaps = np.diff(x)
    possible = _significance(losses) <= _limit(losses)
    inside = np.ptp(x[possible]) / _WELL_INSIDE
    enough = np.where(possible, inside, np.inf)
    nearby = np.maximum(np.append(gaps[:1], gaps), np.append(gaps, gaps[-1:]))
    is_minimum = (np.append(np.inf, mean[:-1]) >= mean) & (np.append(mean[1:], np.inf) >= mean)
    enough[is_minimum & (mean <= mean.min() + _HIDDEN * nearby**2)] = min(inside, _SMOOTH)
    enough = np.maximum(np.minimum(enough[:-1], enough[1:]), RESOLUTION)
    return [math.sqrt(lrs[i] * lrs[i + 1]) for i in np.flatnonzero(gaps > enough)]


def _vertex(lrs: Array, losses: Array) -> float:
    """Return the minimum of the parabola through the least point and its neighbours, log against log."""
    mean, best = capped_logs(losses).mean(axis=1), _least(losses)
    if not 0 < best < len(lrs) - 1:
        return float(lrs[best])
    left, _, right = np.log(lrs[best - 1 : best + 2] / lrs[best])
    falling, rising = (mean[best - 1] - mean[best]) / left, (mean[best + 1] - mean[best]) / right
    if rising <= falling:
        return float(lrs[best])
    return float(lrs[best] * math.exp((left * rising - right * falling) / (2 * (rising - falling))))


def _limit(losses: Array) -> float:
    """Return the significance beyond which a rate is worse: any, where there is one network."""
    return quantile(losses.shape[1]) if losses.shape[1] > 1 else 0.0


def _significance(losses: Array) -> Array:
    """Return by how many standard errors each rate is worse than another, at most: the largest paired t."""
    scores = capped_logs(losses)
    mean, networks = scores.mean(axis=1), scores.shape[1]
    centered = scores - mean[:, None]
    products = centered @ centered.T
    squares = np.diag(products)
    variance = np.maximum(np.add.outer(squares, squares) - 2 * products, 0.0) / max(networks - 1, 1) / networks
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.subtract.outer(mean, mean) / np.sqrt(variance)
    return np.asarray(np.where(np.isnan(t), 0.0, t).max(axis=1))


def _interval(lrs: Array, losses: Array) -> tuple[float, float]:
    """Return the ends of the rates that may be the best, between those tried by linear interpolation of t."""
    if losses.shape[1] == 1:
        return math.nan, math.nan
    t, limit, x = _significance(losses), _limit(losses), np.log(lrs)
    possible = np.flatnonzero(t <= limit)

    def end(inside: int, outside: int) -> float:
        share = (limit - t[inside]) / (t[outside] - t[inside]) if math.isfinite(t[outside]) else 1.0
        return math.exp(x[inside] + share * (x[outside] - x[inside]))

    first, last = possible[0], possible[-1]
    low = end(first, first - 1) if first > 0 else 0.0
    high = end(last, last + 1) if last < len(lrs) - 1 else math.inf
    return low, high
