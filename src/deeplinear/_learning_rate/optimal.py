"""The best learning rate: the least loss at one step, over all rates."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.ladder import check
from deeplinear._learning_rate.minima import LrMinimum, minima_of, safest
from deeplinear._learning_rate.refine import Minimum, find_minimum
from deeplinear._learning_rate.search import REFINING, Excess, RateSearch
from deeplinear._learning_rate.stable import is_stable, stable_loss
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, up_to

Array = NDArray[np.float64]

OBJECTIVES = ("test", "train")

_EDGE = 0.05
"""How much higher a rate is tried, as a fraction, to see whether an optimum sits at the edge of stability."""

_STEEPER = 10.0
"""How much more the loss must rise there than at a rate as much lower."""

_FLAT = 1e3
"""How much more than rounding errors the loss must be beside a minimum that is down to these, if that is sharp."""

_SAME = 1e-3
"""Relative difference of losses that are as good as equal."""

_CLIFF = 0.05
"""How much higher a rate, as a fraction, may have 5 % more loss for that to be printed, at an edge of stability or
if most of the interval with less is below the optimum."""

_AS_LOW = 1.01
"""How much more than around a judged rate the largest loss around the exact optimum may be."""

_MOST_TRIES = 5

_NARROW = 0.2
"""Length in log(lr) of the interval within 5 % of the least loss below which a rate with a margin is printed too."""


@dataclass(frozen=True)
class OptimalLr(Drawn):
    """The learning rate with the lowest loss at one step.

    Attributes
    ----------
    lr
        The rate; for a schedule, the factor on all its rates.
    loss
        Loss at the horizon with this rate.
    curvature
        Second derivative of the loss with respect to log(lr) at the optimum, from the slopes of the search. Its error
        is about 1 %, and a few per cent at an edge of stability.
    at_edge
        Whether the optimum sits at the edge of stability: a rate up to 5 % higher no longer trains (see
        ``max_stable_lr``), or raises the loss more than ten times as much as a rate 5 % lower.
    is_resolved
        False where the loss at the optimum, minus the label noise that no rate can lower, is lost in rounding (below
        10^-12 of its initial value), so that many rates are equally good; ``lr`` is then one of them.
    minima
        The optimum and other minima whose loss is at most 5 % higher, best first. The others are as the search happened
        to find them, to a few per cent of the rate; where the loss is rough there may be more. Each has the interval of
        rates around it whose loss is at most 5 % higher.
    safe_lr, safe_loss
        The best rate with a margin, and its loss: the rate whose largest loss over all rates up to 20 % lower or higher
        is lowest, judging by the rates that were searched. Just below a cliff, this is the rate to train with.
    horizon
        Step whose loss is minimised.
    objective
        ``"test"`` or ``"train"``.
    is_factor
        Whether ``lr`` is a factor on a schedule.
    rounding_at
        Step from which on the losses of the best rate depend on rounding errors, so that its loss means nothing;
        None if there is none.
    lrs, losses
        The rates searched, increasing, and their losses; ``inf`` where training diverges. Dips are left out.
    dips
        Rates that the search happened to find whose loss is lower than at the optimum, in pairs (rate, loss). There the
        loss is so rough that it is already higher at rates 0.2 % away, so no rate nearby is safe to train with; or it
        is lower by less than 0.1 %, at another minimum that is as good.
    """

    lr: float
    loss: float
    curvature: float
    at_edge: bool
    is_resolved: bool
    minima: tuple[LrMinimum, ...] = field(repr=False)
    safe_lr: float
    safe_loss: float
    horizon: int
    objective: str
    is_factor: bool
    lrs: Array = field(repr=False, compare=False)
    losses: Array = field(repr=False, compare=False)
    dips: tuple[tuple[float, float], ...] = field(repr=False, compare=False)
    rounding_at: int | None = None

    binding: ClassVar[str] = ""
    """Rates have no bounds, as an ``OptimalValue`` of another field has."""

    @property
    def nearly_best(self) -> list[float]:
        """Rates of ``minima``."""
        return [each.lr for each in self.minima]

    @property
    def is_lost(self) -> bool:
        """Whether rounding errors have grown into the loss."""
        return self.rounding_at is not None

    @property
    def place(self) -> str:
        """Where the optimum is, in words, if that is special."""
        if self.is_lost:
            return "lost in rounding errors"
        return "at the edge of stability" if self.at_edge else ""

    def __str__(self) -> str:
        what = "schedule factor" if self.is_factor else "learning rate"
        text = f"optimal {what} {self.lr:.4g}: {self.objective} loss {self.loss:.4g} at step {self.horizon}"
        if not self.is_resolved:
            return text + ", the loss is down to rounding"
        if self.rounding_at is not None:
            return text + f", but from step {self.rounding_at} on the losses depend on rounding errors"
        best = self.minima[0]
        width, ahead = math.log(best.high / best.low), best.high / self.lr - 1
        is_cliff = ahead < (_CLIFF if self.at_edge else min(_CLIFF, 0.25 * width))
        if self.at_edge or width < _NARROW or is_cliff:
            place = "at the edge of stability" if self.at_edge else f"in a minimum {100 * width:.2g} % wide"
            text += f", {place}"
            if is_cliff:
                text += f", with 5 % more loss at a rate {100 * ahead:.2g} % higher"
            text += f"; with a margin {self.safe_lr:.4g}: {self.safe_loss:.4g}"
        if len(self.minima) > 1:
            others = ", ".join(f"{other.lr:.4g}" for other in self.minima[1:])
            text += f"; nearly as good: {others}"
        return text


def optimal_lr(
    problem: Problem,
    horizon: int | None = None,
    objective: str = "test",
    *,
    tolerance: float = 1e-4,
    progress: Progress | bool | None = None,
) -> OptimalLr:
    """Find the learning rate, among all rates, with the lowest loss at a step.

    Rates on a ladder of ratio 2 are solved, from one at which training blows up at once down to where lower ones cannot
    help, and intervals between them are divided wherever the loss may be lower still. Past the edge of stability
    the loss can be so rough that it has a lower dip on every finer grid. Nobody could train there, so a minimum is
    judged by the largest loss in an interval of 0.2 % of the rate; the best is then refined with exact derivatives.
    Minima wider than about 1 % of the rate are found (2 % where steps times outputs are 200 or more) if losses around
    them give a sign of them, and narrower ones by chance. Nothing promises more than that, least of all where the loss
    oscillates with the rate, as it does with momentum and a schedule.

    The answer does not depend on the problem's own learning rate. Every run is solved step by step, however long,
    from 400 steps times outputs on with a condensed past (see ``solve``).

    Parameters
    ----------
    problem
        What to train. A schedule is scaled as a whole. What is varied is the rate of the problem's optimizer, in all
        phases that continue with it. Phases with an optimizer of their own keep its rate, and so do the ``other``
        weights of Muon where these have a rule of their own; without one they take the rate of Muon, which varies.
    horizon
        Step at which the loss counts, from 1 to steps - 1, which is the default.
    objective
        ``"test"`` or ``"train"`` loss.
    tolerance
        Allowed relative error of the rate; the actual error is usually much smaller.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions. The number of
        rates needed becomes known only on the way, so ``total`` is a guess until the end.

    Raises
    ------
    ArithmeticError
        If no learning rate lowers the loss, or none makes training diverge. Where other rules or phases lower the loss
        without it, a rate has to do better than a vanishing one.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=3, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.01), steps=50
    ... )
    >>> print(optimal_lr(problem))
    optimal learning rate 0.04096: test loss 0.1194 at step 49
    """
    check(problem)
    objective, tolerance = checks.word("objective", objective, OBJECTIVES), checks.precision("tolerance", tolerance)
    last = problem.steps - 1
    horizon = last if horizon is None else checks.whole("horizon", horizon)
    if horizon > last:
        raise Refusal("horizon", horizon, f"at most steps - 1 ({last})")
    problem = up_to(problem, horizon)
    check(problem)
    excess, counter = Excess.of(problem, objective), Counter(read_progress(progress), REFINING, scale=problem.steps)
    search = RateSearch(problem, excess, counter)
    search.run()
    found, minima, safe = _best(search, tolerance)
    is_resolved = found.value > (1 + _SAME) * excess.rounding
    at_edge = is_resolved and _is_at_edge(problem, search, found)
    (best,) = search.curves_at([found.x])
    counter.end()
    losses = np.array([search.total(index) for index in range(len(search.places))])
    lrs, is_dip = np.exp(search.places), losses < minima[0].loss
    return OptimalLr(
        lr=math.exp(found.x),
        loss=minima[0].loss,
        curvature=found.curvature,
        at_edge=at_edge,
        is_resolved=is_resolved,
        minima=minima,
        safe_lr=math.exp(safe),
        safe_loss=search.total(search.nearest(safe)),
        horizon=horizon,
        objective=objective,
        is_factor=has_schedule(problem),
        rounding_at=best.rounding_at,
        lrs=lrs[~is_dip],
        losses=losses[~is_dip],
        dips=tuple(zip(lrs[is_dip].tolist(), losses[is_dip].tolist(), strict=True)),
    )


def _best(search: RateSearch, tolerance: float) -> tuple[Minimum, tuple[LrMinimum, ...], float]:
    """Find the optimum, the minima that are nearly as good, and the place of the rate with a margin."""
    for _ in range(_MOST_TRIES):
        found = _refine(search, tolerance)
        minima, safe = minima_of(search, found), safest(search)
        # Looking around, also for a margin, may have led to a better minimum.
        if search.worst(search.best_place()) >= (1 - _SAME) * search.worst(found.x):
            break
    return found, minima, safe


def _refine(search: RateSearch, tolerance: float) -> Minimum:
    """Find the exact optimum near the best place, or return this where the loss around the exact one is higher."""
    excess, x = search.excess, search.best_place()
    if search.loss(x) <= excess.rounding and _is_flat(search, x):
        return Minimum(x, search.loss(x), math.nan)
    found = find_minimum(search, x, tolerance, excess.rounding)
    if search.is_rough(found) and search.worst(found.x) > _AS_LOW * search.worst(x):
        return Minimum(x, search.loss(x), math.nan)
    return found


def _is_flat(search: RateSearch, x: float) -> bool:
    """Whether the losses beside a place are down to rounding too."""
    index = search.nearest(x)
    return max(search.values[index - 1], search.values[index + 1]) <= math.log(_FLAT * search.excess.rounding)


def _is_at_edge(problem: Problem, search: RateSearch, found: Minimum) -> bool:
    """Whether a rate a little higher does much worse."""
    lower, higher = (search.loss(found.x + away) - found.value for away in (-math.log1p(_EDGE), math.log1p(_EDGE)))
    if higher > _STEEPER * max(lower, search.excess.rounding):
        return True
    (above,) = search.curves_at([found.x + math.log1p(_EDGE)])
    return not is_stable(above, stable_loss(problem))
