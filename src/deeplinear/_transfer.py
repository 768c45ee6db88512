"""Whether the optimal learning rate transfers: how it moves with width, depth, samples, batch or steps."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear import _checks
from deeplinear._curves import curves
from deeplinear._fields import field_names, replace
from deeplinear._learning_rate import OBJECTIVES, OptimalLr, optimal_lr
from deeplinear._measured import MeasuredOptima, check_experiment, fit_exponent, measure_optima
from deeplinear._network import INFINITE
from deeplinear._problem import Problem
from deeplinear._rates import with_rate
from deeplinear._sensitivity import CONTINUOUS, derivatives, value_of

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

OVER = ("width", "depth", "samples", "batch", "steps")

_TOLERANCE = 1e-5
"""Relative error of the optima that is allowed."""

_OPTIMUM = 20
"""Solutions that the search for an optimum takes, about, with the derivatives at it."""

_USUAL_RATES = 15
"""Rates around the optima, about."""

_DIFFERENCE = 1e-5
"""Step in log(lr) of the differences of exact first derivatives."""


@dataclass(frozen=True, eq=False)
class Transfer:
    """How the optimal learning rate depends on one field of a problem.

    The optimum transfers if the exponents are zero: then the best rate of a small model is that of a large one.

    Attributes
    ----------
    problem
        What all other fields come from.
    over, values
        The field and its values, shape (values,); ``inf`` is an infinite width or depth.
    objective
        ``"test"`` or ``"train"`` loss.
    lrs, loss
        Learning rates (factors, for a schedule) and the loss at the last step, shapes (lrs,) and (values, lrs);
        ``inf`` where training diverges.
    optima
        The optimum of each value.
    local_exponents
        d log(lr*) / d log(value) at each value, exactly, by implicit differentiation; ``nan`` where the field is not
        continuous (depth, steps), is infinite, or the optimum is not resolved.
    exponent, exponent_error
        Slope of log(lr*) against log(value) by least squares, and its standard error.
    experiment
        The same from finite networks, or ``None``.
    """

    problem: Problem
    over: str
    values: Array
    objective: str
    lrs: Array = field(repr=False)
    loss: Array = field(repr=False)
    optima: tuple[OptimalLr, ...] = field(repr=False)
    local_exponents: Array
    exponent: float
    exponent_error: float
    experiment: MeasuredOptima | None = None

    @property
    def lr(self) -> Array:
        """Optimal learning rate of each value, shape (values,)."""
        return np.array([optimum.lr for optimum in self.optima])

    def to_xarray(self) -> "xr.Dataset":
        """Return curves and optima with named axes; the problem stands in the attributes, as TOML."""
        import xarray as xr  # slow to import

        dims, at = (self.over, "lr"), self.over
        variables: dict[str, Any] = {
            "loss": (dims, self.loss),
            "optimal_lr": (at, self.lr),
            "optimal_loss": (at, [optimum.loss for optimum in self.optima]),
            "curvature": (at, [optimum.curvature for optimum in self.optima]),
            "at_edge": (at, [optimum.at_edge for optimum in self.optima]),
            "local_exponent": (at, self.local_exponents),
        }
        attrs = {
            "problem": self.problem.to_toml(),
            "objective": self.objective,
            "exponent": self.exponent,
            "exponent_error": self.exponent_error,
        }
        if self.experiment is not None:
            variables |= {
                "measured_loss": ((*dims, "seed"), self.experiment.loss),
                "measured_lr": (at, self.experiment.lr),
                "measured_lr_error": (at, self.experiment.lr_error),
            }
            attrs |= {
                "measured_exponent": self.experiment.exponent,
                "measured_exponent_error": self.experiment.exponent_error,
            }
        return xr.Dataset(variables, {self.over: self.values, "lr": self.lrs}, attrs)

    def __str__(self) -> str:
        measured = self.experiment
        header = f"{self.over:>8}{'optimal lr':>13}{f'{self.objective} loss':>13}{'exponent':>10}"
        lines = [header + (f"{'measured lr':>24}" if measured else "")]
        for index, (value, optimum) in enumerate(zip(self.values, self.optima, strict=True)):
            line = f"{value:8.4g}{optimum.lr:13.4g}{optimum.loss:13.4g}{self.local_exponents[index]:10.3f}"
            if measured:
                line += f"{f'{measured.lr[index]:.4g} ± {measured.lr_error[index]:.2g}':>24}"
            lines.append(line + (" at the edge of stability" if optimum.at_edge else ""))
        lines.append(f"optimal lr ~ {self.over}^({self.exponent:.3f} ± {self.exponent_error:.3f})")
        if measured:
            lines[-1] += f", measured {measured.exponent:.3f} ± {measured.exponent_error:.3f}"
        return "\n".join(lines)


def transfer(
    problem: Problem,
    over: str,
    values: Iterable[float],
    *,
    lrs: Iterable[float] | None = None,
    objective: str = "test",
    experiment: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Transfer:
    """Find how the optimal learning rate moves when one field of a problem is changed.

    Parameters
    ----------
    problem
        Where all other values come from.
    over
        The field to change: ``"width"``, ``"depth"``, ``"samples"``, ``"batch"`` or ``"steps"``. The loss is that of
        the last step.
    values
        Its values; ``math.inf`` for infinite width or depth.
    lrs
        Learning rates at which losses are returned and networks simulated. By default a grid of ratio sqrt(2) around
        all optima; these are found independently of it.
    objective
        ``"test"`` or ``"train"`` loss.
    experiment
        Arguments for ``simulate`` (``dim``, ``seeds``, ``workers``, ``device``) to train networks at all rates and
        values as well. Their optima are the minima of cubics through the least five points of the mean loss, log
        against log.
    progress
        Called as ``progress(done, total)``, counted in solutions and trained networks. Unless ``lrs`` are given,
        ``total`` is known once the optima are, and a guess before.

    Raises
    ------
    ValueError
        If the problem has no such field, or not with these values.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, parameterization="ntk"),
    ...     dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), steps=15,
    ... )
    >>> print(transfer(problem, over="width", values=[1, 2, 4]))
       width   optimal lr    test loss  exponent
           1        0.104       0.2242    -0.060
           2      0.09637       0.1717    -0.146
           4      0.08701       0.1507    -0.135
    optimal lr ~ width^(-0.129 ± 0.011)
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a Problem, got {problem!r}")
    over = _checks.word("over", over, [name for name in OVER if name in field_names(problem)])
    objective = _checks.word("objective", objective, OBJECTIVES)
    at = _numbers("values", values, allow_infinite=over in ("width", "depth"))
    arguments = None if experiment is None else check_experiment(experiment)
    problems = [replace(problem, {over: _field_value(over, value)}) for value in at.tolist()]
    grid = None if lrs is None else np.sort(_numbers("lrs", lrs, allow_infinite=False))
    count = _Counter(len(at), 0 if arguments is None else len(arguments["seeds"]), progress)
    count.expect(_USUAL_RATES if grid is None else len(grid))
    optima, local_exponents = [], []
    for each in problems:
        optimum = optimal_lr(each, objective=objective, tolerance=_TOLERANCE)
        optima.append(optimum)
        local_exponents.append(_local_exponent(each, over, optimum))
        count.advance(_OPTIMUM)
    best = np.array([optimum.lr for optimum in optima])
    if grid is None:
        grid = _grid_around(best)
        count.expect(len(grid))
    loss = _losses(problems, grid, objective, count.advance)
    exponent, error = fit_exponent(at, best)
    return Transfer(
        problem=problem,
        over=over,
        values=at,
        objective=objective,
        lrs=grid,
        loss=loss,
        optima=tuple(optima),
        local_exponents=np.array(local_exponents),
        exponent=exponent,
        exponent_error=error,
        experiment=None
        if arguments is None
        else measure_optima(problems, at, grid, objective, arguments, count.advance),
    )


