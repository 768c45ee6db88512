"""The learning rates that train: where they first end, and the largest."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deeplinear._core import checks
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, check, solve_rates
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, up_to
from deeplinear._theory.curves import Curve, curves, worth_batching

_LEAST_TOLERANCE = 1e-12
"""Relative distance of rates that rounding leaves."""

_RESOLUTION = 1.01
"""Ratio of the rates that are tried near the edge."""


@dataclass(frozen=True)
class MaxStableLr:
    """The learning rates at which training is stable.

    The stable rates need not be an interval: beyond the first unstable one there can be stable ones again.

    Attributes
    ----------
    lr
        End of the first stable interval: all rates tried up to this one are stable. For a schedule, the factor on all
        its rates.
    unstable_lr
        Smallest rate found unstable, next to ``lr``.
    largest_lr
        Largest rate found stable. It equals ``lr`` where the stable rates are one interval.
    is_factor
        Whether these are factors on a schedule.

    Examples
    --------
    >>> print(MaxStableLr(lr=0.25, unstable_lr=0.2502, largest_lr=0.25, is_factor=False))
    stable up to learning rate 0.25
    >>> print(MaxStableLr(lr=0.25, unstable_lr=0.2502, largest_lr=0.31, is_factor=False))
    stable up to learning rate 0.25; above it only in places, the last at 0.31
    """

    lr: float
    unstable_lr: float
    largest_lr: float
    is_factor: bool

    def __str__(self) -> str:
        text = f"stable up to {'schedule factor' if self.is_factor else 'learning rate'} {self.lr:.4g}"
        if self.largest_lr > self.lr:
            text += f"; above it only in places, the last at {self.largest_lr:.4g}"
        return text


def max_stable_lr(problem: Problem, *, tolerance: float = 1e-3) -> MaxStableLr:
    """Find the learning rates at which training does not diverge within the problem's steps.

    A rate is stable if the train loss at the last step is at most what it was at step 0 (and no step went beyond
    10^12 times the initial test loss). A transient above the initial loss that has come down again by then is stable.
    With weight decay, a centered network may forget the initial function that is subtracted, so there the loss without
    that subtraction is the bound. It is the train loss that counts, since overfitting is not an instability.

    Near the edge, stable and unstable rates can alternate. So rungs of a ladder of ratio sqrt(2) are tried from a rate
    that blows up down to where three are stable in a row. From half the first unstable rung up, rates are then tried in
    steps of 1 %, and both ends are bisected. Stretches narrower than 1 % of the rate can be missed. Every run is solved
    step by step, however long; a rate at which infinite depth cannot be resolved counts as unstable.

    Parameters
    ----------
    problem
        What to train, for at least 2 steps. Its own learning rate does not matter. A schedule is scaled as a whole.
    tolerance
        Relative distance between ``lr`` and ``unstable_lr``; ``largest_lr`` is as close to the next unstable rate.

    Raises
    ------
    ArithmeticError
        If all rates are stable, or none.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=3, width="infinite", parameterization="ntk", centered=True),
    ...     dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=20,
    ... )
    >>> print(max_stable_lr(problem))  # 2 over the kernel, which is depth + 1
    stable up to learning rate 0.4999
    """
    check(problem)
    edges = _Edges(problem, checks.positive("tolerance", tolerance))
    rates, good = edges.table()
    first = good.index(False)
    last = len(good) - 1 - good[::-1].index(True)
    lr, unstable = edges.between(rates[first - 1], rates[first])
    largest = lr if last == first - 1 else edges.between(rates[last], rates[last + 1])[0]
    return MaxStableLr(lr, unstable, largest, has_schedule(problem))


def stable_loss(problem: Problem) -> float:
    """Train loss that a stable run does not exceed at its last step."""
    changes = {"centered": False} if problem.optimizer.weight_decay > 0 else {}
    loss: float = curves([replace(up_to(problem, 0), changes)])[0].train_loss[0]
    return loss


def is_stable(curve: Curve, bound: float) -> bool:
    """Whether a run has not diverged, and has come back from wherever it went."""
    return curve.diverged_at is None and bool(curve.train_loss[-1] <= bound)


class _Edges:
    """Tries rates of a problem."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self._problem, self._tolerance = problem, tolerance
        self._bound = stable_loss(problem)
        self._together = worth_batching(problem, 16)

    def stable(self, rates: Sequence[float]) -> list[bool]:
        return [is_stable(curve, self._bound) for curve in solve_rates(self._problem, rates)]

    def table(self) -> tuple[list[float], list[bool]]:
        """Rates, increasing, from a stable to an unstable one, and whether each is stable."""
        top = ceiling(self._problem)
        tried: dict[float, bool] = {}

        def attempt(rates: Sequence[float]) -> None:
            tried.update(zip(rates, self.stable(rates), strict=True))

        attempt([top, top * RUNG])
        while tried[max(tried)]:  # what blew up early has recovered
            attempt([max(tried) * RUNG])
        while not all(tried.get(rate, False) for rate in sorted(tried)[:3]):
            if len(tried) > MOST_RUNGS:
                raise ArithmeticError(f"training is not stable at any learning rate from {min(tried):.3g} to {top:.3g}")
            attempt([min(tried) / RUNG ** (index + 1) for index in range(max(self._together, 2))])
        low = min(rate for rate, good in tried.items() if not good) / RUNG**2
        high = max(tried)
        count = int(np.ceil(np.log(high / low) / np.log(_RESOLUTION)))
        attempt(np.geomspace(low, high, count + 1)[1:].tolist())
        if tried[max(tried)]:
            attempt([max(tried) * RUNG])
        rates = sorted(tried)
        return rates, [tried[rate] for rate in rates]

    def between(self, low: float, high: float) -> tuple[float, float]:
        """Narrow a stable and an unstable rate down."""
        while high > low * (1 + max(self._tolerance, _LEAST_TOLERANCE)):
            inside = np.geomspace(low, high, self._together + 2).tolist()
            good = [True, *self.stable(inside[1:-1]), False]
            low, high = next(pair for pair, (a, b) in zip(pairwise(inside), pairwise(good), strict=True) if a and not b)
        return low, high
