"""The loss at the last step against the learning rate, solved at the rates that its curve needs.

Beyond the edge of stability the loss may jump between rates, however close they are, and a line through the points
would only show where the loss was solved. So rates are added from below until every point lies near the line between
its neighbours. Above the optimum the line ends where even rates that are practically equal give different losses.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._explore.problems import is_quick, scaled

GRID = ((10**-1.5, 1.0, 16), (1.0, 3.0, 12))
"""Learning rates that are solved first, over the best one: ends and numbers below and above it."""

OFF = 0.05
"""Most by which the loss at a rate may be off the straight line between its neighbours, as a fraction, in the picture
with logarithmic axes."""

COARSEST = 1.03
"""Largest ratio of neighbouring rates above the first minimum, where the loss may go up and down between them."""

FINEST = 1.002
"""Ratio of rates that are practically equal."""

ASIDE = 0.05
"""Distance from the best rate, as a fraction, from which on one with a margin is another."""

_SAME = 1e-9
"""Relative difference of losses that rounding makes."""

MOST_BETWEEN = {True: 200, False: 40}
"""Most rates that are solved between others, where a solution is quick and where it is not."""

_AT_ONCE = 8
"""Most rates above the optimum that are added at once: where the lowest of them end the line, others are not needed."""

_LEAST = 1e-9
"""Fraction of the loss at the start below which it is not resolved."""

_TOGETHER = 4e6
"""Most entries of the matrices over two times that are solved together."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What one learning rate comes to.

    Training fails where both losses end above their start, or rounding errors have grown into them.
    """

    lr: float
    test_loss: float
    train_loss: float
    start: float
    fails: bool

    @classmethod
    def of(cls, lr: float, theory: dl.Solution) -> "Point":
        """Read off a solution."""
        test, train = theory.test_loss, theory.train_loss
        ends_lower = test[-1] <= test[0] or train[-1] <= train[0]
        fails = not ends_lower or theory.status.rounding_at is not None
        return cls(lr, float(test[-1]), float(train[-1]), float(test[0]), fails)

    @property
    def place(self) -> tuple[float, float]:
        """Where it stands on logarithmic axes."""
        least = max(_LEAST * self.start, 1e-300)
        return math.log(self.lr), math.log(max(self.test_loss, least))


def first_rates(best: float, searched: dl.OptimalLr | None, unit: float) -> Array:
    """Return the rates to begin with: a grid around the best one, and those within it that the search solved.

    Rates that were searched are in units of ``unit``. What is marked is always there.
    """
    below, above = (np.geomspace(*ends) for ends in GRID)
    grid = best * np.append(below, above[1:])
    if searched is None:
        return grid
    rates = unit * searched.lrs
    inside = rates[(rates > grid[0]) & (rates < grid[-1])]
    marked = unit * np.array([searched.safe_lr, *(each.lr for each in searched.minima)])
    return np.unique([*grid, *inside, *marked])


def marks(searched: dl.OptimalLr, lr: float, unit: float) -> dict[str, Any]:
    """Return what is marked beside the optimum at ``lr``, of rates in units of ``unit``.

    ``near`` are the rates around the optimum with at most 5 % more loss, ``others`` minima as good as that, and
    ``safe`` is the rate with a margin if it is another one.
    """
    best, *others = searched.minima
    is_around = searched.is_resolved and best.low * unit <= lr <= best.high * unit  # else it is in a narrow dip
    is_other = abs(math.log(searched.safe_lr / searched.lr)) > ASIDE
    return {
        "near": (best.low * unit, best.high * unit) if is_around else None,
        "others": [{"lr": each.lr * unit, "loss": each.loss} for each in sorted(others, key=lambda each: each.lr)],
        "safe": {"lr": searched.safe_lr * unit, "loss": searched.safe_loss} if is_other else None,
    }


def sample(
    problem: dl.Problem, rates: Iterable[float], present: float, progress: Callable[[int, int], None]
) -> list[Point]:
    """Solve a problem at some rates, and between them until the curve is resolved; return the points in order.

    ``present`` is the problem's own rate, or the largest of its schedule.
    """
    points: dict[float, Point] = {}
    wanted, left = [float(rate) for rate in rates], MOST_BETWEEN[is_quick(problem)]
    together = max(1, int(_TOGETHER / (problem.steps * problem.data.outputs) ** 2))
    while wanted:
        expected = len(points) + len(wanted)
        for start in range(0, len(wanted), together):
            chunk, done = wanted[start : start + together], len(points)
            count = _counter(done, len(chunk), expected, progress)
            solved = dl.solve([scaled(problem, lr / present) for lr in chunk], progress=count)
            points |= {lr: Point.of(lr, theory) for lr, theory in zip(chunk, solved, strict=True)}
        wanted = between([points[lr] for lr in sorted(points)])[:left]
        left -= len(wanted)
    return [points[lr] for lr in sorted(points)]


def without_dips(points: Sequence[Point], best: float) -> list[Point]:
    """Return the points without those that have less loss than the best rate: dips in which nobody could train.

    The search has seen them, or others like them, and knows that the loss around them is higher.
    """
    least = min(points, key=lambda point: abs(point.lr - best)).test_loss
    return [point for point in points if point.test_loss >= (1 - _SAME) * least]


def lowest(points: Sequence[Point]) -> int:
    """Return the index of the point with the least loss, of those at which training does not fail if there are any."""

    def order(index: int) -> tuple[bool, bool, float]:
        point = points[index]
        return not math.isfinite(point.test_loss), point.fails, point.test_loss

    return min(range(len(points)), key=order)


def _first_minimum(points: Sequence[Point]) -> int:
    """Return the index of the first point after which the loss rises, that of the optimum at most."""
    rises = (
        index for index, (left, right) in enumerate(itertools.pairwise(points)) if right.test_loss > left.test_loss
    )
    return min(next(rises, len(points)), lowest(points))


def between(points: Sequence[Point]) -> list[float]:
    """Return the rates at which a curve must be solved as well."""
    best, first, broken, wanted = lowest(points), _first_minimum(points), _broken(points), []
    for index, (left, right) in enumerate(itertools.pairwise(points)):
        if right.lr > left.lr * (FINEST if index in broken else COARSEST if index >= first else math.inf):
            wanted.append(math.sqrt(left.lr * right.lr))
        elif index in broken and index >= best:
            break  # the line ends here
    below = [lr for lr in wanted if lr < points[best].lr]
    return below + wanted[len(below) :][:_AT_ONCE]


def unstable(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the stretches of rates at which the curve is not drawn: training fails there, or is not resolved.

    Above the optimum that is all from the first such place on.
    """
    best, last = lowest(points), points[-1].lr
    stretches: list[tuple[float, float]] = []
    for index in sorted(_broken(points)):
        low, high = points[index].lr, points[index + 1].lr
        if index >= best:
            return [*stretches, (low, last)]
        joined = bool(stretches) and stretches[-1][1] == low
        stretches = [*stretches[:-1], (stretches[-1][0], high)] if joined else [*stretches, (low, high)]
    return stretches


