"""Theory against experiment: do they agree, to within what the number of seeds can tell?

The test is that of ``_sign_flip``: calibrated whatever the correlation of times and observables.
"""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.finite_size import FiniteSize, finite_size
from deeplinear._comparison.near_edge import expected_deviation
from deeplinear._comparison.sign_flip import flip_signs, least_noticed, rank
from deeplinear._core import checks
from deeplinear._core.json import plain
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._core.threads import one_blas_thread
from deeplinear._core.words import percent
from deeplinear._experiment.ensemble import CORRELATIONS, LOSSES, Ensemble
from deeplinear._experiment.methods import REDUCED, Counts
from deeplinear._experiment.sizes import sizes_of
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVEL = 0.01
"""Significance at which theory and experiment count as different."""

_TEST_TIMES = 128
"""Number of times that enter the test from each curve, at most."""

_PAIRS = 32
"""Pairs of networks from which the effect of finite size is predicted."""

_FAR = 5.0
"""Standard errors from theory and the expected shift, at any step, beyond which size does not explain a deviation."""

_PATIENCE = 0.5
"""Seconds that this may take, as they are counted."""

_ROUNDING = 1e-9
"""Relative size of differences that are put down to rounding."""


class Verdict(StrEnum):
    """What a comparison comes to."""

    AGREES = "agrees"
    CLOSE = "close"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"

    @property
    def advice(self) -> str:
        """What it means, and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Verdict.AGREES: "no deviation beyond the scatter of the seeds",
    Verdict.CLOSE: "a deviation is resolved, but the losses are within the tolerance; corrections of order 1/D are "
    "to be expected, and shrink in larger networks",
    Verdict.DISAGREES: "the deviation is beyond the scatter of the seeds and beyond the tolerance",
    Verdict.UNDECIDED: "too few seeds to detect a disagreement; use 8 or more",
}


@dataclass(frozen=True, eq=False)
class ObservableComparison:
    """One curve over time, from theory and from the seeds.

    Correlations are at equal times, summed over outputs.

    Attributes
    ----------
    name
        Name of the observable, as in ``Solution`` and ``Ensemble``.
    layer
        The layer, of those observables that have one in every layer.
    times
        Steps that are compared.
    theory, mean, standard_error
        Prediction, mean over seeds and its standard error, shape (steps,). The latter is ``nan`` for one seed.
    z
        (mean - theory) / standard_error, shape (steps,). Zero where the two are equal up to rounding, infinite
        where they differ but no seed scatters.
    relative_error
        abs(mean - theory) / theory, shape (steps,).
    p_value
        Of the sign-flip test on this observable alone; for correlations also between different times.
    detectable
        Relative deviation that would have been noticed, shape (steps,): had theory been off by at least this much
        at every step, all upwards or all downwards, the test that gave the verdict would have rejected it with
        these very seeds. It is a common number of standard errors, found by repeating the test with theories
        that are off; zero where seeds do not scatter, and infinite if 64 standard errors would not do. It is ``nan``
        for correlations, for fewer than 8 seeds, and where the test rejects the theory as it is.
    expected_shift, expected_shift_error
        Mean of networks of this size minus theory, as ``finite_size`` predicts it from exact draws, and its standard
        error, shape (steps,). ``nan`` for correlations, and where the draws would take long.
    """

    name: str
    layer: int | None
    times: NDArray[np.int64]
    theory: Array
    mean: Array
    standard_error: Array
    z: Array
    relative_error: Array
    p_value: float
    detectable: Array
    expected_shift: Array
    expected_shift_error: Array

    @property
    def z_beyond_size(self) -> Array:
        """Deviation from theory plus ``expected_shift``, in standard errors of both, shape (steps,)."""
        beyond = self.mean - self.theory - self.expected_shift
        error = np.hypot(self.standard_error, self.expected_shift_error)
        is_settled = np.abs(beyond) <= _ROUNDING * np.abs(self.theory)
        return np.where(is_settled, 0.0, beyond / np.where(error > 0, error, np.nan))

    @property
    def label(self) -> str:
        """Name and layer."""
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"

    @property
    def max_z(self) -> float:
        """Largest abs(z) over time; ``nan`` for one seed."""
        return float(np.abs(self.z).max(initial=0.0))

    @property
    def max_relative_error(self) -> float:
        """Largest relative error over time."""
        return float(self.relative_error.max(initial=0.0))

    @property
    def max_detectable(self) -> float:
        """Largest of ``detectable`` over time: a theory that is off by this fraction throughout would be noticed.

        In fresh networks this happens in about three cases out of four, and for half of it in one out of four.
        """
        return float(self.detectable.max()) if len(self.detectable) else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; what is not finite becomes ``None``."""
        numbers = {
            name: plain(getattr(self, name)) for name in ("p_value", "max_z", "max_relative_error", "max_detectable")
        }
        curves = ("times", "theory", "mean", "standard_error", "z", "relative_error", "detectable", "expected_shift")
        return {
            "name": self.name,
            "layer": self.layer,
            **{name: plain(getattr(self, name)) for name in numbers},
            **{name: plain(getattr(self, name)) for name in curves},
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """What ``compare`` found; printed, it is a short table.

    Attributes
    ----------
    verdict
        In one word; ``verdict.advice`` is a sentence.
    p_value
        Of the sign-flip test on all observables together: the probability of a deviation this large
        somewhere, if the theory is right. Zero if something without scatter differs.
    finite_size
        Relative deviation of the losses that is expected of networks of this size, largest over steps; it falls
        as 1/D. From exact draws where these are quick (see ``finite_size``), to about a third; else an estimate from
        theory alone, mostly right within a factor of three. Infinite where some networks are expected to diverge.
    explanation
        The verdict, what would have been noticed, divergence and finite size, in words.
    seeds, dim
        Number of networks, and their input dimension D.
    inputs
        What the networks were trained on: ``"gaussian"`` samples, as theory has them, or ``"rows"`` of a data set.
    steps
        Number of steps compared: those before anything diverged.
    tolerance
        Relative error of the losses that counts as close.
    observables
        The curves one by one.
    """

    verdict: Verdict
    p_value: float
    finite_size: float
    explanation: str
    seeds: int
    dim: int
    inputs: str
    steps: int
    tolerance: float
    observables: tuple[ObservableComparison, ...]

    @property
    def near_edge(self) -> bool:
        """Whether networks of this size are expected to deviate from theory by more than the tolerance.

        In most cases the run is then near the edge of stability.
        """
        return self.finite_size > self.tolerance

    def __getitem__(self, label: str) -> ObservableComparison:
        """Look up a curve by its label, such as ``"test_loss"`` or ``"feature_correlation[1]"``."""
        for each in self.observables:
            if each.label == label:
                return each
        raise KeyError(f"{label!r} is not among {', '.join(each.label for each in self.observables)}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; what is not finite becomes ``None``."""
        return {
            "verdict": str(self.verdict),
            "p_value": plain(self.p_value),
            "level": LEVEL,
            "finite_size": plain(self.finite_size),
            "near_edge": self.near_edge,
            "explanation": self.explanation,
            "seeds": self.seeds,
            "dim": self.dim,
            "inputs": self.inputs,
            "steps": self.steps,
            "tolerance": self.tolerance,
            "observables": [each.to_dict() for each in self.observables],
        }

    def summary(self) -> str:
        """Verdict and one line per observable, as plain text."""
        width = max(len(each.label) for each in self.observables)
        lines = [
            f"{self.verdict}: {self.explanation}",
            f"seeds: {self.seeds}, dim: {self.dim}, inputs: {self.inputs}, steps: {self.steps}; "
            f"sign-flip test: p = {self.p_value:.2g}; deviation expected of this size: {_percent(self.finite_size)}",
            f"{'':<{width}}  {'p':>7}  {'max |z|':>8}  {'max error':>9}",
        ]
        for each in self.observables:
            error = 100 * each.max_relative_error
            lines.append(f"{each.label:<{width}}  {each.p_value:7.2g}  {each.max_z:8.3g}  {error:7.3g} %")
        noticed = [each.max_detectable for each in self.observables]
        if not all(math.isnan(least) for least in noticed):
            lines[2] += "  would notice"
            for line, least in enumerate(noticed, start=3):
                lines[line] += "" if math.isnan(least) else f"  {100 * least:10.3g} %"
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


def compare(theory: Solution, experiment: Ensemble, *, tolerance: float = 0.05) -> Comparison:
    """Compare what theory predicts with what finite networks did.

    Losses are compared at every step; so are the correlations, if they were recorded, layer by layer:
    at equal times, and of each time with the first and with the last. A theory that was not solved at every step
    is interpolated to it for the losses; its correlations are compared where its nodes are steps, if it has any.

    The verdict rests on a sign-flip test: under the null, the deviations of each seed from theory are
    as likely with all their signs reversed. The statistic is the largest skewness-corrected deviation
    over times and observables, so that many correlated curves are one test. Theory and networks agree if p >= 0.01.
    Otherwise they are close if all losses are within ``tolerance``, since many seeds resolve even small corrections of
    order 1/D, and disagree if not. Fewer than 8 seeds cannot reach 0.01 and leave the
    question undecided, unless something without scatter differs. Where training diverges, theory and
    every seed have to do so at about the same step.

    Agreement means little if the seeds scatter so much that the test sees nothing. So "agrees" comes with the
    deviation of the losses that would have been noticed: the test is repeated with theories that are off by more and
    more of its standard errors at every step, until it rejects them, upwards and downwards. In fresh networks of the
    same number a deviation of that size is noticed in about three of four cases, and half of it in one of four.

    Networks of finite size differ from theory in the mean, too, by a deviation that falls as 1/D and is large near the
    edge of stability. ``finite_size`` predicts it from exact draws of such networks where these take less than half a
    second, and else estimates it from four solutions.

    Parameters
    ----------
    theory, experiment
        Theory and experiment of the same problem.
    tolerance
        Relative error of the losses, largest over time, that counts as close.

    Raises
    ------
    ValueError
        If the two do not belong to the same problem.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=10
    ... )
    >>> comparison = compare(dl.solve(problem), dl.simulate(problem, dim=60, seeds=10))
    >>> print(comparison.verdict, f"{comparison.finite_size:.3f}")
    agrees 0.019
    >>> comparison["feature_correlation[2]"].z.shape
    (10,)
    """
    _check(theory, experiment)
    tolerance = checks.non_negative("tolerance", tolerance)
    seeds = len(experiment.seeds)
    divergence = _Divergence.of(theory, experiment)
    groups = list(_groups(theory, experiment, divergence.first))
    test = _Test.of(groups)
    prediction = _predicted(theory.problem, experiment.dim)
    observables = tuple(
        group.summary(p_value, noticed, prediction)
        for group, p_value, noticed in zip(groups, test.separate, test.noticed(), strict=True)
    )
    is_close = all(each.max_relative_error <= tolerance for each in observables if each.name in LOSSES)
    verdict = _verdict(test.overall, seeds, is_close, divergence)
    deviation = prediction.deviation if prediction else expected_deviation(theory.problem, experiment.dim)
    return Comparison(
        verdict=verdict,
        p_value=test.overall,
        finite_size=deviation,
        explanation=_explanation(verdict, divergence, deviation, tolerance, experiment, observables),
        seeds=seeds,
        dim=experiment.dim,
        inputs=experiment.inputs,
        steps=divergence.first,
        tolerance=tolerance,
        observables=observables,
    )


# --- what is compared ----------------------------------------------------------------------------------------


def _check(theory: Any, experiment: Any) -> None:
    if not isinstance(theory, Solution):
        raise Refusal("theory", theory, "a Solution")
    if not isinstance(experiment, Ensemble):
        raise Refusal("experiment", experiment, "an Ensemble")
    # As written to a file, so that a learning-rate function equals its values.
    ours, theirs = (_flat(tomllib.loads(each.problem.to_toml())) for each in (theory, experiment))
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                "theory and experiment must have the same problem, "
                f"got {name} = {ours.get(name)!r} in theory and {theirs.get(name)!r} in experiment"
            )


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    """Name each entry of nested tables by its path."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        inner = _flat(value) if isinstance(value, dict) else {}
        flat |= {f"{key}.{name}": each for name, each in inner.items()} or {key: value}
    return flat


@dataclass(frozen=True, eq=False)
class _Curve:
    """One number at each time, from theory and from every seed.

    Attributes
    ----------
    theory, values
        Shapes (T,) and (seed, T).
    scale
        Natural size of the number, shape (T,).
    peak
        Largest size so far of what it was computed from, which sets its rounding errors, shape (T,).
    """

    theory: Array
    values: Array
    scale: Array
    peak: Array

    def at(self, times: NDArray[np.int64]) -> "_Curve":
        return _Curve(self.theory[times], self.values[:, times], self.scale[times], self.peak[times])

    @property
    def mean(self) -> Array:
        return np.asarray(self.values.mean(axis=0))

    @property
    def is_equal(self) -> Bools:
        """Where every seed equals theory up to rounding errors."""
        equal: Bools = np.abs(self.values - self.theory).max(axis=0) <= _ROUNDING * self.peak
        return equal

    @property
    def is_contradicted(self) -> Bools:
        """Where all seeds have the same value, and theory has another."""
        if len(self.values) == 1:
            return np.zeros(self.theory.shape, dtype=bool)
        contradicted: Bools = ~self.is_equal & (np.ptp(self.values, axis=0) <= _ROUNDING * self.scale)
        return contradicted


@dataclass(frozen=True, eq=False)
class _Group:
    """The curves of one observable: at equal times, and those with one time fixed, which only the test sees."""

    name: str
    layer: int | None
    times: NDArray[np.int64]
    main: _Curve
    others: tuple[_Curve, ...] = ()

    @property
    def tested(self) -> list[_Curve]:
        times = _test_times(len(self.main.theory))
        return [curve.at(times) for curve in (self.main, *self.others)]

    def summary(self, p_value: float, noticed: float, prediction: FiniteSize | None) -> ObservableComparison:
        """Take the curve at equal times; ``noticed`` is the deviation that the test notices, in standard errors."""
        unknown = np.full(self.main.theory.shape, np.nan)
        shift, shift_error = unknown, unknown
        if prediction is not None and self.name in LOSSES:
            effect, steps = prediction[self.name], len(unknown)
            shift, shift_error = effect.shift[:steps], effect.shift_error[:steps]
        curve, equal = self.main, self.main.is_equal
        error = standard_error(curve.values)
        difference = np.where(equal, 0.0, curve.mean - curve.theory)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(curve.is_contradicted, np.copysign(np.inf, difference), difference / error)
            relative = np.abs(difference) / np.abs(curve.theory)
            detectable = noticed * np.where(equal, 0.0, error) / np.abs(curve.theory)
        if math.isinf(noticed):
            detectable = np.where(equal, 0.0, np.inf)
        return ObservableComparison(
            name=self.name,
            layer=self.layer,
            times=self.times,
            theory=curve.theory,
            mean=curve.mean,
            standard_error=error,
            z=z if len(curve.values) == 1 else np.where(equal, 0.0, z),
            relative_error=np.where(equal, 0.0, relative),
            p_value=p_value,
            detectable=detectable,
            expected_shift=shift,
            expected_shift_error=shift_error,
        )


def _groups(theory: Solution, experiment: Ensemble, steps: int) -> Iterator[_Group]:
    """Take all observables at the first steps."""
    every = np.arange(steps)
    for name in LOSSES:
        curve, values = theory.at(every)[name].values, getattr(experiment, name)[:, :steps]
        yield _Group(name, None, every, _Curve(curve, values, curve, np.maximum.accumulate(curve)))
    if not theory.axis.has_two_time:
        return
    nodes = np.flatnonzero((theory.times < steps) & (theory.times == np.round(theory.times)))
    times = theory.times[nodes].astype(np.int64)
    outputs = theory.problem.data.outputs
    for name in CORRELATIONS:
        values = getattr(experiment, name)
        if values is None:
            continue
        matrix, values = _at(getattr(theory, name), nodes, outputs), _at(values, times, outputs)
        if matrix.ndim == 2:
            yield _correlation(name, None, times, matrix, values, outputs)
            continue
        for index, layer in enumerate(matrix):
            number = index + 1 if name == "gradient_correlation" else index
            yield _correlation(name, number, times, layer, values[:, index], outputs)


def _at(matrices: Array, times: NDArray[np.int64], outputs: int) -> Array:
    """Rows and columns of some times; a view where these are the first ones, since there may be a lot of matrices."""
    if len(times) == 0 or times[-1] == len(times) - 1:
        size = len(times) * outputs
        return matrices[..., :size, :size]
    rows = (times[:, None] * outputs + np.arange(outputs)).ravel()
    return matrices[..., rows[:, None], rows]


def _correlation(
    name: str, layer: int | None, times: NDArray[np.int64], theory: Array, values: Array, outputs: int
) -> _Group:
    """Take from (n, n) and (seed, n, n) the equal times, and each time with the first and last, summed over outputs."""
    steps = len(theory) // outputs
    shape = (steps, outputs, steps, outputs)
    ours, theirs = theory.reshape(shape), values.reshape(len(values), *shape)
    equal_times = np.einsum("tctc->t", ours)
    scale = np.abs(equal_times)
    peak = np.maximum.accumulate(scale)

    def with_time(i: int) -> _Curve:
        cross, seeds = np.einsum("tcc->t", ours[:, :, i]), np.einsum("stcc->st", theirs[:, :, :, i])
        return _Curve(cross, seeds, np.sqrt(scale) * np.sqrt(scale[i]), np.maximum(peak, peak[i]))

    main = _Curve(equal_times, np.einsum("stctc->st", theirs), scale, peak)
    return _Group(name, layer, times, main, tuple(with_time(i) for i in sorted({0, steps - 1} if steps else set())))


def _test_times(steps: int) -> NDArray[np.int64]:
    """All times; or, of very many, some that are evenly spaced and some that are so on a logarithmic scale."""
    if steps <= _TEST_TIMES:
        return np.arange(steps)
    even = np.linspace(0, steps - 1, _TEST_TIMES // 2)
    early = np.geomspace(1, steps - 1, _TEST_TIMES // 2)
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


# --- the test ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Test:
    """The sign-flip test of all observables.

    Attributes
    ----------
    overall, separate
        Its p-value of all observables together, and of each.
    columns
        Deviations that are tested, of each observable, shape (seed, columns).
    maxima
        Largest statistic of each observable, for each pattern of signs, shape (patterns, observables).
    names
        Of the observables.
    """

    overall: float
    separate: list[float]
    columns: list[Array]
    maxima: Array
    names: list[str]

    @classmethod
    def of(cls, groups: list[_Group]) -> "_Test":
        columns, contradicted = [], []
        for group in groups:
            curves = group.tested
            usable = [~(curve.is_equal | curve.is_contradicted) for curve in curves]
            deviations = [(c.values - c.theory)[:, use] for c, use in zip(curves, usable, strict=True)]
            columns.append(np.concatenate(deviations, axis=1))
            contradicted.append(any(curve.is_contradicted.any() for curve in curves))
        with one_blas_thread():  # the products are many and thin
            maxima = flip_signs(columns)
        separate = [0.0 if wrong else rank(statistic) for statistic, wrong in zip(maxima.T, contradicted, strict=True)]
        overall = 0.0 if any(contradicted) else rank(maxima.max(axis=1))
        return cls(overall, separate, columns, maxima, [group.name for group in groups])

    def noticed(self) -> list[float]:
        """Return the standard errors by which each loss must be off to be rejected; ``nan`` of all else."""
        found = [math.nan] * len(self.columns)
        if self.overall < LEVEL or 1.0 / len(self.maxima) >= LEVEL:
            return found
        with one_blas_thread():
            for index, columns in enumerate(self.columns):
                if self.names[index] in LOSSES and columns.size:
                    rest = np.delete(self.maxima, index, axis=1).max(axis=1, initial=0.0)
                    found[index] = least_noticed(columns, rest, LEVEL)
        return found


# --- finite size ---------------------------------------------------------------------------------------------


def _predicted(problem: Problem, dim: int) -> FiniteSize | None:
    """Draw networks of this size, independent of those that are compared; None where that would take long."""
    counts = Counts(problem, sizes_of(problem, dim), problem.data.finite(dim), "losses")
    if 2 * _PAIRS * counts.need(REDUCED).seconds > _PATIENCE:
        return None
    try:
        return finite_size(problem, dim, pairs=_PAIRS, workers=1)
    except ArithmeticError:  # a theory that cannot be solved: the other estimate says what that means
        return None


# --- what follows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Divergence:
    """When theory and seeds diverged; the number of steps stands for never."""

    steps: int
    theory: int
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, theory: Solution, experiment: Ensemble) -> "_Divergence":
        steps = theory.problem.steps
        at = theory.status.diverged_at
        seeds = tuple(int(step) if step >= 0 else steps for step in experiment.diverged_at)
        return cls(steps, steps if at is None else at, seeds)

    @property
    def first(self) -> int:
        """Number of steps before anything diverged."""
        return min(self.theory, *self.seeds)

    @property
    def is_shared(self) -> bool:
        """Whether theory and every seed diverged."""
        return max(self.theory, *self.seeds) < self.steps

    @property
    def is_alike(self) -> bool:
        """Whether all did so at about the same step, or might have, had the run been longer."""
        slack = max(3.0, 0.25 * self.theory)
        return all(abs(seed - self.theory) <= slack for seed in self.seeds)

    def __str__(self) -> str:
        theory = "theory does not diverge" if self.theory == self.steps else f"theory diverges at step {self.theory}"
        diverged = [seed for seed in self.seeds if seed < self.steps]
        when = f" at steps {min(diverged)} to {max(diverged)}" if diverged else ""
        return f"{theory}, {len(diverged)} of {len(self.seeds)} seeds do{when}"


def _verdict(p_value: float, seeds: int, is_close: bool, divergence: _Divergence) -> Verdict:
    if not divergence.is_alike:
        return Verdict.DISAGREES
    if divergence.is_shared:
        return Verdict.AGREES
    if p_value >= LEVEL:
        return Verdict.UNDECIDED if 2.0 ** (1 - seeds) > LEVEL else Verdict.AGREES
    return Verdict.CLOSE if is_close else Verdict.DISAGREES


def _explanation(
    verdict: Verdict,
    divergence: _Divergence,
    finite_size: float,
    tolerance: float,
    experiment: Ensemble,
    observables: tuple[ObservableComparison, ...],
) -> str:
    in_counts = experiment.problem.data.dimension_free
    sentences = [verdict.advice]
    if divergence.first < divergence.steps:
        sentences = [str(divergence)]
        if divergence.is_alike and not divergence.is_shared:
            sentences.append(f"before that, {verdict.advice}")
    if experiment.inputs == "rows":
        sentences.append("the networks were trained on rows of the data set, theory takes Gaussian inputs instead")
    if verdict is Verdict.AGREES:
        sentences += _would_notice(observables)
    larger = "width, samples or batch" if in_counts else "dim"
    if finite_size > tolerance:
        at = "of counts such as these" if in_counts else f"at dim {experiment.dim}"
        sentences.append(f"in the mean a deviation of about {_percent(finite_size)} is expected {at}")
    if verdict is Verdict.DISAGREES:
        if finite_size > tolerance and _is_of_size(observables, finite_size):
            sentences.append(f"theory and networks should agree at a lower learning rate or a larger {larger}")
        else:
            sentences.append(f"see whether it shrinks with a larger {larger}")
    return "; ".join(sentences)


def _is_of_size(observables: tuple[ObservableComparison, ...], finite_size: float) -> bool:
    """Whether the deviation of the losses is one that networks of this size have."""
    losses = [each for each in observables if each.name in LOSSES]
    if any(np.isnan(each.expected_shift).any() for each in losses):
        seen = max(each.max_relative_error for each in losses)
        return seen < 3.0 * finite_size  # which is how well the size is known from theory alone
    return all(np.nanmax(np.abs(each.z_beyond_size), initial=0.0) < _FAR for each in losses)


def _would_notice(observables: tuple[ObservableComparison, ...]) -> list[str]:
    """Say what the test could have seen; nothing if no curve scatters."""
    losses = {each.name.replace("_", " "): each.max_detectable for each in observables if each.name in LOSSES}
    losses = {name: least for name, least in losses.items() if not math.isnan(least)}
    seen = [f"a {name} off by {percent(least)}" for name, least in losses.items() if math.isfinite(least)]
    if not losses:
        return []
    if not seen:
        return ["but no deviation of the losses would have been noticed; use more seeds"]
    return [f"{' or '.join(seen)} throughout would have been noticed"]


def _percent(fraction: float) -> str:
    if math.isnan(fraction):
        return "unknown"
    return percent(fraction) if fraction < 1.0 else "100 % or more"
