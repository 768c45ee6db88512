"""Fields of a problem by name: which there are, their values, and problems with other values.

A name is short, as ``lr``, or has its part, as ``optimizer.lr``. Fields of a rule inside of another, and of phases,
which are counted from 0, have the path to them: ``other.lr`` or ``optimizer.other.lr``, ``phases.1.noise``,
``phases.1.lr`` or ``phases.1.optimizer.lr``.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from dataclasses import replace as replace_fields
from functools import cache
from typing import Any, NamedTuple

from deeplinear._core.about import About, described, parts_of
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import did_you_mean
from deeplinear._problem.problem import PARTS, Problem

_RULES = ("sampling", "optimizer", "other")
"""Fields that are rules with fields of their own."""

_WHOLE = (*PARTS, "phases")
"""What may be given as a whole."""


class Field(NamedTuple):
    """Where a value of a problem stands: at a path of names and numbers, which is empty for the problem itself."""

    path: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join([*self.path, self.name])

    @property
    def short(self) -> str:
        """The name without the parts that it goes without saying."""
        return short_name(str(self))


@cache
def _names_of(field: Field) -> tuple[str, str]:
    return field.short, str(field)


def short_name(field: str) -> str:
    """Return the short name of a field that is given with all of its path.

    Examples
    --------
    >>> short_name("optimizer.lr"), short_name("optimizer.other.lr"), short_name("phases.1.sampling")
    ('lr', 'other.lr', 'phases.1.sampling')
    """
    *path, name = field.split(".")
    return ".".join([*(step for step in path if step not in PARTS), name])


def field_names(problem: Problem) -> tuple[str, ...]:
    """Return the names of all fields of a problem and its parts, short ones, each part in turn; none with a path.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> field_names(dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10))[6:10]
    ('noise', 'target_gram', 'samples', 'lr')
    """
    return tuple(field.name for field in all_fields(problem) if field.short == field.name)


def find_field(problem: Problem, name: Any) -> Field:
    """Return the field that a name means: short as in "lr", or with its path as in "optimizer.lr"."""
    return _found(problem, name, all_fields(problem))


def _found(problem: Problem, name: Any, every: list[Field]) -> Field:
    found = [field for field in every if name in _names_of(field)]
    if len(found) != 1:
        short = [field.short for field in every]
        what = "is a field of more than one part"
        if not found:
            what = f"is not a field of this problem{_whose(problem, str(name)) or did_you_mean(str(name), short)}"
        allowed = ", ".join([field.short for field in every] if not found else [str(field) for field in found])
        raise Refusal(str(name), name, allowed, text=f"{name!r} {what}; allowed: {allowed}")
    return found[0]


def _whose(problem: Problem, name: str) -> str:
    """Say which other kinds of a part have a field, where that of a problem has not; empty if none has."""
    for part, about in parts_of(Problem).items():
        having = [
            kind.kind.call or kind.__name__ for kind in about.kinds if name.removeprefix(f"{part}.") in _names(kind)
        ]
        if having:
            own = type(getattr(problem, part)).__name__
            verb = "has" if len(having) == 1 else "have"
            return f": {part} is {own}, and {' and '.join(having)} {verb} it"
    return ""


def _names(kind: Any) -> list[str]:
    return [each.name for each in described(kind)]


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
    path, field = find_field(problem, name)
    return getattr(get_part(problem, path), field)


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
    path, field = find_field(problem, name)
    return next(each.about for each in described(get_part(problem, path)) if each.name == field)


def replace(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """Return the problem with other values in some of its fields, checked as at construction.

    Parameters
    ----------
    problem
        Where all other values come from.
    values
        New values by name: fields, short ("width") or with their path ("network.width"), or whole parts
        ("sampling"), to which fields given beside them belong. Where the steps of a phase change, so do those of the
        problem, unless these are given.

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
    >>> tuned = replace(problem, {"phases": (dl.Phase(5), dl.Phase(5, 0.5))})
    >>> longer = replace(tuned, {"phases.1.steps": 20})
    >>> longer.phases[1].steps, longer.steps
    (20, 25)
    """
    parts = {name: value for name, value in values.items() if name in _WHOLE}
    # Names are those of the new parts; a problem with these may not be valid before it has the other values too.
    target = _unchecked(problem, **parts) if parts else problem
    new = _tree(target, {name: value for name, value in values.items() if name not in _WHOLE})
    if "steps" not in new and any("steps" in changes for changes in new.get("phases", _Tree()).values()):
        new["steps"] = sum(phase.steps for phase in _changed(target.phases, new["phases"], replace_fields))
    own = {name: _changed(getattr(target, name), each, replace_fields) for name, each in new.items() if _is_tree(each)}
    return replace_fields(problem, **(parts | {name: own.get(name, value) for name, value in new.items()}))


def replace_unchecked(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """Return the problem with values that construction would refuse, such as complex ones.

    Formulas of the parts, such as gamma0 of a network, then take these values.
    """
    changed: Problem = _changed(problem, _tree(problem, values), _unchecked)
    return changed


def all_fields(problem: Problem) -> list[Field]:
    """Return all fields of a problem, of rules inside of its parts, and of its phases."""
    inside: list[Field] = []
    for part in PARTS:
        inside += _fields_of(getattr(problem, part), (part,))
    own = [Field((), each.name) for each in described(problem)]
    phases = problem.phases if isinstance(problem.phases, tuple | list) else ()  # type: ignore[redundant-expr]
    for number, phase in enumerate(phases):
        own += _fields_of(phase, ("phases", str(number)))
    return inside + own


def _fields_of(part: Any, path: tuple[str, ...]) -> list[Field]:
    """Fields of a part, and then those of rules inside of it."""
    if not is_dataclass(part):
        return []
    names = [each.name for each in described(part)]
    found = [Field(path, name) for name in names]
    for name in _RULES:
        if name in names:
            found += _fields_of(getattr(part, name), (*path, name))
    return found


def get_part(problem: Problem, path: tuple[str, ...]) -> Any:
    """What stands at a path of names and numbers."""
    place: Any = problem
    for step in path:
        place = place[int(step)] if isinstance(place, tuple | list) else getattr(place, step)
    return place


class _Tree(dict[str, Any]):
    """New values by name; of a part, another tree."""


def _is_tree(value: Any) -> bool:
    return isinstance(value, _Tree)


def _tree(problem: Problem, values: Mapping[str, Any]) -> _Tree:
    """Sort values by where they belong."""
    whole, every = _Tree(), all_fields(problem) if values else []
    for name, value in values.items():
        path, field = _found(problem, name, every)
        branch = whole
        for step in path:
            branch = branch.setdefault(step, _Tree())
            if not _is_tree(branch):
                raise Refusal(step, branch, "given whole, or some of its fields", got=f"both, with {name}")
        if field in branch:
            names = " and ".join(each for each in values if field in each)
            raise Refusal(field, value, "given once", got=f"it as {names}")
        branch[field] = value
    return whole


def _changed(place: Any, changes: _Tree, put: Callable[..., Any]) -> Any:
    """Copy frozen data with other values at any depth."""
    if isinstance(place, tuple | list):
        return tuple(_changed(each, changes.get(str(number), _Tree()), put) for number, each in enumerate(place))
    new = {
        name: _changed(getattr(place, name), value, put) if _is_tree(value) else value
        for name, value in changes.items()
    }
    return put(place, **new) if new else place


def _unchecked(data: Any, /, **values: Any) -> Any:
    """Copy frozen data with other values, without its checks."""
    changed = copy.copy(data)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed
