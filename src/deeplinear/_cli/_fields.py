"""Fields of a problem as options of the command line, and the problem that given options describe.

Names, help, defaults and what is allowed come from the fields themselves; ``_readers`` has how text is read.
"""

import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear import GradientDescent, Problem
from deeplinear._cli._readers import Reader, reader_of
from deeplinear._core.about import About, Described, described, parts_of
from deeplinear._core.files import read_toml, read_toml_from
from deeplinear._core.refusal import Refusal, check_names, gather_unknown
from deeplinear._core.words import did_you_mean

KINDS: dict[str, dict[str, Any]] = {
    part: {kind.kind.option: kind for kind in about.listed} for part, about in parts_of(Problem).items()
}
"""What each part of a problem may be, by its word on the command line; the first is the default."""

_RULE_FIELDS = [each for each in described(GradientDescent) if not each.name.startswith("clip")]
"""Fields of an update rule that is itself a field of another."""


class Field(NamedTuple):
    """A field of a problem as an option; ``part`` is None for a field of the problem itself.

    ``defaults`` are those of the kinds that have it, by their words. Fields of an update rule within another have the
    name of that rule in ``inside``, and in front of their own.
    """

    part: str | None
    name: str
    about: About
    defaults: tuple[tuple[str, Any], ...]
    inside: str = ""

    @property
    def flag(self) -> str:
        """The option's name as it is typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """The name in its own part or rule."""
        return self.name.removeprefix(f"{self.inside}_") if self.inside else self.name

    @property
    def kinds(self) -> list[str]:
        """Words of the kinds that have this field."""
        return [word for word, _ in self.defaults] if self.part else []

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.about.form == "switch"

    @property
    def reader(self) -> Reader:
        """How text becomes a value."""
        return reader_of(self.about)


def _all_fields() -> Iterator[Field]:
    """Fields of all kinds, each name once, then those of the problem itself."""
    for part, kinds in KINDS.items():
        found: dict[str, dict[str, Described]] = {}
        for word, kind in kinds.items():
            for each in described(kind):
                found.setdefault(each.name, {})[word] = each
        for name, of_kinds in found.items():
            first = next(iter(of_kinds.values())).about
            if first.form == "rule":
                yield from _rule_fields(part, name, tuple(of_kinds))
                continue
            about = replace(first, infinite=any(each.about.infinite for each in of_kinds.values()))
            yield Field(part, name, about, tuple((word, each.default) for word, each in of_kinds.items()))
    yield from (Field(None, each.name, each.about, (("", each.default),)) for each in described(Problem))


def _rule_fields(part: str, rule: str, kinds: tuple[str, ...]) -> Iterator[Field]:
    for each in _RULE_FIELDS:
        about = replace(each.about, help=f"For the {rule} weights: {each.about.help}", start=None)
        yield Field(part, f"{rule}_{each.name}", about, tuple((word, each.default) for word in kinds), rule)


def names(kind: Any) -> list[str]:
    """Names of the fields that a kind is made from."""
    return [each.name for each in described(kind)]


FIELDS = tuple(_all_fields())
"""Every field of a problem."""


def problem_from(values: dict[str, Any]) -> Problem:
    """Build a problem from a file or from defaults, with the options that were given in place of its fields."""
    path: Path | None = values["problem"]
    document: dict[str, Any] = _from_file(path) if path else {}
    in_file = set(document)
    given = {field: _read(field, values[field.name]) for field in FIELDS if values[field.name] not in (None, [])}
    kinds = {part: _kind(part, values.get(part), document.get(part)) for part in KINDS}
    proportional = values["proportional"] or document.get("data", {}).get("proportional", False)
    counts = kinds["data"].counts(proportional)
    for part, kind in kinds.items():
        fallback = _defaults(kind, counts, required_only=part in in_file)
        table = {"type": kind.__name__} | fallback | _kept(kind, document.get(part, {}))
        document[part] = table | _options(part, kind, given, table)
    steps = {field.name: value for field, value in given.items() if field.part is None}
    found = Problem.from_dict({"steps": _field("steps").about.start} | document | steps)
    if found.hint:
        warnings.warn(found.hint, stacklevel=2)
    return found


def _from_file(path: Path) -> dict[str, Any]:
    """Read a problem of which parts, or fields that have to be given, may be missing; every word must be known."""
    document = read_toml_from(sys.stdin.buffer, "standard input") if str(path) == "-" else read_toml(path)
    try:
        if _is_whole(document):
            return tomllib.loads(Problem.from_dict(document).to_toml())
        given = [name for name in document if name in KINDS]
        _, *tables = gather_unknown(
            [
                partial(check_names, "the problem", document, [*KINDS, "steps", "phases"]),
                *(partial(_checked_table, name, document[name]) for name in given),
            ]
        )
        document |= dict(zip(given, tables, strict=True))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return document


def _is_whole(document: dict[str, Any]) -> bool:
    """Whether nothing that has to be given is missing."""
    if not all(isinstance(document.get(part), dict) for part in KINDS) or "steps" not in document:
        return False
    kinds = {part: _by_type(part).get(document[part].get("type", _first(part))) for part in KINDS}
    required = {
        part: [each.name for each in described(kind) if each.is_required] for part, kind in kinds.items() if kind
    }
    return all(name in document[part] for part, fields in required.items() for name in fields)


def _checked_table(part: str, table: Any) -> dict[str, Any]:
    """Return the table of a part with its type, if its words are known."""
    if not isinstance(table, dict):
        raise Refusal(part, table, "a table")
    by_type, word = _by_type(part), table.get("type", _first(part))
    if word not in by_type:
        raise Refusal(f"{part}.type", word, " or ".join(map(repr, by_type)))
    check_names(part, table, ["type", *(each.name for each in fields(by_type[word]) if each.init)])
    return {"type": word} | table


def _by_type(part: str) -> dict[str, Any]:
    return {kind.__name__: kind for kind in parts_of(Problem)[part].kinds}


def _first(part: str) -> str:
    """Name of the kind that a table means which has no type."""
    return next(iter(_by_type(part)))


def _kept(kind: Any, table: dict[str, Any]) -> dict[str, Any]:
    """Fields of the part of a file that stay; those of another kind only where they are not its defaults."""
    same = table.get("type") == kind.__name__
    by_name = {each.__name__: each for kinds in KINDS.values() for each in kinds.values()}
    usual = {} if same or not table else {each.name: each.default for each in described(by_name[table["type"]])}
    shared = {name: value for name, value in table.items() if name in names(kind)}
    return {name: value for name, value in shared.items() if name not in usual or value != usual[name]}


def _options(part: str, kind: Any, given: dict[Field, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Return the values given for one part, all of which must suit its kind."""
    word = next(word for word, each in KINDS[part].items() if each is kind)
    mine = {field: value for field, value in given.items() if field.part == part}
    for field, value in mine.items():
        if word not in field.kinds:
            allowed = " or ".join(field.kinds)
            text = f"{field.flag} cannot be used with {part} {word}, only with {allowed}"
            raise Refusal(field.name, value, allowed, text=text)
    options = {field.name: value for field, value in mine.items() if not field.inside}
    for rule in {field.inside for field in mine if field.inside}:
        lr = (table | options)["lr"]
        own = {field.key: value for field, value in mine.items() if field.inside == rule}
        options[rule] = {"lr": lr} | table.get(rule, {}) | own
    return options


