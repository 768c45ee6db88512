"""The largest learning rate that trains, and the best one.

Both searches go down a ladder of rates, a factor sqrt(2) from rung to rung, from a rate at which the first few steps
blow up. Rates beyond stability cost little, since their solution ends where they diverge.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear import _checks
from deeplinear._curves import Curve, curves, worth_batching
from deeplinear._fields import replace
from deeplinear._minimum import Minimum, Point, find_minimum
from deeplinear._problem import Problem
from deeplinear._progress import Progress
from deeplinear._rates import has_schedule, rate_of, up_to, with_rate
from deeplinear._sensitivity import derivatives

Array = NDArray[np.float64]

OBJECTIVES = ("test", "train")

_RUNG = math.sqrt(2.0)
_MOST_RUNGS = 100
_EDGE = 0.05
"""How much higher a rate is tried, as a fraction, to see whether an optimum sits at the edge of stability."""

_STEEPER = 10.0
"""How much more the loss must rise there than at a rate as much lower."""

_ABOUT_AS_GOOD = 1.2
"""How much more than at the best rung the loss may be at others that are refined as well."""

_ROUNDING = 1e-12
"""Fraction of what can be learned at the start below which what is left to learn is mostly rounding error."""

_SLOPE = 2.5
"""Cost of a loss with its slope, in units of a solution."""

_REFINING = 4 * _SLOPE + 1
"""Cost that is usual after the ladder: some slopes, and a look beyond the optimum."""


@dataclass(frozen=True)
class MaxStableLr:
    """The largest learning rate that trains.

    Attributes
    ----------
    lr
        Largest rate found stable; for a schedule, the factor on all its rates.
    unstable_lr
        Smallest rate found unstable above it.
    is_factor
        Whether these are factors on a schedule.

    Examples
    --------
    >>> print(MaxStableLr(lr=0.25, unstable_lr=0.2502, is_factor=False))
    stable up to learning rate 0.25
    """

    lr: float
    unstable_lr: float
    is_factor: bool

    def __str__(self) -> str:
        return f"stable up to {'schedule factor' if self.is_factor else 'learning rate'} {self.lr:.4g}"


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
    horizon
        Step whose loss is minimised.
    objective
        ``"test"`` or ``"train"``.
    is_factor
        Whether ``lr`` is a factor on a schedule.
    lrs, losses
        The rates searched, increasing, and their losses; ``inf`` where training diverges.
    """

    lr: float
    loss: float
    curvature: float
    at_edge: bool
    is_resolved: bool
    horizon: int
    objective: str
    is_factor: bool
    lrs: Array = field(repr=False, compare=False)
    losses: Array = field(repr=False, compare=False)

    def __str__(self) -> str:
        what = "schedule factor" if self.is_factor else "learning rate"
        notes = [", at the edge of stability"] * self.at_edge + [", the loss is down to rounding"] * (
            not self.is_resolved
        )
        return f"optimal {what} {self.lr:.4g}: {self.objective} loss {self.loss:.4g} at step {self.horizon}" + "".join(
            notes
        )


