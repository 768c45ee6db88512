"""Fields of a problem that explain measured curves, with errors that come from the scatter between networks.

With y_s the losses of network s at all steps that are used, f(x) those of theory and W weights, the fit minimises
(y - f)^T W (y - f), where y is the mean over networks. Its curves are strongly correlated in time, so that their
scatter at each step says little about errors. But to first order x moves as A^-1 J^T W (y - f), with J = df/dx and
A = J^T W J: a few numbers, linear in y, each of which every network has. Their covariance over networks is that of x,
whatever the correlations in time are, and whatever the weights.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.observables import sampled_times
from deeplinear._comparison.same_problem import checked_steps
from deeplinear._core import checks
from deeplinear._core.dataset import LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured, measured, recorded
from deeplinear._experiment.methods import REDUCED, Counts
from deeplinear._experiment.simulate import simulate
from deeplinear._fit.parameters import Parameter, losses_and_slopes, losses_of
from deeplinear._fit.result import Fit
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._theory.curves import Curve

Array = NDArray[np.float64]

_FEWEST = 3
"""Networks from which a scatter is taken; of fewer, it is that of networks which are drawn."""

_DRAWN, _FIRST_SEED = 64, 2**61
"""Networks that are drawn where there are fewer, and their first seed."""

_USUAL = 0.05
"""Relative error of a single network, for weights, where nothing is known of its scatter."""

_BEYOND = 1e3
"""Deviation that stands for training that diverges."""

_GOOD, _GOOD_OF_FEW = 4.0, 0.04
"""Mean square of deviations, in squared errors, with which no other start is tried; of few networks 1 % of a loss."""

_STARTS, _DESCENTS = 64, 4
"""Other starts of which the losses are looked at, and the best of them from which fields are fitted again."""

_FARTHEST = 16.0
"""Factor up to which starts differ from the given values."""

_OTHERS = ("lr", "richness", "width", "samples", "batch")
"""Fields of which a fit says whether it would notice that they are wrong, where they are not free."""

_SINGULAR = 1e-10
"""Eigenvalues below this fraction of the diagonal are rounding."""

_UNNOTICED = 2.0
"""Factor from which on it says that it would not."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Losses of the networks of one run at the steps that are used, one after the other."""

    problem: Problem
    names: tuple[str, ...]
    times: tuple[NDArray[np.int64], ...]
    values: Array
    error: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.values.mean(axis=0))

    def of(self, curve: Curve) -> Array:
        """Losses, or derivatives, of theory at these steps."""
        pairs = zip(self.names, self.times, strict=True)
        return np.concatenate([curve.axis.at(getattr(curve, name), times) for name, times in pairs])


