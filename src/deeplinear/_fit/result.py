"""What a fit found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.compare import Comparison, compare
from deeplinear._comparison.joint_test import LEVEL
from deeplinear._comparison.observables import ROUNDING
from deeplinear._comparison.verdict import Verdict
from deeplinear._core.dataset import LOSSES
from deeplinear._core.drawn import Drawn
from deeplinear._core.words import counted
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._fit.parameters import Parameter
from deeplinear._problem.problem import Problem
from deeplinear._theory.solve import solve

Array = NDArray[np.float64]

_LEVEL = 0.95
"""Of intervals."""

_MANY = 3
"""Free fields from which on most smooth curves can be fitted."""

_VAGUE = 1.0
"""Standard error of the logarithm beyond which the curves say next to nothing about a field."""


@dataclass(frozen=True, eq=False)
class Fit(Drawn):
    """What ``fit`` found; printed, it is a table.

    Attributes
    ----------
    values, errors
        Value and standard error of each free field, by name. A factor on the given values where these differ. Errors
        are ``nan`` where they mean nothing: if theory does not explain the curves, and of a value at its bound.
    low, high
        95 % intervals, from Student's t with as many degrees of freedom as there are networks, minus one for each
        run. ``nan`` where errors are.
    covariance
        Covariance of the varied fields, in the order of ``values``, shape (free, free): of their logarithms where a
        field is varied by factors, and of the fields themselves otherwise.
    factors
        Names of fields whose common factor was fitted.
    chi2, dof
        Sum of squared deviations from theory, in units of standard errors, and its mean if theory is right with the
        fitted values, from the scatter between networks. For independent values that mean would be their number minus
        the number of free fields; values at different steps are correlated.
    p_value
        Probability of a sum as large if theory is right, from the scatter and its correlations; ``nan`` if errors are
        not known.
    count
        Number of values.
    at_bounds
        Names of fields that ended at the end of their range, such as zero noise.
    unnoticed
        Fields that were not free, and by which factors (two or more) they might be wrong without these curves showing
        it, since free fields would take their place.
    far
        Free fields that somebody who trained networks should know, such as the rate, whose values are more than twice
        or less than half of those given, and how many times these.
    problems
        The problems with fitted values.
    experiments
        The curves that were fitted.
    comparisons
        Theory at the fitted values against each run, as ``compare`` finds it.
    converged
        Whether the search ended at a minimum.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=21
    ... )
    >>> curves = dl.simulate(problem, dim=1000, seeds=8, method="reduced", record="losses")
    >>> print(dl.fit(curves, problem.replace(noise=0.1), free="noise"))
    field          value     error   95 % interval
    noise         0.2997   0.00745   0.2821 to 0.3173
    chi^2 per degree of freedom: 0.15 (42 values)
    the curves of 8 networks agree with theory at these values (p = 0.73)
    """

    values: Mapping[str, float]
    errors: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    covariance: Array = field(repr=False)
    factors: tuple[str, ...]
    chi2: float
    dof: float
    p_value: float
    count: int
    at_bounds: tuple[str, ...]
    unnoticed: Mapping[str, float]
    far: Mapping[str, float]
    problems: tuple[Problem, ...] = field(repr=False)
    experiments: tuple[Ensemble | Measured, ...] = field(repr=False)
    comparisons: tuple[Comparison, ...] = field(repr=False)
    converged: bool = True

    @classmethod
    def of(
        cls,
        free: Sequence[Parameter],
        varied: Array,
        covariance: Array,
        degrees: int,
        residual: tuple[float, float, int, float],
        at_bounds: Sequence[bool],
        unnoticed: Mapping[str, float],
        given: Mapping[str, float],
        problems: Sequence[Problem],
        experiments: Sequence[Any],
        converged: bool,
    ) -> "Fit":
        """Turn what was varied into fields."""
        from scipy.stats import t  # slow to import

        wide = float(t.ppf(0.5 + 0.5 * _LEVEL, max(degrees, 1)))
        values, errors, low, high = {}, {}, {}, {}
        chi2, dof, count, p_value = residual
        pairs = zip(problems, experiments, strict=True)
        comparisons = tuple(compare(solve(problem), _losses_of(problem, experiment)) for problem, experiment in pairs)
        is_void = not _explains(comparisons, p_value)
        numbers = zip(free, varied.tolist(), np.diagonal(covariance).tolist(), at_bounds, strict=True)
        for each, number, variance, is_at_bound in numbers:
            name = each.name
            error = math.sqrt(variance) if variance >= 0 and not (is_void or is_at_bound) else math.nan
            values[name] = each.value(number)
            errors[name] = error * (values[name] if each.is_log else 1.0)
            low[name] = math.exp(number - wide * error) if each.is_log else max(number - wide * error, each.bounds[0])
            high[name] = math.exp(min(number + wide * error, 700.0)) if each.is_log else number + wide * error
            if math.isnan(error):
                low[name] = high[name] = math.nan
        return cls(
            values=values,
            errors=errors,
            low=low,
            high=high,
            covariance=covariance,
            factors=tuple(each.name for each in free if each.is_factor),
            chi2=chi2,
            dof=dof,
            p_value=p_value,
            count=count,
            at_bounds=tuple(each.name for each, is_at in zip(free, at_bounds, strict=True) if is_at),
            unnoticed=unnoticed,
            far={name: values[name] / start for name, start in given.items() if _is_far(values[name] / start)},
            problems=tuple(problems),
            experiments=tuple(experiments),
            comparisons=comparisons,
            converged=converged,
        )

    @property
    def problem(self) -> Problem:
        """The (first) problem with fitted values, to predict others from: ``found.problem.replace(width=4.0)``."""
        return self.problems[0]

    @property
    def chi2_per_dof(self) -> float:
        """About 1, with a wide scatter, where theory explains the curves; far above 1 where it does not."""
        return self.chi2 / self.dof if self.dof > 0 else math.nan

    @property
    def explained(self) -> bool:
        """Whether theory explains the curves with these values, up to scatter and what size does."""
        return _explains(self.comparisons, self.p_value)

    def __str__(self) -> str:
        lines = []
        if not self.explained:
            lines += ["theory does not explain these curves: the values come nearest, and have no intervals"]
        lines += [f"{'field':10}{'value':>10}{'error':>10}   95 % interval"]
        for name, value in self.values.items():
            label = f"{name} x" if name in self.factors else name
            lines.append(f"{label:10}{value:10.4g}{self._error(name)}   {self._interval(name)}".rstrip())
        lines += ["x: common factor of the given values"] if self.factors else []
        p_value = "" if self.explained else f", p = {self.p_value:.2g}"
        lines.append(f"chi^2 per degree of freedom: {self.chi2_per_dof:.2g} ({self.count} values{p_value})")
        if math.isnan(self.chi2_per_dof):
            lines[-1] = "errors are not known: provide at least three networks, or their dim"
        lines += [] if self.converged else ["the search has not converged: start from other values"]
        if self.explained or any(each.verdict is Verdict.DISAGREES for each in self.comparisons):
            several = len(self.comparisons) > 1
            numbered = enumerate(self.comparisons, start=1)
            lines += [f"{f'run {run}: ' if several else ''}{_words(each)}" for run, each in numbered]
        if self.explained:
            lines += self._caveats()
        return "\n".join(lines)

    def _caveats(self) -> list[str]:
        """Say what the fit cannot tell."""
        lines = []
        for name, times in self.far.items():
            lines.append(f"{name} is {times:.2g} times the value given: if that is known, do not set it free")
        if len(self.values) >= _MANY:
            others = "networks of another kind (with an activation, say) may fit as well"
            lines.append(f"with {len(self.values)} free fields, {others}")
        if self.unnoticed:
            off = [f"{name} (by a factor of {_factor(factor)})" for name, factor in self.unnoticed.items()]
            lines.append(f"these curves would not show if others were wrong: {', '.join(off)}")
        return lines

    def _error(self, name: str) -> str:
        return f"{self.errors[name]:10.3g}" if math.isfinite(self.errors[name]) else " " * 10

    def _interval(self, name: str) -> str:
        if not self.explained:
            return "none"
        if name in self.at_bounds:
            return "none: at its bound"
        if not math.isfinite(self.errors[name]):
            return "unknown"
        if self.errors[name] > _VAGUE * abs(self.values[name]):
            return "not determined by these curves"
        return f"{self.low[name]:.4g} to {self.high[name]:.4g}"


def _explains(comparisons: Sequence[Comparison], p_value: float) -> bool:
    """Whether no run disagrees, and chi^2 is no larger than by chance, unless by what size does."""
    if any(each.verdict is Verdict.DISAGREES for each in comparisons):
        return False
    is_size = any(each.p_value < LEVEL for each in comparisons)
    return is_size or not p_value < LEVEL


def _is_far(ratio: float) -> bool:
    return not 0.5 <= ratio <= 2.0


def _factor(factor: float) -> str:
    return f"{factor:.2g}" if factor < 100 else "100 or more"


def _words(comparison: Comparison) -> str:
    networks = f"the curves of {counted(comparison.seeds, 'network')}"
    if comparison.verdict is Verdict.UNDECIDED:
        text = "cannot tell whether theory is right: too few of them"
        if comparison.p_value < LEVEL:
            text = "are off by no more than their size explains: larger networks can tell whether theory is right"
        return f"{networks} {text} (p = {comparison.p_value:.2g})"
    says = {Verdict.AGREES: "agree with", Verdict.CLOSE: "are close to", Verdict.DISAGREES: "disagree with"}
    return f"{networks} {says[comparison.verdict]} theory at these values (p = {comparison.p_value:.2g})"


def _losses_of(problem: Problem, experiment: Ensemble | Measured) -> Measured:
    """Return the losses of an experiment, whose own problem had other values, where they scatter.

    The others, such as those at the start of a centered network, would have to be met exactly.
    """
    losses = {name: np.asarray(getattr(experiment, name)) for name in LOSSES}
    is_start = (experiment.times == 0) & problem.network.centered
    kept = {}
    for name, values in losses.items():
        with np.errstate(invalid="ignore"):  # inf - inf, where networks diverged
            spread = np.ptp(values, axis=0)
        is_fixed = is_start | ((spread <= ROUNDING * np.abs(values).max(axis=0)) & (len(values) > 1))
        kept[name] = np.where(is_fixed, np.nan, values)
    if all(np.isnan(values).all() for values in kept.values()):
        kept = losses
    return Measured(experiment.times, kept["test_loss"], kept["train_loss"], experiment.dim)
