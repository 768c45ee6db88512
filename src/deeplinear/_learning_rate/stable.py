"""The learning rates that train: where they first end, and the largest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, check, solve_rates
from deeplinear._problem.edit import replace
from deeplinear._problem.network import LEAST_RICHNESS
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, up_to
from deeplinear._theory.curves import Curve, curves, worth_batching

Array = NDArray[np.float64]

_LEAST_TOLERANCE = 1e-12
"""Relative distance of rates that rounding leaves."""

_COARSE, _RESOLUTION = 1.04, 1.01
"""Ratio of the rates that are tried near the edge, and of those in between where that leaves a doubt."""

_CALM = 1e-3
"""How much a loss that goes down may go up again on the way, as a fraction."""

_DOUBT = 2.0
"""How many times more than over 12 % of the rate the logarithm of the loss may vary in between."""

_ROUNDING = 1e-12
"""Fraction of the bound below which a loss is mostly rounding error."""

_MOST_RESTLESS = 6
"""Rungs below half the first unstable one, at most, that are looked at because runs there go above the bound."""

_MOST = 1e300
"""Loss that counts as large as any other."""

_TOGETHER = 4
"""Most rates that are tried at once where one at a time would be enough."""

_USUAL = 40
"""Solutions that a search takes, about."""


@dataclass(frozen=True)
class MaxStableLr(Drawn):
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
    lrs, losses, is_stable
        The rates tried, increasing; the train loss at the last step, ``inf`` where training diverges; and whether each
        is stable; each of shape (rates,).
    bound
        The largest such loss that counts as stable.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.FullBatch(1.5), dl.GradientDescent(0.1, momentum=0.9),
    ...     steps=40,
    ... )
    >>> found = dl.max_stable_lr(problem)
    >>> print(found)
    stable up to learning rate 0.1285; above it only in places, the last at 0.1401
    >>> bool(found.losses[found.lrs == found.lr] <= found.bound)
    True
    """

    lr: float
    unstable_lr: float
    largest_lr: float
    is_factor: bool
    lrs: Array = field(repr=False, compare=False)
    losses: Array = field(repr=False, compare=False)
    is_stable: NDArray[np.bool_] = field(repr=False, compare=False)
    bound: float = field(repr=False, compare=False)

    def __str__(self) -> str:
        text = f"stable up to {'schedule factor' if self.is_factor else 'learning rate'} {self.lr:.4g}"
        if self.largest_lr > self.lr:
            text += f"; above it only in places, the last at {self.largest_lr:.4g}"
        return text


def max_stable_lr(problem: Problem, *, tolerance: float = 1e-3, progress: Progress | bool | None = None) -> MaxStableLr:
    """Find the learning rates at which training does not diverge within the problem's steps.

    A rate is stable if the train loss at the last step is at most what it was at step 0 (and no step went beyond
    10^12 times the initial test loss). A transient above the initial loss that has come down again by then is stable.
    With weight decay, a centered network may forget the initial function that is subtracted, so there the loss without
    that subtraction is the bound. It is the train loss that counts, since overfitting is not an instability. Where
    phases follow each other, the bound is the loss of the untrained network on the data of the last one, or, if that is
    larger, of one that has learned the target of an earlier phase: what it has to unlearn is no instability either.

    Near the edge, stable and unstable rates can alternate. So rungs of a ladder of ratio sqrt(2) are tried from a rate
    that blows up down to where three are stable in a row. Below a rate whose loss falls all the way, the loss of every
    rate does. From there, or from half the first unstable rung, or from up to eight times lower as long as losses go
    above the bound on their way, rates are tried in steps of 4 %. Steps of 1 % follow in
    between, unless the losses at both ends diverge and never come back to the bound, or their logarithms are both
    farther below it than twice the difference between those around them. Then both ends are bisected. Stretches
    narrower than 1 % of the rate can be missed, and up to 4 % of it where the losses around give no sign of them. Every
    run is solved step by step, however long, from 400 steps times outputs on with a condensed past (see ``solve``); a
    rate at which infinite depth cannot be resolved counts as unstable.

    Parameters
    ----------
    problem
        What to train, for at least 2 steps. Its own learning rate does not matter. A schedule is scaled as a whole.
        Rates set elsewhere are left unchanged: those of phases with an optimizer of their own, and of the
        ``other`` weights of Muon where these have a rule of their own.
    tolerance
        Relative distance between ``lr`` and ``unstable_lr``; ``largest_lr`` is as close to the next unstable rate.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions. The number of
        rates needed becomes known only on the way, so ``total`` is a guess until the end.

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
    stable up to learning rate 0.5
    """
    check(problem)
    counter = Counter(read_progress(progress), _USUAL, scale=problem.steps)
    edges = _Edges(problem, checks.precision("tolerance", tolerance), counter)
    rates, good = edges.table()
    first = good.index(False)
    last = len(good) - 1 - good[::-1].index(True)
    lr, unstable = edges.between(rates[first - 1], rates[first])
    largest = lr if last == first - 1 else edges.between(rates[last], rates[last + 1])[0]
    counter.end()
    return MaxStableLr(lr, unstable, largest, has_schedule(problem), *edges.tried(), edges.bound)


