"""Sharpness-aware descent."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind
from deeplinear._rules.descent import descended
from deeplinear._rules.layers import PerLayer
from deeplinear._rules.rule import (
    LAYER_DECAY,
    LAYER_LR,
    LR,
    MOMENTUM,
    NESTEROV,
    WEIGHT_DECAY,
    Look,
    Rule,
    Step,
)
from deeplinear._rules.series import Series
from deeplinear._rules.vectors import Memory, Vector

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
class SAM(Rule):
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

    lr: Series = field(metadata=LR.metadata)
    rho: float = field(metadata=_RHO.metadata)
    momentum: Series = field(default=0.0, metadata=MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=LAYER_DECAY.metadata)
    kind: ClassVar[Kind] = Kind("sam", "SAM", "Sharpness-aware")

    @property
    def ascent(self) -> float:
        """How far up the slope gradients are taken."""
        return self.rho

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Step along the gradient from up the slope."""
        gradient = yield Look(weights)
        gradient = yield Look(weights - self.rho / gradient.norm() * gradient)  # eq-sam
        return descended(self, weights, memory, gradient)
