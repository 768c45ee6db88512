"""Schedules of a named shape, each with its best peak and warm-up."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate import optimal_lr
from deeplinear._planning.axes import Axis
from deeplinear._planning.descent import Surface, descend
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

_WARMUPS = (0.03, 0.1, 0.3)
_PEAKS = (1.0, 1.25, 1.6)
"""Warm-ups that are tried, with these multiples of the best peak without one, as a warm-up can allow a higher one."""

_LONGEST = 0.7
"""Longest warm-up: that of WSD ends before its decay begins."""

_STEPS, _TOLERANCE = 12, 1e-6
"""Steps of the descent in peak and warm-up, and the decrease of log(loss) that is not worth one."""

_MOMENTUM = (0.001, 0.99)
"""Constant momenta that are tried: odds of zero have no logarithm."""

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


def tuned(rates: Rates) -> Iterator[TunedSchedule]:
    """Return the schedules that the best one is compared with: of rates all named shapes, else the best constant."""
    if rates.of == "lr":
        for name in FAMILIES:
            yield tune(rates, name)
    else:
        yield _constant(rates)


def _constant(rates: Rates) -> TunedSchedule:
    """Return the best constant momentum, or the same number of examples at every step."""
    problem, objective = rates.problem, rates.excess.objective
    if rates.of == "batch":
        value = float(values_of(problem, "batch")[:-1].mean())
    else:
        start = replace(problem, {"momentum": _MOMENTUM[1] / 2})
        value = optimal_value(start, Axis("momentum", *_MOMENTUM), objective, Counter(None, 1)).value
    return _solved(rates, schedules.constant(value))


def tune(rates: Rates, name: str) -> TunedSchedule:
    """Find the best peak and warm-up of a shape.

    The peak is the best of all without warm-up. Warm-ups are tried with it and with higher peaks, and if one of these
    is better both are refined together.
    """
    make, steps, objective = FAMILIES[name], rates.problem.steps, rates.excess.objective
    peak = optimal_lr(replace(rates.problem, {"lr": make(1.0)}), objective=objective).lr
    tried = [(math.log(peak), 0.0)]
    tried += [(math.log(factor * peak), warmup) for factor in _PEAKS for warmup in _WARMUPS]
    heights = rates.heights([_made(make, place).values(steps) for place in tried])
    best = tried[int(np.argmin(heights))]
    if best[1] > 0:
        best = _refined(rates, make, best)
    return _solved(rates, _made(make, best))


def _solved(rates: Rates, schedule: Schedule) -> TunedSchedule:
    (curve,) = rates.curves([schedule.values(rates.problem.steps)])
    assert curve is not None  # it was solved before
    losses = np.asarray(curve.loss(rates.excess.objective), float)
    return TunedSchedule(schedule, float(losses[-1]), losses)


def _refined(rates: Rates, make: Callable[..., Schedule], start: tuple[float, float]) -> tuple[float, float]:
    """Descend in the logarithm of the peak and in the warm-up."""
    steps = rates.problem.steps

    def slope(place: Array) -> tuple[float, Array]:
        values = _made(make, place).values(steps)
        low, high = max(place[1] - _NEARBY, 0.0), min(place[1] + _NEARBY, _LONGEST)
        sides = [_made(make, (place[0], warmup)).values(steps) for warmup in (low, high)]
        return rates.slopes(values, np.stack([values, (sides[1] - sides[0]) / (high - low)]))

    surface = Surface(lambda places: rates.heights([_made(make, each).values(steps) for each in places]), slope)
    bounds = {"low": np.array([-np.inf, 0.0]), "high": np.array([np.inf, _LONGEST])}
    found = descend(surface, np.array(start), most_steps=_STEPS, tolerance=_TOLERANCE, **bounds)
    return float(found.x[0]), float(found.x[1])


def _made(make: Callable[..., Schedule], place: Array | tuple[float, float]) -> Schedule:
    """Schedule of the logarithm of a peak and of a warm-up."""
    return make(math.exp(place[0]), warmup=float(place[1]))
