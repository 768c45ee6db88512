"""The numbers of a rule at a step: a rule bound to it has them in the place of its fields."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.about import described, keep
from deeplinear._core.arrays import Array, beside, namespace
from deeplinear._rules.layers import every_layer
from deeplinear._rules.numbers import Numbers
from deeplinear._rules.rule import Rule

Units = Callable[[Rule], tuple[NDArray[Any], NDArray[Any]]]
"""Of a rule: the units of its rate in each weight layer, and the fan-in that squared gradients are larger by."""


def fields_of(rule: Rule) -> Iterator[tuple[str, Rule, str, str]]:
    """Yield the fields that are numbers, of a rule and of those that it holds: path, rule, name, and form."""
    for path, part in rule.parts.items():
        for each in described(type(part)):
            if each.about.form in ("number", "series", "layers"):
                yield (f"{path}." if path else "") + each.name, part, each.name, each.about.form


def numbers_of(rule: Rule, steps: int, hidden: int | None, units: Units) -> dict[str, NDArray[Any]]:
    """Return the numbers of a rule by path, each of shape (steps or 1, weight layers or 1).

    Fields that are not given are left out; factors of layers are 1 then.
    """
    found: dict[str, NDArray[Any]] = {}
    for path, part, name, form in fields_of(rule):
        value = getattr(part, name)
        if form == "layers":
            found[path] = every_layer(name, value, hidden)[None]
        elif value is not None:
            is_series = form == "series" and name in part.series and not isinstance(value, float | int | complex)
            found[path] = part.values(name, steps)[:, None] if is_series else np.array([[value]])
    for path, part in rule.parts.items():
        before = f"{path}." if path else ""
        unit, fan_in = units(part)
        found[f"{before}lr"] = found[f"{before}lr"] * unit
        found[f"{before}fan_in"] = fan_in[None]
    return found


class Bound:
    """A rule of a batch of problems, whose numbers are taken step after step.

    Parameters
    ----------
    rule
        The rule of one of them; the others differ in numbers only.
    each
        The numbers of each, as ``numbers_of`` has them.
    kind
        float, or complex where some are.
    like
        An array of the library and device that they are for.

    Attributes
    ----------
    zeros
        Paths of the numbers that are 0 in all problems and steps: these are plain zeros, and what they multiply is not
        computed.
    """

    def __init__(self, rule: Rule, each: Sequence[Mapping[str, NDArray[Any]]], kind: type, like: Array) -> None:
        self._rule, self._like = rule, like
        stacked = {name: np.stack(np.broadcast_arrays(*(one[name] for one in each)), axis=-1) for name in each[0]}
        self.zeros: tuple[str, ...] = tuple(name for name, values in stacked.items() if not values.any())
        self._ones = tuple(name for name, values in stacked.items() if (values == 1).all())
        self._values = {
            name: beside(np.ascontiguousarray(values.astype(kind, copy=False)), like)
            for name, values in stacked.items()
        }
        self._fixed: dict[str, Any] = {}
        for name, values in self._values.items():
            if name in self.zeros or name in self._ones:
                self._fixed[name] = 0.0 if name in self.zeros else 1
            elif len(values) == 1:
                self._fixed[name] = Numbers(values[0])
        self._changing = [name for name in self._values if name not in self._fixed]
        self._at_rest = None if self._changing else bound(rule, self._fixed)

    def at(self, t: int) -> Rule:
        """Return the rule at a step."""
        if self._at_rest is not None:
            return self._at_rest
        return bound(self._rule, self._fixed | {name: Numbers(self._values[name][t]) for name in self._changing})

    def over(self, steps: slice) -> Rule:
        """Return the rule with its numbers at several steps at once, which are the last axis."""
        values = dict(self._fixed)
        for name, fixed in self._fixed.items():
            if isinstance(fixed, Numbers):
                values[name] = Numbers(fixed.values[..., None])
        for name in self._changing:
            values[name] = Numbers(namespace(self._like).moveaxis(self._values[name][steps], 0, -1))
        return bound(self._rule, values)


def bound(rule: Rule, values: Mapping[str, Any]) -> Rule:
    """Return a rule with other values in its fields, by path, which are not checked."""
    made = object.__new__(type(rule))
    keep(made, **vars(rule))
    own = {name: value for name, value in values.items() if "." not in name}
    for path, part in rule.parts.items():
        if path:
            inside = {
                name.removeprefix(f"{path}."): value for name, value in values.items() if name.startswith(f"{path}.")
            }
            own[path] = bound(part, inside)
    keep(made, **own)
    return made
