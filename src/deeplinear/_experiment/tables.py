"""Curves in tables: dictionaries, data frames, CSV files and event files, and which of their columns are losses."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.dataset import LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.event_files import event_files, read_scalars

Array = NDArray[np.float64]

Series = tuple[Array, Array]
"""Steps and values of one run."""

_MEANING = {
    "test_loss": re.compile(r"((test|val|valid|validation|eval)_loss|loss_(test|val|valid|validation|eval))$"),
    "train_loss": re.compile(r"((train|training)_loss|loss_(train|training)|^loss)$"),
    "steps": re.compile(r"((trainer_)?(global_)?steps?|iters?|iterations?|updates?|t|time)$"),
    "seed": re.compile(r"(seed|run|run_name)$"),
}
"""What a column is called, in small letters and with underscores, if it says what it is."""

EXTREMES = ("__MIN", "__MAX")
"""Ends of columns that Weights & Biases adds to an export."""


class Columns(NamedTuple):
    """Columns that were asked for by name; None is to be found out."""

    test_loss: str | Sequence[str] | None
    train_loss: str | Sequence[str] | None
    steps: str | None

    @property
    def losses(self) -> dict[str, str | Sequence[str] | None]:
        """Losses to look for, with the columns that were named; where one was, nothing is found out about the other."""
        both = {"test_loss": self.test_loss, "train_loss": self.train_loss}
        return {name: column for name, column in both.items() if column is not None} or both


def is_table(value: Any) -> bool:
    """Whether a value has named columns: a dictionary, or a data frame of any kind."""
    return isinstance(value, Mapping) or (hasattr(value, "columns") and hasattr(value, "__getitem__"))


class Table(NamedTuple):
    """Curves of a table: steps and values of each run, by the name of the loss, and whether it said which steps."""

    series: dict[str, list[Series]]
    has_steps: bool


def read_all(sources: Sequence[Any], asked: Columns) -> Table:
    """Read tables, files and folders, each of which has one or more runs."""
    tables = [each for source in sources for each in _tables(source, asked)]
    names = [name for name in LOSSES if any(name in each.series for each in tables)]
    for name in names:
        missing = next((index for index, each in enumerate(tables) if name not in each.series), None)
        if missing is not None:
            text = f"table {missing + 1} of {len(tables)} has no {name.replace('_', ' ')}, which others have"
            raise Refusal(name, sources, "in all tables, or in none", text=text)
    series = {name: [run for each in tables for run in each.series[name]] for name in names}
    return Table(series, all(each.has_steps for each in tables))


def _tables(source: Any, asked: Columns) -> list[Table]:
    if not isinstance(source, str | Path):
        return [read_table(source, asked)]
    path = Path(source)
    if not path.exists() and set(path.name) & set("*?["):
        found = sorted(path.parent.glob(path.name))
        if not found:
            raise ValueError(f"no file is like {path}")
        return [each for one in found for each in _tables(one, asked)]
    if path.is_dir() and not event_files(path) and (found := sorted(path.glob("*.csv"))):
        return [_read_path(each, asked) for each in found]
    return [_read_path(path, asked)]


def _read_path(path: Path, asked: Columns) -> Table:
    """Read a CSV file, an event file, or all event files in a folder, each of which is a run."""
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if files := event_files(path):
        return Table(_of_scalars(files, asked), True)
    if path.is_dir():
        raise ValueError(f"{path} has no CSV or TensorBoard event files; name a CSV file or an event file")
    try:
        return read_table(read_csv(path), asked, str(path))
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} is neither a CSV file nor a TensorBoard event file") from None


def read_table(table: Any, asked: Columns, where: str = "the table") -> Table:
    """Read the runs of a table; steps may be the index of a data frame."""
    table = _with_index(table)
    for name in names_of(table):
        if not isinstance(table[name], Iterable):
            raise Refusal(str(name), table[name], "a column of numbers")
    columns = {str(name): as_numbers(table[name]) for name in names_of(table)}
    steps = _steps(columns, asked.steps, where)
    groups = groups_of(table)
    found = {}
    for name, wanted in asked.losses.items():
        runs = [row for column in _chosen(columns, name, wanted, where) for row in np.atleast_2d(column)]
        for row in runs:
            if steps is not None and len(row) != len(steps):
                raise Refusal("steps", steps, f"as many as there are losses ({len(row)})", got=f"{len(steps)}")
        at = steps if steps is not None else np.arange(len(runs[0]) if runs else 0, dtype=float)
        found[name] = [(at[rows], row[rows]) for row in runs for rows in groups or [np.full(len(row), True)]]
    if not any(found.values()):
        listed = ", ".join(columns) or "none"
        text = f'{where} has no loss column; name one of these with test_loss="...": {listed}'
        raise Refusal("test_loss", None, listed, text=_not_numbers(table, columns, where) or text)
    return Table({name: runs for name, runs in found.items() if runs}, steps is not None)


def _with_index(table: Any) -> Any:
    """Make columns of the index of a data frame, where it says something."""
    index = getattr(table, "index", None)
    if isinstance(table, Mapping) or not hasattr(table, "reset_index") or index is None:
        return table
    if any(name is not None for name in index.names):
        return table.reset_index()
    is_step = np.asarray(index).dtype.kind in "iuf" and not np.array_equal(index, np.arange(len(index)))
    has_steps = any(_MEANING["steps"].match(plain_name(str(name))) for name in table.columns)
    return table.rename_axis("step").reset_index() if is_step and not has_steps else table


def names_of(table: Any) -> list[Any]:
    """Return the names of all columns."""
    return list(table) if isinstance(table, Mapping) else list(table.columns)


def read_csv(path: Path) -> dict[str, list[str]]:
    """Return the cells of a CSV file by column; commas, semicolons and tabs may separate them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = file.readline()
        file.seek(0)
        rows = list(csv.reader(file, delimiter=max(",;\t", key=header.count)))
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise ValueError(f"{path} must have a line of names and lines of numbers, got {len(rows)} lines")
    names = [name.strip() for name in rows[0]]
    return {name: [row[index] if index < len(row) else "" for row in rows[1:]] for index, name in enumerate(names)}


