"""What networks of the size that was trained are expected to do: how far their mean is from theory, and their scatter.

Where that is quick, networks of that size are drawn exactly, independent of those that are compared. Otherwise the
shift is bounded, and the scatter estimated, from theory alone. Both are given for every number that is tested.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.finite_size import FIRST_SEED
from deeplinear._comparison.near_edge import expected_shift_and_scatter, has_estimate, kernel_variance
from deeplinear._comparison.observables import ROUNDING, ComparedObservable, observables_of
from deeplinear._core.dataset import CORRELATIONS, LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.ensemble import LINES, MORE_LOSSES, SINGULAR, SPECTRA, Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._experiment.methods import EXPLICIT, REDUCED, Counts
from deeplinear._experiment.simulate import train_all
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.sizes import sizes_of
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution
from deeplinear._theory.solve import solve

Array = NDArray[np.float64]

FEW = 8
"""Networks from which on the sign-flip test can reject; the scatter of fewer is taken from draws."""

SMALL = 50
"""Input dimension that stands for an unknown one where networks are few: real ones are hardly smaller."""

_PAIRS = 32
"""Pairs of networks that are drawn."""

_PATIENCE = 0.5
"""Seconds that this may take, as they are counted."""

_MORE_PATIENCE = 5.0
"""The same where draws alone can tell: for rules without an estimate, and for few networks."""

_ERRORS = 3.0
"""Standard errors of the shift that count as explained."""

_FACTOR, _SPREAD = 3.0, 2.0
"""How well shift and scatter are known where they come from theory alone."""

_SQUARES = 10.0
"""Shift that is possible beyond that, in squares of the relative scatter: batches of few examples have it."""

_UNKNOWN, _MOST = 100.0, 0.5
"""Shift of networks under rules that have no estimate, in variances of the kernel, and of the loss, at most."""


@dataclass(frozen=True, eq=False)
class ExpectedObservable:
    """What is expected of one observable, where it is tested (C numbers).

    Attributes
    ----------
    shift, shift_error
        Mean of networks minus theory at all times that are compared, and its error; nan unless networks were drawn.
    low, high
        Between which deviations of the mean from theory are explained by size, shape (C,).
    scatter
        Standard deviation between networks, shape (C,); nan where it is not known.
    away
        Deviations of the networks drawn from their mean, shape (networks, C); empty if there are none.
    """

    shift: Array
    shift_error: Array
    low: Array
    high: Array
    scatter: Array
    away: Array

    def explains(self, group: ComparedObservable) -> Array:
        """Return how much of the deviation of the mean from theory size explains, shape (C,).

        A number without scatter is explained if networks that were drawn have it too, as where counts are rounded.
        """
        together = group.together
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.clip(together.mean - together.theory, self.low, self.high)
            is_bound = self.high - self.low > ROUNDING * together.scale
        return np.where(together.is_contradicted & is_bound, 0.0, found)


@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected of all observables.

    Attributes
    ----------
    deviation
        Largest relative deviation of the mean losses from theory; nan where it is not known.
    drawn, diverged
        Number of networks that were drawn, and of those among them that diverged.
    stay_near
        Whether all losses of networks drawn stay within a factor of two of theory, so that none comes near diverging.
    theory_diverges
        Whether theory does, solved again.
    dim
        Input dimension of the networks drawn, if it stands for an unknown one; otherwise None.
    observables
        One by one.
    """

    deviation: float
    drawn: int
    diverged: int
    stay_near: bool
    theory_diverges: bool
    dim: int | None
    observables: list[ExpectedObservable]

    @classmethod
    def of(
        cls,
        theory: Solution,
        experiment: Ensemble | Measured,
        groups: Sequence[ComparedObservable],
        steps: int,
        tolerance: float,
    ) -> "Expected":
        """Draw networks, or estimate what they would do.

        Parameters
        ----------
        theory, experiment, groups
            What is compared.
        steps
            Number of steps that are compared.
        tolerance
            Relative deviation that is put down to size where nothing else is known.
        """
        problem, few = theory.problem, len(experiment.seeds) < FEW
        dim = experiment.dim
        assumed = dim is None and few and not problem.data.dimension_free
        draws = _draw(problem, SMALL if assumed else dim, experiment, few)
        if draws is None:
            return _estimated(problem, dim, groups, tolerance)
        networks, diverged, pairs = draws
        ours = solve(problem, averages=theory.solver.averages)  # a wrong theory is not to be excused by itself
        rest = np.flatnonzero(~diverged.any(axis=0))
        if len(rest) < 2:
            unknown = _estimated(problem, dim, groups, tolerance)
            count = int(diverged.sum())
            return replace(unknown, drawn=diverged.size, diverged=count, theory_diverges=ours.status.diverged)
        kept = select(networks, [*rest, *(pairs + rest)])
        found = {each.label: each for each in observables_of(ours, kept, steps)}
        observables = [_expected(group, found.get(group.label), assumed) for group in groups]
        shifts = [
            _largest(each.shift, group.main.theory)
            for each, group in zip(observables, groups, strict=True)
            if group.name in LOSSES and np.isfinite(each.shift).all()
        ]
        deviation = math.inf if diverged.any() else max(shifts, default=math.nan)
        near = [found[name].main for name in LOSSES if name in found]
        return cls(
            deviation=math.nan if assumed else deviation,
            drawn=diverged.size,
            diverged=int(diverged.sum()),
            stay_near=all((each.values <= 2.0 * each.theory).all() for each in near),
            theory_diverges=ours.status.diverged,
            dim=SMALL if assumed else None,
            observables=_fill(observables, groups, deviation, tolerance),
        )

    @property
    def are_drawn(self) -> bool:
        """Whether networks were drawn."""
        return self.drawn > 0


