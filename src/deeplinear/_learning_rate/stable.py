"""The learning rates that train: where they first end, and the largest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._learning_rate.grid import Grid
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, check, solve_rates
from deeplinear._problem.edit import replace
from deeplinear._problem.network import LEAST_RICHNESS
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, up_to
from deeplinear._theory.curves import Curve, curves, worth_batching

Array = NDArray[np.float64]

_LEAST_TOLERANCE = 1e-12
"""Relative distance of rates that rounding leaves."""

_RESOLUTION, _RESOLUTION_IF_SHORT, _SHORT = 0.01, 0.005, 60
"""Distance in log(lr) below which no edge is looked for; less below that many steps times outputs."""

_FIRST, _LOWER, _MOST_RATES = 6, 3, 400
"""Rungs that are solved first, and below them at a time; rates in all."""

_BELOW, _PARTS = 2, 4
"""Rungs below the first unstable one from which up every rung is divided into so many parts."""

_DOUBT, _REACH = 20.0, math.log(1e6)
"""How many times farther from its neighbours the logarithm of a loss may be than predictions are off, and how far."""

_CALM = 1e-3
"""How much a loss that goes down may go up again on the way, as a fraction."""

_TIE = 1e-9
"""Part of the bound by which a loss may exceed it: what decays to the bound is off it by rounding errors."""

_ROUNDING = 1e-12
"""Fraction of the bound below which a loss is mostly rounding error."""

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
        Largest rate found stable; slivers above it, narrower than 1 % of the rate, may be stable too. It equals ``lr``
        where the stable rates that were found are one interval.
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
    stable up to learning rate 0.1346; above it only in places, the last at 0.1409
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
    that blows up down to one whose loss falls all the way, below which the loss of every rate does, or to three in a
    row that never go above the bound. From two rungs below the first unstable one every rung is divided by four, and
    intervals are halved, down to 1 % of the rate (0.5 % where steps times outputs are below 60), as long as they may
    hold an edge: where one end is stable and the other is not, where both diverge but came back to the bound on their
    way, and where the logarithm of a loss is nearer to the bound than predictions from neighbours are off. Then both
    ends are bisected. Stretches narrower than 1 % of the rate can be missed, and up to 9 % of it where the losses
    around give no sign of them, so ``largest_lr`` is the largest that was found. Every run is solved step by step,
    however long, from 400 steps times outputs on with a condensed past (see ``solve``); a rate at which infinite depth
    cannot be resolved counts as unstable.

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
    >>> print(max_stable_lr(problem, tolerance=1e-6))  # 2 over the kernel, which is depth + 1
    stable up to learning rate 0.5
    """
    check(problem)
    counter = Counter(read_progress(progress), _USUAL, scale=problem.steps)
    edges = _Edges(problem, counter)
    edges.run()
    good = [value <= 0 for value in edges.values]
    first, last = good.index(False), len(good) - 1 - good[::-1].index(True)
    ends = edges.places[first - 1 : first + 1], edges.places[last : last + 2]
    tolerance = max(checks.precision("tolerance", tolerance), _LEAST_TOLERANCE)
    (low, high), (largest, _) = (edges.narrowed(low, high, tolerance) for low, high in ends)
    counter.end()
    rates = np.exp(edges.places)
    losses = np.array([edges.runs[x].loss for x in edges.places])
    stable = np.array(edges.values) <= 0
    lr, unstable, largest_lr = (float(rates[edges.nearest(x)]) for x in (low, high, largest))
    return MaxStableLr(lr, unstable, largest_lr, has_schedule(problem), rates, losses, stable, edges.bound)


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
    return (1 + _TIE) * max(loss + problem.data.outputs * (last**2 - first**2), _learned_before(problem))


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
class _Run:
    """A rate that was solved.

    Attributes
    ----------
    loss
        Train loss at the last step; inf if it diverges.
    is_calm
        Whether it is stable and the loss went down all the way. Then lower rates do so too.
    is_quiet
        Whether the loss of the last phase stayed below the bound all the way. Where it went above it, another rate may
        not be down again at the last step.
    is_lost
        Whether it diverges, and the loss, once above the bound, stays there.
    """

    loss: float
    is_calm: bool
    is_quiet: bool
    is_lost: bool

    @classmethod
    def of(cls, curve: Curve, bound: float, since: int) -> "_Run":
        """Read off a run, whose last phase begins at some step."""
        loss = curve.train_loss
        if curve.diverged_at is not None:
            above = loss[: curve.diverged_at] > bound
            return cls(math.inf, False, False, bool(above[above.argmax() :].all() or not above.any()))
        least = max(_ROUNDING * bound, np.finfo(float).tiny)
        falls = bool((loss <= (1 + _CALM) * np.minimum.accumulate(loss) + least).all())
        quiet = bool((loss[since:] <= (1 + _CALM) * bound + least).all())
        return cls(float(loss[-1]), is_stable(curve, bound) and falls, quiet, False)


