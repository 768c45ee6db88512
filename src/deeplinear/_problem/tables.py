"""Parts of a problem as tables of a TOML file, and back."""

import warnings
from dataclasses import fields, replace
from typing import Any

from deeplinear._core import checks
from deeplinear._core.about import AboutPart, described
from deeplinear._core.refusal import Refusal, check_names
from deeplinear._core.words import counted
from deeplinear._problem.phase import ABOUT_OPTIMIZER, ABOUT_SAMPLING, SAMPLINGS, Phase
from deeplinear._rules.descent import GradientDescent
from deeplinear._rules.layers import Layers
from deeplinear._rules.rule import Rule
from deeplinear._rules.schedules import Schedule

_OWN = {
    "optimizer": ABOUT_OPTIMIZER,
    "sampling": ABOUT_SAMPLING,
    "other": replace(ABOUT_OPTIMIZER, kinds=(GradientDescent,)),
}
"""Fields of phases and of parts that are parts themselves."""


def table_of(part: Any) -> dict[str, Any]:
    """Fields of a part, or of a phase, that TOML can hold; absent options are left out."""
    values = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
    known = {"type": type(part).__name__} | {name: _plain(value) for name, value in values.items() if value is not None}
    return known | {"source": part.source()} if isinstance(part, Rule) and part.is_own else known


def _plain(value: Any) -> Any:
    if isinstance(value, Schedule | Layers):
        return value.to_dict()
    return table_of(value) if isinstance(value, (Rule, *SAMPLINGS)) else value


def phase_table(phase: Phase) -> dict[str, Any]:
    """Fields of a phase, likewise."""
    return {name: value for name, value in table_of(phase).items() if name != "type"}


def read_phase(table: Any) -> Phase:
    """Return a phase from its table."""
    if not isinstance(table, dict):
        raise Refusal("phases", table, "a list of tables")
    check_names("phases", table, [each.name for each in fields(Phase)])
    phase: Phase = _made("phases", Phase, table)
    return phase


def read_part(name: str, table: Any, about: AboutPart) -> Any:
    """Return a part of one of several kinds from its table."""
    if not isinstance(table, dict):
        raise Refusal(name, table, "a table")
    by_name = {kind.__name__: kind for kind in about.kinds}
    word = table.get("type", about.kinds[0].__name__)
    if why := about.why_missing(word):
        raise Refusal(f"{name}.type", word, " or ".join(map(repr, by_name)), rest=why)
    kind = by_name[checks.word(f"{name}.type", word, list(by_name))]
    if (source := table.get("source")) and issubclass(kind, Rule) and kind.is_own and source != kind.source():
        warnings.warn(f"{name}: {word} reads otherwise than when this was written", stacklevel=2)
    own = {"type", "source"} if issubclass(kind, Rule) and kind.is_own else {"type"}
    return _made(name, kind, {key: value for key, value in table.items() if key not in own})


def _made(name: str, kind: type, table: dict[str, Any]) -> Any:
    """Return a part from its table; a part of its own in it is a table too."""
    known = [each.name for each in fields(kind) if each.init]
    check_names(name, table, ["type", *known])
    values = {key: read_part(key, value, _OWN[key]) if key in _OWN else value for key, value in table.items()}
    if missing := [each.name for each in described(kind) if each.is_required and each.name not in values]:
        what = counted(len(missing), "required positional argument")
        raise ValueError(f"{name}: missing {what}: {' and '.join(map(repr, missing))}")
    return kind(**values)
