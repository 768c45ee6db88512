"""The question whether activations and their updates keep their sizes when a network is made wider."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.coordinate_sizes import Correlations, check_rule, names_of, squared_sizes
from deeplinear._comparison.coordinates import CoordinateCheck, Sizes
from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import loglog_slope, standard_error
from deeplinear._experiment.arguments import read_seeds
from deeplinear._experiment.simulate import simulate
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem
from deeplinear._theory.solve import solve

Array = NDArray[np.float64]
Factory = Callable[[float, int], tuple[Any, Callable[[], Any], Any]]

_BEYOND = (64.0, 128.0)
"""Widths at which theory says what becomes of sizes, in units of the widest one: where they have settled if they do."""

_MOST = 1000
"""Widths, at most."""

_STEP = 3
"""Number of steps, unless it is given: a few, before learning is over at large widths."""

_TRAINED = ("dim", "seeds", "workers", "device", "method")
"""Arguments of ``simulate`` that make a difference here."""


def coordinate_check(
    problem: Problem | Factory,
    widths: Iterable[float],
    *,
    step: int | None = None,
    experiment: Mapping[str, Any] | None = None,
) -> CoordinateCheck:
    """Find how the sizes of activations and of their updates depend on the width of a network, after a few steps.

    Parameters
    ----------
    problem
        A problem, whose width is replaced. Theory predicts its sizes, for gradient descent without clipping and with
        one phase. Or a function ``factory(width, seed)`` that makes a PyTorch network and returns
        ``(module, train, x)``: the module, a function that takes one step of training, and inputs on which to look at
        activations. Its sizes are only measured.
    widths
        Two or more, in the units of the problem, or as the factory takes them.
    step
        Number of steps; 3 by default, or the last of the problem if that is earlier.
    experiment
        Arguments for ``simulate`` (``dim``, ``seeds``, ``workers``), to train networks of a problem too. For a factory
        only ``seeds``, 4 by default.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), steps=10
    ... )
    >>> print(coordinate_check(problem, widths=[1, 4]).verdict)
    stable: in the limit of wide networks no size or update moves faster than width^0.00
    >>> lazy = dl.Problem(
    ...     dl.MLP(2, 1.0, parameterization="ntk"), problem.data, problem.sampling, problem.optimizer, steps=10
    ... )
    >>> print(coordinate_check(lazy, widths=[1, 4]))
    after 3 steps                   h1          h2          g1          g2           f
    size at width 1             0.9689      0.9219      0.8532      0.9486
    size at width 4              1.031       1.021      0.9594      0.9859
    power of the size                0           0           0           0
    update at width 1           0.1242      0.1278      0.3237      0.1481       0.522
    update at width 4          0.06734     0.06807      0.1531      0.0689      0.4326
    power of the update           -0.5        -0.5        -0.5        -0.5           0
    not stable: the update of h1 goes as width^-0.50
    """
    widths = checks.listed("widths", widths, _MOST)
    values = np.array([checks.positive(f"widths[{index}]", width) for index, width in enumerate(widths)])
    if len(values) < 2 or (np.diff(values) <= 0).any():
        raise Refusal("widths", values.tolist(), "two or more increasing numbers")
    if isinstance(problem, Problem):
        return _check_problem(problem, values, step, experiment)
    if not callable(problem):
        raise Refusal("problem", problem, "a Problem, or a function of width and seed", got=type(problem).__name__)
    return _check_modules(problem, values, step, experiment or {})


def _check_problem(
    problem: Problem, widths: Array, step: int | None, experiment: Mapping[str, Any] | None
) -> CoordinateCheck:
    check_rule(problem)
    _check_experiment(experiment)
    last = min(_STEP, problem.steps - 1) if step is None else checks.whole("step", step)
    if not 1 <= last < problem.steps:
        raise Refusal("step", last, f"from 1 up to but not including the number of steps ({problem.steps})")
    short = problem.first(last + 1)
    predicted = _predict(short, widths)
    wide = np.array(_BEYOND) * widths[-1]
    beyond = _predict(short, wide)
    if not np.isfinite(beyond.update).all():
        half = _wider_half(widths)
        wide, beyond = widths[half], Sizes(predicted.size[half], predicted.update[half])
    powers = np.array([_power(wide, each) for each in (beyond.size, beyond.update)])
    measured = None if experiment is None else _measure(short, widths, experiment)
    return CoordinateCheck(widths, last, names_of(problem), predicted, measured, powers, np.zeros_like(powers))


def _check_experiment(experiment: Any) -> None:
    """Refuse what are no arguments for ``simulate``."""
    if experiment is not None and not (isinstance(experiment, Mapping) and set(experiment) <= set(_TRAINED)):
        raise Refusal("experiment", experiment, f"a dict of {', '.join(_TRAINED)}")


def _predict(problem: Problem, widths: Array) -> Sizes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # widths are meant as they are here
        solutions = solve([replace(problem, {"width": float(width)}) for width in widths], method="dense")
    squares = [
        squared_sizes(
            each.problem, Correlations(each.feature_correlation, each.gradient_correlation, each.error_correlation)
        )
        for each in solutions
    ]
    roots = np.sqrt(np.array(squares))
    return Sizes(roots[:, 0], roots[:, 1])


def _measure(problem: Problem, widths: Array, experiment: Mapping[str, Any]) -> Sizes:
    """Train networks; the root mean square is over neurons and networks."""
    found = []
    for width in widths:
        wider = replace(problem, {"width": float(width)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            networks = simulate(wider, **experiment)
        assert networks.feature_correlation is not None
        assert networks.gradient_correlation is not None
        assert networks.error_correlation is not None
        correlations = Correlations(
            networks.feature_correlation, networks.gradient_correlation, networks.error_correlation
        )
        squares = np.array(squared_sizes(wider, correlations))
        found.append((squares.mean(axis=1), standard_error(squares, axis=1)))
    return _roots(np.array([mean for mean, _ in found]), np.array([error for _, error in found]))


def _check_modules(factory: Factory, widths: Array, step: int | None, experiment: Mapping[str, Any]) -> CoordinateCheck:
    from deeplinear._torch.activations import activation_sizes

    if set(experiment) - {"seeds"}:
        raise Refusal("experiment", dict(experiment), "seeds alone where a factory makes the networks")
    steps, seeds = _STEP if step is None else checks.whole("step", step), read_seeds(experiment.get("seeds", 4))
    found: list[list[Any]] = []
    for width in widths:
        number = int(width) if width == int(width) else float(width)
        found.append([activation_sizes(*factory(number, seed), steps) for seed in seeds])
    names = tuple(found[0][0][0])
    if any(tuple(size) != names for each in found for size, _ in each):
        raise Refusal("problem", factory, "a factory of modules with the same layers at every width")
    values = np.array([[[list(part.values()) for part in pair] for pair in each] for each in found])
    measured = _roots(np.mean(values**2, axis=1), standard_error(values**2, axis=1))
    by_seed = np.moveaxis(values, 1, 0)  # networks of a seed may share their data at all widths
    half = _wider_half(widths)
    of_each = np.array([[_power(widths[half], part) for part in np.moveaxis(each, 1, 0)] for each in by_seed[:, half]])
    powers, errors = of_each.mean(axis=0), standard_error(of_each)
    return CoordinateCheck(widths, steps, names, None, measured, powers, errors)


def _wider_half(widths: Array) -> slice:
    """The larger half of the widths, at least two."""
    return slice(-max(2, (len(widths) + 1) // 2), None)


def _roots(squares: Array, errors: Array) -> Sizes:
    """Return sizes from their mean squares and the standard errors of these, shape (widths, 2, fields)."""
    roots = np.sqrt(squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_roots = errors / (2 * roots)
    return Sizes(roots[:, 0], roots[:, 1], of_roots[:, 0], of_roots[:, 1])


def _power(widths: Array, values: Array) -> Array:
    """Slope of each column on a log-log plot; nan where a value is zero or unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = [loglog_slope(widths, column)[0] for column in values.T]
    return np.where(np.isfinite(slopes), slopes, np.nan)
