"""Fields of a problem by name: which there are, their values, and problems with other values."""

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from dataclasses import replace as replace_fields
from typing import Any, NamedTuple

from deeplinear._core.about import About, described
from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import PARTS, Problem


class Field(NamedTuple):
    """Where a value of a problem stands: in one of its parts, or (part is None) in the problem itself."""

    part: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.part is None else f"{self.part}.{self.name}"


def field_names(problem: Problem) -> tuple[str, ...]:
    """Return the names of all fields of a problem, short ones, each of its parts in turn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> field_names(dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10))[6:10]
    ('noise', 'target_gram', 'samples', 'lr')
    """
    return tuple(field.name for field in _fields(problem))


def find_field(problem: Problem, name: Any) -> Field:
    """Return the field that a name means: short as in "lr", or with its part as in "optimizer.lr"."""
    found = [field for field in _fields(problem) if name in (field.name, str(field))]
    if len(found) != 1:
        what = "is not a field of this problem" if not found else "is a field of more than one part"
        allowed = ", ".join(field_names(problem) if not found else [str(field) for field in found])
        raise Refusal(str(name), name, allowed, text=f"{name!r} {what}; allowed: {allowed}")
    return found[0]


def get_field(problem: Problem, name: str) -> Any:
    """Return the value of a field.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10)
    >>> get_field(problem, "samples"), get_field(problem, "network.width")
    (2.0, 1.0)
    """
    part, field = find_field(problem, name)
    return getattr(problem if part is None else getattr(problem, part), field)


def about_field(problem: Problem, name: str) -> About:
    """Return what is known of a field: its name in plain words, its symbol, what is allowed.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10)
    >>> about_field(problem, "samples").label
    'Data set size'
    """
    part, field = find_field(problem, name)
    return next(
        each.about for each in described(problem if part is None else getattr(problem, part)) if each.name == field
    )


def replace(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """Return the problem with other values in some of its fields, checked as at construction.

    Parameters
    ----------
    problem
        Where all other values come from.
    values
        New values by name: fields, short ("width") or with their part ("network.width"), or whole parts
        ("sampling"), to which fields given beside them belong.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10)
    >>> wider = replace(problem, {"network.width": 4.0, "steps": 20})
    >>> wider.network.width, wider.steps, wider.optimizer == problem.optimizer
    (4.0, 20, True)
    >>> replace(problem, {"sampling": dl.MultiPassSGD(2.0, 1.0), "batch": 0.5}).sampling
    MultiPassSGD(samples=2.0, batch=0.5)
    """
    parts = {name: value for name, value in values.items() if name in PARTS}
    # Names are those of the new parts; a problem with these may not be valid before it has the other values too.
    target = _unchecked(problem, parts)
    new = _by_part(target, {name: value for name, value in values.items() if name not in PARTS})
    changed = {name: replace_fields(getattr(target, name), **changes) for name, changes in new.items() if name}
    return replace_fields(problem, **(parts | changed | new.get(None, {})))


def replace_unchecked(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """Return the problem with values that construction would refuse, such as complex ones.

    Formulas of the parts, such as gamma0 of a network, then take these values.
    """
    new = _by_part(problem, values)
    changed = {name: _unchecked(getattr(problem, name), changes) for name, changes in new.items() if name}
    changed_problem: Problem = _unchecked(problem, changed | new.get(None, {}))
    return changed_problem


def _fields(problem: Problem) -> list[Field]:
    parts = {part: getattr(problem, part) for part in PARTS}
    known = {part: described(value) for part, value in parts.items() if is_dataclass(value)}
    own = (Field(None, each.name) for each in described(problem))
    return [*(Field(part, each.name) for part, fields in known.items() for each in fields), *own]


def _by_part(problem: Problem, values: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """Sort values by the part they belong to, under short names."""
    sorted_values: dict[str | None, dict[str, Any]] = {}
    for name, value in values.items():
        part, field = find_field(problem, name)
        changes = sorted_values.setdefault(part, {})
        if field in changes:
            names = " and ".join(each for each in values if field in each)
            raise Refusal(field, value, "given once", got=f"it as {names}")
        changes[field] = value
    return sorted_values


def _unchecked(data: Any, values: Mapping[str, Any]) -> Any:
    """Copy frozen data with other values, without its checks."""
    changed = copy.copy(data)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed
