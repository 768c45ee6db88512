"""Minima of the loss against the learning rate: which others are nearly as good, how wide they are, and a margin."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._learning_rate.grid import EQUAL
from deeplinear._learning_rate.refine import Minimum
from deeplinear._learning_rate.search import RateSearch

Array = NDArray[np.float64]

_NEAR = 0.03
"""Distance in log(lr) up to which a solved rate stands for another."""

_MARGIN = math.log(1.2)
"""Distance in log(lr) from a rate with a margin at which losses still count."""

NEARLY = 1.05
"""How much more than the least loss counts as nearly as good."""

_BARRIER = 1.01
"""How much higher than a minimum the loss must be on the way to a better one, for it to be another."""

_MOST_OTHERS = 4
"""Minima, besides the best, that are looked at."""

_ROUNDS, _CLOSE = 3, 0.01
"""How often a rate with a margin is improved by what is found around it, and by how much it must move."""


@dataclass(frozen=True)
class LrMinimum:
    """A minimum of the loss against the learning rate.

    Attributes
    ----------
    lr, loss
        Where it is, and the loss there.
    low, high
        The rates around it between which the loss is at most 5 % higher, by interpolation between the rates solved.
    """

    lr: float
    loss: float
    low: float
    high: float


def minima_of(search: RateSearch, best: Minimum) -> tuple[LrMinimum, ...]:
    """Return the best minimum and others nearly as good, best first.

    Those count whose loss is low all over 0.2 % of the rate. None has less loss than the best, or it would be a dip.
    """
    limit = _nearly(search, best)
    search.add(_expected(search, best, limit))
    found, others = [best], [i for i in search.minima() if best.value <= math.exp(search.values[i]) <= limit]
    for x in [search.places[i] for i in sorted(others, key=lambda i: search.values[i])[: _MOST_OTHERS + 1]]:
        other = Minimum(x, search.loss(x), math.nan)
        if all(_is_apart(search, other, each) for each in found) and search.worst(x) <= limit:
            found.append(other)
    return tuple(_described(search, each) for each in found)


def safest(search: RateSearch) -> float:
    """Return the place for which the largest loss within the margin on either side is least."""
    found = math.inf
    for _ in range(_ROUNDS):
        x = _safest(search)
        if abs(x - found) < _CLOSE:
            break
        found = x
        ends = [end for end in (x - _MARGIN, x + _MARGIN) if abs(search.places[search.nearest(end)] - end) > _NEAR]
        search.add([x, *ends])
    return found


def _safest(search: RateSearch) -> float:
    """The same among solved rates and those in between, or a margin away from solved ones, by interpolation."""
    at, heights = search.curve()
    heights = np.minimum(heights, 700.0)
    tried = np.unique(np.concatenate([at, at - _MARGIN, at + _MARGIN]))
    tried = tried[(tried - _MARGIN >= at[0] - EQUAL) & (tried + _MARGIN <= at[-1] + EQUAL)]
    ends = np.maximum(np.interp(tried - _MARGIN, at, heights), np.interp(tried + _MARGIN, at, heights))
    inside = np.abs(tried[:, None] - at) <= _MARGIN
    worst = np.maximum(ends, np.where(inside, heights, -np.inf).max(axis=1))
    return float(tried[worst.argmin()])


def _expected(search: RateSearch, best: Minimum, limit: float) -> list[float]:
    """Places between solved ones at which interpolation has minima nearly as good, far from the best."""
    at, heights = search.curve()
    inside = np.flatnonzero((heights[1:-1] < heights[:-2]) & (heights[1:-1] < heights[2:])) + 1
    return [
        float(at[i])
        for i in inside
        if math.exp(heights[i]) <= limit
        and abs(search.places[search.nearest(at[i])] - at[i]) > _NEAR
        and abs(best.x - at[i]) > _MARGIN
    ]


def _nearly(search: RateSearch, minimum: Minimum) -> float:
    """Excess loss that is nearly as good."""
    noise = search.excess.label_noise
    return NEARLY * (minimum.value + noise) - noise


def _is_apart(search: RateSearch, one: Minimum, other: Minimum) -> bool:
    """Whether the loss rises on the way from one minimum to another."""
    low, high = sorted((one.x, other.x))
    at, heights = search.curve()
    between = np.exp(np.minimum(heights[(at > low) & (at < high)], 700.0))
    noise = search.excess.label_noise
    return bool(between.max(initial=0.0) + noise > _BARRIER * (max(one.value, other.value) + noise))


def _described(search: RateSearch, minimum: Minimum) -> LrMinimum:
    limit = _nearly(search, minimum)
    search.add([end for end in _ends(search, minimum, limit) if abs(search.places[search.nearest(end)] - end) > _NEAR])
    low, high = _ends(search, minimum, limit)
    loss = search.total(search.nearest(minimum.x))
    return LrMinimum(math.exp(minimum.x), loss, math.exp(low), math.exp(high))


def _ends(search: RateSearch, minimum: Minimum, limit: float) -> tuple[float, float]:
    """Where the loss on either side of a minimum first exceeds a limit."""
    at, heights = search.curve()
    losses = np.exp(np.minimum(heights, 700.0))
    above, below = at > minimum.x + EQUAL, at < minimum.x - EQUAL
    return (
        _reach(minimum, at[below][::-1], losses[below][::-1], limit),
        _reach(minimum, at[above], losses[above], limit),
    )


def _reach(minimum: Minimum, places: Array, losses: Array, limit: float) -> float:
    x, value = minimum.x, minimum.value
    for place, loss in zip(places.tolist(), losses.tolist(), strict=True):
        if loss > limit:
            return x if loss > 1e300 else x + (place - x) * (limit - value) / (loss - value)
        x, value = place, loss
    return x
