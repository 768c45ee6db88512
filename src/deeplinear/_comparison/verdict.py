"""What a comparison comes to, in a word and in sentences."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from deeplinear._comparison.expected import Expected
from deeplinear._comparison.joint_test import LEVEL
from deeplinear._comparison.near_edge import has_estimate
from deeplinear._comparison.observables import ObservableComparison
from deeplinear._core.dataset import LOSSES
from deeplinear._core.words import percent
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import Solution

_FAR_OFF = 0.5
"""Relative error of a mean loss, at any step, beside which nothing agrees."""

_MATTERS = 0.01
"""Part of the largest loss by which it has to be off, too: below, losses may vary as they like."""

_NOISY = 3.0
"""Factor of the scatter from which on it is worth a sentence."""

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
    Verdict.AGREES: "no deviation beyond the scatter of the networks",
    Verdict.CLOSE: "theory and networks differ by more than chance, but by less than the tolerance and no more than "
    "their size explains; such differences are of order 1/D",
    Verdict.DISAGREES: "the deviation is beyond the scatter of the networks and beyond what their size explains",
    Verdict.UNDECIDED: "these networks cannot tell whether theory is right",
}


@dataclass(frozen=True)
class Divergence:
    """When theory and networks diverged, and what was expected.

    Attributes
    ----------
    steps, theory, networks
        The number of steps, and when theory and each network diverged; the number of steps stands for never.
    drawn, expected
        Number of networks of this size that were drawn, and of those among them that diverged.
    stay_near
        Whether no network drawn comes near diverging.
    theory_should
        Whether theory diverges, solved again.
    may_diverge
        Whether the estimate from theory expects that some diverge.
    spacing
        Of the steps at which losses were recorded.
    """

    steps: int
    theory: int
    networks: tuple[int, ...]
    drawn: int = 0
    expected: int = 0
    stay_near: bool = False
    theory_should: bool = False
    may_diverge: bool = False
    spacing: int = 1

    @classmethod
    def of(cls, theory: Solution, experiment: Ensemble | Measured) -> "Divergence":
        """Take the steps from both, as far as both go."""
        steps = min(theory.problem.steps, int(experiment.times[-1]) + 1)
        at = theory.status.diverged_at
        networks = tuple(int(step) if step >= 0 else steps for step in experiment.diverged_at)
        spacing = int(np.diff(experiment.times).max(initial=1))
        return cls(steps, steps if at is None else min(at, steps), networks, spacing=spacing)

    @property
    def rest(self) -> list[int]:
        """Networks that are compared with theory: those that do not diverge, where theory does not; otherwise all."""
        rest = [index for index, step in enumerate(self.networks) if step == self.steps]
        return rest if rest and self.theory == self.steps else list(range(len(self.networks)))

    @property
    def first(self) -> int:
        """Number of steps before theory, or any of the rest, diverged."""
        return min(self.theory, *(self.networks[index] for index in self.rest))

    @property
    def count(self) -> int:
        """Number of networks that diverged."""
        return sum(step < self.steps for step in self.networks)

    @property
    def is_shared(self) -> bool:
        """Whether theory and every network diverged."""
        return max(self.theory, *self.networks) < self.steps

    @property
    def is_alike(self) -> bool:
        """Whether all did so at about the same step, or might have, had the run been longer."""
        slack = max(3.0, 0.25 * self.theory, self.spacing)
        return all(abs(network - self.theory) <= slack for network in self.networks)

    @property
    def is_expected(self) -> bool:
        """Whether as many diverge as in networks of this size that were drawn, up to chance (Fisher's exact test)."""
        if not self.drawn:
            return self.may_diverge
        if self.theory_should != (self.theory < self.steps):
            return False
        if self.stay_near and not self.expected:
            return self.count == 0
        together = self.count + self.expected
        ways = [
            math.comb(len(self.networks), here) * math.comb(self.drawn, together - here)
            for here in range(min(len(self.networks), together) + 1)
        ]
        tails = sum(ways[: self.count + 1]), sum(ways[self.count :])
        return 2 * min(tails) >= LEVEL * sum(ways)

    def __str__(self) -> str:
        theory = "theory does not diverge" if self.theory == self.steps else f"theory diverges at step {self.theory}"
        diverged = [network for network in self.networks if network < self.steps]
        when = ""
        if diverged:
            when = f" at step {diverged[0]}" if min(diverged) == max(diverged) else ""
            when = when or f" at steps {min(diverged)} to {max(diverged)}"
        expected = f"; of {self.drawn} such networks drawn {self.expected} diverge" if self.drawn else ""
        return f"{theory}, {len(diverged)} of {len(self.networks)} networks do{when}{expected}"


@dataclass(frozen=True)
class Findings:
    """What a verdict rests on.

    Attributes
    ----------
    deviates, unexplained
        Whether networks are farther from theory than they scatter, and whether that is so too when their size is taken
        into account.
    are_few
        Whether networks are too few to agree with anything.
    is_close, is_far_off
        Whether the losses are within the tolerance everywhere, and whether they are off by half somewhere.
    is_blind
        Whether not even an error of 100 % in the losses would have been detected.
    noise
        Factor by which networks scatter more than others of their size.
    divergence
        When theory and networks diverged.
    """

    deviates: bool
    unexplained: bool
    are_few: bool
    is_close: bool
    is_far_off: bool
    is_blind: bool
    noise: float
    divergence: Divergence

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""
        divergence = self.divergence
        if not divergence.is_alike and not divergence.is_expected:
            return Verdict.DISAGREES
        if divergence.is_shared and divergence.is_alike:
            return Verdict.AGREES
        if not divergence.is_alike and divergence.first < divergence.steps:
            return Verdict.UNDECIDED  # theory diverges, or all networks, and size explains that the others do not
        if not self.deviates:
            is_open = self.are_few or self.is_blind or self.is_far_off
            return Verdict.UNDECIDED if is_open else Verdict.AGREES
        if self.unexplained:
            return Verdict.DISAGREES
        return Verdict.CLOSE if self.is_close else Verdict.UNDECIDED

    @property
    def advice(self) -> str:
        """Say what the verdict means, and what leaves it open."""
        verdict = self.verdict
        if verdict is not Verdict.UNDECIDED:
            return verdict.advice
        if self.deviates:
            return f"{verdict.advice}; they deviate from it by more than they scatter, but their size explains it"
        if self.are_few:
            return f"{verdict.advice}; there is no deviation beyond scatter, but to agree takes 8 networks or more"
        if self.is_blind:
            return (
                f"{verdict.advice}; not even an error of 100 % in the losses would have been detected; use more seeds"
            )
        return f"{verdict.advice}; at some steps they scatter so much that their mean is far off by chance"


def explain(
    findings: Findings,
    expected: Expected,
    tolerance: float,
    problem: Problem,
    experiment: Ensemble | Measured,
    observables: tuple[ObservableComparison, ...],
    cause: str,
) -> str:
    """Say what the verdict means, what would have been noticed, and what finite size has to do with it."""
    in_counts = problem.data.dimension_free
    verdict, divergence = findings.verdict, findings.divergence
    sentences = [findings.advice]
    if divergence.count or divergence.theory < divergence.steps:
        sentences = [str(divergence)]
        if divergence.first and not divergence.is_shared and (divergence.is_alike or divergence.is_expected):
            others = "before that" if divergence.first < divergence.steps else "of the others"
            sentences.append(f"{others}, {findings.advice}")
    if cause:
        sentences.append(cause)
    if experiment.inputs == "rows":
        sentences.append("the networks were trained on rows of the data set, while theory assumes Gaussian inputs")
    if verdict is Verdict.AGREES:
        shared = ["there is nothing more to compare"]
        sentences += shared if divergence.is_shared else _would_detect(observables)
    larger = "width, samples or batch" if in_counts else "dim"
    if expected.dim is not None:
        sentences.append(f"scatter is that of networks with {expected.dim} inputs; larger ones scatter less")
    if findings.noise > _NOISY and expected.are_drawn:
        size = f"with {expected.dim} inputs" if expected.dim else "of this size"
        sentences.append(f"the networks scatter {findings.noise:.2g} times as much as others {size} do")
    if math.isnan(expected.deviation) and experiment.dim is None:
        sentences.append("pass dim to measured(...) to see how far networks of this size are expected to deviate")
    elif math.isnan(expected.deviation) and not has_estimate(problem):
        sentences.append("how far networks of this size deviate is not known for this update rule")
    if expected.deviation > tolerance and not expected.diverged:
        at = "with counts such as these" if in_counts else f"at dim {experiment.dim}"
        sentences.append(f"{at} the mean is expected to deviate by about {in_percent(expected.deviation)}")
    beyond = _beyond_size(observables)
    if findings.deviates and not findings.unexplained and beyond < math.inf:
        sentences.append(
            f"once the shift expected at this size is added, theory and networks are within {beyond:.1f} standard "
            "errors"
        )
    if verdict in (Verdict.CLOSE, Verdict.DISAGREES):
        sentences += _sizes_that_scatter(problem)
    if verdict is Verdict.UNDECIDED and findings.deviates:
        sentences.append(f"theory and networks should agree at a lower learning rate or a larger {larger}")
    elif verdict is Verdict.DISAGREES and not cause and not expected.are_drawn:
        sentences.append(f"check whether the deviation shrinks with a larger {larger}")
    return "; ".join(sentences)


def is_far_off(loss: ObservableComparison, tolerance: float) -> bool:
    """Whether a mean loss is so far from theory, at any step, that nobody would say that they agree."""
    away = np.abs(loss.mean - loss.theory)
    matters = away > _MATTERS * np.abs(loss.theory).max(initial=0.0)
    return bool((matters & (loss.relative_error > max(tolerance, _FAR_OFF))).any())


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
    return max((each.max_z_beyond_size for each in observables if each.name in LOSSES), default=math.nan)


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
    if math.isinf(fraction):
        return "some diverge"
    return percent(fraction) if fraction < 1.0 else "100 % or more"