def as_numbers(column: Any) -> Array | None:
    """Return a column as numbers, empty cells as nan; None if it holds something else."""
    values = list(column) if not isinstance(column, np.ndarray) else column
    try:
        if len(values) and isinstance(values[0], str):
            values = [float(cell) if cell.strip() else np.nan for cell in values]
        return np.asarray(values, dtype=float)
    except (ValueError, TypeError, OverflowError):
        return None


def plain_name(name: str) -> str:
    """Return what stands behind the name of a run, in small letters and with underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.rpartition(" - ")[2].lower()).strip("_")


def _steps(columns: Mapping[str, Array | None], asked: str | None, where: str) -> Array | None:
    if asked is not None:
        if asked not in columns or columns[asked] is None:
            raise Refusal("steps", asked, f"a column of numbers of {where}: {', '.join(columns)}")
        return columns[asked]
    return next((columns[name] for name in columns if _MEANING["steps"].match(plain_name(name))), None)


def _chosen(columns: Mapping[str, Array | None], name: str, asked: Any, where: str) -> list[Array]:
    """Columns of a loss: those asked for, or those whose names say so; each of several is a run."""
    numbers = {column: values for column, values in columns.items() if values is not None}
    if asked is None:
        named = (column for column in numbers if not column.endswith(EXTREMES))
        return [numbers[column] for column in named if _MEANING[name].search(plain_name(column))]
    found = []
    for each in [asked] if isinstance(asked, str) else asked:
        matching = [column for column in numbers if each in (column, column.rpartition(" - ")[2])]
        if not matching:
            raise Refusal(name, each, f"a column of numbers of {where}: {', '.join(columns)}")
        found += [numbers[column] for column in matching]
    return found


def _not_numbers(table: Any, columns: Mapping[str, Array | None], where: str) -> str:
    """Say which column has the name of a loss, but values that are not numbers; empty if none does."""
    for name in map(str, names_of(table)):
        is_loss = any(_MEANING[loss].search(plain_name(name)) for loss in LOSSES)
        if is_loss and columns[name] is None:
            return f"the values of column {name!r} of {where} are not numbers: {first_not_a_number(table[name])}"
    return ""


def first_not_a_number(column: Any) -> str:
    """Show the first value of a column that is not a number."""
    first = next((value for value in column if as_numbers([value]) is None), None)
    comma = isinstance(first, str) and as_numbers([first.replace(",", ".")]) is not None
    return f"{first!r:.40}" + (" has a decimal comma; write a decimal point" if comma else "")


def groups_of(table: Any) -> list[NDArray[np.bool_]]:
    """Rows of each run, where a column says to which a row belongs."""
    by = next((name for name in names_of(table) if _MEANING["seed"].fullmatch(plain_name(str(name)))), None)
    if by is None:
        return []
    labels = np.asarray([str(label) for label in table[by]])
    return [labels == label for label in dict.fromkeys(labels.tolist())]


def _of_scalars(files: list[Path], asked: Columns) -> dict[str, list[Series]]:
    """Losses of event files, each of which is a run."""
    runs = [read_scalars(file) for file in files]
    tags = list(dict.fromkeys(tag for run in runs for tag in run))
    found: dict[str, list[Series]] = {}
    for name, wanted in asked.losses.items():
        chosen = [wanted] if isinstance(wanted, str) else wanted
        names = list(chosen) if chosen else [tag for tag in tags if _MEANING[name].search(plain_name(tag))]
        series = [next((run[tag] for tag in names if tag in run), {}) for run in runs]
        if any(series):
            found[name] = [(np.array(list(each), float), np.array(list(each.values()), float)) for each in series]
        elif chosen:
            raise Refusal(name, wanted, f"a tag of the event files: {', '.join(tags)}")
    if not found:
        listed = ", ".join(tags)
        text = f'the event files have no loss; name one of these tags with test_loss="...": {listed}'
        raise Refusal("test_loss", None, listed, text=text)
    return found