def stable_loss(problem: Problem) -> float:
    """Train loss that a stable run does not exceed at its last step.

    It is that of untrained weights on the data of then, or of weights that have learned an earlier target.
    """
    decays = any(stage.optimizer.plain.has_decay(stage.of) for stage in problem.stages)
    untrained = up_to(problem, 0)
    loss: float = curves([untrained])[0].train_loss[0]
    if decays and problem.network.centered:
        # The function at initialisation, which is 1 / richness times one that is not, comes to light.
        richness = max(problem.network.richness, LEAST_RICHNESS)
        shown = curves([replace(untrained, {"centered": False, "richness": richness})])[0].train_loss[0]
        more = richness / problem.network.richness
        loss = min(float(loss) + float(shown - loss) * more * more, _MOST)
    # Targets of all phases are as large, so that untrained weights tell them by their label noise only.
    first, last = problem.stages[0].noise, problem.stages[-1].noise
    return max(loss + problem.data.outputs * (last**2 - first**2), _learned_before(problem))


def _learned_before(problem: Problem) -> float:
    """Loss on the data of the last phase of a network that knows the target of an earlier one: the least like it.

    Where targets are opposite this is four times that of a network that knows nothing, and it takes a while to unlearn.
    """
    overlaps = np.cumprod([1.0, *(stage.target_overlap for stage in problem.stages[:0:-1])])
    modes = problem.modes
    power = modes.weight @ (modes.eigenvalues * np.trace(modes.target, axis1=1, axis2=2))
    return float(2 * (1 - overlaps.min()) * power + problem.label_noise[-1])


def is_stable(curve: Curve, bound: float) -> bool:
    """Whether a run has not diverged, and has come back from wherever it went."""
    return curve.diverged_at is None and bool(curve.train_loss[-1] <= bound)


@dataclass(frozen=True)
class _Tried:
    """What is known of a rate.

    Attributes
    ----------
    is_stable
        Whether it trains.
    is_calm
        Whether the loss went down all the way. Then lower rates do so too.
    is_quiet
        Whether the loss of the last phase stayed below the bound all the way. Where it went above it, another rate may
        not be down again at the last step.
    is_lost
        Whether it diverges, and the loss, once above the bound, stays there.
    height
        Logarithm of the loss at the last step over the bound, down to that of rounding; inf if it diverges.
    loss
        The loss at the last step; inf if it diverges.
    """

    is_stable: bool
    is_calm: bool
    is_quiet: bool
    is_lost: bool
    height: float
    loss: float

    @classmethod
    def of(cls, curve: Curve, bound: float, since: int) -> "_Tried":
        loss, good = curve.train_loss, is_stable(curve, bound)
        if curve.diverged_at is not None:
            before = loss[: curve.diverged_at] > bound
            return cls(
                False, False, False, bool(before[before.argmax() :].all() or not before.any()), math.inf, math.inf
            )
        least = max(_ROUNDING * bound, np.finfo(float).tiny)
        falls = bool((loss <= (1 + _CALM) * np.minimum.accumulate(loss) + least).all())
        quiet = bool((loss[since:] <= (1 + _CALM) * bound + least).all())
        final = float(loss[-1])
        return cls(good, good and falls, quiet, False, math.log(max(final, least) / max(bound, least)), final)


