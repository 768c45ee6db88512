"""Orthogonal steps for the hidden matrices, as of Muon."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, keep
from deeplinear._core.refusal import Refusal
from deeplinear._rules.descent import GradientDescent, descended
from deeplinear._rules.rule import (
    LR,
    MOMENTUM,
    NESTEROV,
    ORTHOGONAL,
    Look,
    Orthogonal,
    Rule,
    Step,
)
from deeplinear._rules.series import Series
from deeplinear._rules.vectors import Memory, Vector

_ITERATIONS = About(
    "Newton-Schulz iterations",
    "How often the momentum is brought closer to an orthogonal matrix.",
    "whole",
    check=checks.Whole(),
    usual=(1, 10),
)
_INPUT = About(
    "Input weights too", "Let the input weights take orthogonal steps, as hidden ones do.", "switch", check=checks.flag
)
_OTHER = About(
    "Rule of other weights",
    "How the weights without orthogonal steps are trained: the readout and, as a rule, the input weights.",
    "rule",
    allowed="a GradientDescent without clip; by default one with the same learning rate",
)
_OWN_MOMENTUM = replace(MOMENTUM, form="number", check=checks.fraction_below_one, allowed="")


@dataclass(frozen=True)
class Muon(Rule):
    """Orthogonal steps for the hidden matrices, another rule for the rest.

    The momentum M <- momentum M + G of each hidden matrix is divided by its Frobenius norm and taken through the
    iteration of Newton and Schulz, X <- 3.4445 X - 4.7750 X X^T X + 2.0315 (X X^T)^2 X. The weights take the step lr
    sqrt(N) X, with N the width above the matrix, so that lr is the size of a step relative to initial weights. In the
    standard parameterization N is the width below, as for weights of variance 1 / fan-in that take the step lr X, and
    in residual networks with branches 1 / depth^p a factor depth^(p - 1) makes up for their number.

    Parameters
    ----------
    lr
        Learning rate of the orthogonal steps: a number, or one that depends on the step as in ``GradientDescent``.
    momentum, nesterov
        Momentum of the orthogonal steps. Nesterov's rule uses momentum M + G in place of M.
    iterations
        Number of iterations.
    input
        Whether the input weights take such steps too.
    other
        The rule of the readout, and of the input weights: a ``GradientDescent`` without clipping. None means plain
        descent with the learning rate of Muon, also where that is changed later.

    Examples
    --------
    >>> Muon(lr=0.02, other=GradientDescent(0.1)).plain.lr
    0.1
    """

    lr: Series = field(metadata=LR.metadata)
    momentum: float = field(default=0.95, metadata=_OWN_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=NESTEROV.metadata)
    iterations: int = field(default=5, metadata=_ITERATIONS.metadata)
    input: bool = field(default=False, metadata=_INPUT.metadata)
    other: GradientDescent | None = field(default=None, metadata=_OTHER.metadata)
    kind: ClassVar[Kind] = Kind("muon", "Muon", "Muon")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.other is not None and (not isinstance(self.other, GradientDescent) or self.other.clip is not None):  # type: ignore[redundant-expr]
            raise Refusal("other", self.other, "a GradientDescent without clip")

    @property
    def plain(self) -> GradientDescent:
        """The rule of the weights that take no orthogonal steps."""
        if self.other is not None:
            return self.other
        rule = GradientDescent(1.0)
        keep(rule, lr=self.lr)  # as it is: checked before, or complex
        return rule

    def check(self, steps: int) -> None:
        """Refuse series that do not fit the number of steps, those of other weights too."""
        super().check(steps)
        self.plain.check(steps)

    def tabulated(self, steps: int) -> "Muon":
        """As in every rule, and for the other weights."""
        return replace(super().tabulated(steps), other=self.other and self.other.tabulated(steps))

    def first(self, count: int, steps: int) -> "Muon":
        """As in every rule, and for the other weights."""
        return replace(super().first(count, steps), other=self.other and self.other.first(count, steps))

    def as_at_first(self, count: int, steps: int) -> "Muon":
        """As in every rule, and for the other weights."""
        return replace(super().as_at_first(count, steps), other=self.other and self.other.as_at_first(count, steps))

    def steady(self, lr: float, steps: int) -> "Muon":
        """As in every rule; the other weights have the same rate."""
        return replace(self, lr=lr, other=self.plain.steady(lr, steps))

    @property
    def changes_in_time(self) -> bool:
        """Whether any number of the rule depends on the step, or of that for other weights."""
        return super().changes_in_time or self.plain.changes_in_time

    @property
    def orthogonal(self) -> Orthogonal:
        """Which weights take orthogonal steps."""
        return Orthogonal(self.momentum, self.nesterov, self.iterations, self.input)

    @property
    def unit(self) -> str:  # type: ignore[override]
        """An orthogonal matrix."""
        return ORTHOGONAL

    @property
    def parts(self) -> dict[str, Rule]:
        """The rule, and that of the other weights."""
        return {"": self, "other": self.plain}

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Step along the orthogonal part of the momentum, and by the other rule in the rest of the weights."""
        gradient = yield Look(weights)
        layers, rest = (("input", "hidden"), ("readout",)) if self.input else (("hidden",), ("input", "readout"))
        own = gradient.only(*layers)
        momentum = memory.momentum = self.momentum * memory.get("momentum", 0.0 * gradient) + own
        if self.nesterov:
            momentum = self.momentum * momentum + own
        weights = descended(self.other, weights, memory, gradient, *rest)
        updated: Vector = weights + self.lr * momentum.orthogonal(self.iterations)  # eq-muon-step
        return updated
