"""The loss along straight lines in weight space, from theory.

Weights on a line between two points of training, or away from one, are made of the same initial weights and gradients
with other numbers in front. So the network there is one more evaluation in the equations, at a cost of one step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeplinear._core import checks
from deeplinear._core.device import find_device
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._geometry.operators import Rows, lanczos, rows_needed
from deeplinear._geometry.rates import rate_factors, stage_at
from deeplinear._geometry.visit import MOST_LOOKS, Stop, check_range, visit
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._rules.averages import EMA, Average

Array = NDArray[np.float64]
Weights = Mapping[int, Array]

WAYS = ("line", "gradient", "sharpest", "ema", "twins")
"""Lines that have a name."""

_VECTORS = 16
"""Directions that are looked at for the sharpest one."""


@dataclass(frozen=True, eq=False)
class Landscape(Drawn):
    """Losses along a line in weight space.

    Attributes
    ----------
    problem, along
        What was solved, and along which line, as in ``landscape``.
    positions
        Where on the line, shape (n,): between two points, 0 is the first and 1 the second; around the last weights, 0
        is at these weights and 1 as far away as the next step of plain descent would go.
    train_loss, test_loss
        At these positions, shape (n,).
    barrier
        Largest rise of the train loss above the straight line that joins the losses at the two points; nan along lines
        that do not join two points.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=40
    ... )
    >>> print(dl.landscape(problem, along="line", positions=[0, 0.5, 1]))
    train loss along the line of MLP depth 2, 40 steps: from 2.09 to 0.0743 without a barrier
    """

    problem: Problem
    along: Any
    positions: Array = field(repr=False)
    train_loss: Array = field(repr=False)
    test_loss: Array = field(repr=False)
    barrier: float = field(repr=False)

    def __str__(self) -> str:
        name = {"line": "the line", "twins": "the line between twins"}.get(str(self.along), f"{self.along!r}")
        text = f"train loss along {name} of {self.problem.summary}: "
        if np.isnan(self.barrier):
            best = int(np.argmin(self.train_loss))
            return text + f"lowest {self.train_loss[best]:.3g} at {self.positions[best]:.3g}"
        text += f"from {self.train_loss[0]:.3g} to {self.train_loss[-1]:.3g}"
        return text + (f" over a barrier of {self.barrier:.3g}" if self.barrier > 0 else " without a barrier")


def landscape(
    problem: Problem,
    along: str | Average | tuple[int, int] = "line",
    positions: ArrayLike | None = None,
    *,
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Landscape:
    """Predict the loss along a straight line in weight space.

    Parameters
    ----------
    problem
        What is trained. Weights are those at which gradients are taken.
    along
        ``"line"``: from the first weights to the last. ``(t1, t2)``: between the weights of two steps. ``"ema"``,
        ``EMA(decay)`` or ``TailMean(part)``: from the last weights to their average; ``"ema"`` has decay 0.99.
        ``"twins"``: between the last weights of two networks that started with the same weights and saw different
        batches; this line exists for SGD only. ``"gradient"``: from the last weights along minus the gradient.
        ``"sharpest"``: from the last weights along the direction of largest curvature.
    positions
        Where on the line the losses are wanted, as in ``Landscape``, in any order: 25 from 0 to 1, or 41 from -4 to 4,
        by default.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where the equations are then solved.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in evaluations of the network.

    Raises
    ------
    ValueError
        If an argument is not allowed, or there is no such line for the rule.
    ArithmeticError
        If training diverges before the last weights.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.02), steps=40
    ... )
    >>> twins = dl.landscape(problem, along="twins", positions=[0, 0.5, 1])
    >>> print(twins.test_loss.round(3), twins.barrier)  # in the middle there is less noise
    [0.248 0.24  0.248] 0.0
    """
    way = _read_way(problem, along)
    where = np.linspace(0.0, 1.0, 25) if way.joins else np.linspace(-4.0, 4.0, 41)
    if positions is not None:
        given = checks.listed("positions", positions, MOST_LOOKS)
        try:
            where = np.asarray(given, float)
        except (TypeError, ValueError, OverflowError):
            raise Refusal("positions", positions, "one or more finite numbers") from None
        if where.ndim != 1 or not where.size or not np.isfinite(where).all():
            raise Refusal("positions", positions, "one or more finite numbers")
        where = np.sort(where)
    losses = np.empty((2, len(where)))

    def look(stop: Stop) -> None:
        at = way.line(problem, stop)
        for index, x in enumerate(where):
            with np.errstate(all="ignore"):
                train, test = at(float(x))
            losses[:, index] = train[0], test[0]

    end_at = visit(
        problem, [way.last], way.room, look, read_progress(progress), device=find_device(device), twin=along == "twins"
    )
    if 0 <= end_at <= way.last:
        raise ArithmeticError(f"training diverged at step {end_at}, before the weights that the line needs")
    lost = ~np.isfinite(losses).all(axis=0)
    if lost.any():
        check_range(problem, losses[:, np.abs(where).argmin()])
        far = where[lost][np.abs(where[lost]).argmin()]
        raise Refusal("positions", far, "closer to 0", got=f"{far:.3g}", rest=": the loss there is beyond all numbers")
    barrier = _barrier(where, losses[0]) if way.joins else np.nan
    return Landscape(problem, along, where, losses[0], losses[1], barrier)


Line = Callable[[float], tuple[Array, Array]]
"""Train and test loss at a position."""

Finder = Callable[[Problem, Stop], Line]
"""Finds a line at a stop of training."""


class _Way(NamedTuple):
    """A line: how it is found, at which step, with room for how many evaluations, and whether it joins two points."""

    line: Finder
    last: int
    room: int = 1
    joins: bool = True


def _line(stop: Stop, one: Weights, other: Weights, learned: Sequence[float] = (1.0, 1.0)) -> Line:
    """Return the losses between two points, as a function of the position."""

    def at(x: float) -> tuple[Array, Array]:
        mixed = {group: (1.0 - x) * one[group] + x * other[group] for group in one}
        return stop.extension.losses(mixed, (1.0 - x) * learned[0] + x * learned[1])

    return at


def _between(*steps: int) -> Finder:
    """Join the weights of two steps; of what orthogonal steps have learned there is nothing or all."""

    def line(problem: Problem, stop: Stop) -> Line:
        one, other = (stop.extension.weights_at(int(stop.rows[step])) for step in steps)
        return _line(stop, one, other, [float(step == stop.step) for step in steps])

    return line


def _to_average(average: Average) -> Finder:
    """Join the last weights with an average of all."""

    def line(problem: Problem, stop: Stop) -> Line:
        shares = average.weights(stop.step + 1)[stop.step]
        every = [stop.extension.weights_at(int(row)) for row in stop.rows[: stop.step + 1]]
        mean = {group: np.tensordot(shares, np.stack([each[group] for each in every]), 1) for group in every[0]}
        return _line(stop, every[-1], mean)

    return line


def _to_twin(problem: Problem, stop: Stop) -> Line:
    """Train another network with batches of its own, beside the first in the same equations."""
    extension, rows = stop.extension, stop.step + 1
    own: dict[int, Array] = {}
    for step in range(rows):
        own = {group: values.copy() for group, values in extension.weights_at(step).items()}
        for values in own.values():
            values[:, 1 + rows : 1 + 2 * rows] = values[:, 1 : 1 + rows]  # gradients of its own
            values[:, 1 : 1 + rows] = 0.0
        extension.evaluate(own)
    return _line(stop, extension.weights_at(stop.step), own)


def _around(find: Callable[[Rows], Array] | None = None) -> Finder:
    """Go both ways along a direction, or the gradient, in units of the next step."""

    def line(problem: Problem, stop: Stop) -> Line:
        rates, branch_rate = rate_factors(problem, stop.step, stop), problem.network.branch_rate(own_size=False)
        rows = Rows(stop.extension, rates, branch_rate)
        stage = stage_at(problem, stop.step)
        lr = float(np.real(stage.optimizer.plain.rates(stage.of)[stop.step - stage.start + stage.since]))
        now = rows.gradient_now()
        direction = now if find is None else find(rows)
        unit = lr * rows.length(now) / rows.length(direction) * direction

        def at(x: float) -> tuple[Array, Array]:
            return stop.extension.losses(rows.shifted(x * unit))

        return at

    return line


def _sharpest(rows: Rows) -> Array:
    """Return the direction of the largest Ritz value."""
    matrix, taken = lanczos(rows, "hessian", _VECTORS)
    full = np.diag(matrix.diagonal) + np.diag(matrix.beside[:-1], 1) + np.diag(matrix.beside[:-1], -1)
    vector = np.linalg.eigh(full)[1][:, -1]
    return np.tensordot(vector, np.stack(taken), 1)


def _barrier(where: Array, losses: Array) -> float:
    """By how much losses between 0 and 1 rise above the line that joins those at both ends of what is known."""
    ends = np.interp(where, where[[0, -1]], losses[[0, -1]])
    return float(max(np.max(losses - ends), 0.0)) if len(where) > 1 else 0.0


def _read_way(problem: Any, along: Any) -> _Way:
    """Return the line of this name, checked."""
    check_problem(problem)
    last = problem.steps - 1
    is_muon = any(stage.optimizer.traits.orthogonal for stage in problem.stages)
    if isinstance(along, Average) or along == "ema":
        if is_muon:
            raise Refusal(
                "along",
                along,
                "a line without averages with Muon, of whose weights only the first and the last are known",
            )
        return _Way(_to_average(EMA(0.99) if along == "ema" else along), last)
    if isinstance(along, tuple | list) and len(along) == 2:
        steps = tuple(checks.whole("along", step, at_least=0) for step in along)
        if max(steps) > last or (is_muon and min(steps) > 0):
            raise Refusal("along", along, f"two steps from 0 to {last}" + (", one of them 0 with Muon" * is_muon))
        return _Way(_between(*steps), max(steps))
    checks.word("along", along, WAYS)
    if along == "twins":
        drawn = all(stage.sampling.subsamples for stage in problem.stages)
        if not drawn or len(problem.stages) > 1 or problem.optimizer.traits.looks > 1 or is_muon:
            raise Refusal("along", along, "another line unless batches are drawn, in one phase, without SAM and Muon")
        return _Way(_to_twin, last, problem.steps + 1)
    if along == "line":
        return _Way(_between(0, last), last)
    if along == "gradient":
        return _Way(_around(), last, 2, joins=False)
    return _Way(_around(_sharpest), last, 1 + rows_needed("hessian", _VECTORS), joins=False)