def select(experiment: Ensemble | Measured, index: Sequence[int] | NDArray[np.intp]) -> Ensemble | Measured:
    """Return some of the networks."""
    if isinstance(experiment, Measured):
        return replace(experiment, test_loss=experiment.test_loss[index], train_loss=experiment.train_loss[index])
    names = (*LOSSES, *MORE_LOSSES, *CORRELATIONS, *SPECTRA, SINGULAR, *LINES, "diverged_at")
    values = {name: getattr(experiment, name) for name in names}
    kept: dict[str, Any] = {name: None if each is None else each[index] for name, each in values.items()}
    return replace(experiment, seeds=tuple(experiment.seeds[i] for i in index), **kept)


def _draw(
    problem: Problem, dim: int | None, experiment: Ensemble | Measured, few: bool
) -> tuple[Ensemble | Measured, NDArray[np.bool_], int] | None:
    """Draw networks in the form of the experiment; None where that would take long.

    They are pairs of mirror images, first all networks and then all their images, or other networks where matrices have
    to be explicit.
    """
    pairs = 2 * _PAIRS if few else _PAIRS
    patience = _PATIENCE if has_estimate(problem) and not few else _MORE_PATIENCE
    averages = experiment.averages if isinstance(experiment, Ensemble) else ()
    has_all = isinstance(experiment, Ensemble) and experiment.feature_correlation is not None
    try:
        counts = replace(Counts.of(problem, dim), averages=averages)
    except Refusal:  # no finite network has this size, or it was not said
        return None
    able = [method for method in (REDUCED, EXPLICIT) if method in counts.methods and counts.resolves(method)]
    kept = [replace(counts, record=record) for record in (("all", "losses") if has_all else ("losses",))]
    ways = (
        (each.record, method) for each in kept for method in able if 2 * pairs * each.need(method).seconds <= patience
    )
    record, method = next(ways, (None, None))
    if record is None or method is None:
        return None
    seeds = range(FIRST_SEED, FIRST_SEED + pairs)
    asked = Simulation.read(problem, dim, seeds, 1, record, method, averages)
    others = range(FIRST_SEED + pairs, FIRST_SEED + 2 * pairs)
    images = replace(asked, mirrored=True) if method == REDUCED else replace(asked, seeds=others)
    try:
        halves = [train_all(each) for each in (asked, images)]
    except MemoryError:
        return None
    results = {name: np.concatenate([each[name] for each, _ in halves]) for name in halves[0][0]}
    diverged = np.stack([ends for _, ends in halves])
    return _like(experiment, results, diverged.ravel()), diverged >= 0, pairs


