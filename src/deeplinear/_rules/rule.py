"""What an update rule is: plain frozen data, and one method that says how weights change in a step."""

import hashlib
import inspect
import re
from collections.abc import Generator, Sequence
from dataclasses import MISSING, Field, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from deeplinear._core import checks, processes
from deeplinear._core.about import About, Kind, check_fields, described
from deeplinear._core.refusal import Refusal
from deeplinear._rules.layers import LayerCheck, PerLayer
from deeplinear._rules.schedules import Schedule
from deeplinear._rules.series import Series, SeriesCheck, is_constant, is_function, is_listed, series_values
from deeplinear._rules.vectors import Memory, Vector

if TYPE_CHECKING:
    from deeplinear._rules.traits import Traits

LR = About(
    "Learning rate",
    "Size of each step: too small is slow, and too large blows up.",
    "series",
    symbol=r"\eta",
    check=SeriesCheck(checks.positive, checks.non_negative),
    start=0.03,
    usual=(0.0005, 2.0),
    log=True,
)
MOMENTUM = About(
    "Momentum",
    "How much of the last step is carried over.",
    "series",
    symbol=r"\mu",
    check=SeriesCheck(checks.fraction_below_one, checks.fraction_below_one),
    usual=(0.0, 0.99),
)
NESTEROV = About(
    "Look ahead (Nesterov)", "Look ahead along the momentum, which must be above 0.", "switch", check=checks.flag
)
WEIGHT_DECAY = About(
    "Weight decay",
    "How strongly all weights are pulled towards zero.",
    "series",
    symbol=r"\kappa",
    check=SeriesCheck(checks.non_negative, checks.non_negative),
)
LAYER_LR = About(
    "Rate of each layer",
    "Factors on the learning rate of each weight layer; 0 freezes a layer.",
    "layers",
    check=LayerCheck(checks.non_negative),
)
LAYER_DECAY = About(
    "Decay of each layer",
    "Factors on the weight decay of each weight layer.",
    "layers",
    check=LayerCheck(checks.non_negative),
)
PER = {"global": "all weights", "layer": "each layer"}

GRADIENT, SIZED_BY_LAYER, SIZED, ORTHOGONAL = (
    "gradient",
    "gradient over its size by layer",
    "gradient over its size",
    "orthogonal",
)
"""What a rate multiplies, which says its unit: a gradient, one divided by its size, or an orthogonal matrix."""

KNOWN: "dict[str, type[Rule]]" = {}
"""Every class of update rules that there is, by its name."""


class KnownRules(Sequence["type[Rule]"]):
    """The classes of update rules: those that are given first, and those that are made later."""

    def __init__(self, *first: "type[Rule]") -> None:
        self._first = first

    def _all(self) -> "list[type[Rule]]":
        later = (each for each in KNOWN.values() if all(each.__name__ != own.__name__ for own in self._first))
        return [*self._first, *later]

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]


@dataclass(frozen=True)
class Look:
    """A place at which a rule wants the gradient.

    Parameters
    ----------
    weights
        The weights to look at, made of those that the step begins with.
    batch
        Looks of a step with the same batch see the same examples, as all do by default. Others are not offered yet.
    """

    weights: Vector
    batch: Any = None


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


Step = Generator[Look, Vector, Vector]
"""A step of a rule, as it is taken."""