def _numbers(name: str, values: Any, allow_infinite: bool) -> Array:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a sequence of numbers, got {values!r}")
    listed = list(values)
    for index, value in enumerate(listed):
        if not (allow_infinite and value == math.inf):
            _checks.positive(f"{name}[{index}]", value)
    if not listed or len(set(listed)) < len(listed):
        raise ValueError(f"{name} must be one or more distinct numbers, got {listed}")
    return np.array(listed, dtype=float)


def _field_value(over: str, value: float) -> Any:
    return INFINITE if over == "width" and value == math.inf else value


def _grid_around(optima: Array) -> Array:
    """Rates on a ladder of ratio sqrt(2), from well below the least optimum to well above the largest."""
    low, high = math.floor(2 * math.log2(optima.min() / 8)), math.ceil(2 * math.log2(4 * optima.max()))
    return np.array([2.0 ** (0.5 * power) for power in range(low, high + 1)])


class _Counter:
    """Counts what is done: for each value an optimum, a curve, and as many networks as there are seeds at each rate."""

    def __init__(self, values: int, seeds: int, progress: Callable[[int, int], object] | None) -> None:
        self._values, self._seeds, self._progress = values, seeds, progress
        self._done, self._total = 0.0, 0

    def expect(self, rates: int) -> None:
        self._total = self._values * (_OPTIMUM + rates * (1 + self._seeds))

    def advance(self, runs: float) -> None:
        before, self._done = round(self._done), self._done + runs
        if self._progress is not None and round(self._done) > before:
            self._progress(round(self._done), self._total)


def _losses(problems: list[Problem], lrs: Array, objective: str, advance: Callable[[float], object]) -> Array:
    # Rates outermost: problems that diverge are solved side by side.
    runs = [with_rate(problem, lr) for lr in lrs.tolist() for problem in problems]
    solved = curves(runs, advance=advance)
    final = np.array([np.maximum(curve.loss(objective)[-1], 0.0) for curve in solved])
    return final.reshape(len(lrs), len(problems)).T


def _local_exponent(problem: Problem, over: str, optimum: OptimalLr) -> float:
    """Differentiate log(lr*) with respect to log(value).

    With x = log(lr) and v = log(value) it is -L_xv / L_xx, since L_x = 0 at the optimum. Both are differences in x of
    exact first derivatives.
    """
    is_infinite = over == "width" and problem.network.width == INFINITE
    if over not in CONTINUOUS or is_infinite or not optimum.is_resolved:
        return math.nan
    lower, higher = (with_rate(problem, optimum.lr * math.exp(step)) for step in (-_DIFFERENCE, _DIFFERENCE))
    points = [(each, name) for name in ("lr", over) for each in (lower, higher)]
    slopes = [
        float(derivative.slope.loss(optimum.objective)[-1]) * value_of(*point)
        for point, derivative in zip(points, derivatives(points), strict=True)
    ]
    return -(slopes[3] - slopes[2]) / (slopes[1] - slopes[0])
