"""How text on the command line becomes the value of a field."""

import ast
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from deeplinear import schedules
from deeplinear._core import checks
from deeplinear._core.about import About, Form
from deeplinear._core.words import INFINITE


def number(text: str) -> int | float:
    """Read one number; whole numbers stay whole, up to the largest float, beyond which they are infinite."""
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return whole if abs(whole) <= sys.float_info.max else float(text)


def numbers(text: str) -> int | float | list[int | float]:
    """Read one number, or several separated by commas."""
    values = [number(each) for each in text.split(",")]
    return values if len(values) > 1 else values[0]


def series(text: str) -> Any:
    """Read one number, several separated by commas, or a schedule, as the mapping that TOML has for it.

    Examples
    --------
    >>> series("cosine(0.1, warmup=0.2)")
    {'shape': 'cosine', 'peak': 0.1, 'warmup': 0.2}
    >>> series("0.1,0.2")
    [0.1, 0.2]
    """
    if "(" not in text:
        return numbers(text)
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        given = [ast.literal_eval(each) for each in call.args]
        options = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError from error
    shape = checks.word("the shape of a schedule", call.func.id, schedules.SHAPES)
    known = list(inspect.signature(getattr(schedules, shape)).parameters)
    if None in options or len(given) > len(known):
        raise ValueError
    return {"shape": shape} | dict(zip(known, given, strict=False)) | options


def layers(text: str) -> Any:
    """Read one number for each weight layer separated by commas, or some by name, such as ``input=1,readout=0``."""
    if "=" not in text:
        return [number(each) for each in text.split(",")]
    return {name.strip(): number(value) for name, value in (each.split("=", 1) for each in text.split(","))}


def sequence(text: str) -> Any:
    """Read numbers separated by commas, or JSON."""
    return json.loads(text) if "[" in text else [number(each) for each in text.split(",")]


def widths(text: str) -> Any:
    """Read numbers, or the word for infinite width."""
    return text if text == INFINITE else numbers(text)


def matrix(text: str) -> Any:
    """Read a matrix as JSON, or as rows between semicolons."""
    return json.loads(text) if "[" in text else [[number(each) for each in row.split(",")] for row in text.split(";")]


def word_or_number(text: str) -> Any:
    """Read a number where it is one, and else a word."""
    try:
        return number(text)
    except ValueError:
        return text


class Reader(NamedTuple):
    """How text becomes a value, what is expected of it in words, and whether several may stand in one option."""

    read: Callable[[str], Any]
    expected: str
    repeats: bool = False


_READERS: dict[Form, Reader] = {
    "number": Reader(number, "a number"),
    "whole": Reader(number, "a number"),
    "numbers": Reader(numbers, "a number, or several separated by commas", repeats=True),
    "series": Reader(
        series, "a number, several separated by commas, or a schedule such as 'cosine(0.1)'", repeats=True
    ),
    "layers": Reader(
        layers, "one number for each weight layer, or some by name, such as 'input=1,readout=0'", repeats=True
    ),
    "list": Reader(sequence, "numbers separated by commas, or JSON", repeats=True),
    "matrix": Reader(matrix, "a matrix such as '1,0.2;0.2,1' or JSON"),
    "choice": Reader(str, "a word"),
    "word or number": Reader(word_or_number, "a word or a number"),
    "switch": Reader(bool, "True or False"),
}
_WIDTHS = Reader(widths, f"a number, or several separated by commas, or {INFINITE}", repeats=True)


def reader_of(about: About) -> Reader:
    """Return how the values of a field are read."""
    return _WIDTHS if about.form == "numbers" and about.infinite else _READERS[about.form]
