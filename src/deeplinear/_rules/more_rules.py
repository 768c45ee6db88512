"""Update rules beyond plain gradient descent: plain frozen data, no numerics."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, keep
from deeplinear._core.refusal import Refusal
from deeplinear._rules.layers import PerLayer
from deeplinear._rules.rule import (
    _LAYER_DECAY,
    _LAYER_LR,
    _LR,
    _MOMENTUM,
    _NESTEROV,
    _PER,
    _WEIGHT_DECAY,
    GradientDescent,
    Optimizer,
    Orthogonal,
    Scaling,
)
from deeplinear._rules.series import Series

_PER_WHAT = About(
    "Measure gradients over",
    "Whether the gradient of each layer is divided by its own size, or by that of all weights together.",
    "choice",
    check=checks.Word(tuple(_PER)),
    choices=_PER,
)
_BETA2 = About(
    "Averaging of gradient sizes",
    "How much of the running mean of squared sizes is carried over.",
    symbol=r"\beta_2",
    check=checks.fraction_below_one,
    usual=(0.0, 0.999),
)
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
_MUON_MOMENTUM = replace(_MOMENTUM, form="number", check=checks.fraction_below_one, allowed="")
_BETA = About(
    "Share of the mean",
    "Gradients are taken at this fraction of the way from the fast weights to their mean.",
    symbol=r"\beta",
    check=checks.fraction_below_one,
    usual=(0.0, 0.99),
)
_RHO = About(
    "Radius",
    "How far up the slope the gradient is taken, as a norm of the change of the weights.",
    symbol=r"\rho",
    check=checks.positive,
    start=0.05,
    usual=(0.001, 1.0),
    log=True,
)


@dataclass(frozen=True)
class NormalizedDescent(Optimizer):
    """Gradient descent whose steps do not grow with the gradient.

    Gradients are divided by the root of a running mean v of their squared norm, ``v <- beta2 v + (1 - beta2) |G|^2``
    with ``v / (1 - beta2^(t+1))`` for v after step t, and nothing is added under the root. There is one norm for all
    weights, or one for each weight layer, as in LARS; momentum and weight decay come after, as in ``GradientDescent``.

    Parameters
    ----------
    lr, momentum, nesterov, weight_decay, layer_lr, layer_decay
        As in ``GradientDescent``.
    per
        ``"layer"`` or ``"global"``: whose norm the gradient of a layer is divided by. By layer, a step has the size lr
        whatever the gradient is, so that a residual network of branches 1 / depth^p multiplies the hidden rate by
        depth^(p - 1). One norm for all weights leaves the gradients of layers as they are relative to each other, and
        there the factor is depth^(2 p - 1), as in ``GradientDescent``. In the standard parameterization norms are those
        of weights of variance 1 / fan-in, which take steps of one raw rate.
    beta2
        From 0, which is the norm of this step alone, up to but not including 1.

    Examples
    --------
    >>> NormalizedDescent(lr=0.1, beta2=0.9).scaling
    Scaling(by_layer=True, clip=None, beta2=0.9)
    """

    lr: Series = field(metadata=_LR.metadata)
    per: str = field(default="layer", metadata=_PER_WHAT.metadata)
    beta2: float = field(default=0.0, metadata=_BETA2.metadata)
    momentum: Series = field(default=0.0, metadata=_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=_NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=_WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=_LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=_LAYER_DECAY.metadata)
    kind: ClassVar[Kind] = Kind("normalized", "normalised descent", "Normalised descent")
    _series: ClassVar[tuple[str, ...]] = ("lr", "momentum", "weight_decay")

    @property
    def scaling(self) -> Scaling:
        """How gradients are divided by their size."""
        return Scaling(self.per == "layer", None, self.beta2)


@dataclass(frozen=True)
class Muon(Optimizer):
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

    lr: Series = field(metadata=_LR.metadata)
    momentum: float = field(default=0.95, metadata=_MUON_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=_NESTEROV.metadata)
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


@dataclass(frozen=True)
class ScheduleFree(Optimizer):
    """Descent without a schedule: gradients are taken between fast weights and their mean, which is the result.

    Gradients are taken at y = (1 - beta) z + beta x; then z <- z + lr G and x <- (1 - c) x + c z with c = 1/(t + 2).
    Losses are those of x.

    Parameters
    ----------
    lr, layer_lr
        As in ``GradientDescent``.
    beta
        From 0 up to but not including 1.

    Examples
    --------
    >>> ScheduleFree(lr=0.1).averaging
    0.9
    """

    lr: Series = field(metadata=_LR.metadata)
    beta: float = field(default=0.9, metadata=_BETA.metadata)
    layer_lr: PerLayer = field(default=None, metadata=_LAYER_LR.metadata)
    kind: ClassVar[Kind] = Kind("schedule-free", "schedule-free", "Schedule-free")

    @property
    def averaging(self) -> float:
        """How far from the weights towards their mean gradients are taken."""
        return self.beta


@dataclass(frozen=True)
class SAM(Optimizer):
    """Sharpness-aware descent: the gradient is taken a distance ``rho`` up the slope, on the same batch.

    Each step evaluates the gradient at the weights, and then, for the step, at ``W - rho G / |G|``, where G is minus
    the gradient and its norm, over all weights, is divided by the root of the width. Losses are those of the weights.

    Parameters
    ----------
    lr, momentum, nesterov, weight_decay, layer_lr, layer_decay
        As in ``GradientDescent``.
    rho
        How far up the slope; positive.

    Examples
    --------
    >>> SAM(lr=0.1, rho=0.05).ascent
    0.05
    """

    lr: Series = field(metadata=_LR.metadata)
    rho: float = field(metadata=_RHO.metadata)
    momentum: Series = field(default=0.0, metadata=_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=_NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=_WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=_LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=_LAYER_DECAY.metadata)
    kind: ClassVar[Kind] = Kind("sam", "SAM", "Sharpness-aware")
    _series: ClassVar[tuple[str, ...]] = ("lr", "momentum", "weight_decay")

    @property
    def ascent(self) -> float:
        """How far up the slope gradients are taken."""
        return self.rho
