"""The best learning rate: the least loss at one step, over all rates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.ladder import check, solve_rates
from deeplinear._learning_rate.minimum import Minimum, find_minimum
from deeplinear._learning_rate.probe import Probe
from deeplinear._learning_rate.scan import Scan
from deeplinear._learning_rate.search import REFINING, SLOPE, Excess, search
from deeplinear._learning_rate.slopes import Point
from deeplinear._learning_rate.stable import is_stable, stable_loss
from deeplinear._learning_rate.valleys import LrMinimum, Valleys
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, rate_of, up_to, with_rate
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.sensitivity import derivatives

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

_MOST_TRIES = 5

_NARROW = 0.2
"""Length in log(lr) of the interval within 5 % of the least loss below which a rate with a margin is printed too."""

_BESIDE = 1e-3
"""Distance in log(lr) of rates that are solved to find the optimum exactly."""


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
        width = math.log(self.minima[0].high / self.minima[0].low)
        if self.at_edge or width < _NARROW:
            place = "at the edge of stability" if self.at_edge else f"in a minimum {100 * width:.2g} % wide"
            text += f", {place}; with a margin {self.safe_lr:.4g}: {self.safe_loss:.4g}"
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
    scan = search(problem, excess, counter)
    valleys = Valleys(scan, excess.label_noise)
    found, minima, safe = _best(problem, excess, scan, valleys, tolerance, counter)
    is_resolved = found.value > excess.rounding
    at_edge = is_resolved and _is_at_edge(problem, excess, scan, found, counter)
    loss = max(found.value, 0.0) + excess.label_noise
    searched = _searched(scan, found)
    (run,) = solve_rates(problem, [math.exp(found.x)])
    counter.end()
    return OptimalLr(
        lr=math.exp(found.x),
        loss=loss,
        curvature=found.curvature,
        at_edge=at_edge,
        is_resolved=is_resolved,
        minima=minima,
        safe_lr=math.exp(safe.x),
        safe_loss=safe.final + excess.label_noise,
        horizon=horizon,
        objective=objective,
        is_factor=has_schedule(problem),
        rounding_at=run.rounding_at,
        lrs=np.array([rate for rate, each in searched if each >= loss]),
        losses=np.array([each for _, each in searched if each >= loss]),
        dips=tuple(pair for pair in searched if pair[1] < loss),
    )


def _best(
    problem: Problem, excess: Excess, scan: Scan, valleys: Valleys, tolerance: float, counter: Counter
) -> tuple[Minimum, tuple[LrMinimum, ...], Probe]:
    """Find the exact optimum, the minima that are nearly as good, and the rate with a margin."""
    for _ in range(_MOST_TRIES):
        found = _refine(problem, excess, scan, valleys, tolerance, counter)
        minima, safe = valleys.minima(found), valleys.safe()
        # Looking around, also for a margin, may have led to a better valley.
        if not valleys.is_beaten((1 - _SAME) * found.value):
            break
    return found, minima, safe


def _searched(scan: Scan, found: Minimum) -> list[tuple[float, float]]:
    """Rates and their losses. Those beside the optimum are no less, but for the rounding of either."""
    return [
        (
            math.exp(probe.x),
            max(probe.final, found.value if abs(probe.x - found.x) < _BESIDE else 0.0) + scan.offset,
        )
        for probe in scan.probes
    ]


def _refine(
    problem: Problem, excess: Excess, scan: Scan, valleys: Valleys, tolerance: float, counter: Counter
) -> Minimum:
    """Find the exact optimum in the best valley; a solved rate where no exact one counts."""
    for _ in range(2):
        found = _exact(problem, excess, scan, valleys, tolerance, counter)
        if valleys.counts(found):
            return found
    return valleys.solved()


def _exact(
    problem: Problem, excess: Excess, scan: Scan, valleys: Valleys, tolerance: float, counter: Counter
) -> Minimum:
    """Find the exact optimum from the best place; a solved rate if it is down to rounding."""
    known = valleys.best()
    if known[1][1] <= excess.rounding and max(known[0][1], known[2][1]) <= _FLAT * excess.rounding:
        return Minimum(*known[1], math.nan)
    evaluate, shape = _slope(problem, excess, scan, counter), valleys.shape()
    # Beyond the edge of stability, lr * eigenvalue = 2, what is unstable grows as (lr * eigenvalue - 1)^(2 t); with
    # heavy-ball momentum the edge is at 2 (1 + momentum), and the growth is larger by 1 / (1 - momentum).
    rule = problem.optimizer.plain
    momentum = 0.0 if rule.nesterov else float(rule.momenta(problem.steps).max())
    steepness = 4.0 * (problem.steps - 1) * (1 + momentum) / (1 - momentum)
    return find_minimum(
        evaluate, lambda x: max(scan.at(x), excess.rounding), known, tolerance, steepness, excess.rounding, shape
    )


def _slope(problem: Problem, excess: Excess, scan: Scan, counter: Counter) -> Callable[[float], Point]:
    """Excess loss at the last step and its derivative, as a function of log(lr); the scan learns the runs."""

    def evaluate(x: float) -> Point:
        counter.expect(SLOPE + 1)
        at = with_rate(problem, math.exp(x))
        try:
            (derivative,) = derivatives([(at, "lr")], lambda part: counter.advance(SLOPE * part))
        except Unresolved:  # at such rates losses of infinite depth blow up
            return Point(x, math.inf, math.nan)
        run = excess(derivative.value)
        scan.insert(x, run)
        value = max(float(run[-1]), np.finfo(float).tiny)
        slope = float(derivative.slope.loss(excess.objective)[-1])
        return Point(x, value, slope * rate_of(at))

    return evaluate


def _is_at_edge(problem: Problem, excess: Excess, scan: Scan, found: Minimum, counter: Counter) -> bool:
    """Whether a rate a little higher does much worse; solved unless it is known or follows from a run."""
    places = [found.x + math.log1p(_EDGE), found.x - math.log1p(_EDGE)]
    higher, lower = (math.exp(scan.expected(x)) - found.value for x in places)
    if higher < 0.5 * _STEEPER * lower:
        return False
    least = max(scan.bound(places[1]) - found.value, excess.rounding)
    if any(probe.final - found.value > _STEEPER * least for probe in scan.probes if found.x < probe.x <= places[0]):
        return True
    curve, other = solve_rates(problem, [math.exp(x) for x in places], counter.advance)
    if not is_stable(curve, stable_loss(problem)):
        return True
    higher, lower = (float(excess(each)[-1]) - found.value for each in (curve, other))
    return higher > max(_STEEPER * lower, _STEEPER * excess.rounding)
