"""What is compared: each observable of theory with that of every network."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.cached import cached_property
from deeplinear._core.dataset import CORRELATIONS, FIELDS, LOSSES
from deeplinear._core.json import plain
from deeplinear._core.statistics import standard_error
from deeplinear._experiment.ensemble import MORE_LOSSES, Ensemble
from deeplinear._experiment.measured import Measured, recorded
from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TEST_TIMES = 128
"""Number of times that enter the test from each curve, at most."""

ROUNDING = 1e-9
"""Relative size of differences that are put down to rounding."""


@dataclass(frozen=True, eq=False)
class ObservableComparison:
    """One curve over time, from theory and from the seeds.

    Correlations are at equal times, summed over outputs.

    Attributes
    ----------
    name
        Name of the observable, as in ``Solution`` and ``Ensemble``. ``singular_values`` is the largest singular value
        of each weight layer, where it stands out from the bulk, and ``singular_values_2`` the next.
    layer
        The layer, for observables of single layers. For losses of averaged weights, and on the targets of phases, the
        number of the average or of the phase, counted from 0.
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
        That of the sign-flip test on this observable alone; for correlations also between different times.
    detectable
        Relative deviation that would have been noticed, shape (steps,): had theory been off by at least this much at
        every step, all upwards or all downwards, the test that gave the verdict would have rejected it with these very
        seeds. It is a common number of standard errors, found by repeating the test with theories that are off; zero
        where seeds do not scatter, and infinite if 64 standard errors would not be enough. It is ``nan`` for
        correlations, for fewer than 8 seeds, and where the test rejects the theory as it is.
    expected_shift, expected_shift_error
        Mean of networks of this size minus theory, from exact draws as in ``finite_size``, and its standard error,
        shape (steps,). ``nan`` for curvature, and where the draws would take long.
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
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = self.mean - self.theory - self.expected_shift
            error = np.hypot(self.standard_error, self.expected_shift_error)
            is_settled = np.abs(beyond) <= ROUNDING * np.abs(self.theory)
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
    def max_z_beyond_size(self) -> float:
        """Largest abs(z_beyond_size) over time; ``nan`` where the expected shift is not known."""
        known = np.abs(self.z_beyond_size[np.isfinite(self.z_beyond_size)])
        return float(known.max()) if known.size else math.nan

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

    def __repr__(self) -> str:
        steps, error = len(self.times), 100 * self.max_relative_error
        numbers = f"p = {self.p_value:.2g}, max |z| = {self.max_z:.3g}, max error {error:.3g} %"
        return f"ObservableComparison({self.label}, {steps} steps: {numbers})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything in a form that JSON can hold; values that are not finite become ``None``."""
        numbers = ("p_value", "max_z", "max_z_beyond_size", "max_relative_error", "max_detectable")
        curves = ("times", "theory", "mean", "standard_error", "z", "relative_error", "detectable")
        size = ("expected_shift", "expected_shift_error", "z_beyond_size")
        values = {name: plain(getattr(self, name)) for name in (*numbers, *curves, *size)}
        return {"name": self.name, "layer": self.layer, **values}


@dataclass(frozen=True, eq=False)
class ComparedCurve:
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

    def at(self, times: NDArray[np.int64]) -> "ComparedCurve":
        return ComparedCurve(self.theory[times], self.values[:, times], self.scale[times], self.peak[times])

    @property
    def mean(self) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.values.mean(axis=0))

    @property
    def is_finite(self) -> Bools:
        """Where neither theory nor a seed has left the range of numbers."""
        finite: Bools = np.isfinite(self.theory) & np.isfinite(self.values).all(axis=0)
        return finite

    @property
    def is_equal(self) -> Bools:
        """Where every seed equals theory up to rounding errors."""
        with np.errstate(over="ignore", invalid="ignore"):  # where they have diverged nothing is known
            equal: Bools = np.abs(self.values - self.theory).max(axis=0) <= ROUNDING * self.peak
        return equal

    @property
    def is_contradicted(self) -> Bools:
        """Where all seeds have the same value, and theory has another."""
        if len(self.values) == 1:
            return np.zeros(self.theory.shape, dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):
            contradicted: Bools = ~self.is_equal & (np.ptp(self.values, axis=0) <= ROUNDING * self.scale)
        return contradicted


