"""Gradient descent, with momentum, weight decay, clipping and rates of layers."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind
from deeplinear._core.refusal import Refusal
from deeplinear._rules.layers import PerLayer
from deeplinear._rules.numbers import minimum
from deeplinear._rules.rule import (
    LAYER_DECAY,
    LAYER_LR,
    LR,
    MOMENTUM,
    NESTEROV,
    PER,
    WEIGHT_DECAY,
    Look,
    Rule,
    Scaling,
    Step,
)
from deeplinear._rules.series import Series
from deeplinear._rules.vectors import Memory, Vector

_CLIP = About(
    "Largest gradient",
    "Gradients that are larger than this are scaled down to it.",
    check=checks.OrNone(checks.positive),
    usual=(0.01, 10.0),
    log=True,
)
_CLIP_BY = About(
    "Measure gradients over",
    "Whether the gradient of all weights together is clipped, or that of each layer.",
    "choice",
    check=checks.Word(tuple(PER)),
    choices=PER,
)


@dataclass(frozen=True)
class GradientDescent(Rule):
    """Gradient descent with optional schedules, momentum, weight decay and clipping, and rates by layer.

    With G_t the (negative) gradient in the units of the theory, every weight follows
    ``m_{t+1} = momentum m_t + G_t - weight_decay W_t`` and ``W_{t+1} = W_t + lr_t m_{t+1}``;
    Nesterov's rule steps along ``momentum m_{t+1} + G_t - weight_decay W_t`` instead.

    Parameters
    ----------
    lr
        Learning rate eta: a positive number; or one value per step (zero or above); or a schedule of
        ``deeplinear.schedules``; or a function of the step number that returns such a value. The raw rate of the
        finite network is N gamma0^2 eta.
    momentum
        From 0 up to but not including 1; it may depend on the step as ``lr`` does.
    nesterov
        Whether momentum looks ahead; needs momentum above 0.
    weight_decay
        Zero or above; it may depend on the step as ``lr`` does.
    layer_lr, layer_decay
        Factors on the rate and the weight decay of each weight layer: one for each of the L + 1, first to last, or a
        mapping with some of ``input``, ``hidden`` and ``readout``. A rate of 0 freezes a layer.
    clip
        Largest norm of a gradient: larger ones are scaled down to it. Norms are those of G_t over the root of the
        width, which are of order one.
    clip_by
        ``"global"`` clips the norm over all weights, ``"layer"`` that of each weight layer, which needs ``clip``.

    Examples
    --------
    >>> GradientDescent(lr=lambda step: 0.1 / (1 + step)).rates(3)
    array([0.1       , 0.05      , 0.03333333])
    >>> GradientDescent(lr=0.05, layer_lr={"readout": 0.0}).layer_lr
    {'input': 1.0, 'hidden': 1.0, 'readout': 0.0}
    """

    lr: Series = field(metadata=LR.metadata)
    momentum: Series = field(default=0.0, metadata=MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=LAYER_DECAY.metadata)
    clip: float | None = field(default=None, metadata=_CLIP.metadata)
    clip_by: str = field(default="global", metadata=_CLIP_BY.metadata)
    kind: ClassVar[Kind] = Kind("gradient-descent", "gradient descent", "Gradient descent")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None and self.clip_by != "global":
            raise Refusal("clip_by", self.clip_by, "'global' without clip, which says at what norm to clip")

    @property
    def scaling(self) -> Scaling | None:
        """How gradients are clipped."""
        return None if self.clip is None else Scaling(self.clip_by == "layer", self.clip)

    @property
    def is_plain(self) -> bool:
        """Whether gradients are taken as they are."""
        return self.clip is None

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Step along the gradient, or the momentum that it adds to."""
        gradient = yield Look(weights)
        if self.clip is not None:
            norm = gradient.norms() if self.clip_by == "layer" else gradient.norm()
            gradient = minimum(1.0, self.clip / norm) * gradient  # eq-clip
        return descended(self, weights, memory, gradient)


def descended(rule: Any, weights: Vector, memory: Memory, gradient: Vector, *layers: str) -> Vector:
    """Return the weights after a step along a gradient, with a rule's momentum and weight decay, in some layers."""
    pull = gradient - rule.layer_decay * rule.weight_decay * weights
    pull = pull.only(*layers) if layers else pull
    velocity = memory.velocity = rule.momentum * memory.get("velocity", 0.0 * weights) + pull  # eq-momentum
    if rule.nesterov:
        velocity = rule.momentum * velocity + pull
    updated: Vector = weights + rule.layer_lr * rule.lr * velocity  # eq-propagator
    return updated
