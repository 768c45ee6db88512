"""The critical batch size: up to where larger batches save as many steps as they cost examples."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate import OBJECTIVES
from deeplinear._learning_rate.ladder import check, solve_rates
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.budget import envelope
from deeplinear._problem.edit import field_names, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, up_to
from deeplinear._theory.curves import curves

Array = NDArray[np.float64]

_HALF = 0.5
"""Exponent of steps against batch at the critical size: that of S = S_min (1 + B_crit / B) at B_crit."""

_RATES = 37
"""Rates that a batch size is solved at, about."""

_FINE = np.linspace(-0.26, 0.26, 13)
"""Logarithms of factors on the best rate of the ladder, to a rung and a half either way, that are solved besides."""

_MOST = 1000
"""Batch sizes at most."""

_LEAST = 0.015
"""Error at least, as a fraction: that of steps between whole numbers. With 5 to 33 sizes in the same interval, critical
sizes of three problems differed by 1.2 % from those with the most sizes, apart from the errors of the curve."""

_BETWEEN = 200
"""Parts of an interval between two sizes in which its slope is looked at."""


@dataclass(frozen=True, eq=False)
class CriticalBatch(Drawn):
    """How many steps it takes to reach a loss with batches of different sizes.

    Attributes
    ----------
    problem
        The problem from which everything else is taken.
    loss
        The loss that is to be reached.
    batches
        Batch sizes, increasing, shape (batches,).
    steps
        Number of updates that reach the loss with the best constant rate, interpolated between whole numbers by cubics
        through the logarithm of the loss; ``inf``
        where it is not reached within the problem's steps.
    lrs
        The best rate for each batch, of rates a factor 1.04 apart, with a parabola through three of them.
    critical
        The critical size: where steps fall as batch^-1/2, so that doubling the batch saves 29 % of the steps rather
        than half of them; nan where this is not between the sizes tried.
    critical_error
        Error of it, from ways to draw a smooth curve through the sizes tried.
    objective
        ``"test"`` or ``"train"``.
    """

    problem: Problem
    loss: float
    batches: Array
    steps: Array
    lrs: Array = field(repr=False)
    critical: float
    critical_error: float
    objective: str

    @property
    def examples(self) -> Array:
        """Examples that are drawn on the way, shape (batches,)."""
        return self.batches * self.steps

    def __str__(self) -> str:
        lines = [f"{'batch':>10}{'steps':>10}{'examples':>10}{'lr':>10}"]
        for row in zip(self.batches, self.steps, self.examples, self.lrs, strict=True):
            lines.append("".join(f"{each:10.4g}" for each in row))
        found = "beyond the sizes tried"
        if math.isfinite(self.critical):
            found = f"{self.critical:.3g} ± {self.critical_error:.1g}"
        return "\n".join([*lines, f"critical batch to {self.objective} loss {self.loss:.4g}: {found}"])


def critical_batch(
    problem: Problem,
    loss: float,
    batches: Iterable[float],
    *,
    objective: str = "test",
    progress: Progress | bool | None = None,
) -> CriticalBatch:
    """Find the size up to which larger batches save as many steps as they cost in examples.

    Parameters
    ----------
    problem
        What to train, with batches drawn at random. Its steps are the most that are tried; its rate does not matter.
    loss
        The loss that is to be reached, below that before training.
    batches
        At least three batch sizes, in the units of the problem's own.
    objective
        ``"test"`` or ``"train"`` loss.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions; ``total`` is
        a guess until the end.

    Raises
    ------
    ValueError
        If the problem has no batches or a schedule, or no batch reaches the loss.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=60
    ... )
    >>> print(critical_batch(problem, loss=0.2, batches=[0.25, 0.5, 1, 2, 4]))
         batch     steps  examples        lr
          0.25     21.02     5.255   0.08874
           0.5     11.54     5.771    0.1525
             1     6.835     6.835    0.2333
             2      4.53      9.06    0.3061
             4     3.435     13.74    0.3469
    critical batch to test loss 0.2: 2.01 ± 0.2
    """
    check(problem)
    if "batch" not in field_names(problem):
        raise Refusal("sampling", problem.sampling, "batches that are drawn at random", verb="have")
    if has_schedule(problem):
        raise Refusal("lr", problem.optimizer.lr, "one number, as every horizon has its own", got="a schedule")
    objective, loss = checks.word("objective", objective, OBJECTIVES), checks.positive("loss", loss)
    sizes = np.sort([checks.positive("batches", each) for each in checks.listed("batches", batches, _MOST)])
    if len(np.unique(sizes)) < 3:
        raise Refusal("batches", sizes.tolist(), "at least three distinct sizes")
    models = [replace(problem, {"batch": size}) for size in sizes.tolist()]
    counter = Counter(read_progress(progress), _RATES * len(sizes), scale=problem.steps)
    excess = Excess.of(problem, objective)
    (start,) = curves([up_to(problem, 0)])
    if loss >= (before := float(start.loss(objective)[0])):
        raise Refusal("loss", loss, f"below {before:.3g}, the loss before training")
    steps, lrs = np.full(len(sizes), np.inf), np.full(len(sizes), np.nan)
    least = math.inf
    for index, model in enumerate(models):
        found = envelope(model, excess, counter.advance)
        steps[index] = _first(found.losses, loss)
        least = min(least, float(found.losses.min()))
        if math.isfinite(steps[index]):
            last = math.ceil(steps[index])
            steps[index], lrs[index] = _refined(
                up_to(model, min(last + 1, problem.steps - 1)), excess, loss, float(found.lrs[last]), counter
            )
    counter.end()
    if np.isinf(steps).all():
        raise Refusal("loss", loss, f"at least {least:.4g}, the lowest that is reached within {problem.steps} steps")
    return CriticalBatch(problem, loss, sizes, steps, lrs, *critical_size(sizes, steps), objective)


def _refined(run: Problem, excess: Excess, loss: float, lr: float, counter: Counter) -> tuple[float, float]:
    """Fewest steps that reach a loss, and the rate that takes them, near the best rate of the ladder."""
    rates = np.log(lr) + _FINE
    solved = solve_rates(run, np.exp(rates).tolist(), counter.advance)
    steps = np.array([_first(np.asarray(each.loss(excess.objective), float), loss) for each in solved])
    best = int(np.argmin(steps))
    if not 0 < best < len(steps) - 1 or not np.isfinite(steps[best - 1 : best + 2]).all():
        return float(steps[best]), float(np.exp(rates[best]))
    bend, tilt, _ = np.polyfit(_FINE[best - 1 : best + 2] - _FINE[best], steps[best - 1 : best + 2], 2)
    moved = -tilt / (2.0 * bend) if bend > 0 else 0.0
    return float(steps[best] + 0.5 * tilt * moved), float(np.exp(rates[best] + moved))


def critical_size(batches: Array, steps: Array) -> tuple[float, float]:
    """Return where steps fall as batch^-1/2, and the error of this; nan where nowhere.

    The curve of log(steps) against log(batch) is a cubic spline. Its error is twice the largest difference from a
    spline that is straight at both ends, and from straight lines between the sizes; and 1.5 % at least.

    Examples
    --------
    >>> batches = np.geomspace(0.1, 10, 9)
    >>> size, error = critical_size(batches, 20 * (1 + 2.0 / batches))
    >>> round(size, 2), round(error, 2)
    (2.0, 0.03)
    """
    from scipy.interpolate import CubicSpline  # slow to import

    known = np.isfinite(steps)
    x, y = np.log(batches[known]), np.log(steps[known])
    if len(x) < 3:
        return math.nan, math.nan
    places = np.interp(np.arange((len(x) - 1) * _BETWEEN + 1) / _BETWEEN, np.arange(len(x)), x)
    found = _crossing(places, -CubicSpline(x, y)(places, 1))
    straight = _crossing(places, -CubicSpline(x, y, bc_type="natural")(places, 1))
    lines = _crossing(0.5 * (x[1:] + x[:-1]), -np.diff(y) / np.diff(x))
    off = [abs(each - found) for each in (straight, lines) if math.isfinite(each)]
    return found, max(2.0 * max(off), _LEAST * found) if off else math.nan


def _crossing(places: Array, falls: Array) -> float:
    """Batch at which an exponent first falls below that of the critical size, between places in log(batch)."""
    below = np.flatnonzero((falls[:-1] >= _HALF) & (falls[1:] < _HALF))
    if not below.size:
        return math.nan
    i = below[0]
    part = (falls[i] - _HALF) / (falls[i] - falls[i + 1])
    return float(np.exp(places[i] + part * (places[i + 1] - places[i])))


def _first(losses: Array, loss: float) -> float:
    """First step at which a loss is reached, with a cubic through the logarithms around it; inf if it is not."""
    below = np.flatnonzero(losses <= loss)
    if not below.size:
        return math.inf
    step = int(below[0])
    if step == 0:
        return 0.0
    near = np.arange(max(step - 2, 0), min(step + 2, len(losses)))
    parts = np.linspace(0.0, 1.0, _BETWEEN + 1)
    heights = np.polyval(np.polyfit(near - step + 1.0, np.log(losses[near] / loss), len(near) - 1), parts)
    at = int(np.flatnonzero(heights <= 0)[0]) if (heights <= 0).any() else _BETWEEN
    before, after = heights[max(at - 1, 0)], heights[at]
    return step - 1 + float(parts[at] - (parts[1] * after / (after - before) if after < before else 0.0))
