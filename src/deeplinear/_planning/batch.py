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
from deeplinear._learning_rate.ladder import check
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.budget import envelope
from deeplinear._problem.edit import field_names, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule

Array = NDArray[np.float64]

_HALF = 0.5
"""Exponent of steps against batch at the critical size: that of S = S_min (1 + B_crit / B) at B_crit."""

_RATES = 24
"""Rates that a batch size is solved at, about."""


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
        Number of updates that reach the loss with the best constant rate, interpolated between whole numbers; ``inf``
        where it is not reached within the problem's steps.
    lrs
        The best rate for each batch, from a grid with ratio 1.19.
    critical
        The critical size: where steps fall as batch^-1/2, so that doubling the batch saves 29 % of the steps rather
        than half of them; nan where this is not between the sizes tried.
    objective
        ``"test"`` or ``"train"``.
    """

    problem: Problem
    loss: float
    batches: Array
    steps: Array
    lrs: Array = field(repr=False)
    critical: float
    objective: str

    @property
    def examples(self) -> Array:
        """Examples that are drawn on the way, shape (batches,)."""
        return self.batches * self.steps

    def __str__(self) -> str:
        lines = [f"{'batch':>10}{'steps':>10}{'examples':>10}{'lr':>10}"]
        for row in zip(self.batches, self.steps, self.examples, self.lrs, strict=True):
            lines.append("".join(f"{each:10.4g}" for each in row))
        found = f"{self.critical:.3g}" if math.isfinite(self.critical) else "beyond the sizes tried"
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
        The loss that is to be reached.
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
          0.25     21.17     5.292   0.08176
           0.5     11.63     5.817    0.1635
             1     6.853     6.853    0.2312
             2     4.624     9.249     0.327
             4     3.517     14.07     0.327
    critical batch to test loss 0.2: 1.85
    """
    check(problem)
    if "batch" not in field_names(problem):
        raise Refusal("sampling", problem.sampling, "batches that are drawn at random", verb="have")
    if has_schedule(problem):
        raise Refusal("lr", problem.optimizer.lr, "one number, as every horizon has its own", got="a schedule")
    objective, loss = checks.word("objective", objective, OBJECTIVES), checks.positive("loss", loss)
    sizes = np.sort([checks.positive("batches", each) for each in batches])
    if len(np.unique(sizes)) < 3:
        raise Refusal("batches", sizes.tolist(), "at least three distinct sizes")
    models = [replace(problem, {"batch": size}) for size in sizes.tolist()]
    counter = Counter(read_progress(progress), _RATES * len(sizes), scale=problem.steps)
    excess = Excess.of(problem, objective)
    steps, lrs = np.full(len(sizes), np.inf), np.full(len(sizes), np.nan)
    least = math.inf
    for index, model in enumerate(models):
        found = envelope(model, excess, counter.advance)
        steps[index] = _first(found.losses, loss)
        least = min(least, float(found.losses.min()))
        if math.isfinite(steps[index]):
            lrs[index] = found.lrs[math.ceil(steps[index])]
    counter.end()
    if np.isinf(steps).all():
        raise Refusal("loss", loss, f"at least {least:.4g}, the lowest that is reached within {problem.steps} steps")
    return CriticalBatch(problem, loss, sizes, steps, lrs, critical_size(sizes, steps), objective)


def critical_size(batches: Array, steps: Array) -> float:
    """Return where steps fall as batch^-1/2, between the middles of intervals in log(batch); nan where nowhere.

    Examples
    --------
    >>> batches = np.geomspace(0.1, 10, 9)
    >>> round(critical_size(batches, 20 * (1 + 2.0 / batches)), 2)
    2.0
    """
    known = np.isfinite(steps)
    x, y = np.log(batches[known]), np.log(steps[known])
    if len(x) < 3:
        return math.nan
    middles, falls = 0.5 * (x[1:] + x[:-1]), -np.diff(y) / np.diff(x)
    below = np.flatnonzero((falls[:-1] >= _HALF) & (falls[1:] < _HALF))
    if not below.size:
        return math.nan
    i = below[0]
    part = (falls[i] - _HALF) / (falls[i] - falls[i + 1])
    return float(np.exp(middles[i] + part * (middles[i + 1] - middles[i])))


def _first(losses: Array, loss: float) -> float:
    """First step at which a loss is reached, interpolated in its logarithm; inf if it is not."""
    below = np.flatnonzero(losses <= loss)
    if not below.size:
        return math.inf
    step = int(below[0])
    if step == 0:
        return 0.0
    before, after = np.log(losses[step - 1 : step + 1])
    return step - 1 + float((before - math.log(loss)) / (before - after))
