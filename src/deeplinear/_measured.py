"""Optimal learning rates of real networks, from their losses on a grid of rates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem import Problem
from deeplinear._rates import with_rate
from deeplinear._simulate import read_seeds, simulate

Array = NDArray[np.float64]

_RESAMPLES = 400
_ARGUMENTS = ("dim", "seeds", "workers", "device")


@dataclass(frozen=True, eq=False)
class MeasuredOptima:
    """Optimal learning rates of finite networks of several sizes.

    Attributes
    ----------
    loss
        Loss at the last step of every network, shape (values, lrs, seeds); ``inf`` where it diverged.
    lr
        Optimum of the mean loss over seeds for each value, shape (values,).
    lr_error
        Its standard error, over seeds, shape (values,).
    exponent, exponent_error
        Slope of log(lr) against log(value), and its standard error over seeds.
    """

    loss: Array = field(repr=False)
    lr: Array
    lr_error: Array
    exponent: float
    exponent_error: float


def check_experiment(experiment: Any) -> dict[str, Any]:
    """Return the arguments for ``simulate`` if they are known ones, among them the seeds."""
    if not isinstance(experiment, Mapping) or not set(experiment) <= set(_ARGUMENTS):
        raise ValueError(f"experiment must be a dict of {', '.join(_ARGUMENTS)}, got {experiment!r}")
    return {**experiment, "seeds": read_seeds(experiment.get("seeds", 16))}


def measure_optima(
    problems: list[Problem],
    values: Array,
    lrs: Array,
    objective: str,
    experiment: dict[str, Any],
    advance: Callable[[int], object],
) -> MeasuredOptima:
    """Train networks at every rate for each problem and find the optimal rates.

    The same seeds are used at every rate, so that the curves of a seed are alike; standard errors are those of 400
    resamples of the seeds. ``advance`` is called with the number of networks that were trained.
    """

    def final_loss(problem: Problem, lr: float) -> Array:
        ensemble = simulate(with_rate(problem, lr), record="losses", **experiment)
        advance(len(ensemble.seeds))
        return simulated_loss(ensemble, objective)

    loss = np.stack([[final_loss(problem, lr) for lr in lrs.tolist()] for problem in problems])
    seeds = loss.shape[-1]
    lr = np.array([locate_minimum(lrs, each.mean(axis=-1)) for each in loss])
    draws = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, len(values), seeds))
    resampled = np.array(
        [
            [locate_minimum(lrs, each[:, picked].mean(axis=-1)) for each, picked in zip(loss, draw, strict=True)]
            for draw in draws
        ]
    )
    exponents = [fit_exponent(values, each)[0] for each in resampled]
    return MeasuredOptima(
        loss=loss,
        lr=lr,
        lr_error=resampled.std(axis=0) if seeds > 1 else np.full(len(values), np.nan),
        exponent=fit_exponent(values, lr)[0],
        exponent_error=float(np.std(exponents)) if seeds > 1 else np.nan,
    )


def simulated_loss(ensemble: Any, objective: str) -> Array:
    """Loss of each seed at the last step."""
    losses: Array = ensemble.test_loss if objective == "test" else ensemble.train_loss
    return losses[:, -1]


def locate_minimum(lrs: Array, losses: Array) -> float:
    """Find the rate of least loss: the minimum of a cubic in log(lr) fitted to log(loss) near the least point.

    Two points on either side are fitted, where there are such with a finite loss; losses rise faster above the optimum
    than below, which a parabola would not follow. A minimum at an end of the grid is where it is.

    Examples
    --------
    >>> lrs = np.geomspace(0.01, 0.16, 5)
    >>> round(locate_minimum(lrs, np.exp((np.log(lrs) - np.log(0.05)) ** 2)), 6)
    0.05
    """
    best = int(np.argmin(losses))
    near = slice(max(best - 2, 0), best + 3)
    finite = np.isfinite(losses[near])
    x, y = np.log(lrs[near][finite] / lrs[best]), np.log(np.maximum(losses[near][finite], 1e-300))
    if not 0 < best < len(lrs) - 1 or len(x) < 3:
        return float(lrs[best])
    fitted = np.polynomial.Polynomial.fit(x, y, min(3, len(x) - 1)).trim(1e-9)
    flat = fitted.deriv().roots()
    minima = [root.real for root in flat if abs(root.imag) < 1e-9 and fitted.deriv(2)(root.real) > 0]
    if not minima:
        return float(lrs[best])
    log_lr = np.log(lrs)
    return float(np.exp(np.clip(log_lr[best] + min(minima, key=abs), log_lr[best - 1], log_lr[best + 1])))


def fit_exponent(values: Array, lrs: Array) -> tuple[float, float]:
    """Fit lr ~ value^exponent by least squares; return the exponent and its standard error.

    Infinite values are left out. With two points there is no standard error, with one no exponent.

    Examples
    --------
    >>> exponent, error = fit_exponent(np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.4]))
    >>> round(exponent, 12), round(error, 12)
    (1.0, 0.0)
    """
    finite = np.isfinite(values)
    x, y = np.log(values[finite]), np.log(lrs[finite])
    if len(x) < 2:
        return np.nan, np.nan
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    if len(x) == 2:
        return slope, np.nan
    residual = y - slope * x
    return slope, float(np.sqrt(residual @ residual / (len(x) - 2) / (x @ x)))