def _like(experiment: Ensemble | Measured, results: dict[str, Array], ends: NDArray[np.int64]) -> Ensemble | Measured:
    """Return what was drawn as if it had been measured in the same way."""
    if isinstance(experiment, Measured):
        missing = {name: np.isnan(getattr(experiment, name)).any(axis=0) for name in LOSSES}
        losses: dict[str, Any] = {
            name: np.where(missing[name], np.nan, results[name][:, experiment.times]) for name in LOSSES
        }
        return replace(experiment, **losses)
    nothing: dict[str, Any] = dict.fromkeys((*CORRELATIONS, *SPECTRA, SINGULAR, *LINES))
    seeds = tuple(range(len(ends)))
    return replace(experiment, seeds=seeds, diverged_at=ends, curvature=None, **(nothing | results))


def _expected(group: ComparedObservable, drawn: ComparedObservable | None, assumed: bool) -> ExpectedObservable:
    """Take what networks drawn do; an assumed size explains everything between theory and its own shift."""
    unknown = np.full(group.main.theory.shape, math.nan)
    if drawn is None or not np.array_equal(drawn.times, group.times):
        count = group.together.theory.size
        nothing = np.full(count, math.nan)
        return ExpectedObservable(unknown, unknown, nothing, nothing, nothing, np.empty((0, count)))
    values, theory, peak = drawn.together.values, drawn.together.theory, drawn.together.peak
    mean, error = _mean_of_pairs(values)
    shift = mean - theory
    away = values - mean
    with np.errstate(over="ignore", invalid="ignore"):
        scatter = np.sqrt(np.mean(away**2, axis=0))
    low, high = shift - _ERRORS * error, shift + _ERRORS * error
    if assumed:
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    main, main_error = _mean_of_pairs(drawn.main.values)
    main_shift = unknown if assumed else main - drawn.main.theory
    floor = ROUNDING * peak
    main_error = unknown if assumed else main_error
    return ExpectedObservable(main_shift, main_error, low, high, np.maximum(scatter, floor), away)


def _largest(shift: Array, theory: Array) -> float:
    """Return the largest relative shift; theory below 1e-9 of its largest value is rounding."""
    size = np.abs(theory)
    floor = max(ROUNDING * float(size.max(initial=0.0)), np.finfo(float).tiny)
    return float((np.abs(shift) / np.maximum(size, floor)).max(initial=0.0))


def _mean_of_pairs(values: Array) -> tuple[Array, Array]:
    """Mean over networks, of which the second half are mirror images of the first, and its standard error."""
    half = len(values) // 2
    middle = (values[:half] + values[half:]) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        return middle.mean(axis=0), middle.std(axis=0, ddof=1) / math.sqrt(half)


def _fill(
    observables: Sequence[ExpectedObservable], groups: Sequence[ComparedObservable], deviation: float, tolerance: float
) -> list[ExpectedObservable]:
    """Bound what was not drawn, such as curvature, by what the losses do, and by the tolerance."""
    bound = max(tolerance, _FACTOR * deviation) if math.isfinite(deviation) else 1.0
    found = []
    for each, group in zip(observables, groups, strict=True):
        width = bound * group.together.scale
        unknown = np.isnan(each.low)
        found.append(replace(each, low=np.where(unknown, -width, each.low), high=np.where(unknown, width, each.high)))
    return found


def _estimated(problem: Problem, dim: int | None, groups: Sequence[ComparedObservable], tolerance: float) -> Expected:
    """Estimate from theory alone."""
    deviation = scatter = math.nan
    bound = tolerance
    try:
        deviation, scatter = expected_shift_and_scatter(problem, dim)
        bound = _FACTOR * deviation + _SQUARES * scatter**2
        if not has_estimate(problem):
            bound = min(_MOST, _UNKNOWN * kernel_variance(problem, sizes_of(problem, dim)))
    except Refusal:  # no finite network has this size, or it was not said
        pass
    if math.isnan(bound):  # theory needs more memory
        bound = tolerance
    observables = []
    for group in groups:
        unknown = np.full(group.main.theory.shape, math.nan)
        scale = group.together.scale
        width = np.full_like(scale, math.inf) if math.isinf(bound) else bound * scale
        is_known = group.name in LOSSES and math.isfinite(scatter)
        known = _SPREAD * scatter * scale if is_known else np.full_like(scale, math.nan)
        observables.append(ExpectedObservable(unknown, unknown, -width, width, known, np.empty((0, scale.size))))
    return Expected(deviation, 0, 0, False, False, None, observables)