@dataclass(frozen=True, eq=False)
class ComparedObservable:
    """The curves of one observable: at equal times, and those with one time fixed, which only the test sees."""

    name: str
    layer: int | None
    times: NDArray[np.int64]
    main: ComparedCurve
    others: tuple[ComparedCurve, ...] = ()

    @property
    def label(self) -> str:
        """Name and layer."""
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"

    @cached_property
    def together(self) -> ComparedCurve:
        """All numbers that are tested, one after the other."""
        times = sampled_times(len(self.main.theory))
        curves = [curve.at(times) for curve in (self.main, *self.others)]
        names = ("theory", "values", "scale", "peak")
        return ComparedCurve(*(np.concatenate([getattr(each, name) for each in curves], axis=-1) for name in names))

    def summary(self, p_value: float, noticed: float, shift: Array, shift_error: Array) -> ObservableComparison:
        """Take the curve at equal times.

        Parameters
        ----------
        p_value
            Of this observable.
        noticed
            Deviation that the test notices, in standard errors.
        shift, shift_error
            Expected of networks of this size.
        """
        curve, equal = self.main, self.main.is_equal
        error = standard_error(curve.values)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            difference = np.where(equal, 0.0, curve.mean - curve.theory)
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


def observables_of(theory: Solution, experiment: Ensemble | Measured, steps: int) -> Iterator[ComparedObservable]:
    """Take all observables at the first steps; losses where every network has them."""
    for name in LOSSES:
        times, values = recorded(experiment, name)
        if not times.size:
            continue
        times, values = times[times < steps], values[:, times < steps]
        curve = theory.at(times)[name].values if times.size else np.empty(0)
        yield ComparedObservable(name, None, times, ComparedCurve(curve, values, curve, np.maximum.accumulate(curve)))
    if experiment.has_only_losses:
        return
    yield from _more_losses(theory, experiment, np.arange(steps))
    if not theory.axis.has_two_time:
        return
    known = theory.pair_times
    nodes = np.flatnonzero((known < steps) & (known == np.round(known)))
    times = known[nodes].astype(np.int64)
    outputs = theory.problem.data.outputs
    for name in CORRELATIONS:
        values = getattr(experiment, name)
        if values is None:
            continue
        matrix, values = _at(getattr(theory, name), nodes, outputs), _at(values, times, outputs)
        first = FIELDS[name].first_layer
        if first is None:
            yield _correlation(name, None, times, matrix, values, outputs)
            continue
        for index, layer in enumerate(matrix):
            yield _correlation(name, first + index, times, layer, values[:, index], outputs)


def _more_losses(
    theory: Solution, experiment: Ensemble | Measured, every: NDArray[np.int64]
) -> Iterator[ComparedObservable]:
    """Losses of averaged weights, and those on the targets of phases, that both sides have."""
    for name in MORE_LOSSES:
        curves, values = getattr(theory, name, None), getattr(experiment, name)
        if curves is None or len(curves) != values.shape[1]:
            continue
        for index, curve in enumerate(curves):
            ours = np.maximum(theory.axis.at(curve, every), 0.0)
            compared = ComparedCurve(ours, values[:, index, : len(every)], ours, np.maximum.accumulate(ours))
            yield ComparedObservable(name, index, every, compared)


def _at(matrices: Array, times: NDArray[np.int64], outputs: int) -> Array:
    """Rows and columns of some times; a view where these are the first ones, since there may be a lot of matrices."""
    if len(times) == 0 or times[-1] == len(times) - 1:
        size = len(times) * outputs
        return matrices[..., :size, :size]
    rows = (times[:, None] * outputs + np.arange(outputs)).ravel()
    return matrices[..., rows[:, None], rows]


def _correlation(
    name: str, layer: int | None, times: NDArray[np.int64], theory: Array, values: Array, outputs: int
) -> ComparedObservable:
    """Take from (n, n) and (seed, n, n) the equal times, and each time with the first and last, summed over outputs."""
    steps = len(theory) // outputs
    shape = (steps, outputs, steps, outputs)
    ours, theirs = theory.reshape(shape), values.reshape(len(values), *shape)
    equal_times = np.einsum("tctc->t", ours)
    scale = np.abs(equal_times)
    peak = np.maximum.accumulate(scale)

    def with_time(i: int) -> ComparedCurve:
        cross, seeds = np.einsum("tcc->t", ours[:, :, i]), np.einsum("stcc->st", theirs[:, :, :, i])
        return ComparedCurve(cross, seeds, np.sqrt(scale) * np.sqrt(scale[i]), np.maximum(peak, peak[i]))

    main = ComparedCurve(equal_times, np.einsum("stctc->st", theirs), scale, peak)
    return ComparedObservable(
        name, layer, times, main, tuple(with_time(i) for i in sorted({0, steps - 1} if steps else set()))
    )


def sampled_times(steps: int) -> NDArray[np.int64]:
    """All times; or, of very many, some that are evenly spaced and some that are so on a logarithmic scale."""
    if steps <= _TEST_TIMES:
        return np.arange(steps)
    even = np.linspace(0, steps - 1, _TEST_TIMES // 2)
    early = np.geomspace(1, steps - 1, _TEST_TIMES // 2)
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))
