"""Schedules of a named shape, each with its best peak and warm-up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate import optimal_lr
from deeplinear._planning.axes import Axis
from deeplinear._planning.descent import Surface, descend_all
from deeplinear._planning.one_field import optimal_value
from deeplinear._planning.rates import Rates
from deeplinear._planning.scales import values_of
from deeplinear._problem.edit import replace
from deeplinear._rules import schedules
from deeplinear._rules.schedules import Schedule

Array = NDArray[np.float64]

FAMILIES: dict[str, Callable[..., Schedule]] = {
    "constant": schedules.constant,
    "linear": schedules.linear,
    "cosine": schedules.cosine,
    "wsd": schedules.wsd,
}
"""Shapes that are tuned: all fall to zero but the first, and the last during the last fifth of all steps."""

_WARMUPS = 8
"""Warm-ups that are tried, from two steps to the longest, evenly spaced in their logarithm: half are short ones."""

_PEAKS = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Peaks that each is tried with, in units of the best peak without one: a warm-up can allow a higher one."""

_LONGEST = 0.8
"""Longest warm-up: that of WSD ends where its decay begins."""

_STEPS, _TOLERANCE = 12, 1e-5
"""Steps of the descent in peak and warm-up, and the decrease of log(loss) that is not worth one."""

_CONSTANT = {"momentum": (0.001, 0.99), "weight_decay": (0.0, 10.0)}
"""Constants that are tried: of momenta, odds of zero have no logarithm."""

_NEARBY = 1e-4
"""Distance of warm-ups whose rates are subtracted: rates are straight in it but for kinks."""


@dataclass(frozen=True)
class TunedSchedule:
    """The best schedule of a named shape.

    Attributes
    ----------
    schedule
        The schedule, with the peak and the warm-up whose loss at the last step is least.
    loss
        This loss.
    losses
        The loss at every step, shape (steps,).
    """

    schedule: Schedule
    loss: float
    losses: Array = field(repr=False, compare=False)


def tuned(rates: Rates) -> list[TunedSchedule]:
    """Return the schedules that the best one is compared with: of rates all named shapes, else the best constant."""
    if rates.of != "lr":
        return [_solved(rates, _constant(rates))]
    plain, warmed = _tried(rates)
    ends = [*plain, *(_refined(rates, warmed) if warmed else [])]
    heights = rates.heights([_made(place).values(rates.problem.steps) for place in ends])
    found = []
    for index in range(len(FAMILIES)):
        _, best = min((height, i) for i, height in enumerate(heights) if ends[i][0] == index)
        found.append(_solved(rates, _made(ends[best])))
    return found


def _constant(rates: Rates) -> Schedule:
    """Return the best constant momentum or weight decay, or the same number of examples at every step."""
    problem, objective, name = rates.problem, rates.excess.objective, rates.of
    if name == "batch":
        value = float(values_of(problem, "batch")[:-1].mean())
    else:
        axis = Axis(name, *_CONSTANT[name])
        value = optimal_value(replace(problem, {name: axis.low}), axis, objective, Counter(None, 1)).value
    return schedules.constant(value)


def _tried(rates: Rates) -> tuple[list[Array], list[Array]]:
    """Find the best peak of each shape without warm-up, and the best short and long warm-ups that lower the loss more.

    The result are two lists of places (see ``_refined``).
    """
    steps, plain, warmed = rates.problem.steps, [], []
    for index, make in enumerate(FAMILIES.values()):
        peak = optimal_lr(replace(rates.problem, {"lr": make(1.0)}), objective=rates.excess.objective).lr
        plain.append(np.array([index, math.log(peak), 0.0]))
    warmups = np.geomspace(min(2.0 / steps, _LONGEST), _LONGEST, _WARMUPS)
    tried = [
        place + np.array([0.0, math.log(factor), each]) for place in plain for each in warmups for factor in _PEAKS
    ]
    heights = np.array(rates.heights([_made(place).values(steps) for place in [*plain, *tried]]))
    limits, rows = heights[: len(plain)], heights[len(plain) :].reshape(2 * len(plain), -1)
    for row, (limit, some) in enumerate(zip(limits.repeat(2), rows, strict=True)):
        if some.min() < limit:
            warmed.append(tried[row * rows.shape[1] + int(some.argmin())])
    return plain, warmed


def _solved(rates: Rates, schedule: Schedule) -> TunedSchedule:
    (curve,) = rates.curves([schedule.values(rates.problem.steps)])
    assert curve is not None  # it was solved before
    losses = np.asarray(curve.loss(rates.excess.objective), float)
    return TunedSchedule(schedule, float(losses[-1]), losses)


def _refined(rates: Rates, starts: Sequence[Array]) -> list[Array]:
    """Descend in peak and warm-up of several shapes side by side.

    A place is the number of its shape, which never changes as its slope is zero, the logarithm of a peak, and a
    warm-up.
    """

    def heights(places: Sequence[Array]) -> list[float]:
        return rates.heights([_made(place).values(steps) for place in places])

    def slopes(places: Sequence[Array]) -> list[tuple[float, Array]]:
        return [(height, np.append(0.0, each)) for height, each in rates.slopes([along(place) for place in places])]

    def along(place: Array) -> tuple[Array, Array]:
        """Rates, and their change per unit along the logarithm of the peak and the warm-up."""
        values = _made(place).values(steps)
        ends = [max(place[2] - _NEARBY, 0.0), min(place[2] + _NEARBY, _LONGEST)]
        low, high = (_made(np.array([*place[:2], warmup])).values(steps) for warmup in ends)
        return values, np.stack([values, (high - low) / (ends[1] - ends[0])])

    steps, highest = rates.problem.steps, np.array([np.inf, np.inf, _LONGEST])
    bounds = {"low": np.array([-np.inf, -np.inf, 0.0]), "high": highest}
    found = descend_all(Surface(heights, slopes), starts, most_steps=_STEPS, tolerance=_TOLERANCE, **bounds)
    return [end.x for end in found]


def _made(place: Array) -> Schedule:
    """Schedule of the number of a shape, the logarithm of a peak, and a warm-up."""
    make = list(FAMILIES.values())[int(place[0])]
    return make(math.exp(place[1]), warmup=float(place[2]))
