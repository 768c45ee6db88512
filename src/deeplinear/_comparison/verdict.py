"""What a comparison comes to, in a word and in sentences."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from deeplinear._comparison.joint_test import LEVEL
from deeplinear._comparison.near_edge import has_estimate
from deeplinear._comparison.observables import ObservableComparison
from deeplinear._core.dataset import LOSSES
from deeplinear._core.words import percent
from deeplinear._experiment.ensemble import MORE_LOSSES, Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution

_FAR = 5.0
"""Standard errors from theory and the expected shift, at any step, beyond which size does not explain a deviation."""

_FACTOR = 3.0
"""How well the deviation that is expected of a size is known, where it comes from theory alone."""

_MANY = 50
"""Directions of inputs from which sizes of gradients are taken to be sharp: their squares scatter by sqrt(2 / 50)."""


class Verdict(StrEnum):
    """The outcome of a comparison."""

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
    Verdict.CLOSE: "theory and networks differ by more than chance, but by less than the tolerance; differences of "
    "order 1/D are expected and shrink in larger networks",
    Verdict.DISAGREES: "the deviation is beyond the scatter of the seeds and beyond the tolerance",
    Verdict.UNDECIDED: "these networks cannot tell whether theory is right",
}


@dataclass(frozen=True)
class Divergence:
    """When theory and seeds diverged; the number of steps stands for never, and ``spacing`` is that of records."""

    steps: int
    theory: int
    seeds: tuple[int, ...]
    spacing: int = 1

    @classmethod
    def of(cls, theory: Solution, experiment: Ensemble | Measured) -> "Divergence":
        """Take the steps from both, as far as both go."""
        steps = min(theory.problem.steps, int(experiment.times[-1]) + 1)
        at = theory.status.diverged_at
        seeds = tuple(int(step) if step >= 0 else steps for step in experiment.diverged_at)
        spacing = int(np.diff(experiment.times).max(initial=1))
        return cls(steps, steps if at is None else min(at, steps), seeds, spacing)

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
        slack = max(3.0, 0.25 * self.theory, self.spacing)
        return all(abs(seed - self.theory) <= slack for seed in self.seeds)

    def __str__(self) -> str:
        theory = "theory does not diverge" if self.theory == self.steps else f"theory diverges at step {self.theory}"
        diverged = [seed for seed in self.seeds if seed < self.steps]
        when = f" at steps {min(diverged)} to {max(diverged)}" if diverged else ""
        return f"{theory}, {len(diverged)} of {len(self.seeds)} seeds do{when}"


@dataclass(frozen=True)
class Findings:
    """What a verdict rests on.

    Attributes
    ----------
    p_value, seeds
        Of the test, and the number of networks.
    is_close
        Whether the losses are within the tolerance.
    is_blind
        Whether not even an error of 100 % in the losses would have been detected.
    of_size
        Whether networks of this size may be as far from theory as these are, though theory is right.
    divergence
        When theory and seeds diverged.
    """

    p_value: float
    seeds: int
    is_close: bool
    is_blind: bool
    of_size: bool
    divergence: Divergence

    @property
    def are_too_few(self) -> bool:
        """Whether no deviation of so many networks can be significant."""
        return 2.0 ** (1 - self.seeds) > LEVEL

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""
        if not self.divergence.is_alike:
            return Verdict.DISAGREES
        if self.divergence.is_shared:
            return Verdict.AGREES
        if self.p_value >= LEVEL:
            return Verdict.UNDECIDED if self.are_too_few or self.is_blind else Verdict.AGREES
        if self.is_close:
            return Verdict.CLOSE
        is_certain = self.p_value == 0.0  # something without scatter differs, which size cannot do
        return Verdict.UNDECIDED if self.of_size and not is_certain else Verdict.DISAGREES

    @property
    def advice(self) -> str:
        """Say what the verdict means, and what leaves it open."""
        verdict = self.verdict
        if verdict is not Verdict.UNDECIDED:
            return verdict.advice
        if self.are_too_few and self.p_value >= LEVEL:
            return f"{verdict.advice}; too few seeds to detect a disagreement; use 8 or more"
        if self.p_value >= LEVEL:
            return (
                f"{verdict.advice}; not even an error of 100 % in the losses would have been detected; use more seeds"
            )
        return f"{verdict.advice}; {Verdict.DISAGREES.advice}, but size may explain it"


def may_be_size(
    problem: Problem, observables: tuple[ObservableComparison, ...], finite_size: float, tolerance: float
) -> bool:
    """Whether networks of this size may be as far from theory as these are, though theory is right."""
    if _sizes_that_scatter(problem):  # there networks of any size are
        return False
    if math.isnan(finite_size):
        return not has_estimate(problem)
    seen = max(each.max_relative_error for each in observables if each.name in (*LOSSES, *MORE_LOSSES))
    is_beyond = _beyond_size(observables) >= _FAR  # false where only the estimate from theory is known
    return finite_size > tolerance and seen < _FACTOR * finite_size and not is_beyond


def explain(
    findings: Findings,
    finite_size: float,
    tolerance: float,
    problem: Problem,
    experiment: Ensemble | Measured,
    observables: tuple[ObservableComparison, ...],
) -> str:
    """Say what the verdict means, what would have been noticed, and what finite size has to do with it."""
    in_counts = problem.data.dimension_free
    verdict, divergence = findings.verdict, findings.divergence
    sentences = [findings.advice]
    if divergence.first < divergence.steps:
        sentences = [str(divergence)]
        if divergence.is_alike and not divergence.is_shared:
            sentences.append(f"before that, {findings.advice}")
    if experiment.inputs == "rows":
        sentences.append("the networks were trained on rows of the data set, while theory assumes Gaussian inputs")
    if verdict is Verdict.AGREES:
        shared = ["there is nothing more to compare"]
        sentences += shared if divergence.is_shared else _would_detect(observables)
    larger = "width, samples or batch" if in_counts else "dim"
    if math.isnan(finite_size) and experiment.dim is None:
        sentences.append("pass dim to measured(...) to see how far networks of this size are expected to deviate")
    elif math.isnan(finite_size) and not has_estimate(problem):
        sentences.append("how far networks of this size deviate is not known for this update rule")
    if finite_size > tolerance:
        at = "with counts such as these" if in_counts else f"at dim {experiment.dim}"
        sentences.append(f"{at} the mean is expected to deviate by about {in_percent(finite_size)}")
    if verdict is Verdict.CLOSE and (beyond := _beyond_size(observables)) < _FAR:
        sentences.append(
            f"once the shift expected at this size is added, theory and networks are within {beyond:.1f} standard "
            "errors"
        )
    if verdict in (Verdict.CLOSE, Verdict.DISAGREES):
        sentences += _sizes_that_scatter(problem)
    if verdict is Verdict.DISAGREES or (verdict is Verdict.UNDECIDED and findings.p_value < LEVEL):
        if findings.of_size and has_estimate(problem):
            sentences.append(f"theory and networks should agree at a lower learning rate or a larger {larger}")
        else:
            sentences.append(f"check whether the deviation shrinks with a larger {larger}")
    return "; ".join(sentences)


def _sizes_that_scatter(problem: Problem) -> list[str]:
    """Say where a rule looks at sizes of gradients that are not sharp however large networks are."""
    rules = [stage.optimizer for stage in problem.stages]
    looks = any(rule.scaling is not None or rule.ascent is not None or rule.orthogonal is not None for rule in rules)
    if not (looks and problem.data.dimension_free):
        return []
    modes = problem.modes
    parts = modes.weight * modes.eigenvalues
    directions = float(parts.sum() ** 2 / (parts * modes.eigenvalues).sum())
    if directions >= _MANY:
        return []
    text = f"inputs have about {directions:.2g} directions, so the size of gradients, on which the update rule depends"
    return [f"{text}, varies at any width, while theory uses its root mean square"]


def _beyond_size(observables: tuple[ObservableComparison, ...]) -> float:
    """Largest deviation of the losses from theory and expected shift, in standard errors; ``nan`` if not known."""
    return float(np.max([each.max_z_beyond_size for each in observables if each.name in LOSSES]))


def _would_detect(observables: tuple[ObservableComparison, ...]) -> list[str]:
    """Say what the test could have seen; nothing if no curve scatters."""
    losses = {each.name.replace("_", " "): each.max_detectable for each in observables if each.name in LOSSES}
    losses = {name: least for name, least in losses.items() if not math.isnan(least)}
    seen = [f"an error of {percent(least)} or more in the {name}" for name, least in losses.items() if least < 1.0]
    if not losses:
        return []
    if not seen:
        return ["an error of 100 % in the losses throughout would have been detected"]
    return [f"{' or '.join(seen)} throughout would have been detected"]


def in_percent(fraction: float) -> str:
    """Write a deviation in per cent, where it is known and small enough to mean something."""
    if math.isnan(fraction):
        return "unknown"
    return percent(fraction) if fraction < 1.0 else "100 % or more"