class Rule:
    """An update rule: a frozen dataclass with one method, ``step``, that says how weights change in a step.

    The method is a generator. It yields a ``Look`` where it wants a gradient, receives it, and returns the new weights;
    who computes these, theory, a network or an optimizer of PyTorch, is none of its business. Weights and gradients
    add up, are multiplied by numbers, and have ``norm()``, ``norms()`` of each layer, ``inner(other)``,
    ``only("hidden")`` and ``orthogonal()``; a gradient points downhill. ``memory`` keeps what one step leaves to the
    next, and ``t`` counts the steps. Fields of the rule are its numbers at step ``t``, of which ``lr`` is the rate that
    searches vary; it is in units of each layer, so that one text serves all parameterizations.

    A rule is known, to files and to the command line, once its class exists.

    Examples
    --------
    >>> import deeplinear as dl
    >>> issubclass(dl.SAM, Rule), dl.SAM(lr=0.1, rho=0.05).traits.looks
    (True, 2)
    """

    lr: Series
    kind: ClassVar[Kind]
    momentum: Any = 0.0
    nesterov: bool = False
    weight_decay: Any = 0.0
    layer_lr: PerLayer = None
    layer_decay: PerLayer = None
    other: "Rule | None" = None
    is_own: ClassVar[bool] = True
    """Whether somebody else made it."""
    unit: str = GRADIENT
    """What its rate multiplies: a gradient, or something of a size of its own."""

    def __init_subclass__(cls) -> None:
        cls.is_own = not cls.__module__.startswith("deeplinear.")
        own = inspect.get_annotations(cls)
        if not any("lr" in inspect.get_annotations(base) for base in cls.__mro__ if base is not Rule):
            raise TypeError(f"{cls.__name__} must have a field lr, the learning rate that searches vary")
        for name, annotation in own.items():
            given = cls.__dict__.get(name, MISSING)
            if "ClassVar" not in str(annotation) and not (isinstance(given, Field) and given.metadata):
                setattr(cls, name, _described(name, str(annotation), given))
        if "kind" not in cls.__dict__:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__)
            cls.kind = Kind(words.lower(), words.replace("-", " "), words.replace("-", " "))
        KNOWN[cls.__name__] = cls
        if cls.is_own:
            processes.also_import(cls.__module__)

    @classmethod
    def source(cls) -> str:
        """Return a hash of the text of its class, which belongs to the identity of results."""
        try:
            text = inspect.getsource(cls).encode()
        except (OSError, TypeError):  # typed in
            text = cls.step.__code__.co_code
        return hashlib.sha256(text).hexdigest()[:16]

    def __init__(self, *values: Any, **fields: Any) -> None:
        raise TypeError(f"{type(self).__name__} must be a dataclass: write @dataclass(frozen=True) above its class")

    def step(self: Any, weights: Vector, memory: Memory, t: Any) -> Step:
        """Take the weights from step t to t + 1: yield where gradients are wanted, and return the new weights."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nesterov and self.momentum == 0.0:
            raise Refusal("nesterov", True, "False without momentum (momentum is 0.0)")

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the fields that may depend on the step."""
        return tuple(each.name for each in described(type(self)) if each.about.form == "series")

    @property
    def functions(self) -> list[str]:
        """Names of the fields that are functions of the step."""
        return [name for name in self.series if is_function(getattr(self, name))]

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate depends on the step."""
        return not is_constant(self.lr)

    @property
    def changes_in_time(self) -> bool:
        """Whether any number of the rule depends on the step."""
        return not all(is_constant(getattr(self, name)) for name in self.series)

    @property
    def plain(self) -> "Rule":
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
        return self.traits.looks > 1 or self.traits.elsewhere

    @property
    def is_plain(self) -> bool:
        """Whether it is descent along gradients as they are, taken at the weights themselves."""
        return False

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
        for name in self.series if self.changes_in_time else ():
            self.values(name, steps)

    def tabulated(self, steps: int) -> Self:
        """The same with the values of functions in their place, as files and other processes need them."""
        return replace(self, **{name: tuple(self.values(name, steps).tolist()) for name in self.functions})  # type: ignore[type-var]

    def scaled(self, factor: float, steps: int) -> Self:
        """The same with the learning rate of every step multiplied by a factor.

        Examples
        --------
        >>> from deeplinear import GradientDescent
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
        changing = [name for name in self.series if is_listed(getattr(self, name))]
        return replace(self, **{name: tuple(self.values(name, steps)[:count].tolist()) for name in changing})  # type: ignore[type-var]

    def as_at_first(self, count: int, steps: int) -> Self:
        """The same for ``count`` steps, all of which have the numbers of the first of ``steps`` steps."""
        changing = [name for name in self.series if not is_constant(getattr(self, name))]
        return replace(self, **{name: (float(self.values(name, steps)[0]),) * count for name in changing})  # type: ignore[type-var]

    def steady(self, lr: float, steps: int) -> Self:
        """The same with one rate at all steps, and with the largest of other numbers that depend on the step."""
        changing = [name for name in self.series[1:] if not is_constant(getattr(self, name))]
        largest = {name: float(self.values(name, steps).max()) for name in changing}
        return replace(self, lr=lr, **largest)  # type: ignore[type-var]

    def highest_rate(self, steps: int) -> float:
        """Largest learning rate of all steps."""
        return float(self.rates(steps if self.has_schedule else 1).max())

    def rates(self, steps: int) -> NDArray[Any]:
        """Learning rate at each of ``steps`` steps, shape (steps,)."""
        return self.values("lr", steps)

    def momenta(self, steps: int) -> NDArray[Any]:
        """Momentum at each of ``steps`` steps, shape (steps,)."""
        return self.values("momentum", steps)

    def decays(self, steps: int) -> NDArray[Any]:
        """Weight decay at each of ``steps`` steps, shape (steps,)."""
        return self.values("weight_decay", steps)

    def has_decay(self, steps: int) -> bool:
        """Whether weights decay at any of ``steps`` steps."""
        return bool(self.weight_decay != 0 if is_constant(self.weight_decay) else self.decays(steps).any())

    def values(self, name: str, steps: int) -> NDArray[Any]:
        """Value of a field at each of ``steps`` steps, shape (steps,)."""
        about = next((each.about for each in described(type(self)) if each.name == name), None)
        each = about.check.each if about and isinstance(about.check, SeriesCheck) else checks.non_negative
        return series_values(name, getattr(self, name), steps, each)

    @property
    def parts(self) -> dict[str, "Rule"]:
        """The rule, and those that it holds for some of the weights, by the path to their fields."""
        return {"": self}

    @property
    def structure(self) -> tuple[Any, ...]:
        """What two rules must share for their problems to be solved as one batch: all that is no number."""
        return tuple((path, type(rule), _shape(rule)) for path, rule in self.parts.items())

    @property
    def traits(self) -> "Traits":
        """What the rule does in a step, whatever its numbers are."""
        from deeplinear._rules.traits import traits_of  # it runs rules

        return traits_of(self)


