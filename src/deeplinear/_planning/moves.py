"""How optima move with the size of a model, exactly, where they jump, and what it costs not to follow them."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._core.words import INFINITE
from deeplinear._learning_rate.ladder import solve_or_none
from deeplinear._planning.axes import Axis, at
from deeplinear._planning.joint import JointSearch
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.sensitivity import CONTINUOUS, derivatives, value_of

Array = NDArray[np.float64]

_AWAY, _NEARER = 0.5, 0.2
"""How far a minimum may be from where it is expected, and how much nearer another one must be, in log(lr)."""

_LEGS, _ASTRAY = 8, 0.05
"""In how many steps a minimum is followed from one value to the next, and how far it may be off there."""

_DIFFERENCE = 1e-5
"""Step in log(lr) of the differences of exact first derivatives."""

_ROUNDING = 1e-12
"""Extra loss, as a fraction of the initial one, that is mostly rounding error."""


def find_jumps(
    values: Array,
    places: Sequence[Sequence[float]],
    exponents: Array,
    leads_to: Callable[[int, int], bool],
) -> tuple[tuple[float, float], ...]:
    """Return pairs of neighbouring values between which the optimum goes over to another minimum.

    Places are the logarithms of the best value and of others that are nearly as good, for each value. A minimum moves
    by about the mean of the local exponents at either value; where these are not known, as the optima of most other
    neighbours do; to an infinite value not at all. The optimum seems to be another one if, of those nearly as good, one
    is much nearer to there, or if it is far from there although the local exponents are known. It is one if following
    the first does not lead to the second, which ``leads_to`` says for two indices.
    """
    order, found = np.argsort(values), []
    pairs = list(itertools.pairwise(order.tolist()))
    for first, second in pairs:
        local = 0.5 * (exponents[first] + exponents[second])
        moves = local if math.isfinite(local) else _usual_exponent(values, places, [p for p in pairs if p[0] != first])
        moved = moves * math.log(values[second] / values[first])
        expected = places[first][0] + (moved if math.isfinite(moved) else 0.0)
        off = [abs(place - expected) for place in places[second]]
        has_nearer = min(off) < off[0] - _NEARER
        is_suspect = has_nearer or (math.isfinite(local) and off[0] > _AWAY)
        if is_suspect and not leads_to(first, second):
            found.append((float(values[first]), float(values[second])))
    return tuple(found)


def is_followed(
    model: Callable[[float], Problem],
    values: tuple[float, float],
    axis: Axis,
    best: tuple[float, float],
    objective: str,
) -> bool:
    """Return whether the minimum that is best at one value leads to the best one at the next.

    It is followed over values in between, each descent beginning where the last one ended. It is lost where training
    diverges on the way, and at an infinite value, to which no steps lead.
    """
    if math.isinf(max(values)):
        return False
    place = np.array([axis.coordinate(best[0])])
    for value in np.geomspace(*values, _LEGS + 1)[1:].tolist():
        search = JointSearch(model(value), (axis,), objective, 0.0, Counter(None, 1))
        if not math.isfinite(search.losses([place])[0]):
            return False
        place = search.descend(place).x
    return abs(float(place[0]) - axis.coordinate(best[1])) < _ASTRAY


def _usual_exponent(values: Array, places: Sequence[Sequence[float]], pairs: Sequence[tuple[int, int]]) -> float:
    """Median of the exponents with which optima move between neighbours, so that one jump does not count; 0 of none."""
    moves = [
        (places[second][0] - places[first][0]) / math.log(values[second] / values[first]) for first, second in pairs
    ]
    return float(np.median([each for each in moves if math.isfinite(each)] or [0.0]))


def regret_of(
    problems: Sequence[Problem],
    least: Sequence[float],
    objective: str,
    label_noise: float,
    advance: Callable[[float], object],
) -> tuple[Array, Array]:
    """Return losses of problems, and how much more these are than the least loss above the label noise.

    Extra loss is none where it is below rounding; both are nan where they are not resolved.
    """
    losses, found = [], []
    for run, loss in zip(solve_or_none(problems, advance), least, strict=True):
        losses.append(math.nan if run is None else float(run.loss(objective)[-1]))
        found.append(math.nan if run is None else _extra(run.loss(objective) - label_noise, loss - label_noise))
    return np.array(losses), np.array(found)


def _extra(run: Any, least: float) -> float:
    extra, rounding = float(run[-1]) - least, _ROUNDING * float(run[0])
    return extra / max(least, rounding) if extra > rounding else 0.0


def local_exponent(problem: Problem, over: str, field: Axis, best: float, objective: str) -> float:
    """Differentiate the coordinate of the best value with respect to log(value of the field that is changed).

    With the coordinate x and v = log(value) it is -L_xv / L_xx, since L_x = 0 at the optimum. Both are differences in x
    of exact first derivatives. It is nan where that is not known.
    """
    axis = field.free
    if over not in CONTINUOUS or (over == "width" and problem.network.width == INFINITE):
        return math.nan
    places = [axis.coordinate(best) + step for step in (-_DIFFERENCE, _DIFFERENCE)]
    values = [axis.value(place) for place in places]
    beside = [at(problem, {axis.name: value}) for value in values]
    speeds = [
        value_of(each, "lr") if axis.name == "lr" else axis.speed(value)
        for each, value in zip(beside, values, strict=True)
    ]
    try:
        solved = derivatives([(each, name) for name in (axis.name, over) for each in beside])
    except Unresolved:
        return math.nan
    slopes = [float(derivative.slope.loss(objective)[-1]) for derivative in solved]
    along = [slope * speed for slope, speed in zip(slopes[:2], speeds, strict=True)]
    across = [slope * value_of(each, over) for slope, each in zip(slopes[2:], beside, strict=True)]
    bends = along[1] - along[0]
    return -(across[1] - across[0]) / bends if bends else math.nan  # a flat loss has no optimum to follow


def final_losses(problems: Sequence[Problem], lrs: Array, objective: str, advance: Callable[[float], object]) -> Array:
    """Losses at the last step at each rate, shape (problems, lrs); nan where an infinite depth is not resolved."""
    # Rates outermost: problems that diverge are solved side by side.
    runs = [with_rate(problem, lr) for lr in lrs.tolist() for problem in problems]
    solved = solve_or_none(runs, advance)
    final = np.array([math.nan if curve is None else max(float(curve.loss(objective)[-1]), 0.0) for curve in solved])
    return final.reshape(len(lrs), len(problems)).T