def fit(
    curves: Any,
    problem: Problem | Sequence[Problem],
    free: str | Sequence[str],
    *,
    dim: int | None = None,
    loss: str = "both",
) -> Fit:
    """Find the fields of a problem that explain measured curves, by least squares, with their errors.

    Losses are compared at up to 128 steps of each curve, in units of their standard errors. Derivatives are exact (see
    ``sensitivity``); those with respect to the exponents of a power law are differences. Errors come from the scatter
    between networks.

    Parameters
    ----------
    curves
        An ``Ensemble``, ``measured`` curves, or what ``measured`` takes; or a list of them, one for each problem.
    problem
        What was trained, with guesses in the free fields; or a list of problems, all of which are fitted at once. A
        field that is free has one value in all of them; where they differ, a common factor is free instead.
    free
        Names of fields: ``richness``, ``noise``, ``lr``, ``width``, ``samples``, ``batch``, ``weight_decay`` and all
        others that ``sensitivity`` takes, and ``capacity`` and ``source`` of a power law.
    dim
        Input dimension of the networks, if the curves do not have it. It is needed for errors where a run has fewer
        than three networks: then the scatter is that of 64 networks of the fitted problem, which are drawn for it.
    loss
        ``"test"``, ``"train"`` or ``"both"``, as far as they were measured.

    Returns
    -------
    Fit
        Values and errors, the fitted problem, and how well theory explains the curves.

    Raises
    ------
    ValueError
        If a name is not a continuous field of the problems, curves have steps that theory does not have, or there are
        fewer values than parameters.

    Notes
    -----
    What is fitted is the mean of networks in the limit of large ones. Finite networks deviate from it by a shift of
    order 1/D, which is not part of the errors: see ``finite_size``. Where curves deviate from theory with the values
    found by more than scatter and size explain, theory does not explain them, whatever the values of the free fields:
    the fit says so first, and gives no intervals.

    The search starts from the given values, and where it ends far from the curves, from the best four of 64 others, up
    to sixteen times as large or small.

    A good fit is no proof that the other fields are right. Free fields can take the place of one that is wrong, and
    ``unnoticed`` says which of rate, richness, width, samples and batch might be off by a factor of two or more. Nor is
    it a proof that networks are those of theory: networks with another activation may be fitted as well.

    ``benchmarks/fits.py`` counts how often the intervals hold, and compares the ranks of known values among those that
    the fit thinks possible (simulation-based calibration).

    Examples
    --------
    >>> import deeplinear as dl
    >>> truth = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, richness=1.5), dl.Isotropic(0.4), dl.FullBatch(2.0), dl.GradientDescent(0.05), 31
    ... )
    >>> curves = dl.simulate(truth, dim=1000, seeds=8, method="reduced", record="losses")
    >>> guess = truth.replace(richness=1.0, noise=0.0)
    >>> found = dl.fit(curves, guess, free=["richness", "noise"])
    >>> all(found.low[name] < value < found.high[name] for name, value in (("richness", 1.5), ("noise", 0.4)))
    True
    """
    names = _names(free)
    problems, runs = _read(curves, problem, checks.word("loss", loss, ("test", "train", "both")), dim)
    parameters = [Parameter.of(problems, name) for name in names]
    count = sum(run.mean.size for run, _ in runs)
    if count <= len(names):
        raise Refusal("free", names, f"fewer names than there are losses ({count})")
    model = _Model([run for run, _ in runs], parameters)
    varied, converged = model.minimise()
    return model.result(varied, converged, [experiment for _, experiment in runs], dim)


