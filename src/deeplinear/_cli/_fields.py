"""Fields of a problem as options of the command line, and the problem that given options describe.

Names, help, defaults and what is allowed come from the fields themselves; what is added here is how text is read.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear import Problem
from deeplinear._core.about import About, Described, Form, described, parts_of
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE

KINDS: dict[str, dict[str, Any]] = {
    part: {kind.kind.option: kind for kind in about.listed} for part, about in parts_of(Problem).items()
}
"""What each part of a problem may be, by its word on the command line; the first is the default."""


def number(text: str) -> int | float:
    """Read one number; whole numbers stay whole, up to the largest float, beyond which they are infinite."""
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return whole if abs(whole) <= sys.float_info.max else float(text)


def numbers(text: str) -> int | float | list[int | float]:
    """Read one number, or several between commas."""
    values = [number(each) for each in text.split(",")]
    return values if len(values) > 1 else values[0]


def series(text: str) -> Any:
    """Read one number, several between commas, or a schedule such as ``cosine(0.1, warmup=0.2)``."""
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if not found:
        return numbers(text)
    shape, inside = found.groups()
    words = [word.strip() for word in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", inside)]
    pairs = [word.split("=", 1) if "=" in word else ("peak", word) for word in words]
    return {"shape": shape} | {name.strip(): json.loads(value) for name, value in pairs}


def layers(text: str) -> Any:
    """Read one number for each weight layer between commas, or some such as ``input=1,readout=0``."""
    if "=" not in text:
        return [number(each) for each in text.split(",")]
    return {name.strip(): number(value) for name, value in (each.split("=", 1) for each in text.split(","))}


def sequence(text: str) -> Any:
    """Read numbers between commas, or JSON."""
    return json.loads(text) if "[" in text else [number(each) for each in text.split(",")]


def widths(text: str) -> Any:
    """Read numbers, or the word for infinite width."""
    return text if text == INFINITE else numbers(text)


def matrix(text: str) -> Any:
    """Read a matrix as JSON, or as rows between semicolons."""
    return json.loads(text) if "[" in text else [[number(each) for each in row.split(",")] for row in text.split(";")]


class Reader(NamedTuple):
    """How text becomes a value, what is expected of it in words, and whether several may stand in one option."""

    read: Callable[[str], Any]
    expected: str
    repeats: bool = False


_READERS: dict[Form, Reader] = {
    "number": Reader(number, "a number"),
    "whole": Reader(number, "a number"),
    "numbers": Reader(numbers, "a number, or several between commas", repeats=True),
    "series": Reader(series, "a number, several between commas, or a schedule such as 'cosine(0.1)'", repeats=True),
    "layers": Reader(layers, "one number for each weight layer, or some such as 'input=1,readout=0'", repeats=True),
    "list": Reader(sequence, "numbers between commas, or JSON", repeats=True),
    "matrix": Reader(matrix, "a matrix such as '1,0.2;0.2,1' or JSON"),
    "choice": Reader(str, "a word"),
    "switch": Reader(bool, "True or False"),
}
_WIDTHS = Reader(widths, f"a number, or several between commas, or {INFINITE}", repeats=True)


class Field(NamedTuple):
    """A field of a problem as an option; ``part`` is None for a field of the problem itself."""

    part: str | None
    name: str
    about: About
    default: Any

    @property
    def flag(self) -> str:
        """The option's name as it is typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def kinds(self) -> list[str]:
        """Words of the kinds that have this field."""
        return [word for word, kind in KINDS.get(self.part or "", {}).items() if self.name in names(kind)]

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.about.form == "switch"

    @property
    def reader(self) -> Reader:
        """How text becomes a value."""
        return _WIDTHS if self.about.form == "numbers" and self.about.infinite else _READERS[self.about.form]


def _all_fields() -> Iterator[Field]:
    """Fields of all kinds, each name once, then those of the problem itself."""
    for part, kinds in KINDS.items():
        found: dict[str, list[Described]] = {}
        for each in (each for kind in kinds.values() for each in described(kind)):
            found.setdefault(each.name, []).append(each)
        for name, of_kinds in found.items():
            about = replace(of_kinds[0].about, infinite=any(each.about.infinite for each in of_kinds))
            yield Field(part, name, about, of_kinds[0].default)
    yield from (Field(None, each.name, each.about, each.default) for each in described(Problem))


def names(kind: Any) -> list[str]:
    """Names of the fields that a kind is made from."""
    return [each.name for each in described(kind)]


FIELDS = tuple(_all_fields())
"""Every field of a problem."""


def problem_from(values: dict[str, Any]) -> Problem:
    """Build a problem from a file or from defaults, with the options that were given in place of its fields."""
    path: Path | None = values["problem"]
    document: dict[str, Any] = tomllib.loads(Problem.load(path).to_toml()) if path else {}
    given = {field: _read(field, values[field.name]) for field in FIELDS if values[field.name] not in (None, [])}
    kinds = {part: _kind(part, values.get(part), document.get(part)) for part in KINDS}
    proportional = values["proportional"] or document.get("data", {}).get("proportional", False)
    counts = kinds["data"].counts(proportional)
    for part, kind in kinds.items():
        kept = {name: value for name, value in document.get(part, {}).items() if name in names(kind)}
        fallback = _defaults(kind, counts, required_only=path is not None)
        document[part] = {"type": kind.__name__} | fallback | kept | _options(part, kind, given)
    steps = {field.name: value for field, value in given.items() if field.part is None}
    return Problem.from_dict({"steps": _field("steps").about.start} | document | steps)


def _options(part: str, kind: Any, given: dict[Field, Any]) -> dict[str, Any]:
    """Return the values given for one part, all of which must suit its kind."""
    for field in given:
        if field.part == part and field.name not in names(kind):
            word = next(word for word, each in KINDS[part].items() if each is kind)
            allowed = " or ".join(field.kinds)
            text = f"{field.flag} does not go with {part} {word}; it goes with {allowed}"
            raise Refusal(field.name, given[field], allowed, text=text)
    return {field.name: value for field, value in given.items() if field.part == part}


def _kind(part: str, word: str | None, table: dict[str, Any] | None) -> Any:
    kinds = KINDS[part]
    if word is not None:
        if word not in kinds:
            raise Refusal(part, word, " or ".join(kinds))
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
    except ValueError:  # also what json raises
        message = f"{field.flag} must be {field.reader.expected}, got {text!r}"
        raise Refusal(field.name, text, field.reader.expected, text=message) from None


def _field(name: str) -> Field:
    return next(field for field in FIELDS if field.name == name)
