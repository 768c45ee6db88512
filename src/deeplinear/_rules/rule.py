"""The update rules: plain frozen data, no numerics.

Every rule says what solvers and simulators need of it. Of the ``Optimizer`` there is

    rates, momenta, decays         numbers of every step
    layer_lr, layer_decay          factors of every weight layer
    scaling                        how gradients are divided by their size, if they are
    ascent                         how far up the slope gradients are taken, if not at the weights themselves
    averaging                      how far gradients are taken towards the mean of the weights, if they are
    orthogonal                     which weights take orthogonal steps, if some do; the rest follow ``plain``
    other                          the rule of the rest, if it has a rate of its own
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields
from deeplinear._core.refusal import Refusal
from deeplinear._rules.layers import LayerCheck, PerLayer
from deeplinear._rules.schedules import Schedule
from deeplinear._rules.series import Series, SeriesCheck, is_constant, is_function, is_listed, series_values

_LR = About(
    "Learning rate",
    "Size of each step: too small is slow, and too large blows up.",
    "series",
    symbol=r"\eta",
    check=SeriesCheck(checks.positive, checks.non_negative),
    start=0.03,
    usual=(0.0005, 2.0),
    log=True,
)
_MOMENTUM = About(
    "Momentum",
    "How much of the last step is carried over.",
    "series",
    symbol=r"\mu",
    check=SeriesCheck(checks.fraction_below_one, checks.fraction_below_one),
    usual=(0.0, 0.99),
)
_NESTEROV = About(
    "Look ahead (Nesterov)", "Look ahead along the momentum, which must be above 0.", "switch", check=checks.flag
)
_WEIGHT_DECAY = About(
    "Weight decay",
    "How strongly all weights are pulled towards zero.",
    "series",
    symbol=r"\kappa",
    check=SeriesCheck(checks.non_negative, checks.non_negative),
)
_LAYER_LR = About(
    "Rate of each layer",
    "Factors on the learning rate of each weight layer; 0 freezes a layer.",
    "layers",
    check=LayerCheck(checks.non_negative),
)
_LAYER_DECAY = About(
    "Decay of each layer",
    "Factors on the weight decay of each weight layer.",
    "layers",
    check=LayerCheck(checks.non_negative),
)
_PER = {"global": "all weights", "layer": "each layer"}


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
    check=checks.Word(tuple(_PER)),
    choices=_PER,
)


@dataclass(frozen=True)
class Scaling:
    """How gradients are divided by their size.

    Attributes
    ----------
    by_layer
        Whether sizes are those of each weight layer, or of all together.
    clip
        Size above which gradients are scaled down to it; None if they are divided by the root of a running mean of
        their squared size.
    beta2
        How much of the running mean is carried over.
    """

    by_layer: bool
    clip: float | None = None
    beta2: float = 0.0

    @property
    def normalizes(self) -> bool:
        """Whether gradients are divided by their size however small they are."""
        return self.clip is None


@dataclass(frozen=True)
class Orthogonal:
    """Steps along the orthogonal part of the momentum, as Newton and Schulz iterate it.

    Attributes
    ----------
    momentum, nesterov
        Of the gradients, before they are made orthogonal.
    iterations
        Number of iterations.
    input
        Whether the input weights take such steps too.
    """

    momentum: float
    nesterov: bool
    iterations: int
    input: bool


class Optimizer:
    """What all update rules have in common; not made directly."""

    lr: Series
    _series: ClassVar[tuple[str, ...]] = ("lr",)
    momentum: Any = 0.0
    nesterov: bool = False
    weight_decay: Any = 0.0
    layer_lr: PerLayer = None
    layer_decay: PerLayer = None
    other: "GradientDescent | None" = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nesterov and self.momentum == 0.0:
            raise Refusal("nesterov", True, "False without momentum (momentum is 0.0)")

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the fields that may depend on the step."""
        return self._series

    @property
    def functions(self) -> list[str]:
        """Names of the fields that are functions of the step."""
        return [name for name in self._series if is_function(getattr(self, name))]

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate depends on the step."""
        return not is_constant(self.lr)

    @property
    def changes_in_time(self) -> bool:
        """Whether any number of the rule depends on the step."""
        return not all(is_constant(getattr(self, name)) for name in self._series)

    @property
    def plain(self) -> "Optimizer":
        """The rule of the weights that take no orthogonal steps."""
        return self

    @property
    def scaling(self) -> Scaling | None:
        """How gradients are divided by their size."""
        return None

    @property
    def ascent(self) -> float | None:
        """How far up the slope gradients are taken."""
        return None

    @property
    def averaging(self) -> float | None:
        """How far from the weights towards their mean gradients are taken."""
        return None

    @property
    def looks_elsewhere(self) -> bool:
        """Whether gradients are taken, or losses reported, elsewhere than at the weights that take the steps."""
        return self.ascent is not None or self.averaging is not None

    @property
    def is_plain(self) -> bool:
        """Whether it is descent along gradients as they are, taken at the weights themselves."""
        return self.scaling is None and not self.looks_elsewhere and self.orthogonal is None

    @property
    def called(self) -> str:
        """What it is called in messages."""
        clips = self.scaling is not None and not self.scaling.normalizes
        return type(self).__name__ + (" with clip" if clips else "")

    @property
    def orthogonal(self) -> Orthogonal | None:
        """Which weights take orthogonal steps."""
        return None

    def check(self, steps: int) -> None:
        """Refuse series that do not fit the number of steps."""
        if self.changes_in_time:
            self.rates(steps), self.momenta(steps), self.decays(steps)

    def tabulated(self, steps: int) -> Self:
        """The same with the values of functions in their place, as files and other processes need them."""
        return replace(self, **{name: tuple(self._values(name, steps).tolist()) for name in self.functions})  # type: ignore[type-var]

    def scaled(self, factor: float, steps: int) -> Self:
        """The same with the learning rate of every step multiplied by a factor.

        Examples
        --------
        >>> GradientDescent(lr=[0.1, 0.2]).scaled(0.5, steps=2).lr
        (0.05, 0.1)
        """
        lr: Any
        if isinstance(self.lr, Schedule):
            lr = self.lr.scaled(factor)
        else:
            lr = (factor * self.rates(steps)).tolist() if self.has_schedule else factor * self.lr  # type: ignore[operator]
        return replace(self, lr=lr)  # type: ignore[type-var]

    def first(self, count: int, steps: int) -> Self:
        """The same for the first ``count`` of ``steps`` steps alone."""
        changing = [name for name in self._series if is_listed(getattr(self, name))]
        return replace(self, **{name: tuple(self._values(name, steps)[:count].tolist()) for name in changing})  # type: ignore[type-var]

    def as_at_first(self, count: int, steps: int) -> Self:
        """The same for ``count`` steps, all of which have the numbers of the first of ``steps`` steps."""
        changing = [name for name in self._series if not is_constant(getattr(self, name))]
        return replace(self, **{name: (float(self._values(name, steps)[0]),) * count for name in changing})  # type: ignore[type-var]

    def steady(self, lr: float, steps: int) -> Self:
        """The same with one rate at all steps, and with the largest of other numbers that depend on the step."""
        changing = [name for name in self._series[1:] if not is_constant(getattr(self, name))]
        largest = {name: float(self._values(name, steps).max()) for name in changing}
        return replace(self, lr=lr, **largest)  # type: ignore[type-var]

    def highest_rate(self, steps: int) -> float:
        """Largest learning rate of all steps."""
        return float(self.rates(steps if self.has_schedule else 1).max())

    def rates(self, steps: int) -> NDArray[Any]:
        """Learning rate at each of ``steps`` steps, shape (steps,)."""
        return self._values("lr", steps)

    def momenta(self, steps: int) -> NDArray[Any]:
        """Momentum at each of ``steps`` steps, shape (steps,)."""
        return self._values("momentum", steps)

    def decays(self, steps: int) -> NDArray[Any]:
        """Weight decay at each of ``steps`` steps, shape (steps,)."""
        return self._values("weight_decay", steps)

    def has_decay(self, steps: int) -> bool:
        """Whether weights decay at any of ``steps`` steps."""
        return bool(self.weight_decay != 0 if is_constant(self.weight_decay) else self.decays(steps).any())

    def has_momentum(self, steps: int) -> bool:
        """Whether any of ``steps`` steps has momentum."""
        return bool(self.momentum != 0 if is_constant(self.momentum) else self.momenta(steps).any())

    def _values(self, name: str, steps: int) -> NDArray[Any]:
        each = checks.fraction_below_one if name == "momentum" else checks.non_negative
        return series_values(name, getattr(self, name), steps, each)


@dataclass(frozen=True)
class GradientDescent(Optimizer):
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

    lr: Series = field(metadata=_LR.metadata)
    momentum: Series = field(default=0.0, metadata=_MOMENTUM.metadata)
    nesterov: bool = field(default=False, metadata=_NESTEROV.metadata)
    weight_decay: Series = field(default=0.0, metadata=_WEIGHT_DECAY.metadata)
    layer_lr: PerLayer = field(default=None, metadata=_LAYER_LR.metadata)
    layer_decay: PerLayer = field(default=None, metadata=_LAYER_DECAY.metadata)
    clip: float | None = field(default=None, metadata=_CLIP.metadata)
    clip_by: str = field(default="global", metadata=_CLIP_BY.metadata)
    kind: ClassVar[Kind] = Kind("gradient-descent", "gradient descent", "Gradient descent")
    _series: ClassVar[tuple[str, ...]] = ("lr", "momentum", "weight_decay")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None and self.clip_by != "global":
            raise Refusal("clip_by", self.clip_by, "'global' without clip, which says at what norm to clip")

    @property
    def scaling(self) -> Scaling | None:
        """How gradients are clipped."""
        return None if self.clip is None else Scaling(self.clip_by == "layer", self.clip)
