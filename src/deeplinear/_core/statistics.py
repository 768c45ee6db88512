"""Statistics that several rooms need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def standard_error(values: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
    """Return the standard error of the mean along an axis; nan from one value, or where some are infinite.

    It is that of ``scipy.stats.sem``, which is slow to import. Values are taken one by one along the axis, since the
    correlations of all networks together may be large.

    Examples
    --------
    >>> standard_error(np.array([[1.0, 2.0], [3.0, 2.0]]))
    array([1., 0.])
    """
    values = np.moveaxis(values, axis, 0)
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    unit = _unit(values)
    with np.errstate(invalid="ignore"):  # inf - inf, where a network diverged
        mean = values.mean(axis=0) if unit is None else (values / unit).mean(axis=0)
        squares = np.zeros(mean.shape)
        for value in values:
            squares += ((value if unit is None else value / unit) - mean) ** 2
        error = np.asarray(np.sqrt(squares / (count - 1) / count))
        return error if unit is None else error * unit


def _unit(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return powers of two in which values are neither too large nor too small for squares; None if all are right."""
    largest = np.zeros(values.shape[1:])
    for value in values:
        size = np.abs(value)
        np.maximum(largest, np.where(np.isfinite(size), size, 0.0), out=largest)
    extreme = ((largest > 1e150) | (largest < 1e-145)) & (largest > 0)
    return np.where(extreme, 2.0 ** np.frexp(largest)[1].clip(-1021, 1021), 1.0) if extreme.any() else None


def typical_loss(losses: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return median and quartiles over networks, the last axis; ``inf`` where so many have diverged.

    Examples
    --------
    >>> [float(each) for each in typical_loss(np.array([1.0, 2.0, 3.0, 4.0, np.inf]))]
    [3.0, 2.0, 4.0]
    """
    ordered, last = np.sort(losses, axis=-1), losses.shape[-1] - 1

    def at(share: float) -> NDArray[Any]:
        below, weight = int(share * last), share * last % 1
        above = ordered[..., min(below + 1, last)]
        return np.asarray(ordered[..., below] if weight == 0 else (1 - weight) * ordered[..., below] + weight * above)

    return at(0.5), at(0.25), at(0.75)


def loglog_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return d log(y) / d log(x) by least squares, and its standard error from the scatter about the line.

    The scatter says how far the points are from a power law. It knows nothing of errors of the points themselves: exact
    points on a bent curve have a scatter, and those of two points have none (nan). One point has no slope.

    Examples
    --------
    >>> slope, error = loglog_slope(np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.4]))
    >>> round(slope, 12), round(error, 12)
    (1.0, 0.0)
    """
    # Not scipy.stats.linregress: to import scipy.stats takes about as long as to import all of this package.
    log_x, log_y = np.log(x), np.log(y)
    if len(log_x) < 2:
        return np.nan, np.nan
    log_x, log_y = log_x - log_x.mean(), log_y - log_y.mean()
    slope = float(log_x @ log_y / (log_x @ log_x))
    freedom = len(log_x) - 2
    rest = log_y - slope * log_x
    return slope, float(np.sqrt(rest @ rest / freedom / (log_x @ log_x))) if freedom else np.nan
