"""What a fit found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.compare import Comparison, compare
from deeplinear._core.cached import cached_property
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

_VAGUE = 1.0
"""Standard error of the logarithm beyond which the curves say next to nothing about a field."""


@dataclass(frozen=True, eq=False)
class Fit(Drawn):
    """What ``fit`` found; printed, it is a table.

    Attributes
    ----------
    values, errors
        Value and standard error of each free field, by name. A factor on the given values where these differ.
    low, high
        95 % intervals, from Student's t with as many degrees of freedom as there are networks, minus one for each
        run.
    covariance
        Covariance of the varied fields, in the order of ``values``, shape (free, free): of their logarithms where a
        field is varied by factors, and of the fields themselves otherwise.
    factors
        Names of fields whose common factor was fitted.
    chi2, dof
        Sum of squared deviations from theory, in units of standard errors, and its mean if theory is right with the
        fitted values, from the scatter between networks. For independent values that mean would be their number minus
        the number of free fields; values at different steps are correlated.
    count
        Number of values.
    problems
        The problems with fitted values.
    experiments
        The curves that were fitted.
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
    count: int
    problems: tuple[Problem, ...] = field(repr=False)
    experiments: tuple[Ensemble | Measured, ...] = field(repr=False)
    converged: bool = True

    @classmethod
    def of(
        cls,
        free: Sequence[Parameter],
        varied: Array,
        covariance: Array,
        degrees: int,
        residual: tuple[float, float, int],
        problems: Sequence[Problem],
        experiments: Sequence[Any],
        converged: bool,
    ) -> "Fit":
        """Turn what was varied into fields."""
        from scipy.stats import t  # slow to import

        wide = float(t.ppf(0.5 + 0.5 * _LEVEL, max(degrees, 1)))
        values, errors, low, high = {}, {}, {}, {}
        for each, number, variance in zip(free, varied.tolist(), np.diagonal(covariance).tolist(), strict=True):
            name, error = each.name, math.sqrt(variance) if variance >= 0 else math.nan
            values[name] = each.value(number)
            errors[name] = error * (values[name] if each.is_log else 1.0)
            low[name] = math.exp(number - wide * error) if each.is_log else max(number - wide * error, each.bounds[0])
            high[name] = math.exp(min(number + wide * error, 700.0)) if each.is_log else number + wide * error
        return cls(
            values=values,
            errors=errors,
            low=low,
            high=high,
            covariance=covariance,
            factors=tuple(each.name for each in free if each.is_factor),
            chi2=residual[0],
            dof=residual[1],
            count=residual[2],
            problems=tuple(problems),
            experiments=tuple(experiments),
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

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Theory at the fitted values against each run, as ``compare`` finds it."""
        pairs = zip(self.problems, self.experiments, strict=True)
        return tuple(compare(solve(problem), _losses_of(problem, experiment)) for problem, experiment in pairs)

    def __str__(self) -> str:
        lines = [f"{'field':10}{'value':>10}{'error':>10}   95 % interval"]
        for name, value in self.values.items():
            label = f"{name} x" if name in self.factors else name
            line = f"{label:10}{value:10.4g}{self.errors[name]:10.3g}   "
            line += f"{self.low[name]:.4g} to {self.high[name]:.4g}" if math.isfinite(self.errors[name]) else "unknown"
            lines.append(line + (", not determined by these curves" if self._is_vague(name) else ""))
        lines += ["x: common factor of the given values"] if self.factors else []
        lines.append(f"chi^2 per degree of freedom: {self.chi2_per_dof:.2g} ({self.count} values)")
        if any(math.isnan(error) for error in self.errors.values()):
            lines[-1] = "errors are not known: provide at least three networks, or their dim"
        lines += [] if self.converged else ["the search has not converged: start from other values"]
        several = len(self.comparisons) > 1
        lines += [
            f"{f'run {run}: ' if several else ''}{_words(each)}" for run, each in enumerate(self.comparisons, start=1)
        ]
        return "\n".join(lines)

    def _is_vague(self, name: str) -> bool:
        return self.errors[name] > _VAGUE * abs(self.values[name])


def _words(comparison: Comparison) -> str:
    says = {"agrees": "agree with", "close": "are close to", "disagrees": "disagree with"}
    networks = f"the curves of {counted(comparison.seeds, 'network')}"
    verdict = says.get(comparison.verdict, "do not decide about")
    return f"{networks} {verdict} theory at these values (p = {comparison.p_value:.2g})"


def _losses_of(problem: Problem, experiment: Ensemble | Measured) -> Measured:
    """Return the losses of an experiment, whose own problem had other values."""
    if isinstance(experiment, Measured):
        return experiment
    return Measured(experiment.times, experiment.test_loss, experiment.train_loss, experiment.dim)
