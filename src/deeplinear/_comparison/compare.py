"""Theory against experiment: do they agree, to within what the number of seeds can tell?"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.causes import find_cause
from deeplinear._comparison.curvature import curvature_of
from deeplinear._comparison.expected import FEW, Expected, select
from deeplinear._comparison.joint_test import LEVEL, SignFlipTest
from deeplinear._comparison.observables import ComparedObservable, ObservableComparison, observables_of
from deeplinear._comparison.same_problem import checked_experiment
from deeplinear._comparison.scatter_test import ScatterTest
from deeplinear._comparison.verdict import Divergence, Findings, Verdict, explain, in_percent, is_far_off
from deeplinear._core import checks
from deeplinear._core.dataset import LOSSES
from deeplinear._core.drawn import Drawn
from deeplinear._core.json import plain
from deeplinear._experiment.ensemble import MORE_LOSSES, Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]

_SCREEN = 20
"""Observables of which all are listed where a comparison shows itself."""


@dataclass(frozen=True, eq=False)
class Comparison(Drawn):
    """What ``compare`` found; printed, it is a short table.

    Attributes
    ----------
    verdict
        In one word; ``verdict.advice`` is a sentence.
    p_value
        The probability of a deviation from theory this large somewhere, if the theory is right, from the sign-flip test
        on all observables together; of fewer than 8 seeds, from networks that were drawn. Zero if something without
        scatter differs.
    finite_size
        Relative deviation of the losses that is expected of networks of this size, the largest over steps; it falls as
        1/D. It comes from exact draws where these are quick (see ``finite_size``), and is then right to about a third;
        otherwise it is estimated from theory alone, usually to within a factor of three. Infinite where some networks
        are expected to diverge; ``nan`` where it is not known, as for long runs of ``SAM`` and ``Muon``.
    explanation
        The verdict, what would have been noticed, divergence and finite size, in words.
    cause
        An obvious reason for a disagreement, in words; empty where none was found.
    seeds, dim
        Number of networks, and their input dimension D; None where it is not known.
    inputs
        What the networks were trained on: ``"gaussian"`` samples, as theory has them, ``"rows"`` of a data set, or
        ``"unknown"`` where others trained them.
    steps
        Number of steps compared: those before anything diverged at which losses were recorded.
    tolerance
        Relative error of the losses that counts as close where size explains it.
    observables
        The curves one by one.
    theory, experiment
        What was compared.
    """

    verdict: Verdict
    p_value: float
    finite_size: float
    explanation: str
    cause: str
    seeds: int
    dim: int | None
    inputs: str
    steps: int
    tolerance: float
    observables: tuple[ObservableComparison, ...]
    theory: Solution
    experiment: Ensemble | Measured

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
        """Return everything in a form that JSON can hold; values that are not finite become ``None``."""
        return {
            "verdict": str(self.verdict),
            "p_value": plain(self.p_value),
            "level": LEVEL,
            "finite_size": plain(self.finite_size),
            "near_edge": self.near_edge,
            "explanation": self.explanation,
            "cause": self.cause,
            "seeds": self.seeds,
            "dim": self.dim,
            "inputs": self.inputs,
            "steps": self.steps,
            "tolerance": self.tolerance,
            "observables": [each.to_dict() for each in self.observables],
        }

    def summary(self) -> str:
        """Verdict and one line per observable, as plain text."""
        return self._table(self.observables)

    def __repr__(self) -> str:
        """Show one screen: of many layers the one that is farthest off, for each observable."""
        if len(self.observables) <= _SCREEN:
            return self.summary()
        farthest: dict[str, ObservableComparison] = {}
        for each in self.observables:
            known = farthest.get(each.name)
            if known is None or not each.max_z <= known.max_z:
                farthest[each.name] = each
        left = len(self.observables) - len(farthest)
        return f"{self._table(tuple(farthest.values()))}\n({left} layers that deviate less: print it to see them)"

    def _table(self, observables: tuple[ObservableComparison, ...]) -> str:
        width = max(len(each.label) for each in observables)
        lines = [
            f"{self.verdict}: {self.explanation}",
            f"seeds: {self.seeds}, dim: {self.dim or 'unknown'}, inputs: {self.inputs}, steps: {self.steps}; "
            f"p = {self.p_value:.2g}; deviation expected at this size: {in_percent(self.finite_size)}",
            f"{'':<{width}}  {'p':>7}  {'max |z|':>8}  {'max error':>9}",
        ]
        for each in observables:
            error = 100 * each.max_relative_error
            lines.append(f"{each.label:<{width}}  {each.p_value:7.2g}  {each.max_z:8.3g}  {error:7.3g} %")
        columns = {
            "would notice": [f"{100 * each.max_detectable:10.3g} %" for each in observables],
            "max |z| beyond size": [f"{each.max_z_beyond_size:19.3g}" for each in observables],
        }
        for title, entries in columns.items():
            if not all("nan" in entry for entry in entries):
                lines[2] += f"  {title}"
                for line, entry in enumerate(entries, start=3):
                    lines[line] += f"  {'' if 'nan' in entry else entry:{len(title)}}"
        return "\n".join(line.rstrip() for line in lines)

    def __str__(self) -> str:
        return self.summary()


def compare(theory: Solution, experiment: Any, *, tolerance: float = 0.05) -> Comparison:
    """Compare what theory predicts with what finite networks did.

    Losses are compared at every step, and so are those of averaged weights and on the targets of phases if both sides
    have them. Correlations, if they were recorded, are compared layer by layer: at equal times, and of each time with
    the first and with the last. If the curvature of the networks was measured, every Ritz value is compared with that
    of ``sharpness``. A theory that was not solved at every step is interpolated to every step for the losses; its
    correlations, if it has any, are compared where its nodes are steps.

    Three questions make the verdict. Are networks farther from theory than they scatter? A sign-flip test tells: under
    the null hypothesis, the deviations of each seed from theory are just as likely with all their signs reversed. The
    statistic is the largest skewness-corrected deviation over times and observables, so that many correlated curves
    are one test; p below 0.01 rejects. Is that more than their size explains? Networks of finite size differ from
    theory by a shift that falls as 1/D, is large near the edge of stability, and may make some of them diverge. Where
    64 networks of the same size are drawn in less than half a second (five where nothing else tells), shift and scatter
    come from them, and what is tested is the deviation from theory plus shift; otherwise the shift is bounded from four
    solutions. And are there enough networks to tell? Then the verdict is

    - "agrees" where there is no deviation beyond scatter, of 8 networks or more, and no mean loss is off by half;
    - "close" where size explains the deviation, and losses are within ``tolerance``;
    - "disagrees" where size does not explain it, however small it is;
    - "undecided" where size explains a deviation beyond ``tolerance``, networks are fewer, or scatter so much that
      their mean is far off by chance.

    Fewer than 8 seeds cannot reach 0.01 by themselves. Their scatter is that of networks drawn, so that one curve is
    enough for "disagrees"; where their size is not known, it is that of small networks of 50 inputs. A share of
    networks that diverge is compared with the share of those drawn, and the others with theory. If theory diverges,
    every seed has to at about the same step.

    Of curves that disagree, obvious causes are tried: a factor of 1/2 in the loss, steps that are off by one or by a
    factor, another learning rate. One that leaves a tenth of the deviation, or nothing beyond scatter, is named.

    Agreement means nothing if the seeds scatter so much that the test sees nothing: where it would not reject losses
    that are off by 100 % at every step, the question is undecided. And "agrees" comes with the deviation of the losses
    that would have been noticed: the test is repeated with theories that are off by more and more of its
    standard errors at every step, until it rejects them, upwards and downwards. With as many fresh networks, a
    deviation of that size is noticed in about three cases out of four, and one of half that size in one out of four.

    In theory the size of a gradient is not random, which is true if there are many directions. This matters for rules
    that depend on the size of gradients. On dimension-free data with few directions, (sum lam)^2 / sum lam^2 below 50,
    networks of any size deviate, and ``explanation`` says so where they do.

    Parameters
    ----------
    theory
        What ``solve`` found.
    experiment
        Networks of the same problem: an ``Ensemble`` of ``simulate``; ``measured`` curves of networks that were
        trained elsewhere, of which losses are compared at the steps that were recorded; or anything that ``measured``
        takes, such as an array of test losses with one value for each step.
    tolerance
        Relative error of the losses, largest over time, that counts as close where size explains it.

    Raises
    ------
    ValueError
        If the two do not belong to the same problem, or measured curves do not say at which steps they were recorded.

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
    experiment = checked_experiment(theory, experiment)
    tolerance = checks.non_negative("tolerance", tolerance)
    divergence = Divergence.of(theory, experiment)
    rest = experiment if len(divergence.rest) == len(experiment.seeds) else select(experiment, divergence.rest)
    groups = list(observables_of(theory, rest, divergence.first))
    groups += curvature_of(theory.problem, rest, divergence.first)
    expected = Expected.of(theory, rest, groups, divergence.first, tolerance)
    divergence = replace(
        divergence,
        drawn=expected.drawn,
        expected=expected.diverged,
        stay_near=expected.stay_near,
        theory_should=expected.theory_diverges,
        may_diverge=math.isinf(expected.deviation),
    )
    plain, beyond = _tested(groups, expected, rest, tolerance)
    observables = tuple(
        group.summary(p_value, noticed, each.shift, each.shift_error)
        for group, p_value, noticed, each in zip(
            groups, plain.separate, plain.noticed, expected.observables, strict=True
        )
    )
    losses = [each for each in observables if each.name in (*LOSSES, *MORE_LOSSES)]
    findings = Findings(
        deviates=plain.p_value < LEVEL,
        unexplained=beyond.p_value < LEVEL,
        are_few=len(rest.seeds) < FEW,
        is_close=all(each.max_relative_error <= tolerance for each in losses),
        is_far_off=any(is_far_off(each, tolerance) for each in losses),
        is_blind=plain.is_blind,
        noise=plain.noise,
        divergence=divergence,
    )
    is_off = findings.verdict is Verdict.DISAGREES and findings.deviates
    cause = find_cause(theory, observables) if is_off else ""
    return Comparison(
        verdict=findings.verdict,
        p_value=plain.p_value,
        finite_size=expected.deviation,
        explanation=explain(findings, expected, tolerance, theory.problem, experiment, observables, cause),
        cause=cause,
        seeds=len(experiment.seeds),
        dim=experiment.dim,
        inputs=experiment.inputs,
        steps=max(len(each.times) for each in observables if each.name in LOSSES),
        tolerance=tolerance,
        observables=observables,
        theory=theory,
        experiment=experiment,
    )


