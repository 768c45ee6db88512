"""The update rule: plain frozen data, no numerics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields, keep
from deeplinear._core.refusal import Refusal

_LR = About(
    "Learning rate",
    "Size of each step: too small is slow, and too large blows up.",
    "numbers",
    symbol=r"\eta",
    allowed="a positive finite number, or one for each step",
    start=0.03,
    usual=(0.0005, 2.0),
    log=True,
)
_MOMENTUM = About(
    "Momentum",
    "How much of the last step is carried on.",
    symbol=r"\mu",
    check=checks.fraction_below_one,
    usual=(0.0, 0.99),
)
_NESTEROV = About(
    "Look ahead (Nesterov)", "Look ahead along the momentum, which must be above 0.", "switch", check=checks.flag
)
_WEIGHT_DECAY = About(
    "Weight decay",
    "How strongly all weights are pulled towards zero.",
    symbol=r"\kappa",
    check=checks.non_negative,
)


@dataclass(frozen=True)
class GradientDescent:
    """Gradient descent with optional schedule, momentum and weight decay.

    With G_t the (negative) gradient in the units of the theory, every weight follows
    ``m_{t+1} = momentum m_t + G_t - weight_decay W_t`` and ``W_{t+1} = W_t + lr_t m_{t+1}``;
    Nesterov's rule steps along ``momentum m_{t+1} + G_t - weight_decay W_t`` instead.

    Parameters
    ----------
    lr
        Learning rate eta: a positive number; or one value per step (zero or above); or a function
        of the step number that returns such a value. The raw rate of the finite network is
        N gamma0^2 eta.
    momentum
        From 0 up to but not including 1.
    nesterov
        Whether momentum looks ahead; needs momentum above 0.
    weight_decay
        Zero or above.

    Examples
    --------
    >>> GradientDescent(lr=0.05, momentum=0.9)
    GradientDescent(lr=0.05, momentum=0.9, nesterov=False, weight_decay=0.0)
    >>> GradientDescent(lr=lambda step: 0.1 / (1 + step)).rates(3)
    array([0.1       , 0.05      , 0.03333333])
    """

    lr: float | tuple[float, ...] | Callable[[int], float] = field(metadata=_LR.metadata)
    momentum: float = field(default=0.0, metadata=_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=_NESTEROV.metadata)
    weight_decay: float = field(default=0.0, metadata=_WEIGHT_DECAY.metadata)
    kind = Kind("gradient-descent", "gradient descent", "Gradient descent")

    def __post_init__(self) -> None:
        if isinstance(self.lr, Iterable) and not isinstance(self.lr, str):
            keep(self, lr=_schedule(self.lr))
        elif not callable(self.lr):
            keep(self, lr=checks.positive("lr", self.lr))
        check_fields(self)
        if self.nesterov and not self.momentum:
            raise Refusal("nesterov", True, "False without momentum (momentum is 0.0)")

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate depends on the step."""
        return not isinstance(self.lr, float)

    def tabulated(self, steps: int) -> "GradientDescent":
        """The same with the values of a learning-rate function in its place, as files and other processes need it."""
        return replace(self, lr=tuple(self.rates(steps).tolist())) if callable(self.lr) else self

    def scaled(self, factor: float, steps: int) -> "GradientDescent":
        """The same with the learning rate of every step multiplied by a factor.

        Examples
        --------
        >>> GradientDescent(lr=[0.1, 0.2]).scaled(0.5, steps=2).lr
        (0.05, 0.1)
        """
        lr = (factor * self.rates(steps)).tolist() if self.has_schedule else factor * self.lr  # type: ignore[operator]
        return replace(self, lr=lr)

    def first(self, steps: int) -> "GradientDescent":
        """The same for the first steps alone."""
        return replace(self, lr=self.lr[:steps]) if isinstance(self.lr, tuple) else self

    def highest_rate(self, steps: int) -> float:
        """Largest learning rate of all steps."""
        return float(self.rates(steps if self.has_schedule else 1).max())

    def rates(self, steps: int) -> NDArray[np.float64]:
        """Learning rate at each of ``steps`` steps, shape (steps,)."""
        if callable(self.lr):
            return np.array(_schedule(self.lr(step) for step in range(steps)))
        rates = np.broadcast_to(np.array(self.lr), (len(self.lr),) if isinstance(self.lr, tuple) else (steps,))
        if len(rates) != steps:
            allowed = f"one number or one per step (steps is {steps})"
            raise Refusal("lr", self.lr, allowed, got=f"{len(rates)} values")
        return rates.copy()


def _schedule(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(checks.non_negative(f"lr[{step}]", value) for step, value in enumerate(values))