def max_stable_lr(problem: Problem, *, tolerance: float = 1e-3) -> MaxStableLr:
    """Find the largest learning rate at which training does not diverge within the problem's steps.

    A rate is stable if the train loss at the last step is at most what it was at step 0 (and no step went beyond
    10^12 times the initial test loss). A transient above the initial loss that has come down again by then is stable.
    With weight decay, a centered network may forget the initial function that is subtracted, so there the loss without
    that subtraction is the bound. The train loss counts since overfitting is no instability.

    The largest stable rung of a ladder of ratio sqrt(2) is found from above, then the gap to the next rung is bisected.
    Every run is solved step by step, however long.

    Parameters
    ----------
    problem
        What to train, for at least 2 steps. Its learning rate is where the search starts. A schedule is scaled as a
        whole.
    tolerance
        Relative distance between the stable and the unstable rate that are returned.

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
    _check(problem)
    tolerance = _checks.positive("tolerance", tolerance)
    bound = _bound(problem)

    def stable(rates: Sequence[float]) -> list[bool]:
        return [_is_stable(curve, bound) for curve in _solve(problem, rates)]

    low, high = _enclose(problem, stable)
    count = worth_batching(problem, 8)
    while high > low * (1 + tolerance):
        inside = np.geomspace(low, high, count + 2).tolist()
        first = next((i for i, good in enumerate(stable(inside[1:-1])) if not good), count)
        low, high = inside[first], inside[first + 1]
    return MaxStableLr(low, high, has_schedule(problem))


def optimal_lr(
    problem: Problem,
    horizon: int | None = None,
    objective: str = "test",
    *,
    tolerance: float = 1e-4,
    progress: Progress | None = None,
) -> OptimalLr:
    """Find the learning rate with the least loss at a step.

    A ladder of rates is solved from the edge of stability down. Training time is rate times steps, so a run passes
    through what lower rates reach at the horizon: the search goes on while the curve of the lowest rate so far dips
    below the least loss found. Around the best rung, and around others that are local minima and about as good, the
    zero of the exact derivative is then found; an edge of stability is narrowed down first, with losses alone.
    Every run is solved step by step, however long.

    Parameters
    ----------
    problem
        What to train. Its learning rate is where the search starts. A schedule is scaled as a whole.
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
    _check(problem)
    objective, tolerance = _checks.word("objective", objective, OBJECTIVES), _checks.positive("tolerance", tolerance)
    last = problem.steps - 1
    horizon = last if horizon is None else _checks.whole("horizon", horizon)
    if horizon > last:
        raise ValueError(f"horizon must be at most steps - 1 ({last}), got {horizon}")
    problem = up_to(problem, horizon)
    excess, counter = _Excess.of(problem, objective), _Counter(problem.steps, progress)
    rungs = _search(problem, excess, counter)
    found = _refine(problem, excess, rungs, tolerance, counter)
    at_edge = _is_at_edge(problem, excess, found, rungs, counter)
    counter.end()
    return OptimalLr(
        lr=math.exp(found.x),
        loss=found.value + excess.label_noise,
        curvature=found.curvature,
        at_edge=at_edge,
        is_resolved=found.value > excess.rounding,
        horizon=horizon,
        objective=objective,
        is_factor=has_schedule(problem),
        lrs=np.array([rung.rate for rung in rungs]),
        losses=np.array([rung.final for rung in rungs]) + excess.label_noise,
    )


