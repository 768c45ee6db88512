"""Whether the optimal learning rate transfers: how it moves with width, depth, samples, batch or steps."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE, percent
from deeplinear._experiment.sizes import sizes_of
from deeplinear._learning_rate import OBJECTIVES, OptimalLr, optimal_lr
from deeplinear._learning_rate.ladder import solve_or_none
from deeplinear._learning_rate.measured import MeasuredOptima, check_experiment, measure_optima
from deeplinear._learning_rate.verdict import Evidence, judge
from deeplinear._problem.edit import field_names, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate
from deeplinear._scaling import loglog_slope
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.curves import Curve
from deeplinear._theory.sensitivity import CONTINUOUS, derivatives, value_of

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

_REFINED = 10
"""Rates that networks are trained at beside those of the grid, about."""

_AWAY, _NEARER = 0.5, 0.2
"""How far a minimum may be from where it is expected, and how much nearer another one must be, in log(lr)."""

_DIFFERENCE = 1e-5
"""Step in log(lr) of the differences of exact first derivatives."""

_ROUNDING = 1e-12
"""Extra loss, as a fraction of the initial one, that is mostly rounding error."""


@dataclass(frozen=True, eq=False)
class Transfer(Drawn):
    """How the optimal learning rate depends on one field of a problem, and the cost of keeping that of a small model.

    ``verdict`` says whether it transfers, in words.

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
        ``inf`` where training diverges, ``nan`` where an infinite depth was not resolved.
    optima
        The optimum of each value.
    local_exponents
        d log(lr*) / d log(value) at each value, exactly, by implicit differentiation; ``nan`` where the field is not
        continuous (depth, steps), is infinite, or the optimum or an infinite depth is not resolved.
    jumps
        Pairs of neighbouring values between which the best rate switches to another minimum of the loss. Across these
        the exponent says little.
    exponent, exponent_error
        Slope of log(lr*) against log(value) by least squares, and its standard error from the scatter about the line:
        how far the optima are from a power law. They are exact, so there is no sampling error.
    regret
        Relative extra loss of each value at the optimal rate of the smallest one, shape (values,): 0.1 is 10 % more
        than at its own optimum; ``inf`` where training diverges, ``nan`` where an infinite depth was not resolved.
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
    jumps: tuple[tuple[float, float], ...]
    exponent: float
    exponent_error: float
    regret: Array
    experiment: MeasuredOptima | None = None

    @property
    def lr(self) -> Array:
        """Optimal learning rate of each value, shape (values,)."""
        return np.array([optimum.lr for optimum in self.optima])

    @property
    def verdict(self) -> str:
        """Whether the rate of the smallest value also works for the others, in words; empty if there are no others.

        Two things count. The exponent says whether the optimum moves, and where it will be for still larger models: up
        to 0.1 either way it stays. The regret says what it costs not to follow: up to 5 % more loss is cheap.
        A rate transfers if it is cheap to keep, even where a better one moves away from it.
        """
        # Where many rates are equally good to rounding, the one that was found says nothing.
        exponent = self.exponent if all(optimum.is_resolved for optimum in self.optima) else math.nan
        return judge(self.over, self.values, Evidence((exponent, exponent), (self.regret, self.regret), self.jumps))

    @property
    def measured_verdict(self) -> str:
        """The same of the networks, which decide only what their intervals decide; empty without an experiment."""
        measured = self.experiment
        if measured is None:
            return ""
        exponent = (measured.exponent_low, measured.exponent_high)
        return judge(self.over, self.values, Evidence(exponent, (measured.regret_low, measured.regret_high)))

    @property
    def laws(self) -> list[str]:
        """The power laws of the optima, of theory and of networks, in words; none from one value."""
        lines = []
        if math.isfinite(self.exponent) and not self.jumps and all(each.is_resolved for each in self.optima):
            lines.append(f"optimal lr ~ {self.over}^{self.exponent:.3f}")
            if math.isfinite(self.exponent_error):
                lines[0] += f", scatter about this law ± {self.exponent_error:.3f}"
        if self.experiment is not None and math.isfinite(self.experiment.exponent):
            low, high = self.experiment.exponent_low, self.experiment.exponent_high
            lines.append(f"measured lr ~ {self.over}^{self.experiment.exponent:.3f} ({low:.3f} to {high:.3f})")
        return lines

    def to_xarray(self) -> "xr.Dataset":
        """Return curves and optima with named axes; the problem is in the attributes, as TOML."""
        import xarray as xr  # slow to import

        dims, at = (self.over, "lr"), self.over
        variables: dict[str, Any] = {
            "loss": (dims, self.loss),
            "optimal_lr": (at, self.lr),
            "optimal_loss": (at, [optimum.loss for optimum in self.optima]),
            "curvature": (at, [optimum.curvature for optimum in self.optima]),
            "at_edge": (at, [optimum.at_edge for optimum in self.optima]),
            "local_exponent": (at, self.local_exponents),
            "regret": (at, self.regret),
        }
        attrs = {
            "problem": self.problem.to_toml(),
            "objective": self.objective,
            "exponent": self.exponent,
            "exponent_error": self.exponent_error,
            "verdict": self.verdict,
        }
        if self.experiment is not None:
            variables["measured_loss"] = ((*dims, "seed"), self.experiment.loss)
            variables |= {
                f"measured_{name}": (at, getattr(self.experiment, name)) for name in self.experiment.of_each_value
            }
            attrs |= {f"measured_{name}": getattr(self.experiment, name) for name in self.experiment.of_all_values}
            attrs["measured_verdict"] = self.measured_verdict
        return xr.Dataset(variables, {self.over: self.values, "lr": self.lrs}, attrs)

    def __str__(self) -> str:
        measured = self.experiment
        header = f"{self.over:>8}{'optimal lr':>13}{f'{self.objective} loss':>13}{'exponent':>10}{'regret':>9}"
        lines = [header + (f"{'measured lr (95 %)':>30}{'regret (95 %)':>24}" if measured else "")]
        for index, (value, optimum) in enumerate(zip(self.values, self.optima, strict=True)):
            line = f"{value:8.4g}{optimum.lr:13.4g}{optimum.loss:13.4g}{self.local_exponents[index]:10.3f}"
            line += f"{percent(self.regret[index]):>9}"
            if measured:
                line += f"  {measured.rate_in_words(index):>28}  {measured.regret_in_words(index):>22}"
            lines.append(line + (" at the edge of stability" if optimum.at_edge else ""))
        lines += self.laws
        lines += [f"{'theory: ' if measured else ''}{self.verdict}"] if self.verdict else []
        lines += [f"networks: {self.measured_verdict}"] if self.measured_verdict else []
        return "\n".join(lines)


