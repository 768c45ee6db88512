"""Gradient descent whose steps do not grow with the gradient."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind
from deeplinear._rules.descent import descended
from deeplinear._rules.layers import PerLayer
from deeplinear._rules.numbers import sqrt
from deeplinear._rules.rule import (
    LAYER_DECAY,
    LAYER_LR,
    LR,
    MOMENTUM,
    NESTEROV,
    PER,
    SIZED,
    SIZED_BY_LAYER,
    WEIGHT_DECAY,
    Look,
    Rule,
    Scaling,
    Step,
)
from deeplinear._rules.series import Series
from deeplinear._rules.vectors import Memory, Vector

_PER_WHAT = About(
    "Measure gradients over",
    "Whether the gradient of each layer is divided by its own size, or by that of all weights together.",
    "choice",
    check=checks.Word(tuple(PER)),
    choices=PER,
)
_BETA2 = About(
    "Averaging of gradient sizes",
    "How much of the running mean of squared sizes is carried over.",
    symbol=r"\beta_2",
    check=checks.fraction_below_one,
    usual=(0.0, 0.999),
)


@dataclass(frozen=True)
class NormalizedDescent(Rule):
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

    lr: Series = field(metadata=LR.metadata)
    per: str = field(default="layer", metadata=_PER_WHAT.metadata)
    beta2: float = field(default=0.0, metadata=_BETA2.metadata)
    momentum: Series = field(default=0.0, metadata=MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=LAYER_DECAY.metadata)
    kind: ClassVar[Kind] = Kind("normalized", "normalised descent", "Normalised descent")

    @property
    def scaling(self) -> Scaling:
        """How gradients are divided by their size."""
        return Scaling(self.per == "layer", None, self.beta2)

    @property
    def unit(self) -> str:  # type: ignore[override]
        """The gradient over its size."""
        return SIZED_BY_LAYER if self.per == "layer" else SIZED

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Step along the gradient over the root of the mean of its squared sizes."""
        gradient = yield Look(weights)
        square = self.fan_in * gradient.norms2()
        square = square if self.per == "layer" else square.sum()
        mean = memory.square = self.beta2 * memory.get("square", 0.0) + (1.0 - self.beta2) * square  # eq-second-moment
        size = sqrt(mean / (1.0 - self.beta2 ** (t + 1)))
        return descended(self, weights, memory, 1.0 / size * gradient)
