"""Grids as the command line has them: text such as ``lr=0.01,0.02`` or a table in a file."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear._cli._readers import number, series
from deeplinear._core.files import by_path, read_toml
from deeplinear._core.refusal import Refusal

_RANGE = re.compile(r"([^:,]+):([^:,]+):(\d+)(log)?")
_UNCOUNTED = re.compile(r"[-+.\deE]+:[-+.\deE]+")
_BETWEEN = re.compile(r",(?![^(]*\))")  # a comma that is not in the parentheses of a schedule
_MOST_VALUES = 1_000_000
_FORMS = f"values separated by commas, low:high:count (at most {_MOST_VALUES}), low:high:countlog, or JSON"


def read_values(name: str, text: str) -> list[Any]:
    """Read the values of one field, or of an option, which has a name in messages.

    Examples
    --------
    >>> read_values("width", "0.5:8:5log")
    [0.5, 1.0, 2.0, 4.0, 8.0]
    >>> read_values("depth", "2:8:4")
    [2, 4, 6, 8]
    >>> read_values("width", "1,2,infinite"), read_values("centered", "true,false")
    ([1, 2, 'infinite'], [True, False])
    >>> read_values("width", "[[1, 2], [2, 1]]")
    [[1, 2], [2, 1]]
    >>> read_values("lr", "0.1,cosine(0.1, warmup=0.2)")
    [0.1, {'shape': 'cosine', 'peak': 0.1, 'warmup': 0.2}]
    """
    text = text.strip()
    try:
        spaced = _RANGE.fullmatch(text)
        if spaced:
            return _spaced(number(spaced[1]), number(spaced[2]), int(spaced[3]), bool(spaced[4]))
        if text.startswith("["):
            values: list[Any] = json.loads(text)
            return values
    except ValueError:
        raise Refusal(name, text, _FORMS) from None
    if _UNCOUNTED.fullmatch(text):
        low_high = "a range is low:high:count, or low:high:countlog for equal ratios"
        raise Refusal(name, text, _FORMS, text=f"{name}: {low_high}; {text!r} has no count, such as {text}:5")
    return [_word(each.strip()) for each in _BETWEEN.split(text) if each.strip()]


def read_over(texts: list[str]) -> dict[str, list[Any]]:
    """Read options such as ``lr=0.01,0.02``, one for each field."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise Refusal("--over", text, f"FIELD=VALUES, with {_FORMS}")
        if name.strip() in grid:
            raise Refusal("--over", text, "every field once", verb="have", got=f"{name.strip()} twice")
        grid[name.strip()] = read_values(f"--over {name.strip()}", values)
    return grid


def read_file(path: Path) -> dict[str, list[Any]]:
    """Read the table ``grid`` of a TOML file, whose values are lists or text as on the command line."""
    document = read_toml(path)
    grid = document.get("grid")
    if not isinstance(grid, dict) or set(document) != {"grid"}:
        got = ", ".join(document) or "nothing"
        raise Refusal(f"{path}", document, "a table [grid] and nothing else", verb="have", got=got)
    return {name: _from_toml(path, name, values) for name, values in by_path(grid).items()}


def _from_toml(path: Path, name: str, values: Any) -> list[Any]:
    if isinstance(values, str):
        return read_values(f"{path}: grid.{name}", values)
    if not isinstance(values, list):
        raise Refusal(f"{path}: grid.{name}", values, "a list or text such as '0.5:8:5log'")
    return values


def _spaced(low: float, high: float, count: int, is_log: bool) -> list[Any]:
    if (is_log and not 0 < low <= high) or not 1 <= count <= _MOST_VALUES:
        raise ValueError
    values = np.geomspace(low, high, count) if is_log else np.linspace(low, high, count)
    rounded = [float(f"{value:.12g}") for value in values]  # what people would write
    if isinstance(low, int) and isinstance(high, int) and all(value.is_integer() for value in rounded):
        return [int(value) for value in rounded]
    return rounded


def _word(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return series(text) if "(" in text else number(text)
    except ValueError:
        return text
