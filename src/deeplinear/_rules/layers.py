"""A number for each weight layer: input, hidden and readout, or every one of them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.checks import Check
from deeplinear._core.refusal import Refusal


@dataclass(frozen=True, repr=False)
class Layers:
    """One number for the input weights, one for all matrices between hidden layers, one for the readout.

    It prints as the mapping that arguments take.
    """

    input: float = 1.0
    hidden: float = 1.0
    readout: float = 1.0

    def __repr__(self) -> str:
        return repr(self.to_dict())

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by name."""
        return asdict(self)


PerLayer = Layers | tuple[float, ...] | None

_NAMES = tuple(each.name for each in fields(Layers))


@dataclass(frozen=True)
class LayerCheck:
    """A number for each weight layer, each of which is checked; None stands for 1."""

    each: Check

    @property
    def allowed(self) -> str:
        """What the check takes, in words."""
        return f"one number for each weight layer, or some of {', '.join(_NAMES)}; each {self.each.allowed}"

    def __call__(self, name: str, value: Any, /) -> PerLayer:
        """Return the numbers as they are kept."""
        if value is None:
            return None
        if isinstance(value, Layers):
            value = value.to_dict()
        if isinstance(value, Mapping):
            for key in value:
                if key not in _NAMES:
                    raise Refusal(name, value, f"no other names than {', '.join(_NAMES)}", verb="have", got=repr(key))
            return Layers(**{key: self.each(f"{name}[{key!r}]", each) for key, each in value.items()})
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise Refusal(name, value, self.allowed)
        return tuple(self.each(f"{name}[{index}]", each) for index, each in enumerate(value))


def every_layer(name: str, value: PerLayer, hidden: int | None) -> NDArray[Any]:
    """Return the number of each weight layer, first to last, shape (hidden + 2,).

    Parameters
    ----------
    name, value
        The argument.
    hidden
        Number of matrices between hidden layers; None if one entry stands for all of them, as at infinite depth.

    Examples
    --------
    >>> every_layer("layer_lr", Layers(readout=0.0), hidden=2)
    array([1., 1., 1., 0.])
    """
    check_count(name, value, hidden)
    if isinstance(value, tuple):
        return np.array(value)
    value = value or Layers()
    return np.array([value.input, *[value.hidden] * (1 if hidden is None else hidden), value.readout])


def check_count(name: str, value: PerLayer, hidden: int | None) -> None:
    """Refuse numbers that are not as many as there are weight layers; however many these are."""
    if not isinstance(value, tuple):
        return
    if hidden is None:
        raise Refusal(name, value, f"given as {', '.join(_NAMES)} in a network of so many layers")
    if len(value) != hidden + 2:
        allowed = f"one number for each of {hidden + 2} weight layers, or some of {', '.join(_NAMES)}"
        raise Refusal(name, value, allowed, got=f"{len(value)} values")


def spread(values: NDArray[Any], layers: int) -> NDArray[Any]:
    """Return the number of each of ``layers`` weight layers, where one entry may stand for all hidden matrices.

    Examples
    --------
    >>> spread(np.array([1.0, 0.5, 2.0]), layers=5)
    array([1. , 0.5, 0.5, 0.5, 2. ])
    """
    return values if len(values) == layers else np.array([values[0], *[values[1]] * (layers - 2), values[-1]])
