"""Descent without a schedule, from gradients between fast weights and their mean."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deeplinear._core import checks
from deeplinear._core.about import About, Kind
from deeplinear._rules.layers import PerLayer
from deeplinear._rules.rule import (
    LAYER_LR,
    LR,
    Look,
    Rule,
    Step,
)
from deeplinear._rules.series import Series
from deeplinear._rules.vectors import Memory, Vector

_BETA = About(
    "Share of the mean",
    "Gradients are taken at this fraction of the way from the fast weights to their mean.",
    symbol=r"\beta",
    check=checks.fraction_below_one,
    usual=(0.0, 0.99),
)


@dataclass(frozen=True)
class ScheduleFree(Rule):
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

    lr: Series = field(metadata=LR.metadata)
    beta: float = field(default=0.9, metadata=_BETA.metadata)
    layer_lr: PerLayer = field(default=None, metadata=LAYER_LR.metadata)
    kind: ClassVar[Kind] = Kind("schedule-free", "schedule-free", "Schedule-free")

    @property
    def averaging(self) -> float:
        """How far from the weights towards their mean gradients are taken."""
        return self.beta

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Look between the mean and the fast weights, which take the step; the mean follows."""
        fast = memory.get("fast", weights)
        gradient = yield Look(weights + (1.0 - self.beta) * (fast - weights))
        fast = memory.fast = fast + self.layer_lr * self.lr * gradient
        mean: Vector = weights + 1.0 / (t + 2) * (fast - weights)  # eq-schedule-free
        return mean