def transfer(
    problem: Problem,
    over: str,
    values: Iterable[float],
    *,
    lrs: Iterable[float] | None = None,
    objective: str = "test",
    experiment: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
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
        values as well, and at about ten more rates near their optimum. ``MeasuredOptima`` defines it.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in solutions and trained networks.
        Unless ``lrs`` are given, ``total`` is known once the optima are, and a guess before; with an experiment it is
        settled at the end.

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
       width   optimal lr    test loss  exponent   regret
           1        0.104       0.2242    -0.060      0 %
           2      0.09637       0.1717    -0.146   0.53 %
           4      0.08701       0.1507    -0.135    2.8 %
    optimal lr ~ width^-0.129, scatter about this law ± 0.011
    transfers in practice: the best rate moves as width^-0.13, but that of width 1 costs at most 2.8 % more loss
    """
    if not isinstance(problem, Problem):
        raise Refusal("problem", problem, "a Problem")
    over = checks.word("over", over, [name for name in OVER if name in field_names(problem)])
    objective = checks.word("objective", objective, OBJECTIVES)
    at = _numbers("values", values, allow_infinite=over in ("width", "depth"))
    arguments = None if experiment is None else check_experiment(experiment)
    problems = [replace(problem, {over: _field_value(over, value)}) for value in at.tolist()]
    if arguments is not None:
        for each in problems:
            sizes_of(each, arguments.get("dim"))  # refuses what no network has, before the work begins
    grid = None if lrs is None else np.sort(_numbers("lrs", lrs, allow_infinite=False))
    seeds = 0 if arguments is None else len(arguments["seeds"])
    count = Counter(
        read_progress(progress), len(at) * (_OPTIMUM + _work(_USUAL_RATES if grid is None else len(grid), seeds))
    )
    optima, local_exponents = [], []
    for each in problems:
        optimum = optimal_lr(each, objective=objective, tolerance=_TOLERANCE)
        optima.append(optimum)
        local_exponents.append(_local_exponent(each, over, optimum))
        count.advance(_OPTIMUM)
    best = np.array([optimum.lr for optimum in optima])
    if grid is None:
        grid = _grid_around(best)
        count.settle(len(at) * _work(len(grid), seeds))
    loss = _losses(problems, grid, objective, count.advance)
    finite = np.isfinite(at)
    exponent, scatter = loglog_slope(at[finite], best[finite])
    regret = _regret(problems, optima, float(best[np.argmin(at)]), count.advance)
    measured = None
    if arguments is not None:
        measured = measure_optima(problems, at, grid, best, objective, arguments, count)
    count.settle(0)
    count.end()
    return Transfer(
        problem=problem,
        over=over,
        values=at,
        objective=objective,
        lrs=grid,
        loss=loss,
        optima=tuple(optima),
        local_exponents=np.array(local_exponents),
        jumps=find_jumps(at, optima, np.array(local_exponents), exponent),
        exponent=exponent,
        exponent_error=scatter,
        regret=regret,
        experiment=measured,
    )


def find_jumps(
    values: Array, optima: Sequence[OptimalLr], exponents: Array, exponent: float
) -> tuple[tuple[float, float], ...]:
    """Return pairs of neighbouring values between which the optimum goes over to another minimum.

    A minimum moves by about the mean of the local exponents at either value; where these are not known, by the common
    one of all values; to an infinite value not at all. The optimum is another one if, of those nearly as good, one is
    much nearer to there, or if it is far from there although the local exponents are known.
    """
    order, found = np.argsort(values), []
    for first, second in itertools.pairwise(order.tolist()):
        local = 0.5 * (exponents[first] + exponents[second])
        moved = (local if math.isfinite(local) else exponent) * math.log(values[second] / values[first])
        expected = math.log(optima[first].lr) + (moved if math.isfinite(moved) else 0.0)
        off = [abs(math.log(each.lr) - expected) for each in optima[second].minima]
        has_nearer = min(off) < off[0] - _NEARER
        if has_nearer or (math.isfinite(local) and off[0] > _AWAY):
            found.append((float(values[first]), float(values[second])))
    return tuple(found)


def _regret(problems: list[Problem], optima: list[OptimalLr], lr: float, advance: Callable[[float], object]) -> Array:
    """Relative extra loss at a rate, which is none where it is below rounding; nan where it is not resolved."""
    runs = solve_or_none([with_rate(problem, lr) for problem in problems], advance)
    return np.array(
        [math.nan if run is None else _extra(run, optimum) for run, optimum in zip(runs, optima, strict=True)]
    )


def _extra(run: Curve, optimum: OptimalLr) -> float:
    loss = run.loss(optimum.objective)
    extra, rounding = float(loss[-1]) - optimum.loss, _ROUNDING * float(loss[0])
    return extra / max(optimum.loss, rounding) if extra > rounding else 0.0


def _numbers(name: str, values: Any, allow_infinite: bool) -> Array:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise Refusal(name, values, "a sequence of numbers")
    listed = list(values)
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


def _losses(problems: list[Problem], lrs: Array, objective: str, advance: Callable[[float], object]) -> Array:
    # Rates outermost: problems that diverge are solved side by side.
    runs = [with_rate(problem, lr) for lr in lrs.tolist() for problem in problems]
    solved = solve_or_none(runs, advance)
    final = np.array([math.nan if curve is None else max(float(curve.loss(objective)[-1]), 0.0) for curve in solved])
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
    try:
        solved = derivatives(points)
    except Unresolved:
        return math.nan
    slopes = [
        float(derivative.slope.loss(optimum.objective)[-1]) * value_of(*point)
        for point, derivative in zip(points, solved, strict=True)
    ]
    return -(slopes[3] - slopes[2]) / (slopes[1] - slopes[0])
