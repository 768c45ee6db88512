"""How far theory and networks are apart, less the scatter of the networks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.claim import SIGNIFICANT

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """How far theory and networks are apart, over all steps or rates of a curve.

    ``deviation`` is the root mean square of the relative deviation of the mean over networks, their scatter taken off,
    and ``error`` how far it may be wrong; ``rms_z`` is in standard errors, scatter included. ``verdict`` is that of
    ``compare``, empty where it was not asked.
    """

    label: str
    deviation: float
    error: float
    rms_z: float
    verdict: str = ""


class Distance(NamedTuple):
    """A root mean square deviation, and its standard errors towards smaller and towards larger values.

    They differ, since scatter makes it seem larger far more often than smaller. A distance that may be zero can still
    be known to be below a bound.
    """

    value: float
    below: float
    above: float

    def error_towards(self, bound: float) -> float:
        """The error on the side on which a bound lies."""
        return self.above if self.value < bound else self.below


def rms_z(theory: Array, mean: Array, error: Array) -> float:
    """Root mean square of the deviation from theory in standard errors."""
    use = np.isfinite(theory) & np.isfinite(mean) & (error > 1e-9 * np.abs(mean))
    z = (mean[use] - theory[use]) / error[use]
    return float(np.sqrt(np.mean(z**2))) if len(z) else float("nan")


def distance(theory: Array, networks: Array, weights: Array | None = None) -> Distance:
    """Root mean square over the points of a curve of the relative deviation of networks, shape (seed, point).

    Points may have weights.

    The scatter of the networks is taken off: what is squared is the product of the deviations of two different ones,
    averaged over all pairs. The error of the square is that of leaving out one network at a time, together with what is
    left where there is no deviation, root two times the square of the scatter of the mean. Towards larger values the
    root reaches as far as the deviation of the mean, scatter included, and its own error do; towards smaller values as
    far as the interval of the square does on either side. All are nan from fewer than three networks, or where one
    diverged.
    """
    count = len(networks)
    if count < 3 or not theory.size:
        return Distance(float("nan"), float("nan"), float("nan"))
    with np.errstate(invalid="ignore"):
        off = networks / theory - 1
        total, squares = off.sum(axis=0), (off**2).sum(axis=0)
        square = float(np.average((total**2 - squares) / (count * (count - 1)), weights=weights))
        pairs = (count - 1) * (count - 2)
        without = np.average(((total - off) ** 2 - squares + off**2) / pairs, axis=1, weights=weights)
        left_out = (count - 1) / count * ((without - without.mean()) ** 2).sum()
        scatter = float(np.average(off.var(axis=0, ddof=1) / count, weights=weights))
        of_mean = float(np.sqrt(np.average((total / count) ** 2, weights=weights)))
        reach = SIGNIFICANT * float(np.sqrt(left_out + 2 * scatter**2))
        value, least, most = np.sqrt(np.maximum([square, square - reach, square + reach], 0.0))
        along = float(np.sqrt(left_out)) / (2 * of_mean) if of_mean else 0.0  # scatter along the deviation
        error_of_mean = min(along, float(np.sqrt(scatter)))
    below = float(max(value - least, most - value)) / SIGNIFICANT
    return Distance(float(value), below, (of_mean - float(value)) / SIGNIFICANT + error_of_mean)


def measured_slope(x: Array, y: Array, error: Array) -> tuple[float, float]:
    """Slope of the line fitted to log(y) against log(x), and what the errors of y do to it.

    That the points bend away from the line is no error of the slope: theory's points bend as well, and both are put to
    the same question.
    """
    log_x = np.log(x) - np.log(x).mean()
    return loglog_slope(x, y)[0], float(np.sqrt(((log_x * error / y) ** 2).sum()) / (log_x @ log_x))
