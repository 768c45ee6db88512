"""Are networks farther from theory than networks of their size scatter? A test that one network is enough for.

The sign-flip test takes the scatter from the networks that are compared, which takes eight of them. Here it comes from
networks that were drawn, or is estimated. The statistic is the largest deviation of the mean over all numbers that are
tested, in units of that scatter; its distribution is that of means of as many of the networks drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.expected import ExpectedObservable
from deeplinear._comparison.observables import ComparedObservable
from deeplinear._core.threads import one_blas_thread

Array = NDArray[np.float64]

_SELECTIONS = 1000
"""Selections of the networks drawn, with replacement, whose means are taken."""

_MARGIN = 1.2
"""Factor by which the statistic has to be larger than those of the networks drawn, of which there are not many."""

_BEYOND_ANY = 2.0
"""The same where nothing of the kind is to be expected of any networks."""

_ESTIMATED = 4.0
"""Standard deviations that count as scatter where it is estimated."""

_SINGLE = 1e-6
"""Relative errors of losses that were computed in single precision."""


@dataclass(frozen=True, eq=False)
class ScatterTest:
    """The test of all observables.

    Attributes
    ----------
    p_value, separate
        Its p-value of all observables together, and of each; nan where no scatter is known.
    beyond_any
        Whether the deviation is twice as large as any that means of the networks drawn have.
    noise
        Factor by which networks scatter more than those drawn, for reasons of their own such as a small test set, which
        counts as their scatter; 1 where they do not, or there is only one.
    """

    p_value: float
    separate: list[float]
    beyond_any: bool
    noise: float

    @classmethod
    def of(
        cls,
        groups: Sequence[ComparedObservable],
        expected: Sequence[ExpectedObservable],
        explained: Sequence[Array] | None = None,
    ) -> "ScatterTest":
        """Test deviations from theory, or what is left of them once a part is explained."""
        noise = _excess_of_scatter(groups, expected)
        pairs = [
            _statistics(group, each, noise, 0.0 if explained is None else explained[index])
            for index, (group, each) in enumerate(zip(groups, expected, strict=True))
        ]
        known = [pair for pair in pairs if pair is not None]
        if not known:
            return cls(math.nan, [math.nan] * len(pairs), False, noise)
        largest = max(observed for observed, _ in known)
        size = max(len(drawn) for _, drawn in known)
        drawn = np.max([np.resize(each, size) for _, each in known], axis=0)  # of the same selections
        separate = [math.nan if pair is None else _rank(*pair) for pair in pairs]
        return cls(_rank(largest, drawn), separate, bool(largest > _BEYOND_ANY * drawn.max()), noise)


def _rank(observed: float, drawn: Array) -> float:
    return float((1 + np.sum(drawn >= observed / _MARGIN)) / (1 + len(drawn)))


def _excess_of_scatter(groups: Sequence[ComparedObservable], expected: Sequence[ExpectedObservable]) -> float:
    """Return by how much networks scatter more than those drawn, at least 1."""
    ratios = []
    for group, each in zip(groups, expected, strict=True):
        values, scatter = group.together.values, each.scatter
        if len(values) > 1:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                ratio = values.var(axis=0, ddof=1) / scatter**2
            ratios.append(ratio[np.isfinite(ratio) & (scatter > _SINGLE * group.together.scale)])
    together = np.concatenate([np.empty(0), *ratios])
    return max(1.0, math.sqrt(together.mean())) if together.size else 1.0


def _statistics(
    group: ComparedObservable, expected: ExpectedObservable, noise: float, explained: Array | float
) -> tuple[float, Array] | None:
    """Return the largest deviation of the mean, and those of means of networks drawn; None without a scatter."""
    together, count = group.together, len(group.main.values)
    use = together.is_finite & ~together.is_equal & np.isfinite(expected.scatter)
    if not use.any():
        return None
    explained = np.broadcast_to(explained, use.shape)
    error = np.hypot(noise * expected.scatter / math.sqrt(count), _SINGLE * together.scale)[use]
    observed = float((np.abs(together.mean - together.theory - explained)[use] / error).max())
    if not len(expected.away):
        return observed, np.array([_ESTIMATED] * _SELECTIONS)
    shares = _selections(count, len(expected.away))
    with one_blas_thread():
        drawn = np.abs(shares @ (expected.away[:, use] / error * noise)).max(axis=1)
    return observed, drawn


def _selections(count: int, drawn: int) -> Array:
    """Shares of each network drawn in the mean of so many, shape (selections, drawn); of one, each of them once."""
    if count == 1:
        return np.eye(drawn)
    return np.random.default_rng(0).multinomial(count, np.full(drawn, 1 / drawn), _SELECTIONS) / count