def drawn(points: Sequence[Point]) -> list[bool]:
    """Return which points the line goes through: those outside the unstable stretches, or at their ends inside."""
    stretches, end = unstable(points), points[-1].lr
    hidden = [any(low < point.lr < high or point.lr == high == end for low, high in stretches) for point in points]
    return [not each or index == lowest(points) for index, each in enumerate(hidden)]


def _broken(points: Sequence[Point]) -> set[int]:
    """Return the gaps, by the index of the point below, over which no line can be drawn as it is."""
    bent = {index for index in range(1, len(points) - 1) if _is_bent(*points[index - 1 : index + 2])}
    return {
        index
        for index, (left, right) in enumerate(itertools.pairwise(points))
        if left.fails or right.fails or index in bent or index + 1 in bent
    }


def _is_bent(left: Point, point: Point, right: Point) -> bool:
    """Whether a point lies off the line between its neighbours."""
    if left.fails or point.fails or right.fails:
        return False
    (x0, y0), (x, y), (x1, y1) = left.place, point.place, right.place
    return abs(y - (y0 + (y1 - y0) * (x - x0) / (x1 - x0))) > math.log1p(OFF)


def _counter(done: int, count: int, expected: int, progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return a ``progress`` of some solutions among others, counted in thousandths of one."""

    def advance(steps: int, total: int) -> None:
        progress(round(1000 * (done + count * steps / total)), 1000 * expected)

    return advance
