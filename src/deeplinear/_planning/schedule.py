"""The best schedule: the rate, momentum, weight decay or batch at every step that leaves the least loss at the end."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import percent
from deeplinear._learning_rate import OBJECTIVES
from deeplinear._learning_rate.ladder import check
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.descent import Bottom, Surface, descend_all
from deeplinear._planning.families import FAMILIES, TunedSchedule, tuned
from deeplinear._planning.rates import Rates
from deeplinear._planning.scales import SCALES, values_of, with_schedules
from deeplinear._problem.problem import Problem

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

_KNOTS = 13
"""Knots unless others are asked for."""

_COARSE = 7
"""Knots to begin with, where there are more."""

_TOLERANCE = 1e-4
"""Decrease of log(loss) that is not worth a step of the descent."""

_WORK, _MOST = 2800, 156
"""Knots of all descents at each number of knots, times steps of training, and the most of them."""

_STEPS_WORK, _FEWEST_STEPS, _MOST_STEPS = 4800, 10, 40
"""Steps of a descent, times those of training, and least and most of them."""

_FIRSTS, _SECONDS, _RESTS = (2.0, 4.0, 8.0, 16.0), (1.0, 2.0), (0.2, 0.35, 0.6, 1.0)
"""Factors on the first value of a start, on the second where that is large too, and on all others."""

_DRAWN, _SPREAD = 50, 0.7
"""Random starts that are tried, and the standard deviation of their logarithms."""

_TURNS, _SMALLER = (0.25, 0.4, 0.67, 1.5, 2.5, 4.0), (0.5, 1.0)
"""Factors on every second value of a start, and their inverse on the others; and factors on all of them."""

_TILT = 0.05
"""How much higher the first rate of a start is, and the last one lower, as a fraction. Where the order of rates does
not matter, all derivatives are equal at equal rates, and the descent would never tell them apart."""

_NEARBY, _STEEPER = 0.05, 10.0
"""How much lower and higher rates are tried, and how much more the higher must cost, to say that there is an edge."""

_TUNING, _SHARE = 80, 0.6
"""Solutions that it takes to tune a shape, about, and the share of the steps of a descent that it usually takes."""

_COMPLEX = 2.5
"""Cost of a solution with complex rates, in units of one with real rates."""


@dataclass(frozen=True, eq=False)
class OptimalSchedule(Drawn):
    """The learning rate, momentum, weight decay or batch of every step that leave the lowest loss at the last one.

    Attributes
    ----------
    problem
        The problem with this schedule, to be solved or simulated.
    of
        What is scheduled: ``"lr"``, ``"momentum"``, ``"weight_decay"`` or ``"batch"``.
    loss
        Loss at the last step.
    losses
        Loss at every step, shape (steps,).
    families
        What it is compared with: the best schedule of each named shape, with its loss. For momentum and weight
        decay this is the best constant, and for batches the constant that uses as many examples in all.
    nearby
        Loss at the last step with all rates (or batches, decays, or odds m / (1 - m) of momentum) 5 % lower, and 5 %
        higher.
    slope
        Largest derivative, in absolute value, of log(loss) with respect to the logarithm of the rate at a knot (or of
        the batch, of the odds, or of the weight decay plus 0.01), where the loss is counted above what no rate can
        lower: what is left to gain.
    has_converged
        Whether the last steps of the descent lowered this loss by less than 0.01 % and the slope is at most 0.02, or
        all but 0.01 % of the loss is label noise. False also where the descent ends at a cliff, past which training
        diverges or is rough.
    knots
        Steps between which the logarithm of the factor on the start of the descent (or on its odds) is a straight line,
        shape (knots,).
    objective
        ``"test"`` or ``"train"``.
    """

    problem: Problem
    of: str
    loss: float
    losses: Array = field(repr=False)
    families: Mapping[str, TunedSchedule]
    nearby: tuple[float, float]
    slope: float
    has_converged: bool
    knots: NDArray[np.int64] = field(repr=False)
    objective: str

    @property
    def schedule(self) -> tuple[float, ...]:
        """Value of every step, as ``GradientDescent(lr=...)`` takes rates; that of the last step has no effect."""
        return tuple(values_of(self.problem, self.of).tolist())

    @property
    def gain(self) -> dict[str, float]:
        """How much less loss than with the best schedule of each named shape: 0.1 is 10 % less."""
        return {name: 1.0 - self.loss / family.loss for name, family in self.families.items()}

    @property
    def at_edge(self) -> bool:
        """Whether it sits at the edge of stability: 5 % higher rates cost more than ten times as much as 5 % lower."""
        lower, higher = (loss - self.loss for loss in self.nearby)
        return higher > _STEEPER * max(lower, _TOLERANCE * self.loss)

    def to_xarray(self) -> "xr.Dataset":
        """Return rates and losses with named axes, family and time; the problem is in the attributes, as TOML."""
        import xarray as xr  # slow to import

        names, steps = ["optimal", *self.families], self.problem.steps
        rates = [np.array(self.schedule), *(each.schedule.values(steps) for each in self.families.values())]
        losses = [self.losses, *(each.losses for each in self.families.values())]
        return xr.Dataset(
            {self.of: (("schedule", "time"), np.stack(rates)), "loss": (("schedule", "time"), np.stack(losses))},
            {"schedule": names, "time": np.arange(steps)},
            {"problem": self.problem.to_toml(), "objective": self.objective},
        )

    def __str__(self) -> str:
        peaks = f"  peak {self.of.replace('_', ' ')}"
        wide = max(15, len(peaks))
        lines = [f"{'schedule':10}{f'{self.objective} loss':>13}{peaks:>{wide}}{'warm-up':>10}{'gain':>9}"]
        lines.append(f"{'optimal':10}{self.loss:13.4g}{max(self.schedule[:-1]):{wide}.4g}")
        for name, family in self.families.items():
            peak, warmup = family.schedule.peak, percent(family.schedule.warmup)
            lines.append(f"{name:10}{family.loss:13.4g}{peak:{wide}.4g}{warmup:>10}{percent(self.gain[name]):>9}")
        if self.at_edge:
            extra = self.nearby[1] / self.loss - 1.0
            what = {"lr": "rates", "momentum": "odds of momentum", "weight_decay": "weight decay"}.get(self.of, self.of)
            then = f"the loss is {percent(extra)} higher" if math.isfinite(extra) else "training diverges"
            lines.append(f"at the edge of stability: with {what} 5 % higher {then}")
        if not self.has_converged:
            lines.append(f"not converged: 1 % more at one knot still changes the loss by {percent(self.slope / 100)}")
        return "\n".join(lines)


def optimal_schedule(
    problem: Problem,
    objective: str = "test",
    *,
    of: str = "lr",
    knots: int | None = None,
    progress: Progress | bool | None = None,
) -> OptimalSchedule:
    """Find the learning rate, momentum, weight decay or batch of every step with the lowest loss at the last one.

    The best constant, linear, cosine and WSD schedules are found first, each with its best peak and warm-up (see
    ``optimal_lr``), which is up to 80 % of the run. Descents along exact derivatives of the loss begin with the best of
    these, with schedules whose first step is much larger than the others and, where every step is free, with schedules
    of large and small steps in turn and random ones. What they change is a factor whose logarithm is a straight line
    from knot to knot: first of 7 knots, then 13, 25 and so on up to those asked for, each time from the best answers
    with fewer knots and from new starts. So the result is never worse than any start, the named schedules among them,
    nor than the answers with 7, 13, 25, ... knots. It is the best minimum that these lead to, and there may be lower
    ones; a longer run has fewer descents. Schedules whose losses depend on rounding errors do not count. To free every
    rate, let ``knots`` be ``steps - 1``. Without noise from batches the best schedule often sits at an edge of
    stability, past which training blows up: see ``at_edge``.

    The answer does not depend on the problem's own learning rates. Every run is solved step by step, however long.

    A schedule of momentum, weight decay or batches begins with the best constant one, and is found in the same way,
    with learning rates as the problem has them. Batches use as many examples in all as those of the problem: the
    question is when to use them.

    Parameters
    ----------
    problem
        What to train.
    objective
        ``"test"`` or ``"train"`` loss.
    of
        What is scheduled: ``"lr"``, ``"momentum"``, ``"weight_decay"``, or, where every batch is fresh, ``"batch"``.
    knots
        Number of knots, from 2 to ``steps - 1``; by default 13, or ``steps - 1`` if that is less. They are denser
        towards both ends, where in a short run some fall on the same step. The cost grows in proportion.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions; ``total`` is
        a guess until the end.

    Raises
    ------
    ValueError
        If the problem has fewer than 3 steps, or a phase has an optimizer of its own.
    ArithmeticError
        If no learning rate lowers the loss, or none makes training diverge.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=12
    ... )
    >>> found = optimal_schedule(problem, knots=4)
    >>> all(gain >= 0 for gain in found.gain.values())
    True
    """
    objective, count = _checked(problem, objective, of, knots)
    steps, scale = problem.steps, SCALES[of]
    descents = [
        _most_steps(steps) * _descents(steps, number) * (_COMPLEX * number + 4) for number in _numbers(steps, count)
    ]
    expected = _TUNING * (len(FAMILIES) if of == "lr" else 1) + _SHARE * sum(descents)
    counter = Counter(read_progress(progress), expected, scale=steps)
    rates = Rates(problem, Excess.of(problem, objective), counter.advance, of)
    families = tuned(rates)
    best, found = _search(rates, families, count)
    curves = rates.curves([scale.scaled(best, factor) for factor in (1.0, 1.0 - _NEARBY, 1.0 + _NEARBY)])
    losses, *nearby = (np.array([np.inf]) if each is None else np.asarray(each.loss(objective)) for each in curves)
    loss = float(losses[-1])
    counter.end()
    return OptimalSchedule(
        problem=rates.with_rates(best),
        of=of,
        loss=loss,
        losses=losses,
        families={each.schedule.shape: each for each in families},
        nearby=(float(nearby[0][-1]), float(nearby[1][-1])),
        slope=float(np.abs(found.slope).max()),
        has_converged=found.has_converged or loss - rates.excess.label_noise <= _TOLERANCE * loss,
        knots=_places(steps, count),
        objective=objective,
    )


def _checked(problem: Any, objective: Any, of: Any, knots: Any) -> tuple[str, int]:
    """Refuse what cannot be done; return the objective and the number of knots."""
    check(problem)
    checks.word("of", of, with_schedules(problem))
    objective = checks.word("objective", objective, OBJECTIVES)
    most = problem.steps - 1
    if most < 2:
        raise Refusal("steps", problem.steps, "at least 3 for a schedule to matter")
    if any(phase.optimizer is not None for phase in problem.phases):
        raise Refusal("phases", problem.phases, "no optimizers of their own", verb="have", got="one")
    if of == "batch" and any(phase.sampling is not None for phase in problem.phases):
        raise Refusal("phases", problem.phases, "no sampling of their own", verb="have", got="a rule")
    count = min(_KNOTS, most) if knots is None else checks.whole("knots", knots, at_least=2)
    if count > most:
        raise Refusal("knots", knots, f"at most steps - 1 ({most})")
    return objective, count


def _search(rates: Rates, families: Sequence[TunedSchedule], count: int) -> tuple[Array, Bottom]:
    """Find the best values of all steps, with few knots and then with more; return also where the last descent ended.

    Descents with few knots begin at the best starts. Those with more begin where these ended, the best one first, and
    at the best starts again, which in rough places lead elsewhere.
    """
    steps = rates.problem.steps
    ends: list[tuple[Array, Bottom]] = []
    for number in _numbers(steps, count):
        hats = _hats(steps, number)
        many = _descents(steps, number)
        bases = [values for values, _ in ends][: (many + 1) // 2]
        if len(bases) < many:
            bases += _starts(rates, families, is_free=number == steps - 1)[: many - len(bases)]
        ends = sorted(_descend(rates, bases, hats), key=lambda end: end[1].value)
    return ends[0]


def _starts(rates: Rates, families: Sequence[TunedSchedule], *, is_free: bool) -> list[Array]:
    """Return where descents begin: the best start of every kind, then the second best of every kind, and so on.

    The kinds are the named schedules; changes of them with a large first step, which aligns the layers, so that without
    noise it is often best; with rates that fall a little; and, where every step is free, with large and small steps in
    turn, and random ones, which are always the same.
    """
    scale, steps = SCALES[rates.of], rates.problem.steps
    bases = [family.schedule.values(steps) for family in families]
    step = np.arange(steps)
    turns = (-1.0) ** step
    tilt = np.linspace(_TILT, -_TILT, steps)
    large = [
        [tilt + np.log(np.select([step == 0, step == 1], [first, second or rest], rest)) for rest in _RESTS]
        for first in _FIRSTS
        for second in (None, *_SECONDS)
    ]
    turned = [[tilt + math.log(rest) + math.log(size) * turns for rest in _SMALLER] for size in _TURNS]
    drawn = [[each] for each in _SPREAD * np.random.default_rng(0).standard_normal((_DRAWN, steps))]
    kinds = [[[np.zeros(steps)]], large, [[tilt]], *([turned, drawn] if is_free else [])]
    found = []
    for kind in kinds:
        tried = [[scale.moved(base, change) for base in bases for change in changes] for changes in kind]
        heights = np.reshape(rates.heights([values for each in tried for values in each]), (len(tried), -1))
        order = np.argsort(heights.min(axis=1))
        found.append([tried[i][int(np.argmin(heights[i]))] for i in order if np.isfinite(heights[i].min())])
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return [values for values in mixed if values is not None]


def _descend(rates: Rates, bases: Sequence[Array], hats: Array) -> list[tuple[Array, Bottom]]:
    """Descend from several series of values, by changes at knots; return where each leads, and the end of its descent.

    A place is the number of its base, which never changes as its slope is zero, and the changes at the knots.
    """
    scale, steps = SCALES[rates.of], rates.problem.steps

    def values(place: Array) -> Array:
        return scale.moved(bases[int(place[0])], place[1:] @ hats)

    def heights(places: Sequence[Array]) -> list[float]:
        return rates.heights([values(place) for place in places])

    def slopes(places: Sequence[Array]) -> list[tuple[float, Array]]:
        series = [values(place) for place in places]
        found = rates.slopes([(each, scale.directions(each, hats)) for each in series])
        return [(height, np.append(0.0, slope)) for height, slope in found]

    ends = descend_all(
        Surface(heights, slopes),
        [np.append(index, np.zeros(len(hats))) for index in range(len(bases))],
        most_steps=_most_steps(steps),
        tolerance=_TOLERANCE,
        weights=np.append(1.0, hats.sum(axis=1) / steps),
    )
    return [(values(end.x), end) for end in ends]


def _numbers(steps: int, count: int) -> list[int]:
    """Numbers of knots, each about twice the one before so that its knots are among the next ones, up to all."""
    numbers = [_COARSE]
    while numbers[-1] < count:
        numbers.append(2 * numbers[-1] - 1)
    return sorted({min(number, count) for number in numbers})


def _descents(steps: int, knots: int) -> int:
    """Descents at a number of knots: fewer for a long run, of which each costs more."""
    return max(min(_WORK // steps, _MOST) // knots, 1)


def _most_steps(steps: int) -> int:
    """Steps of a descent: fewer for a long run, of which each costs more."""
    return min(max(_STEPS_WORK // steps, _FEWEST_STEPS), _MOST_STEPS)


def _places(steps: int, count: int) -> NDArray[np.int64]:
    """Knots, denser towards both ends: step 0 to steps - 2, the last whose rate has an effect; equal ones are one."""
    if count == steps - 1:
        return np.arange(count)
    return np.unique(np.rint(0.5 * (steps - 2) * (1.0 - np.cos(math.pi * np.arange(count) / (count - 1)))).astype(int))


def _hats(steps: int, count: int) -> Array:
    """Functions that are 1 at one knot, 0 at the others, and straight in between, shape (knots, steps)."""
    places, at = _places(steps, count), np.minimum(np.arange(steps), steps - 2)
    return np.stack([np.interp(at, places, each) for each in np.eye(len(places))])
