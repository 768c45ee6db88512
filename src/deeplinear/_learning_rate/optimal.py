"""The best learning rate: the least loss at one step, over all rates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.progress import Progress
from deeplinear._learning_rate.counter import Counter
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, check, solve_rates
from deeplinear._learning_rate.minimum import Minimum, Point, find_minimum
from deeplinear._learning_rate.scan import Scan
from deeplinear._learning_rate.stable import is_stable, stable_loss
from deeplinear._learning_rate.valleys import NEARLY, LrMinimum, Valleys
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, rate_of, up_to, with_rate
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.curves import Curve, curves, worth_batching
from deeplinear._theory.sensitivity import derivatives

Array = NDArray[np.float64]

OBJECTIVES = ("test", "train")

_EDGE = 0.05
"""How much higher a rate is tried, as a fraction, to see whether an optimum sits at the edge of stability."""

_STEEPER = 10.0
"""How much more the loss must rise there than at a rate as much lower."""

_ROUNDING = 1e-12
"""Fraction of what can be learned at the start below which what is left to learn is mostly rounding error."""

_BEYOND = 3
"""Rungs in a row, at the top, whose loss must end above where it began."""

_BEHIND = 1.3
"""How much more loss the lowest rate must have than the best."""

_FAR = math.log(7.9)
"""How far it must be below the best."""

_FLAT = 1e3
"""How much more than rounding errors the loss must be beside a minimum that is down to these, if that is sharp."""

_SAME = 1e-3
"""Relative difference of losses that are as good as equal."""

_MOST_TRIES = 4

_SLOPE = 2.5
"""Cost of a loss with its slope, in units of a solution."""

_REFINING = 4 * _SLOPE + 10
"""Cost that is usual after the scan: some slopes, and looks around the optimum."""


@dataclass(frozen=True)
class OptimalLr:
    """The learning rate with the least loss at one step.

    Attributes
    ----------
    lr
        The rate; for a schedule, the factor on all its rates.
    loss
        Loss at the horizon with this rate.
    curvature
        Second derivative of the loss with respect to log(lr) there, from the slopes of the search: to about 1 %,
        a few at an edge of stability.
    at_edge
        Whether the optimum sits at the edge of stability: a rate 5 % higher no longer trains (see ``max_stable_lr``),
        or raises the loss more than ten times as much as a rate 5 % lower.
    is_resolved
        False where the loss at the optimum, less the label noise that no rate can lower, is lost in rounding (below
        10^-12 of its initial value), so that many rates are equally good; ``lr`` is then one of them.
    minima
        The optimum and other minima whose loss is at most 5 % more, best first; those others as the search came by
        them, to a few per cent of the rate. Each has the interval of rates around it whose loss is at most 5 % more.
    safe_lr, safe_loss
        The best rate with a margin, and its loss: among all rates the one for which the largest loss at rates up to
        20 % lower or higher is least. Right below a cliff this is the rate to train with.
    horizon
        Step whose loss is minimised.
    objective
        ``"test"`` or ``"train"``.
    is_factor
        Whether ``lr`` is a factor on a schedule.
    lrs, losses
        The rates searched, increasing, and their losses; ``inf`` where training diverges. Dips are left out.
    dips
        Rates that the search came by whose loss is lower than at the optimum, in pairs (rate, loss). Around these the
        loss is so rough that it is higher 0.2 % of the rate away, and no rate is a safe one to train with.
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

    def __str__(self) -> str:
        what = "schedule factor" if self.is_factor else "learning rate"
        text = f"optimal {what} {self.lr:.4g}: {self.objective} loss {self.loss:.4g} at step {self.horizon}"
        if not self.is_resolved:
            return text + ", the loss is down to rounding"
        if self.at_edge:
            text += f", at the edge of stability; with a margin {self.safe_lr:.4g}: {self.safe_loss:.4g}"
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
    progress: Progress | None = None,
) -> OptimalLr:
    """Find the learning rate with the least loss at a step, among all rates.

    Rates on a ladder of ratio sqrt(2) are solved, from one at which training blows up at once down to where lower ones
    cannot help, and intervals between them are divided wherever the loss may be lower still. Past the edge of stability
    the loss can be so rough that it has a lower dip on every finer grid. Nobody could train there, so a minimum counts
    by the largest loss all over an interval of 0.2 % of the rate; the best is then refined with exact derivatives.
    Minima wider than about 1 % of the rate are found (2 % in runs of 200 steps and more), narrower ones by chance.

    The answer does not depend on the problem's own learning rate. Every run is solved step by step, however long.

    Parameters
    ----------
    problem
        What to train. A schedule is scaled as a whole.
    horizon
        Step at which the loss counts, from 1 to steps - 1, which is the default.
    objective
        ``"test"`` or ``"train"`` loss.
    tolerance
        Relative error of the rate allowed; as a rule it is much smaller.
    progress
        Called as ``progress(done, total)``, counted in steps of solutions. How many rates are needed shows on the way,
        so ``total`` is a guess until the end.

    Raises
    ------
    ArithmeticError
        If no learning rate lowers the loss, or none makes training diverge.

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
    objective, tolerance = checks.word("objective", objective, OBJECTIVES), checks.positive("tolerance", tolerance)
    last = problem.steps - 1
    horizon = last if horizon is None else checks.whole("horizon", horizon)
    if horizon > last:
        raise ValueError(f"horizon must be at most steps - 1 ({last}), got {horizon}")
    problem = up_to(problem, horizon)
    excess, counter = _Excess.of(problem, objective), Counter(problem.steps, progress, _REFINING)
    scan = _search(problem, excess, counter)
    valleys = Valleys(scan, excess.label_noise)
    found = _refine(problem, excess, scan, valleys, tolerance, counter)
    minima = valleys.minima(found)
    for _ in range(_MOST_TRIES):
        if not valleys.is_beaten((1 - _SAME) * found.value):
            break
        # Looking around has led to a better valley.
        found = _refine(problem, excess, scan, valleys, tolerance, counter)
        minima = valleys.minima(found)
    safe = valleys.safe()
    is_resolved = found.value > excess.rounding
    at_edge = is_resolved and _is_at_edge(problem, excess, scan, found, counter)
    loss = max(found.value, 0.0) + excess.label_noise
    searched = [
        (math.exp(probe.x), max(probe.final, found.value if abs(probe.x - found.x) < 0.001 else 0) + excess.label_noise)
        for probe in scan.probes
    ]
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
        lrs=np.array([rate for rate, each in searched if each >= loss]),
        losses=np.array([each for _, each in searched if each >= loss]),
        dips=tuple(pair for pair in searched if pair[1] < loss),
    )


@dataclass(frozen=True)
class _Excess:
    """The loss that is minimised, less the label noise in it that no rate can lower.

    Attributes
    ----------
    objective
        Which loss.
    label_noise
        What is subtracted: the noise of examples that were never trained on.
    rounding
        Size of rounding errors.
    """

    objective: str
    label_noise: float
    rounding: float

    @classmethod
    def of(cls, problem: Problem, objective: str) -> "_Excess":
        is_fit = objective == "train" and problem.sampling.reuse > 0
        label_noise = 0.0 if is_fit else problem.data.outputs * problem.data.noise**2
        (curve,) = curves([up_to(problem, 0)])
        rounding = _ROUNDING * float(curve.loss(objective)[0] - label_noise)
        return cls(objective, label_noise, max(rounding, np.finfo(float).tiny))

    def __call__(self, curve: Curve) -> Array:
        """Return it at each step."""
        return np.maximum(curve.loss(self.objective) - self.label_noise, 0.0)


def _search(problem: Problem, excess: _Excess, counter: Counter) -> Scan:
    """Solve rates until the least loss is enclosed, and no lower one is to be expected anywhere."""

    def solve(places: Sequence[float]) -> list[Array]:
        counter.expect(len(places) + _REFINING)
        solved = solve_rates(problem, [math.exp(x) for x in places], counter.advance)
        return [excess(curve) for curve in solved]

    # The few steps after which runs blow up count for nothing.
    top, rung = math.log(ceiling(problem, lambda _: counter.advance(0.0))), math.log(RUNG)
    count = worth_batching(problem, 16)
    resolution = rung / (15 if problem.steps * problem.data.outputs >= 200 else 31)
    scan = Scan(solve, count, excess.rounding, excess.label_noise, resolution)
    scan.add([top - 2 * rung * index for index in range(max(count, 4))])
    while not _is_enclosed_below(scan):
        if len(scan.probes) > MOST_RUNGS:
            tried = f"from {math.exp(scan.probes[0].x):.3g} to {math.exp(top):.3g}"
            raise ArithmeticError(f"no learning rate {tried} lowers the {excess.objective} loss")
        scan.add([scan.probes[0].x - 2 * rung * (index + 1) for index in range(count)])
    while any(probe.final <= probe.loss[0] for probe in scan.probes[-_BEYOND:]):  # what blew up early has recovered
        scan.add([scan.probes[-1].x + rung * (index + 1) for index in range(_BEYOND)])
    scan.divide()
    return scan


def _is_enclosed_below(scan: Scan) -> bool:
    """Whether lower rates only train less: the lowest run falls all the way, and is far behind the best.

    It need not be as far where it follows from the next higher run: the error of that, halved with each further rung,
    then adds up to no more than twice as much.
    """
    lowest, best = scan.probes[0], scan.best
    if lowest.final > 1.001 * lowest.least():
        return False
    followed = scan.followed(0)
    initial = float(lowest.loss[0])
    half_way = 0.5 * (best.final + initial)
    if followed is not None and best is not lowest:
        least = lowest.final * math.exp(-2 * followed.off)
        return least > min(NEARLY * (best.final + scan.offset) - scan.offset, half_way)
    is_behind = lowest.final > min(_BEHIND * best.final, half_way)
    is_far = best.x - lowest.x > _FAR
    return is_far and is_behind


def _refine(
    problem: Problem, excess: _Excess, scan: Scan, valleys: Valleys, tolerance: float, counter: Counter
) -> Minimum:
    """Find the exact optimum in the best valley; a solved rate if it is down to rounding."""
    known = valleys.best()
    if known[1][1] <= excess.rounding and max(known[0][1], known[2][1]) <= _FLAT * excess.rounding:
        return Minimum(*known[1], math.nan)
    evaluate, shape = _slope(problem, excess, scan, counter), valleys.shape()
    # Beyond the edge of stability, lr * eigenvalue = 2, what is unstable grows as (lr * eigenvalue - 1)^(2 t); with
    # heavy-ball momentum the edge is at 2 (1 + momentum), and the growth is larger by 1 / (1 - momentum).
    momentum = 0.0 if problem.optimizer.nesterov else problem.optimizer.momentum
    steepness = 4.0 * (problem.steps - 1) * (1 + momentum) / (1 - momentum)
    return find_minimum(
        evaluate, lambda x: max(scan.at(x), excess.rounding), known, tolerance, steepness, excess.rounding, shape
    )


def _slope(problem: Problem, excess: _Excess, scan: Scan, counter: Counter) -> Callable[[float], Point]:
    """Excess loss at the last step and its derivative, as a function of log(lr); the scan learns the runs."""

    def evaluate(x: float) -> Point:
        counter.expect(_SLOPE + 1)
        at = with_rate(problem, math.exp(x))
        try:
            (derivative,) = derivatives([(at, "lr")], lambda part: counter.advance(_SLOPE * part))
        except Unresolved:  # at such rates losses of infinite depth blow up
            return Point(x, math.inf, math.nan)
        run = excess(derivative.value)
        scan.insert(x, run)
        value = max(float(run[-1]), np.finfo(float).tiny)
        slope = float(derivative.slope.loss(excess.objective)[-1])
        return Point(x, value, slope * rate_of(at))

    return evaluate


def _is_at_edge(problem: Problem, excess: _Excess, scan: Scan, found: Minimum, counter: Counter) -> bool:
    """Whether a rate a little higher does much worse; solved unless it follows from a run at a still higher one."""
    places = [found.x + math.log1p(_EDGE), found.x - math.log1p(_EDGE)]
    higher, lower = (math.exp(scan.expected(x)) - found.value for x in places)
    if higher < 0.5 * _STEEPER * lower:
        return False
    curve, other = solve_rates(problem, [math.exp(x) for x in places], counter.advance)
    if not is_stable(curve, stable_loss(problem)):
        return True
    higher, lower = (float(excess(each)[-1]) - found.value for each in (curve, other))
    return higher > max(_STEEPER * lower, _STEEPER * excess.rounding)