def _kind(part: str, word: str | None, table: dict[str, Any] | None) -> Any:
    kinds = KINDS[part]
    if word is not None:
        if word not in kinds:
            rest = parts_of(Problem)[part].why_missing(word) or did_you_mean(word, kinds)
            raise Refusal(part, word, " or ".join(kinds), rest=rest)
        return kinds[word]
    by_name = {kind.__name__: kind for kind in kinds.values()}
    return by_name[table["type"]] if table else next(iter(kinds.values()))


def _defaults(kind: Any, counts: bool, required_only: bool) -> dict[str, Any]:
    """Defaults of the command line for the fields of one kind."""
    return {
        each.name: each.about.count if counts and each.about.count else each.about.start
        for each in described(kind)
        if each.about.start is not None and (each.is_required or not required_only)
    }


def _read(field: Field, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    text = ",".join(value) if field.reader.repeats else value
    try:
        return field.reader.read(text)
    except Refusal as refusal:
        raise Refusal(field.name, text, refusal.allowed, text=f"{field.flag}: {refusal}") from None
    except ValueError:  # also what json raises
        message = f"{field.flag} must be {field.reader.expected}, got {text!r}"
        raise Refusal(field.name, text, field.reader.expected, text=message) from None


def _field(name: str) -> Field:
    return next(field for field in FIELDS if field.name == name)
