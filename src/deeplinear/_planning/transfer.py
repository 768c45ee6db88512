"""Whether the best learning rate, or another field, transfers: how it moves with width, depth, data, batch, steps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.device import searching_on
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import loglog_slope
from deeplinear._core.words import INFINITE
from deeplinear._experiment.sizes import sizes_of
from deeplinear._learning_rate import OBJECTIVES, OptimalLr, optimal_lr
from deeplinear._learning_rate.measured import check_experiment, measure_optima
from deeplinear._learning_rate.search import noise_of_new_examples
from deeplinear._planning.axes import Axis, at, axes_of, check_corners, followed, searchable
from deeplinear._planning.moves import final_losses, find_jumps, is_followed, local_exponent, regret_of
from deeplinear._planning.one_field import POINTS, WORK, OptimalValue, optimal_value, scanned
from deeplinear._planning.transferred import Transfer
from deeplinear._problem.edit import field_names, replace
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._theory.sensitivity import CONTINUOUS

Array = NDArray[np.float64]

OVER = ("width", "depth", "samples", "batch", "steps")

_TOLERANCE = 1e-5
"""Relative error of the optima that is allowed."""

_MOST_VALUES = 1000
"""Most values of the field, or rates of networks."""
_OPTIMUM = 20
"""Solutions that the search for an optimum takes, about, with the derivatives at it."""

_USUAL_RATES = 15
"""Rates around the optima, about."""

_REFINED = 10
"""Values that networks are trained at beside those of the grid, about."""

_EVERY = 3
"""Of the values of a scan, one of so many is where networks are trained at first."""


@dataclass(frozen=True)
class _Models:
    """The problems of a transfer, one for each value of the field that is changed, and the field that is followed."""

    problem: Problem
    over: str
    values: Array
    problems: list[Problem]
    objective: str
    axis: Axis

    @property
    def smallest(self) -> int:
        return int(np.argmin(self.values))

    @property
    def label_noise(self) -> float:
        """What the regret leaves out: the part of the test loss that nothing can lower."""
        return noise_of_new_examples(self.problem) if self.objective == "test" else 0.0

    def at(self, value: float) -> Problem:
        """The problem of another value."""
        return replace(self.problem, {self.over: value})

    def follow(self, best: Array) -> Callable[[int, int], bool]:
        """Return a function that says whether the minimum at one value leads to the best one at another.

        Depths and steps are whole numbers, so there is nothing in between along which to follow it.
        """

        def leads_to(first: int, second: int) -> bool:
            values, places = ((float(each[first]), float(each[second])) for each in (self.values, best))
            is_continuous = self.over in CONTINUOUS
            return is_continuous and is_followed(self.at, values, self.axis, places, self.objective)

        return leads_to

    def exponent_at(self, problem: Problem, best: float) -> float:
        return local_exponent(problem, self.over, self.axis, best, self.objective)


def transfer(
    problem: Problem,
    over: str,
    values: Iterable[float],
    *,
    field: str = "lr",
    bounds: Sequence[float] | None = None,
    lrs: Iterable[float] | None = None,
    objective: str = "test",
    experiment: Mapping[str, Any] | None = None,
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Transfer:
    """Find how the best learning rate, or another field, moves when the size of a model or of its training is changed.

    Parameters
    ----------
    problem
        Where all other values come from. Where a field other than ``lr`` is followed, the learning rate is held fixed
        too.
    over
        The field to change: ``"width"``, ``"depth"``, ``"samples"``, ``"batch"`` or ``"steps"``. The loss is that of
        the last step.
    values
        Its values; ``math.inf`` for infinite width or depth.
    field
        What is followed: ``"lr"``, ``"weight_decay"``, ``"momentum"``, ``"batch"``, or another field that ``optimal``
        takes.
    bounds
        Lowest and highest value of a field other than ``lr``; by default as in ``optimal``. Its range is scanned at 49
        values, so that minima narrower than the distance between two of them may be missed.
    lrs
        Learning rates at which losses are returned and networks simulated. By default a grid of ratio sqrt(2) around
        all optima; these are found independently of it.
    objective
        ``"test"`` or ``"train"`` loss.
    experiment
        Arguments for ``simulate`` (``dim``, ``seeds``, ``workers``, ``device``, ``method``) to train networks of all
        sizes as well, at all rates, or at 17 values of another field, and at about ten more near their optimum, which
        ``MeasuredOptima`` defines. With ``method="reduced"`` a seed is a slightly different network at another rate, so
        networks at rates far apart are less alike; the intervals allow for that.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where all problems are then solved, and networks trained
        unless ``experiment`` says otherwise.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in solutions and trained networks.
        ``total`` is a guess until the optima are known where ``lrs`` are not given, and until the end with an
        experiment or another field.

    Raises
    ------
    ValueError
        If the problem has no such field, or does not allow these values.
    ArithmeticError
        If training diverges at every value of the field, or no learning rate lowers the loss.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, parameterization="ntk"),
    ...     dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), steps=15,
    ... )
    >>> print(transfer(problem, over="width", values=[1, 2, 4]))
       width   optimal lr    test loss  loss at 0.104  exponent
           1        0.104       0.2242         0.2242    -0.060
           2      0.09637       0.1717         0.1726    -0.146
           4      0.08701       0.1507          0.155    -0.135
    optimal lr ~ width^-0.129, scatter about this law ± 0.011
    does not transfer: the best rate moves as width^-0.13, and that of width 1 gives a test loss of 0.155 instead of \