def _names(free: Any) -> list[str]:
    names = [free] if isinstance(free, str) else list(free) if isinstance(free, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise Refusal("free", free, "one or more distinct names of fields")
    return names


def _read(
    curves: Any, problem: Any, loss: str, dim: int | None
) -> tuple[list[Problem], list[tuple[_Run, Ensemble | Measured]]]:
    """Return problems, and the run of each."""
    if isinstance(problem, Problem):
        problems, given = [problem], [curves]
    elif isinstance(problem, Sequence) and problem:
        problems, given = list(problem), list(curves) if isinstance(curves, list | tuple) else []
    else:
        raise Refusal("problem", problem, "a Problem, or a list of them")
    for each in problems:
        check_problem(each)
    if len(given) != len(problems):
        raise Refusal("curves", curves, f"a list of {len(problems)}, one for each problem", got=f"{len(given)}")
    names = [name for name in LOSSES if loss == "both" or name.startswith(loss)]
    runs = []
    for each, one in zip(problems, given, strict=True):
        experiment = one if isinstance(one, Ensemble | Measured) else measured(one, dim=dim)
        checked_steps(each.steps, experiment)
        runs.append((_run(each, experiment, names), experiment))
    return problems, runs


def _run(problem: Problem, experiment: Ensemble | Measured, names: list[str]) -> _Run:
    """Take the losses that were recorded, up to a divergence."""
    found = []
    for name in names:
        times, values = recorded(experiment, name)
        finite = np.isfinite(values).all(axis=0)
        times, values = times[finite], values[:, finite]
        chosen = sampled_times(len(times))
        if times.size:
            found.append((name, times[chosen], values[:, chosen]))
    if not found:
        raise Refusal("curves", experiment, f"a {' or '.join(names)}", verb="have", got="none")
    kept, times_of, losses = zip(*found, strict=True)
    errors = np.concatenate([_errors(values) for values in losses])
    return _Run(problem, kept, times_of, np.concatenate(losses, axis=1), errors)


def _errors(values: Array) -> Array:
    """Error with which each value of a curve is weighed: the typical relative one, alike at all steps.

    Weights that follow the scatter of a few networks from step to step would let the fit follow it too, and make its
    errors seem smaller than they are.
    """
    mean = values.mean(axis=0)
    size = np.maximum(np.abs(mean), 1e-12 * np.abs(mean).max() or 1.0)  # losses may all be zero
    if len(values) < _FEWEST:
        return np.asarray(_USUAL * size)
    relative = float(np.sqrt(np.mean((standard_error(values) / size) ** 2)))
    return np.asarray(max(relative, 1e-9) * size)


class _Model:
    """Deviations of theory from all runs, in standard errors, as a function of what is varied."""

    def __init__(self, runs: list[_Run], free: list[Parameter]) -> None:
        self.runs, self.free = runs, free
        self._at: bytes = b""
        self._found: tuple[Array, Array] = (np.empty(0), np.empty((0, 0)))

    def problems(self, varied: Array) -> list[Problem]:
        """Return the problems with these values."""
        found = [run.problem for run in self.runs]
        for each, number in zip(self.free, varied, strict=True):
            found = [each.put(problem, each.value(float(number))) for problem in found]
        return found

    def deviations(self, varied: Array) -> tuple[Array, Array]:
        """Return deviations and their derivatives, shapes (values,) and (values, free)."""
        if varied.tobytes() != self._at:
            values = np.array([each.value(float(number)) for each, number in zip(self.free, varied, strict=True)])
            solved = losses_and_slopes(self.problems(varied), self.free, values)
            rows, slopes = [], []
            with np.errstate(invalid="ignore", over="ignore"):
                for run, (value, *derivatives) in zip(self.runs, solved, strict=True):
                    rows.append((run.of(value) - run.mean) / run.error)
                    slopes.append(np.stack([run.of(each) / run.error for each in derivatives], axis=1))
            row, slope = np.concatenate(rows), np.concatenate(slopes)
            wrong = ~(np.isfinite(row) & np.isfinite(slope).all(axis=1))
            row[wrong], slope[wrong] = _BEYOND, 0.0
            self._at, self._found = varied.tobytes(), (row, slope)
        return self._found

    def minimise(self) -> tuple[Array, bool]:
        """Return where the sum of squares is least, and whether the search ended there."""
        found = self._descend(np.array([each.varied_start for each in self.free]))
        good = _GOOD if all(len(run.values) >= _FEWEST for run in self.runs) else _GOOD_OF_FEW
        if found.cost > good * sum(run.mean.size for run in self.runs) / 2:
            found = min([found, *map(self._descend, self._other_starts())], key=lambda each: float(each.cost))
        return np.asarray(found.x), bool(found.success)

    def _descend(self, start: Array) -> Any:
        from scipy.optimize import least_squares  # slow to import

        bounds = tuple(np.transpose([each.bounds for each in self.free]))
        return least_squares(
            lambda x: self.deviations(x)[0], start, lambda x: self.deviations(x)[1], bounds, max_nfev=100, xtol=1e-9
        )

    def _other_starts(self) -> list[Array]:
        """Return the best of many starts."""
        shape = (_STARTS, len(self.free))
        steps = (
            np.linspace(-1, 1, _STARTS)[:, None] if shape[1] == 1 else np.random.default_rng(0).uniform(-1, 1, shape)
        )
        factors = _FARTHEST**steps
        starts = [[each.times(factor) for each, factor in zip(self.free, row, strict=True)] for row in factors]
        costs = self._costs(np.array(starts))
        return [np.array(starts[index]) for index in np.argsort(costs)[:_DESCENTS]]

    def _costs(self, several: Array) -> list[float]:
        """Return sums of squared deviations, of which none counts more than training that diverges."""
        try:
            solved = losses_of([problem for varied in several for problem in self.problems(varied)])
        except (ValueError, ArithmeticError):  # one of them is no problem, or not resolved
            return [math.inf] if len(several) == 1 else [cost for one in several for cost in self._costs(one[None])]
        found, count = [], len(self.runs)
        for first in range(0, len(solved), count):
            pairs = zip(self.runs, solved[first : first + count], strict=True)
            with np.errstate(invalid="ignore", over="ignore"):
                rows = np.concatenate([(run.of(curve) - run.mean) / run.error for run, curve in pairs])
            found.append(float(np.sum(np.minimum(np.nan_to_num(np.abs(rows), nan=_BEYOND), _BEYOND) ** 2)))
        return found

    def result(self, varied: Array, converged: bool, experiments: list[Any], dim: int | None) -> Fit:
        """Return what was found, with errors."""
        from scipy.stats import f  # slow to import

        rows, slopes = self.deviations(varied)
        problems = self.problems(varied)
        pairs = zip(self.runs, problems, experiments, strict=True)
        away, degrees = _scatter_of_all(self.runs, [_scatter(run, each, one.dim or dim) for run, each, one in pairs])
        covariance, left = _errors_of(slopes, away)
        chi2, expected = float((rows**2).sum()), float((left**2).sum())
        p_value = np.nan
        if expected > 0:  # Satterthwaite: as many independent values as have the same mean and scatter of the sum
            values = expected**2 / float(((left @ left.T) ** 2).sum())
            p_value = float(f.sf(chi2 / expected, values, degrees))
        bounds = [each.bounds for each in self.free]
        return Fit.of(
            self.free,
            varied,
            covariance,
            degrees,
            (chi2, expected, rows.size, p_value),
            [
                abs(number - low) < 1e-6 or abs(high - number) < 1e-6
                for number, (low, high) in zip(varied, bounds, strict=True)
            ],
            self._unnoticed(varied, away),
            {each.name: each.start for each in self.free if each.name in _OTHERS},
            problems,
            experiments,
            converged,
        )

    def _unnoticed(self, varied: Array, away: Array) -> dict[str, float]:
        """Return fields that are not free, and by which factors they might be off without anybody noticing."""
        found = {}
        for name in _OTHERS:
            try:
                other = Parameter.of([run.problem for run in self.runs], name)
            except Refusal:
                continue
            if name in [each.name for each in self.free]:
                continue
            more = _Model(self.runs, [*self.free, other])
            _, slopes = more.deviations(np.append(varied, other.varied_start))
            error = float(np.sqrt(_errors_of(slopes, away)[0][-1, -1]))
            factor = float(np.exp(min(2 * error, 700.0)))
            if factor >= _UNNOTICED:
                found[name] = factor
        return found


def _scatter_of_all(runs: Sequence[_Run], scatters: Sequence[tuple[Array, int]]) -> tuple[Array, int]:
    """Return deviations whose squares sum to the variances of all means, shape (networks, values); and how many."""
    blocks, degrees = [], 0
    for run, (scatter, networks) in zip(runs, scatters, strict=True):
        with np.errstate(invalid="ignore"):  # losses that are all zero have no scatter
            away = (scatter - scatter.mean(axis=0)) / run.error
        blocks.append(away / np.sqrt((len(scatter) - 1) * len(run.values)))
        degrees += networks - 1
    found, row, column = np.zeros([sum(block.shape[axis] for block in blocks) for axis in (0, 1)]), 0, 0
    for block in blocks:
        found[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return found, degrees


def _errors_of(slopes: Array, away: Array) -> tuple[Array, Array]:
    """Return the covariance of what is varied, and what remains of the scatter when it has followed it."""
    inverse = _inverse(slopes.T @ slopes)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = away @ slopes
        return inverse @ (moved.T @ moved) @ inverse, away - moved @ inverse @ slopes.T


def _inverse(matrix: Array) -> Array:
    """Invert a matrix; what it does not determine gets large numbers, where a pseudo-inverse would have zeros."""
    size = np.sqrt(np.maximum(np.diagonal(matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(matrix / size[:, None] / size)
    with np.errstate(over="ignore", invalid="ignore"):  # where losses do not depend on a field at all
        return np.asarray((vectors / np.maximum(values, _SINGULAR)) @ vectors.T / size[:, None] / size)


def _scatter(run: _Run, problem: Problem, dim: int | None) -> tuple[Array, int]:
    """Return losses of networks that scatter as those of a run do, and how many there are; nan if none are known."""
    if len(run.values) >= _FEWEST:
        return run.values, len(run.values)
    try:
        counts = Counts.of(problem, dim)
    except Refusal:  # no finite network has this size, or it was not said
        return np.full((2, run.mean.size), np.nan), 2
    quick = REDUCED if REDUCED in counts.methods and counts.resolves(REDUCED) else "auto"
    drawn = simulate(problem, dim, range(_FIRST_SEED, _FIRST_SEED + _DRAWN), record="losses", method=quick)
    pairs = zip(run.names, run.times, strict=True)
    losses = np.concatenate([getattr(drawn, name)[:, times] for name, times in pairs], axis=1)
    if not np.isfinite(losses).all():  # some diverge
        return np.full((2, run.mean.size), np.nan), 2
    return losses, _DRAWN