def _check(problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a Problem, got {problem!r}")
    if problem.steps < 2:
        raise ValueError(f"steps must be at least 2 for the learning rate to matter, got {problem.steps}")


def _solve(problem: Problem, rates: Sequence[float], advance: Callable[[float], object] | None = None) -> list[Curve]:
    return curves([with_rate(problem, rate) for rate in rates], advance=advance)


def _ladder(top: float, first: int, count: int) -> list[float]:
    """Rates on ``count`` rungs, the ``first``-th below the top and on downwards."""
    return [top / _RUNG**rung for rung in range(first, first + count)]


# --- the edge of stability -----------------------------------------------------------------------------------


def _bound(problem: Problem) -> float:
    """Train loss that a stable run does not exceed at its last step."""
    changes = {"centered": False} if problem.optimizer.weight_decay > 0 else {}
    loss: float = curves([replace(up_to(problem, 0), changes)])[0].train_loss[0]
    return loss


def _is_stable(curve: Curve, bound: float) -> bool:
    return curve.diverged_at is None and bool(curve.train_loss[-1] <= bound)


def _blows_up(curve: Curve) -> bool:
    return curve.diverged_at is not None or bool(curve.train_loss[-1] > 100 * curve.train_loss[0])


def _ceiling(problem: Problem, advance: Callable[[float], object] | None = None) -> float:
    """Find a rate at which training blows up soon, while the next rung down does not."""
    rates = [rate_of(problem) * 8.0**power for power in range(-12, 13)]
    steps = 8
    while True:
        short = up_to(problem, min(steps, problem.steps) - 1)

        def first(rates: list[float], short: Problem = short) -> float | None:
            solved = zip(rates, _solve(short, rates, advance), strict=True)
            return next((rate for rate, curve in solved if _blows_up(curve)), None)

        coarse = first(rates)
        if coarse is not None:
            return first(_ladder(coarse, 0, 6)[::-1]) or coarse
        if steps >= problem.steps:
            raise ArithmeticError(f"training does not diverge at any learning rate up to {rates[-1]:.3g}")
        steps *= 4  # the rates of a schedule may start from zero


def _enclose(problem: Problem, stable: Callable[[Sequence[float]], list[bool]]) -> tuple[float, float]:
    """Find a stable rung with an unstable one above it."""
    top = _ceiling(problem)
    if stable([top])[0]:  # what blew up early has recovered
        while stable([top * _RUNG])[0]:
            top *= _RUNG
        return top, top * _RUNG
    count = worth_batching(problem, 4)
    for start in range(1, _MOST_RUNGS, count):
        rates = _ladder(top, start, count)
        for rate, good in zip(rates, stable(rates), strict=True):
            if good:
                return rate, rate * _RUNG
    raise ArithmeticError(f"training is not stable at any learning rate from {rates[-1]:.3g} to {top:.3g}")


# --- the optimum ---------------------------------------------------------------------------------------------


class _Counter:
    """Counts solutions, of a number that grows as more turn out to be needed."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self._steps, self._progress = steps, progress
        self._done, self._total = 0.0, _REFINING

    def expect(self, more: float) -> None:
        """Say how much is left, at least."""
        self._total = max(self._total, self._done + more)

    def advance(self, solutions: float) -> None:
        self._done = min(self._done + solutions, self._total)
        if self._progress is not None:
            self._progress(round(self._steps * self._done), round(self._steps * self._total))

    def end(self) -> None:
        self.advance(self._total)


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
        return cls(objective, label_noise, _ROUNDING * float(curve.loss(objective)[0] - label_noise))

    def __call__(self, curve: Curve) -> Array:
        """Return it at each step."""
        return np.maximum(curve.loss(self.objective) - self.label_noise, 0.0)


class _Rung:
    """A rate that was solved."""

    def __init__(self, rate: float, times: NDArray[np.int64], loss: Array) -> None:
        self.rate = rate
        self.final, self.least = float(loss[-1]), float(loss.min())
        # Whether less training, as the next rung down gives it, leaves much more loss.
        before = float(loss[np.searchsorted(times, times[-1] / _RUNG)])
        self.falls = before > _ABOUT_AS_GOOD * self.final
        # The lower rate that should reach the least loss at the last step, training time being rate times steps.
        self.dip = rate * max(float(times[loss.argmin()]), 1.0) / float(times[-1])


def _search(problem: Problem, excess: _Excess, counter: _Counter) -> list[_Rung]:
    """Solve rates on a ladder until the least loss is enclosed; return them in increasing order."""

    def solved(rates: list[float]) -> list[_Rung]:
        counter.expect(len(rates) + _REFINING)
        found = _solve(problem, rates, counter.advance)
        return [_Rung(rate, curve.times, excess(curve)) for rate, curve in zip(rates, found, strict=True)]

    # The few steps after which runs blow up count for nothing.
    top, count = _ceiling(problem, lambda _: counter.advance(0.0)), worth_batching(problem, 8)
    down: list[_Rung] = []
    next_rung, best = 0, math.inf
    while not down or down[-1].least < best or (down[-1].final <= best and not down[-1].falls):
        if next_rung > _MOST_RUNGS:
            tried = f"from {down[-1].rate:.3g} to {top:.3g}"
            raise ArithmeticError(f"no learning rate {tried} lowers the {excess.objective} loss")
        down += solved(_ladder(top, next_rung, count))
        best = min(rung.final for rung in down)
        # Where the curve dips early, rungs are left out; not too many, since the dip may be a transient's.
        skipped = math.floor(math.log(down[-1].rate / down[-1].dip, _RUNG)) - 2 if down[-1].least < best else 0
        next_rung += count + min(max(skipped, 0), 4)
    rungs = down[::-1]
    while rungs[-1].final <= best:  # what blew up early has recovered
        rungs += solved([rungs[-1].rate * _RUNG])
        best = min(best, rungs[-1].final)
    while True:
        at = min(range(len(rungs)), key=lambda index: rungs[index].final)
        gaps = {index: rungs[index + 1].rate / rungs[index].rate for index in (at - 1, at) if index >= 0}
        widest = max(gaps, key=gaps.__getitem__)
        if gaps[widest] < 1.01 * _RUNG:
            if at > 0:
                break
            rungs[:0] = solved([rungs[0].rate / _RUNG])
            continue
        # Rungs beside the best one were left out: take one half way.
        left_out = round(math.log(gaps[widest], _RUNG)) - 1
        rungs[widest + 1 : widest + 1] = solved([rungs[widest].rate * _RUNG ** ((left_out + 1) // 2)])
    # Rates in between where they cost little: an even number, so that none is the best rung itself.
    between = np.geomspace(rungs[at - 1].rate, rungs[at + 1].rate, count - count % 2 + 2)[1:-1].tolist()
    return sorted(rungs + (solved(between) if between else []), key=lambda rung: rung.rate)


def _refine(problem: Problem, excess: _Excess, rungs: list[_Rung], tolerance: float, counter: _Counter) -> Minimum:
    """Find the exact optimum, near the best rung and near others about as good; a rung if it is down to rounding."""
    best = min(rungs, key=lambda rung: rung.final)
    if best.final <= excess.rounding:
        return Minimum(math.log(best.rate), best.final, math.nan)
    evaluate, value = _slope(problem, excess, counter), _value(problem, excess, counter)
    # Beyond the edge of stability, lr * eigenvalue = 2, what is unstable grows as (lr * eigenvalue - 1)^(2 t); with
    # heavy-ball momentum the edge is at 2 (1 + momentum), and the growth is larger by 1 / (1 - momentum).
    momentum = 0.0 if problem.optimizer.nesterov else problem.optimizer.momentum
    steepness = 4.0 * (problem.steps - 1) * (1 + momentum) / (1 - momentum)
    known = [(math.log(rung.rate), rung.final) for rung in rungs]
    minima = []
    for index in range(1, len(known) - 1):
        left, middle, right = (loss for _, loss in known[index - 1 : index + 2])
        if middle <= min(left, right, _ABOUT_AS_GOOD * best.final):
            minima.append(find_minimum(evaluate, value, known[index - 1 :], tolerance, steepness, excess.rounding))
    return min(minima, key=lambda minimum: minimum.value)


def _value(problem: Problem, excess: _Excess, counter: _Counter) -> Callable[[float], float]:
    """Excess loss at the last step as a function of log(lr)."""

    def evaluate(x: float) -> float:
        counter.expect(1 + _REFINING)
        (curve,) = _solve(problem, [math.exp(x)], counter.advance)
        return max(float(excess(curve)[-1]), excess.rounding)

    return evaluate


def _slope(problem: Problem, excess: _Excess, counter: _Counter) -> Callable[[float], Point]:
    """Excess loss at the last step and its derivative, as a function of log(lr)."""

    def evaluate(x: float) -> Point:
        counter.expect(_SLOPE + 1)
        at = with_rate(problem, math.exp(x))
        derivative = derivatives([(at, "lr")], lambda part: counter.advance(_SLOPE * part))[0]
        value = max(float(excess(derivative.value)[-1]), excess.rounding)
        slope = float(derivative.slope.loss(excess.objective)[-1])
        return Point(x, value, slope * rate_of(at))

    return evaluate


def _is_at_edge(problem: Problem, excess: _Excess, found: Minimum, rungs: Sequence[_Rung], counter: _Counter) -> bool:
    lr = math.exp(found.x)

    def rise(curve: Curve) -> float:
        return float(excess(curve)[-1]) - found.value

    (higher,) = _solve(problem, [lr * (1 + _EDGE)], counter.advance)
    if not _is_stable(higher, _bound(problem)):
        return True
    parabola = 0.5 * found.curvature * math.log1p(_EDGE) ** 2
    if rise(higher) <= max(1.5 * parabola, _STEEPER * excess.rounding):
        return False  # what is nearly a parabola on one side is so on the other
    below = [rung.final - found.value for rung in rungs if rung.rate < lr / (1 + _EDGE)]
    if below and rise(higher) > 2 * _STEEPER * below[-1]:
        return True  # a rate even lower raises the loss by less than that, as a rule
    (lower,) = _solve(problem, [lr / (1 + _EDGE)], counter.advance)
    return rise(higher) > _STEEPER * rise(lower)