0.151, 7.1 % more above the label noise, at width 4
    >>> print(transfer(problem, over="steps", values=[15, 30, 60], field="momentum"))
       steps  optimal momentum    test loss  loss at 0.5474  exponent
          15            0.5474       0.2186          0.2186         -
          30            0.3704       0.1276          0.1324         -
          60                 0       0.1095           0.126         -  optimum at its low bound
    does not transfer: the best momentum is at its low bound at steps 60, and that of steps 15 gives a test loss of \
0.126 instead of 0.11, 84 % more above the label noise, at steps 60
    """
    check_problem(problem)
    over = checks.word("over", over, [name for name in OVER if name in field_names(problem)])
    objective = checks.word("objective", objective, OBJECTIVES)
    sizes = _numbers("values", values, allow_infinite=over in ("width", "depth"))
    models = [replace(problem, {over: _field_value(over, value)}) for value in sizes.tolist()]
    (axis,) = _axis(problem, over, field, bounds)
    every = _Models(problem, over, sizes, models, objective, axis)
    tell = read_progress(progress)
    arguments = None if experiment is None else {"device": device} | check_experiment(experiment)
    with searching_on(device):
        if axis.name == "lr":
            return _of_rates(every, lrs, arguments, tell)
        if lrs is not None:
            raise Refusal("lrs", lrs, f"left out where {axis.name} is followed and not lr")
        return _of_values(every, arguments, tell)


def _axis(problem: Problem, over: str, field: Any, bounds: Any) -> tuple[Axis, ...]:
    """Return the axis of the field that is followed, or refuse it."""
    if field == "lr":
        if bounds is not None:
            raise Refusal("bounds", bounds, "left out for lr, of which all values are searched")
        return (Axis("lr", np.finfo(float).tiny, math.inf),)
    checks.word("field", field, [name for name in searchable(problem) if name != over])
    return axes_of(problem, [field], None if bounds is None else {field: bounds})


def _of_rates(models: _Models, lrs: Any, arguments: dict[str, Any] | None, progress: Progress | None) -> Transfer:
    """Follow the learning rate."""
    values, problems, objective = models.values, models.problems, models.objective
    _check_sizes(problems, arguments)
    grid = None if lrs is None else np.sort(_numbers("lrs", lrs, allow_infinite=False))
    seeds = 0 if arguments is None else len(arguments["seeds"])
    usual = _work(_USUAL_RATES if grid is None else len(grid), seeds)
    count = Counter(progress, len(values) * (_OPTIMUM + usual))
    optima, local_exponents = [], []
    for each in problems:
        optimum = optimal_lr(each, objective=objective, tolerance=_TOLERANCE)
        optima.append(optimum)
        local_exponents.append(models.exponent_at(each, optimum.lr) if optimum.is_resolved else math.nan)
        count.advance(_OPTIMUM)
    best = np.array([optimum.lr for optimum in optima])
    if grid is None:
        grid = _grid_around(best)
        count.settle(len(values) * _work(len(grid), seeds))
    loss = final_losses(problems, grid, objective, count.advance)
    found = _transfer(models, grid, loss, best, optima, local_exponents, count)
    measured = None
    if arguments is not None:
        measured = measure_optima(problems, values, grid, best, objective, arguments, count, models.label_noise)
    count.settle(0)
    count.end()
    return found if measured is None else dataclass_replace(found, experiment=measured)


def _check_sizes(problems: Iterable[Problem], experiment: dict[str, Any] | None) -> None:
    """Refuse what no network has, before the work begins."""
    if experiment is not None:
        for each in problems:
            sizes_of(each, experiment.get("dim"))


def _of_values(models: _Models, arguments: dict[str, Any] | None, progress: Progress | None) -> Transfer:
    """Follow another field, with the learning rate held."""
    axis = models.axis
    for each in models.problems:
        check_corners(each, [axis])
        _check_sizes((at(each, {axis.name: end}) for end in (axis.low, axis.high)), arguments)
    seeds = 0 if arguments is None else len(arguments["seeds"])
    count = Counter(progress, len(models.values) * (WORK + seeds * (POINTS // _EVERY + _REFINED)))
    optima, local_exponents = [], []
    for index, each in enumerate(models.problems):
        count.expect((len(models.values) - index) * WORK)
        found = optimal_value(each, axis, models.objective, count)
        is_inside = found.is_resolved and not found.binding
        optima.append(found)
        local_exponents.append(models.exponent_at(each, found.value) if is_inside else math.nan)
    best, loss = np.array([each.value for each in optima]), np.array([each.losses for each in optima])
    tried = scanned(axis)
    result = _transfer(models, tried, loss, best, optima, local_exponents, count)
    if arguments is not None:
        measured = measure_optima(
            models.problems,
            models.values,
            tried,
            best,
            models.objective,
            arguments,
            count,
            models.label_noise,
            followed(axis),
            _EVERY,
        )
        result = dataclass_replace(result, experiment=measured)
    count.settle(0)
    count.end()
    return result


def _transfer(
    models: _Models,
    tried: Array,
    loss: Array,
    best: Array,
    optima: Sequence[OptimalLr | OptimalValue],
    local_exponents: list[float],
    count: Counter,
) -> Transfer:
    """Say how optima move, and what it costs to keep the one of the smallest value."""
    free, finite = models.axis.free, np.isfinite(models.values)
    is_bounded = any(each.binding for each in optima)
    moving = np.exp([free.coordinate(float(value)) for value in best[finite]])
    nan = math.nan
    exponent, scatter = (nan, nan) if is_bounded else loglog_slope(models.values[finite], moving)
    kept = [at(each, {free.name: float(best[models.smallest])}) for each in models.problems]
    places = [[free.coordinate(value) for value in each.nearly_best] for each in optima]
    least = [each.loss for each in optima]
    kept_loss, regret = regret_of(kept, least, models.objective, models.label_noise, count.advance)
    lost = np.array([each.is_lost for each in optima])
    return Transfer(
        problem=models.problem,
        field=free.name,
        over=models.over,
        values=models.values,
        objective=models.objective,
        tried=tried,
        loss=loss,
        best=best,
        optima=tuple(optima),
        local_exponents=np.array(local_exponents),
        jumps=find_jumps(models.values, places, np.array(local_exponents), models.follow(best)),
        exponent=exponent,
        exponent_error=scatter,
        kept_loss=kept_loss,
        regret=np.where(lost | lost[models.smallest], nan, regret),
        label_noise=models.label_noise,
    )


def _numbers(name: str, values: Any, allow_infinite: bool) -> Array:
    listed = checks.listed(name, values, _MOST_VALUES)
    for index, value in enumerate(listed):
        if not (allow_infinite and value == math.inf):
            checks.positive(f"{name}[{index}]", value)
    if not listed or len(set(listed)) < len(listed):
        raise Refusal(name, listed, "one or more distinct numbers")
    return np.array(listed, dtype=float)


def _field_value(over: str, value: float) -> Any:
    return INFINITE if over == "width" and value == math.inf else value


def _grid_around(optima: Array) -> Array:
    """Rates on a ladder of ratio sqrt(2), from well below the least optimum to well above the largest."""
    low, high = math.floor(2 * math.log2(optima.min() / 8)), math.ceil(2 * math.log2(4 * optima.max()))
    return np.array([2.0 ** (0.5 * power) for power in range(low, high + 1)])


def _work(rates: int, seeds: int) -> int:
    """How many solutions and trained networks a value takes once its optimum is known, with this many rates."""
    return rates + 1 + seeds * (rates + _REFINED)
