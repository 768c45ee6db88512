"""The best value of one field with all else held: a scan of its range, and a descent from every valley in it."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate.minima import NEARLY
from deeplinear._planning.axes import Axis
from deeplinear._planning.descent import Bottom
from deeplinear._planning.joint import JointSearch
from deeplinear._planning.optimum import JointMinimum
from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]

POINTS = 49
"""Values that are scanned, evenly spaced in the coordinate of the field."""

_BESIDE = 0.01
"""Distance in the coordinate, either way, at which the loss still counts: a minimum that is narrower is of no use."""

_VALLEYS = 6
"""Valleys of the scan that are descended into, at most: the deepest."""

_TOLERANCE = 1e-13
"""Decrease of log(loss) that is not worth a step: this finds a minimum to about a millionth of its width."""

WORK = POINTS + 60
"""Solutions that a search takes, about."""


@dataclass(frozen=True)
class OptimalValue:
    """The value of one field that leaves the lowest loss at the last step, with everything else held fixed.

    Attributes
    ----------
    name
        The field.
    value, loss
        Its best value, and the loss there.
    curvature
        Second derivative of the loss with respect to the coordinate of the field (see ``Optimum``).
    binding
        ``"low"`` or ``"high"`` where the best value is at a bound and the loss would be lower beyond it, else empty.
    is_resolved
        False where the loss, minus the label noise that nothing can lower, is lost in rounding, so that many values are
        equally good.
    minima
        The optimum and other minima whose loss is at most 5 % higher, most important first.
    losses
        Loss at each value of the scan, shape (49,); ``inf`` where training diverges.
    """

    name: str
    value: float
    loss: float
    curvature: float
    binding: str
    is_resolved: bool
    minima: tuple[JointMinimum, ...] = field(repr=False)
    losses: Array = field(repr=False, compare=False)

    is_lost: ClassVar[bool] = False
    """Whether rounding errors have grown into the loss, which is looked at for rates alone."""

    @property
    def nearly_best(self) -> list[float]:
        """Values of ``minima``."""
        return [each.values[self.name] for each in self.minima]

    @property
    def place(self) -> str:
        """Where the optimum is, in words, if that is special."""
        return f"at its {self.binding} bound" if self.binding else ""


def scanned(axis: Axis) -> Array:
    """Return the values of a scan, from bound to bound, shape (49,)."""
    places = np.linspace(axis.coordinate(axis.low), axis.coordinate(axis.high), POINTS)
    return np.array([axis.value(float(x)) for x in places])


def optimal_value(problem: Problem, axis: Axis, objective: str, counter: Counter) -> OptimalValue:
    """Find the best value of a field within its bounds.

    The range is scanned at 49 values, and from the deepest valleys of the scan exact derivatives lead down. Past an
    edge of stability the loss can be rough, so a minimum counts by the largest loss there and at a distance of 0.01 in
    the coordinate of the field, which is 1 %, on either side. Minima that are narrower than the distance of two values
    may be missed.

    Raises
    ------
    ArithmeticError
        If training diverges at every value.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.8), dl.FullBatch(1.2), dl.GradientDescent(0.1), steps=30
    ... )
    >>> found = optimal_value(problem, Axis("weight_decay", 0.0, 1.0), "test", Counter(None, 1))
    >>> round(found.value, 3)
    0.362
    """
    search = JointSearch(problem, (axis,), objective, 0.0, counter, tolerance=_TOLERANCE)
    places = np.linspace(search.low[0], search.high[0], POINTS)
    losses = np.array(search.losses([np.array([x]) for x in places]))
    if not np.isfinite(losses).any():
        where = f"from {axis.low:g} to {axis.high:g}"
        raise ArithmeticError(f"training diverges at each of {POINTS} values of {axis.name} {where}: lower the rate")
    ends = search.distinct([search.descend(places[i : i + 1]) for i in _valleys(losses)])
    ends.sort(key=lambda end: _largest_beside(search, end))
    least = search.losses([end.x for end in ends])
    minima = [JointMinimum(search.values(end.x), loss) for end, loss in zip(ends, least, strict=True)]
    best = ends[0]
    return OptimalValue(
        name=axis.name,
        value=minima[0].values[axis.name],
        loss=minima[0].loss,
        curvature=float(search.curvature(best)[0, 0]),
        binding=search.binding(best).get(axis.name, ""),
        is_resolved=minima[0].loss - search.excess.label_noise > 2.0 * search.excess.rounding,
        minima=tuple(each for each in minima if each.loss <= NEARLY * minima[0].loss),
        losses=losses,
    )


def _largest_beside(search: JointSearch, end: Bottom) -> float:
    """Largest loss at a minimum and on either side of it, within the bounds."""
    places = [np.clip(end.x + away, search.low, search.high) for away in (-_BESIDE, 0.0, _BESIDE)]
    return max(search.losses(places))


def _valleys(losses: Array) -> list[int]:
    """Places of a scan that are lower than both neighbours, the deepest ones first."""
    padded = np.concatenate([[math.inf], losses, [math.inf]])
    is_low = (losses <= padded[:-2]) & (losses < padded[2:]) & np.isfinite(losses)
    found = np.flatnonzero(is_low)
    return [int(i) for i in found[np.argsort(losses[found])][:_VALLEYS]]
