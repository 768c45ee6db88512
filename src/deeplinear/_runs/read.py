"""Runs from tables: CSV files, data frames, exports of Weights & Biases, event files of TensorBoard."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._experiment.event_files import event_files, read_scalars
from deeplinear._experiment.tables import (
    EXTREMES,
    as_numbers,
    first_not_a_number,
    groups_of,
    is_table,
    names_of,
    plain_name,
    read_csv,
)
from deeplinear._runs.run import Run

Array = NDArray[np.float64]

_LOSSES = (
    re.compile(r"^loss$"),
    re.compile(r"(train|training)_loss$|loss_(train|training)$"),
    re.compile(r"_loss$|loss_(test|val|valid|validation|eval)$"),
)
"""What the column of the loss may be called; the first that one matches."""

_RATES = (re.compile(r"(lr|learning_rate)$"), re.compile(r"(^|_)(lr|learning_rate)(_|$)"))

_STEPS = (re.compile(r"(^|_)steps?$"), re.compile(r"(iter|iterations?|t|time)$"))


def read_runs(
    source: Any, *, steps: str | None = None, loss: str | None = None, lr: Any = None, **more: Any
) -> list[Run]:
    """Read runs from a table: a CSV file, a DataFrame, an export of Weights & Biases, event files of TensorBoard.

    Parameters
    ----------
    source
        Path of a CSV file, of an event file, or of a folder of them (each of which is a run); or a dictionary or
        DataFrame. Several runs may stand in one table: in columns such as ``run 1 - loss``, or in rows that a column
        ``run`` or ``seed`` tells apart.
    steps, loss, lr
        Names of columns, where they are not ``step``, ``loss`` and ``lr`` or the like. ``lr`` may also be what ``Run``
        takes. Rows without a loss only tell the rate.
    more
        ``warmup``, ``smoothing`` and ``total`` of every run, as ``Run`` takes them.

    Returns
    -------
    list of Run
        One or more runs.

    Examples
    --------
    >>> table = {"step": range(10, 101, 10), "loss": [4 / s**0.5 for s in range(1, 11)], "lr": [0.1] * 10}
    >>> read_runs(table)
    [Run('run': 10 losses from 4 to 1.26, steps 10 to 100, rate 0.1)]
    """
    parts = [part for name, whole in _tables(source) for part in _parts(name, whole)]
    return [_run(table, where, steps, loss, lr, more) for where, table in parts]


def _tables(source: Any) -> list[tuple[str, dict[str, Array | None]]]:
    """Columns of each table, and its name."""
    if is_table(source):
        return [("run", source)]
    if not isinstance(source, str | Path):
        allowed = "a Run, the path of a CSV or event file, or a table with named columns"
        raise Refusal("source", source, allowed, got=type(source).__name__)
    path = Path(source)
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if files := event_files(path):
        return [(file.parent.name or file.name, _of_events(file)) for file in files]
    if path.is_dir():
        raise ValueError(f"{path} has no TensorBoard event files; name a CSV file or an event file")
    try:
        return [(path.stem, read_csv(path))]  # type: ignore[list-item]
    except (UnicodeDecodeError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ValueError(f"{path} is neither a CSV file nor a TensorBoard event file") from None
        raise


def _of_events(file: Path) -> dict[str, Array | None]:
    scalars = read_scalars(file)
    steps = sorted({step for values in scalars.values() for step in values})
    columns: dict[str, Array | None] = {"step": np.array(steps, float)}
    for tag, values in scalars.items():
        columns[tag] = np.array([values.get(step, np.nan) for step in steps])
    return columns


def _parts(name: str, table: Any) -> list[tuple[str, dict[str, Array | None]]]:
    """Split a table into runs: by a column that says to which each row belongs, and by the first part of names."""
    columns = {str(each): as_numbers(table[each]) for each in names_of(table)}
    if not any(values is not None for values in columns.values()):
        raise ValueError(f"{name} has no column of numbers")
    for column, values in columns.items():
        if values is None and any(each.search(plain_name(column)) for each in (*_LOSSES, *_RATES)):
            shown = first_not_a_number(table[column])
            raise ValueError(f"the values of column {column!r} of {name} are not numbers: {shown}")
    if groups := groups_of(table):
        numbers = {column: values for column, values in columns.items() if values is not None}
        return [
            (f"{name} {index}", {column: values[rows] for column, values in numbers.items()})
            for index, rows in enumerate(groups, start=1)
        ]
    prefixes = list(dict.fromkeys(column.rpartition(" - ")[0] for column in columns if " - " in column))
    if not prefixes:
        return [(name, columns)]
    shared = {column: values for column, values in columns.items() if " - " not in column}
    return [
        (
            prefix,
            shared | {column: values for column, values in columns.items() if column.rpartition(" - ")[0] == prefix},
        )
        for prefix in prefixes
    ]


def _run(
    table: Mapping[str, Array | None], name: str, steps: str | None, loss: str | None, lr: Any, more: Mapping[str, Any]
) -> Run:
    columns = {column: values for column, values in table.items() if values is not None}
    values = _column(columns, "loss", loss, _LOSSES, name)
    at = _column(columns, "steps", steps, _STEPS, name)
    known = ~np.isnan(values) & ~np.isnan(at)
    if lr is None or isinstance(lr, str):
        given = _column(columns, "lr", lr, _RATES, name)
        told = ~np.isnan(given) & ~np.isnan(at)
        if not told.any():
            raise ValueError(f"the column of learning rates of {name} is empty")
        lr = given[known] if told[known].all() else np.interp(at[known], at[told], given[told])
    return Run(at[known], values[known], lr, name=name, **more)  # type: ignore[arg-type]  # which it checks


def _column(
    columns: Mapping[str, Array], what: str, asked: str | None, patterns: tuple[re.Pattern[str], ...], where: str
) -> Array:
    """Find a column by the name that was asked for, or by what it is called."""
    if asked is not None:
        for column, values in columns.items():
            if asked in (column, column.rpartition(" - ")[2]):
                return values
        raise Refusal(what, asked, f"a column of numbers of {where}: {', '.join(columns)}")
    for pattern in patterns:
        for column, values in columns.items():
            if pattern.search(plain_name(column)) and not column.endswith(EXTREMES):
                return values
    listed = ", ".join(columns)
    word = {"lr": "learning rates", "loss": "losses", "steps": "steps"}[what]
    raise ValueError(f'{where} has no column of {word}; name one of these with {what}="...": {listed}')