class _Edges(Grid):
    """Rates of a problem against the logarithm of their last train loss over the bound: at most 0 where stable."""

    def __init__(self, problem: Problem, counter: Counter) -> None:
        super().__init__(self._heights, worth_batching(problem, _TOGETHER))
        self._problem, self._counter = problem, counter
        self.bound = stable_loss(problem)
        self.runs: dict[float, _Run] = {}

    def run(self) -> None:
        """Solve rates from one that blows up down to where all are stable, and wherever an edge may be in between."""
        rung = math.log(RUNG)
        top = math.log(ceiling(self._problem, lambda _: self._counter.advance(0.0)))
        self.add([top + rung, *(top - rung * index for index in range(_FIRST))])
        while self.values[-1] <= 0:  # what blew up early has recovered
            self.add([self.places[-1] + rung])
        while not self._is_settled_below():
            if len(self.places) > MOST_RUNGS:
                low, high = math.exp(self.places[0]), math.exp(top)
                raise ArithmeticError(f"training is not stable at any learning rate from {low:.3g} to {high:.3g}")
            self.add([self.places[0] - rung * (index + 1) for index in range(_LOWER)])
        first = next(index for index, value in enumerate(self.values) if value > 0)
        low = max(self.places[0], self.places[max(first - _BELOW, 0)])
        parts = math.ceil((self.places[-1] - low) / rung) * _PARTS
        self.add(np.linspace(low, self.places[-1], parts + 1).tolist())
        is_short = self._problem.steps * self._problem.data.outputs < _SHORT
        self.divide(_RESOLUTION_IF_SHORT if is_short else _RESOLUTION, _MOST_RATES, lambda: 0.0)

    def narrowed(self, low: float, high: float, tolerance: float) -> tuple[float, float]:
        """Narrow a stable and an unstable place down."""
        while high - low > math.log1p(tolerance):
            parts = self.together if high - low > 10 * tolerance else 1
            self.add(np.linspace(low, high, parts + 2)[1:-1].tolist())
            inside = [i for i in range(len(self.places)) if low <= self.places[i] <= high]
            first = next(i for i in inside if self.values[i] > 0)
            if self.places[first - 1 : first + 1] == [low, high]:
                break  # as close as numbers are
            low, high = self.places[first - 1 : first + 1]
        return low, high

    def _is_settled_below(self) -> bool:
        """Whether lower rates are stable: the lowest falls all the way, or three in a row stay below the bound."""
        lowest = [self.runs[x] for x in self.places[:3]]
        is_stable = all(value <= 0 for value in self.values[:3])
        return lowest[0].is_calm or (is_stable and all(run.is_quiet for run in lowest))

    def _heights(self, places: Sequence[float]) -> list[float]:
        self._counter.expect(len(places) + 1)
        solved = solve_rates(self._problem, [math.exp(x) for x in places], self._counter.advance)
        runs = [_Run.of(curve, self.bound, self._problem.stages[-1].start) for curve in solved]
        self.runs.update(zip(places, runs, strict=True))
        least = max(_ROUNDING * self.bound, np.finfo(float).tiny)
        return [math.log(max(run.loss, least) / max(self.bound, least)) for run in runs]

    def _hope(self, index: int) -> float:
        """Return how far the interval to the right of a place is from holding an edge; negative if it may hold one."""
        low, high = self.values[index : index + 2]
        if (low <= 0) != (high <= 0):
            return -math.inf
        if math.isinf(min(low, high)):
            return 0.0 if all(self.runs[x].is_lost for x in self.places[index : index + 2]) else -1.0
        if math.isinf(max(low, high)):
            return min(low, high) - _REACH
        return min(abs(low), abs(high)) - min(_DOUBT * self.doubt(index), _REACH)
