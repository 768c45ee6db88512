"""Theory against experiment: do they agree, to within what the number of seeds can tell?"""

import math
from dataclasses import dataclass
from typing import Any

from deeplinear._comparison.curvature import curvature_of
from deeplinear._comparison.finite_size import FiniteSize, finite_size
from deeplinear._comparison.joint_test import LEVEL, SignFlipTest
from deeplinear._comparison.near_edge import expected_deviation, has_estimate
from deeplinear._comparison.observables import ObservableComparison, observables_of
from deeplinear._comparison.same_problem import checked_experiment
from deeplinear._comparison.verdict import Divergence, Findings, Verdict, explain, in_percent, may_be_size
from deeplinear._core import checks
from deeplinear._core.dataset import LOSSES
from deeplinear._core.drawn import Drawn
from deeplinear._core.json import plain
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.ensemble import MORE_LOSSES, Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._experiment.methods import REDUCED, Counts
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution

_PAIRS = 32
"""Pairs of networks from which the effect of finite size is predicted."""

_PATIENCE = 0.5
"""Seconds that this may take, as they are counted."""

_MORE_PATIENCE = 5.0
"""The same where theory alone has no estimate, as for SAM."""

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
        p-value of the sign-flip test on all observables together: the probability of a deviation this large
        somewhere, if the theory is right. Zero if something without scatter differs.
    finite_size
        Relative deviation of the losses that is expected of networks of this size, the largest over steps; it falls as
        1/D. It comes from exact draws where these are quick (see ``finite_size``), and is then right to about a third;
        otherwise it is estimated from theory alone, usually to within a factor of three. Infinite where some networks
        are expected to diverge; ``nan`` where it is not known, as for ``Muon`` and long runs of ``SAM``.
    explanation
        The verdict, what would have been noticed, divergence and finite size, in words.
    seeds, dim
        Number of networks, and their input dimension D; None where it is not known.
    inputs
        What the networks were trained on: ``"gaussian"`` samples, as theory has them, ``"rows"`` of a data set, or
        ``"unknown"`` where others trained them.
    steps
        Number of steps compared: those before anything diverged at which losses were recorded.
    tolerance
        Relative error of the losses that counts as close.
    observables
        The curves one by one.
    theory, experiment
        What was compared.
    """

    verdict: Verdict
    p_value: float
    finite_size: float
    explanation: str
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
            f"sign-flip test: p = {self.p_value:.2g}; deviation expected at this size: {in_percent(self.finite_size)}",
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

    The verdict rests on a sign-flip test: under the null hypothesis, the deviations of each seed from theory are
    just as likely with all their signs reversed. The statistic is the largest skewness-corrected deviation
    over times and observables, so that many correlated curves are one test. Theory and networks agree if p >= 0.01.
    Otherwise they are close if all losses are within ``tolerance``, since many seeds resolve even small corrections of
    order 1/D, and they disagree if not, unless networks of this size are expected to deviate as much: then the question
    is undecided, and larger networks can tell. Fewer than 8 seeds cannot reach 0.01 and leave it undecided too, unless
    something without scatter differs. If training diverges, theory and every seed have to diverge at about the same
    step.

    Agreement means nothing if the seeds scatter so much that the test sees nothing: where it would not reject losses
    that are off by 100 % at every step, the question is undecided. And "agrees" comes with the deviation of the losses
    that would have been noticed: the test is repeated with theories that are off by more and more of its
    standard errors at every step, until it rejects them, upwards and downwards. With as many fresh networks, a
    deviation of that size is noticed in about three cases out of four, and one of half that size in one out of four.

    The mean of networks of finite size also differs from theory, by a deviation that falls as 1/D and is large near the
    edge of stability. ``finite_size`` predicts it from exact draws of such networks where these take less than half a
    second; otherwise it is estimated from four solutions. Where it is predicted, ``z_beyond_size`` is the deviation of
    the losses from theory plus shift, which size does not explain. For ``SAM`` and ``Muon`` there is no such estimate:
    the draws may take five seconds for SAM, and beyond that, and for Muon, the deviation is not known.

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
        Relative error of the losses, largest over time, that counts as close.

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
    seeds = len(experiment.seeds)
    divergence = Divergence.of(theory, experiment)
    groups = list(observables_of(theory, experiment, divergence.first))
    groups += curvature_of(theory.problem, experiment, divergence.first)
    test = SignFlipTest.of(groups)
    prediction = _predicted(theory.problem, experiment.dim)
    observables = tuple(
        group.summary(p_value, noticed, prediction)
        for group, p_value, noticed in zip(groups, test.separate, test.noticed(), strict=True)
    )
    is_close = all(each.max_relative_error <= tolerance for each in observables if each.name in (*LOSSES, *MORE_LOSSES))
    deviation = prediction.deviation if prediction else _deviation(theory.problem, experiment.dim)
    of_size = may_be_size(theory.problem, observables, deviation, tolerance)
    findings = Findings(test.overall, seeds, is_close, test.is_blind, of_size, divergence)
    return Comparison(
        verdict=findings.verdict,
        p_value=test.overall,
        finite_size=deviation,
        explanation=explain(findings, deviation, tolerance, theory.problem, experiment, observables),
        seeds=seeds,
        dim=experiment.dim,
        inputs=experiment.inputs,
        steps=max(len(each.times) for each in observables if each.name in LOSSES),
        tolerance=tolerance,
        observables=observables,
        theory=theory,
        experiment=experiment,
    )


def _deviation(problem: Problem, dim: int | None) -> float:
    """Estimate the deviation that is expected of networks of this size; nan where it is not known."""
    try:
        return expected_deviation(problem, dim)
    except Refusal:  # no finite network has this size, or it was not said
        return math.nan


def _predicted(problem: Problem, dim: int | None) -> FiniteSize | None:
    """Draw networks of this size, independent of those that are compared; None where that would take long."""
    try:
        counts = Counts.of(problem, dim)
    except Refusal:
        return None
    able = REDUCED in counts.methods and counts.resolves(REDUCED)
    patience = _PATIENCE if has_estimate(problem) else _MORE_PATIENCE
    if not able or 2 * _PAIRS * counts.need(REDUCED).seconds > patience:
        return None
    try:
        return finite_size(problem, dim, pairs=_PAIRS, workers=1)
    except ArithmeticError:  # a theory that cannot be solved: the other estimate says what that means
        return None
