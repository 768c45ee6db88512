"""Best learning rates of real networks of several sizes, how they move, and what it costs not to follow them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._core.words import percent
from deeplinear._experiment.simulate import read_seeds, simulate
from deeplinear._learning_rate.measured_optimum import BestRate, capped_logs, find_best_rate, quantile
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate
from deeplinear._scaling import loglog_slope

Array = NDArray[np.float64]

_ARGUMENTS = ("dim", "seeds", "workers", "device")


@dataclass(frozen=True, eq=False)
class MeasuredOptima:
    """Best learning rates of finite networks of several sizes.

    The best rate minimises the mean over networks of log(loss), where a loss of more than three times the least median
    counts as three times that: how often networks diverge matters, not how far. It does not depend on the number of
    seeds, which only makes the intervals narrower. All intervals are of 95 %.

    Attributes
    ----------
    loss
        Loss of every network at the last step, at the given rates, shape (values, lrs, seeds); ``inf`` where it
        diverged.
    lr, lr_low, lr_high
        Best rate of each value, and the rates between which it lies, shape (values,). The interval holds all rates
        that are not significantly worse than another, judged by the differences in each network; it ends at 0 or
        ``inf`` where no rate that was tried is.
    lr_error
        Its standard error: half the width of the interval, in log(lr), over Student's quantile.
    diverged
        Fraction of the networks that diverge at the best rate, shape (values,).
    regret, regret_low, regret_high
        Relative extra loss at the best rate of the smallest value, shape (values,): a ratio of geometric means in which
        a loss of more than three times the median counts as three times that; ``inf`` where half the networks diverge.
    exponent, exponent_error, exponent_low, exponent_high
        Slope of log(lr) against log(value); its error and interval follow from those of the rates.
    searches
        All rates that were tried for each value.
    """

    of_each_value: ClassVar[tuple[str, ...]] = (
        "lr",
        "lr_low",
        "lr_high",
        "lr_error",
        "diverged",
        "regret",
        "regret_low",
        "regret_high",
    )
    of_all_values: ClassVar[tuple[str, ...]] = ("exponent", "exponent_low", "exponent_high", "exponent_error")

    loss: Array = field(repr=False)
    lr: Array
    lr_low: Array
    lr_high: Array
    diverged: Array
    regret: Array
    regret_low: Array
    regret_high: Array
    exponent: float
    exponent_low: float
    exponent_high: float
    searches: tuple[BestRate, ...] = field(repr=False)

    @property
    def networks(self) -> int:
        """Number of networks at each rate."""
        return int(self.loss.shape[-1])

    @property
    def lr_error(self) -> Array:
        """Standard error of each best rate, shape (values,)."""
        with np.errstate(divide="ignore"):
            return self.lr * np.log(self.lr_high / self.lr_low) / (2 * quantile(self.networks))

    @property
    def exponent_error(self) -> float:
        """Standard error of the exponent."""
        return (self.exponent_high - self.exponent_low) / (2 * quantile(self.networks))

    def rate_in_words(self, index: int) -> str:
        """Write the best rate of a value with its interval."""
        return f"{self.lr[index]:.4g} ({self.lr_low[index]:.3g} to {self.lr_high[index]:.3g})"

    def regret_in_words(self, index: int) -> str:
        """Write the regret of a value with its interval."""
        low, high = self.regret_low[index], self.regret_high[index]
        return f"{percent(self.regret[index])} ({percent(low)} to {percent(high)})"


def check_experiment(experiment: Any) -> dict[str, Any]:
    """Return the arguments for ``simulate`` if they are known ones, among them the seeds."""
    if not isinstance(experiment, Mapping) or not set(experiment) <= set(_ARGUMENTS):
        raise Refusal("experiment", experiment, f"a dict of {', '.join(_ARGUMENTS)}")
    return {**experiment, "seeds": read_seeds(experiment.get("seeds", 16))}


def measure_optima(
    problems: list[Problem],
    values: Array,
    lrs: Array,
    predicted: Array,
    objective: str,
    experiment: dict[str, Any],
    counter: Counter,
) -> MeasuredOptima:
    """Train networks at the rates for each problem, and at others where the best one is, to find it.

    The best rates that theory predicts are among the first that are tried: a narrow minimum may hide between those of a
    grid. The same seeds are used at every rate. ``counter`` counts the networks that are trained.
    """
    kept: list[dict[float, Array]] = [{} for _ in problems]

    def losses_at(index: int, lr: float) -> Array:
        if lr not in kept[index]:
            ensemble = simulate(with_rate(problems[index], lr), record="losses", **experiment)
            counter.expect(2 * len(ensemble.seeds))  # as many again, while the number of rates is not known
            counter.advance(len(ensemble.seeds))
            kept[index][lr] = _final_loss(ensemble, objective)
        return kept[index][lr]

    def search(index: int, *others: float) -> BestRate:
        return find_best_rate(lambda lr: losses_at(index, lr), np.array([*lrs, predicted[index], *others]))

    smallest = int(np.argmin(values))
    first = search(smallest)
    searches = tuple(first if index == smallest else search(index, first.lr) for index in range(len(problems)))
    lr, low, high = (np.array([getattr(each, name) for each in searches]) for name in ("lr", "low", "high"))
    exponent, exponent_low, exponent_high = _exponent(values, lr, low, high)
    regret, regret_low, regret_high = np.array([_regret(each, first.lr) for each in searches]).T
    return MeasuredOptima(
        loss=np.array([[losses_at(index, rate) for rate in lrs.tolist()] for index in range(len(problems))]),
        lr=lr,
        lr_low=low,
        lr_high=high,
        diverged=np.array([each.diverged for each in searches]),
        regret=regret,
        regret_low=regret_low,
        regret_high=regret_high,
        exponent=exponent,
        exponent_low=exponent_low,
        exponent_high=exponent_high,
        searches=searches,
    )


def _final_loss(ensemble: Any, objective: str) -> Array:
    """Loss of each seed at the last step."""
    losses: Array = ensemble.test_loss if objective == "test" else ensemble.train_loss
    return losses[:, -1]


def _exponent(values: Array, lr: Array, low: Array, high: Array) -> tuple[float, float, float]:
    """Return the slope of log(lr) against log(value), and the ends of its interval.

    The slope is a weighted sum of the log(lr), so the squares of the distances to the ends add up with those weights,
    those of upper and lower ends apart.
    """
    exponent, _ = loglog_slope(values, lr)
    if len(values) < 2:
        return exponent, np.nan, np.nan
    x = np.log(values / np.exp(np.log(values).mean()))
    weights = x / (x @ x)
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = weights * np.log(lr / low), weights * np.log(high / lr)
    down, up = np.where(weights > 0, below, above), np.where(weights > 0, above, below)
    # A value in the middle has no weight, however little is known of it.
    down, up = (np.where(weights == 0, 0.0, each) for each in (down, up))
    return exponent, exponent - float(np.sqrt(down @ down)), exponent + float(np.sqrt(up @ up))


def _regret(found: BestRate, lr: float) -> tuple[float, float, float]:
    """Return the relative extra loss at another rate and the ends of its interval; inf where half the networks diverge.

    The loss at a rate is a geometric mean, in which more than three times the median counts as three times that.
    """
    at = found.nearest(lr)
    if at == found.best:
        return 0.0, 0.0, 0.0
    other, best = (capped_logs(found.losses[index : index + 1])[0] for index in (at, found.best))
    if not np.isfinite(np.median(found.losses[[at, found.best]], axis=1)).all():
        return np.inf, np.inf, np.inf
    difference, count = other - best, len(other)
    mean = difference.mean()
    if count == 1:
        return float(np.expm1(mean)), -1.0, np.inf
    away = quantile(count) * float(standard_error(difference))
    with np.errstate(over="ignore"):
        low, middle, high = np.expm1([mean - away, mean, mean + away])
    return float(middle), float(low), float(high)
