"""Scaling laws: how fast a loss curve falls on a log-log plot, and what theory expects.

On power-law data (``Spectrum.power_law``) with source b the loss of a wide network falls as a power of
training time. A lazy network has a constant kernel and the exponent b. A rich one speeds up on hard tasks,
b < 1, whose target has no finite norm: by time t the modes with lam_k tau(t) > 1 are learned, where
tau = int kernel dt, so the loss is tau^-b and the norm of the learned function grows as |f|^2 ~ tau^(1-b).
Its L + 1 weight layers share that growth evenly, so the kernel that acts on a new mode, the squared gain of
the L layers above the first, is |f|^(2L/(L+1)) ~ tau^((1-b) L/(L+1)). From d tau/dt = kernel follows
tau ~ t^((L+1)/(1+Lb)) and the exponent

    (L + 1) b / (1 + L b)

which is 2b/(1+b) for one hidden layer and tends to 1 with depth.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import loglog_slope

Array = NDArray[np.float64]

_MOST_POINTS = 100_000


@dataclass(frozen=True)
class PowerLawFit:
    """A fitted power law, loss ~ t^-exponent.

    Attributes
    ----------
    exponent, standard_error
        Minus the slope on a log-log plot, and its uncertainty from the scatter about the line. On a smooth curve the
        uncertainty measures how far the slope still drifts within the window.
    start, stop
        Window of times that was fitted.
    """

    exponent: float
    standard_error: float
    start: float
    stop: float


def fit_exponent(times: ArrayLike, losses: ArrayLike, start: float, stop: float, points: int = 40) -> PowerLawFit:
    """Fit loss ~ t^-exponent over a window of times, with equal weight for every decade.

    Parameters
    ----------
    times, losses
        A curve, shape (T,) each; times increasing, losses positive in the window.
    start, stop
        Window of times, inside the curve.
    points
        Number of times, evenly spaced in log t, at which the curve is read (by interpolation in log-log).

    Examples
    --------
    >>> t = np.arange(1, 1001)
    >>> law = fit_exponent(t, 5.0 * t**-0.7, start=10, stop=1000)
    >>> round(law.exponent, 6)
    0.7
    """
    t, loss = _curve(times, losses)
    if not t[0] <= start < stop <= t[-1]:
        within = f"an interval within {t[0]:g} .. {t[-1]:g}"
        raise Refusal("start and stop", (start, stop), within, got=f"{start:g} .. {stop:g}")
    log_t = np.linspace(np.log(start), np.log(stop), checks.whole("points", points, at_least=3, at_most=_MOST_POINTS))
    log_loss = np.interp(log_t, np.log(t), np.log(loss))
    slope, error = loglog_slope(np.exp(log_t), np.exp(log_loss))
    return PowerLawFit(-slope, error, float(start), float(stop))


def local_exponents(times: ArrayLike, losses: ArrayLike, per_decade: int = 2) -> list[PowerLawFit]:
    """Fit a power law in every window of 1 / ``per_decade`` decades, from the first step to the last.

    Examples
    --------
    >>> t = np.arange(1, 10_001)
    >>> [round(law.exponent, 2) for law in local_exponents(t, 1.0 / (1 + t), per_decade=1)]
    [0.74, 0.97, 1.0, 1.0]
    """
    t, loss = _curve(times, losses)
    count = round(np.log10(t[-1] / t[0]) * checks.whole("per_decade", per_decade, at_most=_MOST_POINTS))
    if count < 1:
        least, got = f"at least 1/{per_decade} of a decade", f"{t[0]:g} .. {t[-1]:g}"
        raise Refusal("times", times, least, verb="span", got=got)
    edges = np.geomspace(t[0], t[-1], count + 1)
    edges[0], edges[-1] = t[0], t[-1]
    return [fit_exponent(t, loss, a, b) for a, b in itertools.pairwise(edges)]


def lazy_exponent(source: float) -> float:
    """Return the exponent of a lazy network on power-law data: the source b itself.

    Parameters
    ----------
    source
        The source b of the power law, positive.

    Examples
    --------
    >>> lazy_exponent(0.5)
    0.5
    """
    return checks.positive("source", source)


def rich_exponent(source: float, depth: int) -> float:
    """Return the late exponent of a network that learns features: (L + 1) b / (1 + L b) on hard tasks, b < 1.

    Parameters
    ----------
    source
        The source b of the power law, positive. Easy tasks, b of 1 or more, have the lazy exponent b.
    depth
        Number L of hidden layers, at least 1.

    Examples
    --------
    >>> rich_exponent(0.5, depth=1)  # 2 b / (1 + b)
    0.6666666666666666
    >>> rich_exponent(0.5, depth=3)
    0.8
    >>> rich_exponent(1.5, depth=3)  # easy tasks are as fast when lazy
    1.5
    """
    b, L = checks.positive("source", source), checks.whole("depth", depth)
    return b if b >= 1 else (L + 1) * b / (1 + L * b)


def _curve(times: ArrayLike, losses: ArrayLike) -> tuple[Array, Array]:
    """Return times and losses where log-log makes sense: step 0 is left out."""
    t, loss = np.asarray(times, float), np.asarray(losses, float)
    if t.shape != loss.shape or t.ndim != 1:
        got = f"shapes {t.shape} and {loss.shape}"
        raise Refusal("times and losses", (times, losses), "curves of one length", got=got)
    t, loss = t[t > 0], loss[t > 0]
    if len(t) < 3 or (np.diff(t) <= 0).any():
        got = np.array2string(t, threshold=6)
        raise Refusal("times", times, "increasing, with at least 3 values above 0", got=got)
    wrong = loss[~(np.isfinite(loss) & (loss > 0))]
    if wrong.size:
        raise Refusal("losses", float(wrong[0]), "positive and finite")
    return t, loss
