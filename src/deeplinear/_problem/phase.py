"""Phases of training, one after another: plain frozen data, no numerics."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deeplinear._core import checks
from deeplinear._core.about import About, AboutPart, check_fields
from deeplinear._core.refusal import Refusal
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population, Sampling
from deeplinear._rules.descent import GradientDescent
from deeplinear._rules.muon import Muon
from deeplinear._rules.normalized import NormalizedDescent
from deeplinear._rules.rule import KnownRules, Rule
from deeplinear._rules.sam import SAM
from deeplinear._rules.schedule_free import ScheduleFree

OPTIMIZERS = (GradientDescent, NormalizedDescent, Muon, ScheduleFree, SAM)
AnyOptimizer = Rule
SAMPLINGS = (Population, FullBatch, OnlineSGD, MultiPassSGD)

ABOUT_SAMPLING = AboutPart(
    "Sampling",
    "Which examples each training step sees.",
    SAMPLINGS,
    FullBatch,
    {"sgd": "batches are fresh with OnlineSGD, and drawn from a set of samples with MultiPassSGD"},
)
_BY_ENTRY = (
    "it acts on single entries of a matrix, which are then no longer Gaussian, so that the theory has no closed "
    "equations; the nearest rule is NormalizedDescent, with one size for each layer"
)
ABOUT_OPTIMIZER = AboutPart(
    "Training",
    "How the weights are changed, and for how long.",
    KnownRules(*OPTIMIZERS),
    GradientDescent,
    {"sgd": "it is GradientDescent, with batches that the sampling draws: OnlineSGD or MultiPassSGD"}
    | dict.fromkeys(("adam", "adamw", "adagrad", "rmsprop", "lion", "signsgd", "sgdsign", "signdescent"), _BY_ENTRY),
)

_STEPS = About("Steps", "How long the phase lasts.", "whole", check=checks.Whole(), usual=(1, 1000), log=True)
_TARGET_OVERLAP = About(
    "Overlap of targets",
    "Overlap of the target with that of the previous phase.",
    check=checks.Number("a number from -1 to 1", lambda value: -1 <= value <= 1),
    usual=(-1.0, 1.0),
)
_NEW_SAMPLES = About("New samples", "Draw a data set anew at the start of the phase.", "switch", check=checks.flag)
_PHASE_SAMPLING = About(
    "Sampling",
    "Which examples each training step sees from here on.",
    "rule",
    allowed=f"{', '.join(kind.__name__ for kind in SAMPLINGS)}, or None for that of the problem",
)
_PHASE_NOISE = About(
    "Label noise", "Standard deviation of the label noise in this phase.", check=checks.OrNone(checks.non_negative)
)
_PHASE_OPTIMIZER = About(
    "Training",
    "A rule that starts afresh with this phase.",
    "rule",
    allowed=f"{', '.join(kind.__name__ for kind in OPTIMIZERS)}, or None to continue as before",
)


@dataclass(frozen=True)
class Phase:
    """A part of training with its own target, samples or rules.

    Parameters
    ----------
    steps
        Number of steps; the steps of all phases add up to those of the problem.
    target_overlap
        Overlap of the target with that of the previous phase, from -1 to 1; the rest of it is a new random direction of
        the same size. It is 1 in the first phase, which has nothing before it.
    new_samples
        Whether a new data set is drawn at the start of the phase; otherwise that of the previous phase is kept.
    sampling, noise
        What replaces those of the problem; None keeps them. Samples are kept only under the same sampling rule.
    optimizer
        A rule that starts afresh; its schedules run over this phase and those after it that keep the rule. None keeps
        the rule of the previous phase.

    Examples
    --------
    >>> Phase(steps=100, target_overlap=0.5).new_samples
    True
    """

    steps: int = field(metadata=_STEPS.metadata)
    target_overlap: float = field(default=1.0, metadata=_TARGET_OVERLAP.metadata)
    new_samples: bool = field(default=True, metadata=_NEW_SAMPLES.metadata)
    sampling: Sampling | None = field(default=None, metadata=_PHASE_SAMPLING.metadata)
    noise: float | None = field(default=None, metadata=_PHASE_NOISE.metadata)
    optimizer: AnyOptimizer | None = field(default=None, metadata=_PHASE_OPTIMIZER.metadata)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, kinds, named in (("sampling", SAMPLINGS, SAMPLINGS), ("optimizer", Rule, ABOUT_OPTIMIZER.kinds)):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kinds):
                raise Refusal(name, getattr(self, name), " or ".join(kind.__name__ for kind in named))


@dataclass(frozen=True)
class Stage:
    """A phase with everything filled in.

    Attributes
    ----------
    start, stop
        Its steps are those from ``start`` up to but not including ``stop``.
    sampling, noise, optimizer
        The rules that hold.
    of, since
        Number of steps of the optimizer's schedules, and which of these is the first of this phase.
    of_samples, since_samples
        The same of the sampling rule.
    target_overlap, new_samples
        As in ``Phase``; the first stage has new samples.
    """

    start: int
    stop: int
    sampling: Sampling
    noise: float
    optimizer: AnyOptimizer
    of: int
    since: int
    of_samples: int
    since_samples: int
    target_overlap: float
    new_samples: bool

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.stop - self.start


def first_phases(phases: Sequence[Phase], count: int) -> tuple[Phase, ...]:
    """Return the phases of the first ``count`` steps alone."""
    found, left = [], count
    for index, phase in enumerate(phases):
        if left <= 0:
            break
        steps, of = min(phase.steps, left), _lasting(phases[index:])
        optimizer = phase.optimizer and phase.optimizer.first(min(of, left), of)
        sampling = phase.sampling and phase.sampling.first(steps, phase.steps)
        found.append(replace(phase, steps=steps, optimizer=optimizer, sampling=sampling))
        left -= steps
    return tuple(found)


def stages(
    phases: Sequence[Phase], sampling: Sampling, noise: float, optimizer: AnyOptimizer, steps: int
) -> tuple[Stage, ...]:
    """Return phases with the rules of the problem where they have none of their own."""
    found: list[Stage] = []
    start, of, begun = 0, steps, 0
    before = sampling
    for index, phase in enumerate(phases):
        if phase.optimizer is not None:
            optimizer, of, begun = phase.optimizer, _lasting(phases[index:]), start
        mine = phase.sampling or sampling
        if not phase.new_samples and found and mine != before:
            raise Refusal("new_samples", False, "True where the sampling rule changes")
        of_samples, since_samples = (phase.steps, 0) if phase.sampling else (steps, start)
        found.append(
            Stage(
                start=start,
                stop=start + phase.steps,
                sampling=mine,
                noise=noise if phase.noise is None else phase.noise,
                optimizer=optimizer,
                of=of,
                since=start - begun,
                of_samples=of_samples,
                since_samples=since_samples,
                target_overlap=phase.target_overlap,
                new_samples=phase.new_samples or not found,
            )
        )
        start, before = start + phase.steps, mine
    return tuple(found)


def _lasting(phases: Sequence[Phase]) -> int:
    """Number of steps from the first of some phases up to another optimizer."""
    more = itertools.takewhile(lambda phase: phase.optimizer is None, phases[1:])
    return phases[0].steps + sum(phase.steps for phase in more)
