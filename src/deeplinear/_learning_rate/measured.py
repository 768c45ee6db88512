"""Best values of a field of real networks of several sizes, how they move, and what it costs not to follow them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.progress import Counter
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import loglog_slope
from deeplinear._core.words import percent
from deeplinear._experiment.arguments import read_seeds
from deeplinear._experiment.methods import AUTO, METHODS
from deeplinear._experiment.simulate import simulate
from deeplinear._learning_rate.measured_optimum import FAILED, LOGARITHMIC, Best, Scale, find_best, quantile
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate

Array = NDArray[np.float64]

_RESAMPLES = 200
"""How often networks are drawn again to see how a regret scatters."""

_ARGUMENTS = ("dim", "seeds", "workers", "device", "method")


@dataclasses.dataclass(frozen=True)
class Followed:
    """A field whose best value is measured.

    Attributes
    ----------
    name
        Of the field.
    at
        A problem with another value of it.
    scale
        The coordinate in which it is searched.
    law
        Logarithm of what power laws of it are laws of.
    """

    name: str
    at: Callable[[Problem, float], Problem]
    scale: Scale
    law: Callable[[float], float]

    def side(self, value: float) -> str:
        """Say at which end of the scale a value is, if it is at one."""
        low, high = self.scale.ends
        return "low" if value <= low else "high" if value >= high else ""

    def log(self, value: float) -> float:
        """Return the logarithm of what power laws are laws of; infinite at the ends, where it may be beyond."""
        return {"low": -math.inf, "high": math.inf, "": self.law(value)}[self.side(value)] if value > 0 else -math.inf


RATES = Followed("lr", with_rate, LOGARITHMIC, math.log)


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredOptima:
    """Best learning rates, or values of another field, of finite networks of several sizes.

    The best value minimises the mean over networks of log(loss), where a loss of more than three times the lowest
    median counts as three times that: how often networks diverge matters, not how far. It does not depend on the number
    of seeds, which only makes the intervals narrower. All intervals are 95 % intervals.

    Attributes
    ----------
    field
        What was followed: ``"lr"``, or another field.
    loss
        Loss of every network at the last step, at the values that the transfer tried, shape (values, tried, seeds);
        ``inf`` where it diverged, nan at values that no network was trained at.
    best, low, high
        Best value at each size, and the values between which it lies, shape (values,). The interval holds all that are
        not significantly worse than another, judged by the differences in each network; it ends at a bound (0 or
        ``inf`` for rates) where no value that was tried is significantly worse. Those of rates are also ``lr``,
        ``lr_low``, ``lr_high``.
    error
        Its standard error: half the width of the interval over Student's quantile; for rates (``lr_error``) the width
        is that in log(lr).
    binding
        ``"low"`` or ``"high"`` where the best value is at a bound, else empty, of each size.
    diverged
        Fraction of the networks that diverge at the best value, shape (values,).
    regret, regret_low, regret_high
        Relative extra loss at what is best for the smallest size, shape (values,): a ratio of geometric means of the
        loss above the label noise (test loss), in which more than three times the median counts as three times that;
        ``inf`` where half the networks diverge. At the smallest size it is zero, and the upper end is what another rate
        would save if that were the best one there.
    exponent, exponent_error, exponent_low, exponent_high
        Slope of log(best) against log(size); its error and interval follow from those of the best values. For momentum
        and other fractions below one it is that of 1 / (1 - best). nan where a best value is at a bound.
    searches
        All values that were tried at each size.
    """

    field: str
    loss: Array = dataclasses.field(repr=False)
    best: Array
    low: Array
    high: Array
    binding: tuple[str, ...]
    diverged: Array
    regret: Array
    regret_low: Array
    regret_high: Array
    exponent: float
    exponent_low: float
    exponent_high: float
    searches: tuple[Best, ...] = dataclasses.field(repr=False)

    @property
    def networks(self) -> int:
        """Number of networks at each value."""
        return int(self.loss.shape[-1])

    @property
    def lr(self) -> Array:
        """Best rate at each size, shape (values,), where the learning rate is what is followed."""
        return self._of_rate("lr", self.best)

    @property
    def lr_low(self) -> Array:
        """Lower end of its interval, shape (values,)."""
        return self._of_rate("lr_low", self.low)

    @property
    def lr_high(self) -> Array:
        """Upper end of its interval, shape (values,)."""
        return self._of_rate("lr_high", self.high)

    @property
    def lr_error(self) -> Array:
        """Standard error of each best rate, shape (values,)."""
        return self._of_rate("lr_error", self.error)

    @property
    def error(self) -> Array:
        """Standard error of each best value, shape (values,)."""
        if self.field != "lr":
            return (self.high - self.low) / (2 * quantile(self.networks))
        with np.errstate(divide="ignore"):
            return self.best * np.log(self.high / self.low) / (2 * quantile(self.networks))

    @property
    def exponent_error(self) -> float:
        """Standard error of the exponent."""
        return (self.exponent_high - self.exponent_low) / (2 * quantile(self.networks))

    @property
    def of_each_value(self) -> dict[str, Array]:
        """Every quantity that has a number for each size, by name; the best value has the name of its field."""
        own = {"": self.best, "_low": self.low, "_high": self.high, "_error": self.error}
        names = ("diverged", "regret", "regret_low", "regret_high")
        return {f"{self.field}{end}": each for end, each in own.items()} | {name: getattr(self, name) for name in names}

    @property
    def of_all_values(self) -> dict[str, float]:
        """Every quantity that has a single number, by name."""
        names = ("exponent", "exponent_low", "exponent_high", "exponent_error")
        return {name: getattr(self, name) for name in names}

    def best_in_words(self, index: int) -> str:
        """Write the best value of a size with its interval."""
        return f"{self.best[index]:.4g} ({self.low[index]:.3g} to {self.high[index]:.3g})"

    def regret_in_words(self, index: int) -> str:
        """Write the regret of a size with its interval."""
        low, high = self.regret_low[index], self.regret_high[index]
        return f"{percent(self.regret[index])} ({percent(low)} to {percent(high)})"

    def _of_rate(self, name: str, values: Array) -> Array:
        if self.field != "lr":
            raise AttributeError(f"this transfer follows {self.field} and has no {name}: see best, low, high and error")
        return values


def check_experiment(experiment: Any) -> dict[str, Any]:
    """Return the arguments for ``simulate`` if they are known ones, among them the seeds."""
    if not isinstance(experiment, Mapping) or not set(experiment) <= set(_ARGUMENTS):
        raise Refusal("experiment", experiment, f"a dict of {', '.join(_ARGUMENTS)}")
    checks.word("method", experiment.get("method", AUTO), METHODS)
    return {**experiment, "seeds": read_seeds(experiment.get("seeds", 16))}


def measure_optima(
    problems: list[Problem],
    values: Array,
    tried: Array,
    predicted: Array,
    objective: str,
    experiment: dict[str, Any],
    counter: Counter,
    label_noise: float = 0.0,
    followed: Followed = RATES,
    every: int = 1,
) -> MeasuredOptima:
    """Train networks at values of a field for each problem, and at others where the best one is, to find it.

    Of the values that are given every so many are a start. The best ones that theory predicts are among the first that
    are tried too: a narrow minimum may hide between those of a grid. The same seeds are used at every value.
    ``counter`` counts the networks that are trained, and ``label_noise`` is what the regret leaves out of the losses.
    """
    networks = [_Networks(each, followed, objective, experiment, counter) for each in problems]

    def search(index: int, *others: float) -> Best:
        first = np.array([*tried[::every], predicted[index], *others])
        return find_best(networks[index].losses, first, followed.scale)

    def at_first(index: int, number: int) -> Array:
        started = number % every == 0
        return networks[index].losses(float(tried[number])) if started else np.full(len(experiment["seeds"]), np.nan)

    smallest = int(np.argmin(values))
    first = search(smallest)
    searches = tuple(first if index == smallest else search(index, first.value) for index in range(len(problems)))
    best, low, high = (np.array([getattr(each, name) for each in searches]) for name in ("value", "low", "high"))
    exponent, exponent_low, exponent_high = _exponent(
        values, *(np.array([followed.log(each) for each in ends.tolist()]) for ends in (best, low, high))
    )
    regret, regret_low, regret_high = np.array([_regret(each, first.value, label_noise) for each in searches]).T
    return MeasuredOptima(
        field=followed.name,
        loss=np.array([[at_first(i, k) for k in range(len(tried))] for i in range(len(problems))]),
        best=best,
        low=low,
        high=high,
        binding=tuple(followed.side(value) for value in best.tolist()),
        diverged=np.array([each.diverged for each in searches]),
        regret=regret,
        regret_low=regret_low,
        regret_high=regret_high,
        exponent=exponent,
        exponent_low=exponent_low,
        exponent_high=exponent_high,
        searches=searches,
    )


class _Networks:
    """Networks of one problem at values of a field, each of which is trained once."""

    def __init__(
        self, problem: Problem, followed: Followed, objective: str, experiment: dict[str, Any], counter: Counter
    ) -> None:
        self._problem, self._followed, self._counter = problem, followed, counter
        self._objective, self._experiment = objective, experiment
        self._kept: dict[float, Array] = {}

    def losses(self, value: float) -> Array:
        """Loss of each seed at the last step."""
        if value not in self._kept:
            found = simulate(self._followed.at(self._problem, value), record="losses", **self._experiment)
            self._counter.expect(2 * len(found.seeds))  # as many again, while the number of values is not known
            self._counter.advance(len(found.seeds))
            self._kept[value] = (found.test_loss if self._objective == "test" else found.train_loss)[:, -1]
        return self._kept[value]


def _exponent(values: Array, best: Array, low: Array, high: Array) -> tuple[float, float, float]:
    """Return the slope of log(best) against log(size), and the ends of its interval, all given as logarithms.

    The slope is a weighted sum of the logarithms, so the squares of the distances to the ends add up with those
    weights, those of upper and lower ends apart.
    """
    if not np.isfinite(best).all():
        return math.nan, math.nan, math.nan
    exponent, _ = loglog_slope(values, np.exp(best))
    if len(values) < 2:
        return exponent, np.nan, np.nan
    x = np.log(values / np.exp(np.log(values).mean()))
    weights = x / (x @ x)
    with np.errstate(invalid="ignore"):
        below, above = weights * (best - low), weights * (high - best)
    down, up = np.where(weights > 0, below, above), np.where(weights > 0, above, below)
    # A value in the middle has no weight, however little is known of it.
    down, up = (np.where(weights == 0, 0.0, each) for each in (down, up))
    return exponent, exponent - float(np.sqrt(down @ down)), exponent + float(np.sqrt(up @ up))


def _regret(found: Best, value: float, label_noise: float) -> tuple[float, float, float]:
    """Return the relative extra loss at another value and the ends of its interval; inf where half of them diverge.

    The loss at a value, above the label noise, is a geometric mean, in which more than three times the median counts
    as three times that. Errors are those of networks drawn again, since the median scatters as well. Which value is
    best is uncertain too, so the upper end is the largest that any of the values tried would have in place of the best.
    No regret is negative.
    """
    at = found.nearest(value)
    trains = np.isfinite(np.median(found.losses, axis=1))
    if not trains[[at, found.best]].all():
        return (0.0, 0.0, np.inf) if at == found.best else (np.inf, np.inf, np.inf)
    above = np.maximum(found.losses[trains] - label_noise, np.finfo(float).tiny)
    places, count = trains.cumsum() - 1, above.shape[1]
    at, best = places[[at, found.best]]
    means = _mean_logs(above)
    mean = max(means[at] - means[best], 0.0)
    if count == 1:
        return float(np.expm1(mean)), 0.0, np.inf
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    again = _mean_logs(above[:, drawn])
    away = quantile(count) * math.sqrt(count / (count - 1)) * (again[at] - again).std(axis=1, ddof=1)
    with np.errstate(over="ignore"):
        low, middle, high = np.expm1([max(mean - away[best], 0.0), mean, (means[at] - means + away).max()])
    return float(middle), float(low), float(high)


def _mean_logs(losses: Array) -> Array:
    """Mean over networks, the last axis, of log(loss), which ends at three times the median of those networks."""
    logs = np.log(losses)
    middle = np.median(logs, axis=-1, keepdims=True)
    most = np.where(np.isfinite(middle), middle, 0.0) + math.log(FAILED)
    return np.asarray(np.minimum(logs, most).mean(axis=-1))