def _shape(rule: Rule) -> tuple[Any, ...]:
    """Return the fields of a rule that are no numbers, and of the others whether they are given."""
    found: list[Any] = []
    for each in described(type(rule)):
        value, form = getattr(rule, each.name), each.about.form
        if form in ("number", "series"):
            found.append(value is not None)
        elif form not in ("layers", "rule"):
            found.append(value)
    return tuple(found)


def _described(name: str, annotation: str, default: Any) -> Any:
    """Return a field with what can be said of it, where its class says no more than its kind."""
    words = name.replace("_", " ")
    label, help = words[:1].upper() + words[1:], f"The number {words} of the rule."
    if name == "lr":
        about = LR
    elif "bool" in annotation:
        about = About(label, f"Turn {words} on.", "switch", check=checks.flag)
    elif "int" in annotation:
        about = About(label, help, "whole", check=checks.Whole(0))
    elif "str" in annotation:
        about = About(label, f"The word {words} of the rule.", "choice", choices={default: default})
    elif "Series" in annotation:
        about = About(label, help, "series", check=SeriesCheck(_NUMBER, _NUMBER))
    else:
        about = About(label, help, check=_NUMBER)
    return field(metadata=about.metadata) if default is MISSING else field(default=default, metadata=about.metadata)


_NUMBER = checks.Number("a finite number", lambda value: abs(value) < float("inf"))