class _Edges:
    """Tries rates of a problem."""

    def __init__(self, problem: Problem, tolerance: float, counter: Counter) -> None:
        self._problem, self._tolerance, self._counter = problem, tolerance, counter
        self.bound = stable_loss(problem)
        self._together = worth_batching(problem, _TOGETHER)
        self._tried: dict[float, _Tried] = {}

    def attempt(self, rates: Sequence[float]) -> list[_Tried]:
        """Try rates."""
        self._counter.expect(len(rates) + 1)
        solved = solve_rates(self._problem, rates, self._counter.advance)
        found = [_Tried.of(curve, self.bound, self._problem.stages[-1].start) for curve in solved]
        self._tried.update(zip(rates, found, strict=True))
        return found

    def tried(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return all rates that were tried, increasing, their losses at the last step, and whether each is stable."""
        rates = sorted(self._tried)
        runs = [self._tried[rate] for rate in rates]
        return np.array(rates), np.array([run.loss for run in runs]), np.array([run.is_stable for run in runs])

    def table(self) -> tuple[list[float], list[bool]]:
        """Rates, increasing, from a stable to an unstable one, and whether each is stable."""
        self._climb_down()
        low, high = self._first_in_doubt(), max(self._tried)
        count = math.ceil(math.log(high / low) / math.log(_COARSE))
        grid = np.geomspace(low, high, count + 1).tolist()
        self.attempt(grid[1:-1])
        runs = [self._tried.get(rate) or self.attempt([rate])[0] for rate in grid]
        between = [index for index in range(count) if not _is_plain(runs[max(index - 1, 0) : index + 3], index == 0)]
        parts = math.ceil(math.log(_COARSE) / math.log(_RESOLUTION))
        fine = [np.geomspace(grid[index], grid[index + 1], parts + 1)[1:-1] for index in between]
        self.attempt([rate for rates in fine for rate in rates.tolist()])
        if self._tried[max(self._tried)].is_stable:
            self.attempt([max(self._tried) * RUNG])
        rates = sorted(self._tried)
        return rates, [self._tried[rate].is_stable for rate in rates]

    def _climb_down(self) -> None:
        """Try rungs from one that blows up down to where three are stable in a row."""
        top = ceiling(self._problem, lambda _: self._counter.advance(0.0))
        self.attempt([top, top * RUNG])
        while self._tried[max(self._tried)].is_stable:  # what blew up early has recovered
            self.attempt([max(self._tried) * RUNG])
        while not all(self._tried[rate].is_stable for rate in sorted(self._tried)[:3]):
            lowest = min(self._tried)
            if len(self._tried) > MOST_RUNGS:
                raise ArithmeticError(f"training is not stable at any learning rate from {lowest:.3g} to {top:.3g}")
            self.attempt([lowest / RUNG ** (index + 1) for index in range(max(self._together, 2))])

    def _first_in_doubt(self) -> float:
        """Rate up to which all are stable: the highest that is calm, to a few per cent, or well below the unstable."""
        rungs = sorted(self._tried)
        first = next(rate for rate in rungs if not self._tried[rate].is_stable)
        calm = max((rate for rate in rungs if rate < first and self._tried[rate].is_calm), default=0.0)
        if calm * RUNG**3 < first:
            return self._last_quiet(first / RUNG**2)
        high = min(rate for rate in rungs if rate > calm)
        while high > calm * _COARSE:
            middle = math.sqrt(calm * high)
            calm, high = (middle, high) if self.attempt([middle])[0].is_calm else (calm, middle)
        return calm

    def _last_quiet(self, rate: float) -> float:
        """The highest of some rungs from this one down that, with the next one down, stays below the bound throughout.

        Runs that do not are stable by chance, where their oscillation happens to be low at the last step.
        """
        for _ in range(_MOST_RESTLESS):
            pair = [rate, rate / RUNG]
            new = [each for each in pair if each not in self._tried]
            self.attempt(new)
            if all(self._tried[each].is_quiet for each in pair):
                break
            rate = pair[1]
        return rate

    def between(self, low: float, high: float) -> tuple[float, float]:
        """Narrow a stable and an unstable rate down."""
        while high > low * (1 + max(self._tolerance, _LEAST_TOLERANCE)):
            inside = np.geomspace(low, high, self._together + 2).tolist()
            good = [True, *(run.is_stable for run in self.attempt(inside[1:-1])), False]
            low, high = next(pair for pair, (a, b) in zip(pairwise(inside), pairwise(good), strict=True) if a and not b)
        return low, high


def _is_plain(runs: Sequence[_Tried], is_first: bool) -> bool:
    """Whether rates between two can only do what both do; there is one more on either side, or none below the first."""
    a, b = runs[0 if is_first else 1 :][:2]
    if a.is_lost and b.is_lost:
        return True
    heights = [run.height for run in runs]
    varies = max(heights) - min(heights) if math.isfinite(max(heights)) else math.inf
    return a.is_stable and b.is_stable and max(a.height, b.height) + _DOUBT * varies < 0