class _Tested(NamedTuple):
    """What the tests say of the deviations from theory, or of those that size leaves open."""

    p_value: float
    separate: list[float]
    noticed: list[float]
    is_blind: bool
    noise: float


def _tested(
    groups: list[ComparedObservable], expected: Expected, experiment: Ensemble | Measured, tolerance: float
) -> tuple[_Tested, _Tested]:
    """Test deviations from theory, and what is left of them once size has explained as much as it can."""
    explained = [each.explains(group) for group, each in zip(groups, expected.observables, strict=True)]
    if experiment.inputs == "rows":  # which are not Gaussian
        explained = [_within(group, each, tolerance) for group, each in zip(groups, explained, strict=True)]
    found = []
    for part in (None, explained):
        flips, scatter = SignFlipTest.of(groups, part), ScatterTest.of(groups, expected.observables, part)
        is_known = len(experiment.seeds) < FEW and not math.isnan(scatter.p_value) and flips.overall > 0.0
        p_value, separate = (scatter.p_value, scatter.separate) if is_known else (flips.overall, flips.separate)
        if scatter.beyond_any:
            p_value = min(p_value, scatter.p_value)
        blind = part is None and flips.is_blind
        noticed = flips.noticed() if part is None else []
        found.append(_Tested(p_value, separate, noticed, blind, scatter.noise))
    return found[0], found[1]


def _within(group: ComparedObservable, explained: Array, tolerance: float) -> Array:
    """Let the tolerance explain the rest of a deviation."""
    together = group.together
    left = together.mean - together.theory - explained
    return np.asarray(explained + np.clip(left, -tolerance * together.scale, tolerance * together.scale))
