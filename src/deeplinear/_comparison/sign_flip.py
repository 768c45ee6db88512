"""A calibrated test of a mean over few seeds and many correlated numbers.

The test flips signs. If the theory gives the mean, and seeds scatter symmetrically about it, then the
deviations of a seed from theory are as likely with the opposite sign, all curves and times of that
seed together. The statistic is the largest deviation of the mean over all times, in units of its
scatter; its distribution under the null is what flipping whole seeds at random gives. However
strongly times and observables are correlated, the level is right, and no correction for looking at
many of them is needed.

Losses are not symmetric: they have a long upper tail, which would make a mean that happens to be low
look more significant than it is. So the statistic is not Student's t = mean / deviation but Hall's
((1 + g t / 3)^3 - 1) / g + g / 6n, with g the skewness of the seeds, which removes the leading effect
of skewness and still tests the mean (the mean of the logarithms would be more symmetric, but is
not what theory predicts). Measured on ensembles of 8 to 32 networks against the mean of 3000, all
observables together, on three problems: at D = 120 a level of 0.05 rejects 3 to 9 %, a level of 0.01
rejects 0.3 to 2.2 %. At D = 30 the level of 0.05 rejects 5 to 13 %, where Student's t rejects 10 to 27 %.
What remains is for heavy tails: with width * richness^2 = 0.18, depth 3 and D = 120 the level of 0.01
rejects 1 to 3 % on the losses alone and 4 to 8 % on everything, since the features of a few networks are
many times those of the rest.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.statistics import standard_error

Array = NDArray[np.float64]

_EVERY_PATTERN_UP_TO = 12
"""Number of seeds up to which every pattern of signs is taken; beyond, a random selection."""

_PATTERNS = 4096
"""Size of that selection."""

_NEAREST, _FARTHEST, _ACCURACY = 0.25, 64.0, 0.004
"""Standard errors between which the least deviation that is noticed is looked for, and how accurately."""

_CHUNK = 1 << 16
"""Numbers worked on at once while signs are flipped: few enough to stay in the processor's cache."""


def rank(statistic: Array) -> float:
    """Fraction of patterns that reach the first one, which is the data as they are."""
    return float(np.mean(statistic >= statistic[0] * (1 - 1e-9)))


def flip_signs(groups: list[Array]) -> Array:
    """Largest statistic of each group of columns, for each pattern of signs.

    Parameters
    ----------
    groups
        Deviations of each seed from theory, shape (seed, columns), columns not all zero.

    Returns
    -------
    Array
        Shape (patterns, groups); the first pattern leaves the signs as they are.

    Examples
    --------
    >>> one_side, both_sides = np.array([[1.0], [1.2], [0.9]]), np.array([[1.0], [-1.0], [0.1]])
    >>> flip_signs([one_side, both_sides]).round(1)
    array([[20.1,  0. ],
           [ 0.4,  0. ],
           [ 0.2,  1.1],
           [ 0.3,  0.9]])
    """
    signs = _sign_patterns(len(groups[0]))
    maxima = np.zeros((len(signs), len(groups)))
    for index, deviations in enumerate(groups):
        if not deviations.size:
            continue
        largest = np.abs(deviations).max(axis=0)
        scaled = deviations[:, largest > 0] / largest[largest > 0]  # nothing is off in the others
        if not scaled.size:
            continue
        scaled /= np.sqrt(np.mean(scaled**2, axis=0))  # flipping signs leaves these second moments as they are
        rows = max(1, _CHUNK // scaled.shape[1])
        for start in range(0, len(signs), rows):
            block = signs[start : start + rows]
            maxima[start : start + rows, index] = _statistic(block, scaled).max(axis=1)
    return maxima


def least_noticed(deviations: Array, rest: Array, level: float) -> float:
    """Return by how many standard errors a group of columns must be off, to either side, for the test to reject.

    Every column is shifted by the same number of its own standard errors, the seeds staying as they are: these are
    the very data and the very test, with another theory.

    Parameters
    ----------
    deviations
        Deviations of each seed from theory in this group, shape (seed, columns), columns not all equal.
    rest
        Largest statistic of all other groups, for each pattern of signs, shape (patterns,).
    level
        The test rejects if its rank is below this.

    Returns
    -------
    float
        The smallest number that is rejected upwards as well as downwards; infinite if it is beyond 64.

    Examples
    --------
    >>> deviations = np.random.default_rng(0).standard_normal((10, 1))
    >>> least = least_noticed(deviations, np.zeros(2**9), level=0.01)
    >>> error = deviations.std(ddof=1) / np.sqrt(10)
    >>> [rank(flip_signs([deviations + shift * least * error])[:, 0]) < 0.01 for shift in (-1, -0.99, 0.99, 1)]
    [True, False, True, True]
    """
    error = standard_error(deviations)

    def excess(side: float, log_number: float) -> float:
        shifted = deviations + side * np.exp(log_number) * error
        return _excess(np.maximum(rest, flip_signs([shifted])[:, 0]), level)

    return max(_least(partial(excess, side)) for side in (-1.0, 1.0))


def _least(excess: Callable[[float], float]) -> float:
    """Find where rejection begins, a little beyond rather than before it; infinite if it does not."""
    from scipy.optimize import brentq  # slow to import

    near, far = np.log(_NEAREST), np.log(_FARTHEST)
    if excess(far) <= 0.0:
        return np.inf
    if excess(near) > 0.0:
        return _NEAREST
    return float(np.exp(brentq(excess, near, far, xtol=_ACCURACY / 2)) * (1.0 + _ACCURACY))


def _excess(statistic: Array, level: float) -> float:
    """Return the logarithm of the first statistic over the one it has to exceed for a rank below the level."""
    above = math.ceil(level * len(statistic)) - 1  # patterns that may reach it, itself included
    if above < 1:
        return -np.inf
    return float(np.log(statistic[0] / np.partition(statistic[1:], -above)[-above]))


def _sign_patterns(seeds: int) -> Array:
    """Signs for each seed, shape (patterns, seed). The first seed keeps its own: reversing all changes nothing."""
    if seeds <= _EVERY_PATTERN_UP_TO:
        return np.array([(1.0, *signs) for signs in itertools.product((1.0, -1.0), repeat=seeds - 1)])
    patterns = np.random.default_rng(0).choice((1.0, -1.0), size=(_PATTERNS, seeds))
    patterns[0] = 1.0
    return patterns


def _statistic(signs: Array, scaled: Array) -> Array:
    """Hall's statistic, up to its sign: t = mean / deviation, with the leading effect of skewness removed.

    Columns have second moment 1 about zero; their central moments follow from the raw ones.
    """
    count = len(scaled)
    mean = signs @ (scaled / count)
    square = mean * mean
    per_deviation = 1.0 / np.sqrt(np.maximum(1.0 - square, 1e-12))
    t = mean * per_deviation
    skewness = signs @ (scaled**3 / count) - mean * (3.0 - 2.0 * square)
    skewness *= per_deviation * per_deviation * per_deviation
    product = skewness * t / 3.0
    # ((1 + g t / 3)^3 - 1) / g, multiplied out, since g may be zero
    return np.asarray(np.abs(t * (1.0 + product * (1.0 + product / 3.0)) + skewness / (6.0 * count)))
