"""Files that people give to the page: curves that they measured, and data sets.

The server puts them into its own folder, which is deleted when it ends. Here they are read, where work can be ended. A
file is known by the digits that it was given, followed by the name that it came with.
"""

import itertools
import re
import tempfile
import zipfile
from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.refusal import Refusal

LARGEST_FILE = 64 * 2**20
"""Most bytes of a file."""

MOST_CURVES = {"bytes": 8 * 2**20, "steps": 20_000, "runs": 256}
"""Largest curves, which are read again whenever they are compared."""

MOST_ROWS = {"numbers": 4_000_000, "directions": 2000, "outputs": 6, "products": 4_000_000_000}
"""Largest data sets, by what finding their directions takes: rows times directions times the lesser of both."""

_LONGEST_LINE = 2**20
"""Most bytes of a line of a table."""

_FEW = 64
"""Directions of a data set up to which all are solved."""

_FILE = re.compile(r"([0-9a-f]{16}) ([^/\\\x00-\x1f]{1,80})")

_CURVES = (
    "Expected: a CSV file with a line of names and a line for each step, with a column step, and columns such as "
    "test_loss or train_loss, one for each run."
)
_ROWS = (
    "Expected: a CSV file with a line of names and a line for each example, of which the last column is the target (or "
    "all that are called y, y1, target and the like); or an npz file with arrays x and y."
)
_TARGET = re.compile(r"(y|target|label)([ _]?\d+)?", re.IGNORECASE)

Array = NDArray[np.float64]
Rows = tuple[Array, Array]


def read_file(file: Any) -> str:
    """Return the name of a file, or refuse what is none."""
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        raise Refusal("file", file, "chosen", text="choose a file")
    return file


def path_in(folder: Path, file: Any) -> Path:
    """Return where a file is kept."""
    return folder / f"upload-{read_file(file)[:16]}"


def measured_of(file: str) -> dl.Measured:
    """Read curves."""
    path = _path(file)
    if (size := path.stat().st_size) > (most := MOST_CURVES["bytes"]):
        text = f"the file is {size / 2**20:.0f} MB, and curves may be at most {most // 2**20} MB. {_CURVES}"
        raise Refusal("curves", file, "smaller", text=text)
    try:
        found = dl.measured(path)
    except (ValueError, UnicodeError) as error:
        why = str(error).replace(str(path), "the file")
        if isinstance(error, Refusal) and error.field == "test_loss" and error.value is None:
            why = f"the file has no loss column (it has: {error.allowed})"
        raise Refusal("curves", file, "curves", text=f"{why}. {_CURVES}") from None
    for name, count in (("steps", len(found.times)), ("runs", len(found.seeds))):
        if count > MOST_CURVES[name]:
            text = f"the curves have {count} {name}, and this page accepts at most {MOST_CURVES[name]}"
            raise Refusal("curves", file, "smaller", text=text)
    return found


def rows_of(file: str) -> Rows:
    """Read a data set: inputs (rows, features) and targets (rows, outputs)."""
    return _rows(_path(file))


@lru_cache(maxsize=2)
def _rows(path: Path) -> Rows:
    return _from_npz(path) if _is_archive(path) else _from_csv(path)


def _check_sizes(path: Path, rows: int, directions: int, outputs: int) -> None:
    """Refuse a data set by its shape, before its numbers are read."""
    counts = {"numbers": rows * directions, "directions": directions, "outputs": outputs}
    for name, count in counts.items():
        if count > MOST_ROWS[name]:
            text = f"the data have {count} {name}, and this page accepts at most {MOST_ROWS[name]}"
            raise Refusal("file", path, "smaller", text=text)
    if rows * directions * min(rows, directions) > MOST_ROWS["products"]:
        text = f"the data have {rows} rows in {directions} directions, which takes this page too long: "
        text += "give it fewer columns, or call dl.Spectrum.from_data in Python"
        raise Refusal("file", path, "smaller", text=text)


def spectrum_of(file: str, whole: bool = False, momentum: float = 0.0) -> dl.Spectrum:
    """Return the spectrum of a data set, or one with fewer modes and the same predictions where it has many.

    It is kept beside the file, for other processes and since finding it may take longer than a request may be read.
    Predictions are the same for training with up to some momentum.
    """
    return _spectrum(_path(file)) if whole else _fewer_modes(_path(file), momentum)


@lru_cache(maxsize=16)
def _fewer_modes(path: Path, momentum: float) -> dl.Spectrum:
    found = _spectrum(path)
    return found if len(found.eigenvalues) <= _FEW else found.compress(momentum=momentum)


@lru_cache(maxsize=4)
def _spectrum(path: Path) -> dl.Spectrum:
    kept = path.with_suffix(".npz")
    if not kept.exists():
        return _keep(path, kept)
    with np.load(kept, allow_pickle=False) as arrays:
        eigenvalues, target_power, noise = (arrays[name] for name in ("eigenvalues", "target_power", "noise"))
    return dl.Spectrum(eigenvalues, target_power, noise=float(noise))


def _keep(path: Path, kept: Path) -> dl.Spectrum:
    """Find the spectrum of a data set and write it down."""
    try:
        found = dl.Spectrum.from_data(*_rows(path))
    except Refusal as error:
        raise Refusal("file", path, "other data", text=f"{error}. {_ROWS}") from None
    with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as written:
        np.savez(written, eigenvalues=found.eigenvalues, target_power=found.target_power, noise=found.noise)
    Path(written.name).rename(kept)  # at once, for whoever reads it meanwhile
    return found


def _path(file: str) -> Path:
    """Return where a file is, in the folder that the server gave this process for its files."""
    path = path_in(Path(tempfile.gettempdir()), file)
    if not path.exists():
        raise Refusal("file", file, "here", text="this file is no longer here: choose it again")
    return path


def _is_archive(path: Path) -> bool:
    with path.open("rb") as opened:
        return opened.read(2) == b"PK"


def _from_npz(path: Path) -> Rows:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if missing := [name for name in ("x", "y") if name not in names]:
                has = ", ".join(names) or "none at all"
                raise ValueError(f"it has no array {' and no '.join(missing)}, but {has}")
            (rows, *columns), (targets, *outputs) = (_shape_of(archive, name) for name in ("x", "y"))
        if targets != rows:
            raise ValueError(f"y must have as many rows as x ({rows}), got {targets}")
        _check_sizes(path, rows, *(columns or [1]), *(outputs or [1]))
        with np.load(path, allow_pickle=False) as arrays:
            x, y = (np.asarray(arrays[name]) for name in ("x", "y"))
    except Refusal:
        raise
    except Exception as error:  # whatever the parts of an archive raise that is damaged, or none
        why = str(error) or type(error).__name__
        raise Refusal("file", path, "data", text=f"this npz file cannot be read: {why}. {_ROWS}") from None
    return x, y


def _shape_of(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """Return the shape of an array, from the first bytes of its part of the archive."""
    with archive.open(f"{name}.npy") as part:
        read_header = _HEADERS.get(np.lib.format.read_magic(part))
        if read_header is None:
            raise ValueError(f"its array {name} is of a kind that this page does not read")
        shape, _, dtype = read_header(part)
    if dtype.kind not in "biuf" or not 1 <= len(shape) <= 2:
        raise ValueError(f"its array {name} must have rows and columns of numbers, not shape {shape} of {dtype}")
    return shape


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Columns(NamedTuple):
    """How a table is written: what separates its columns, how many lines come first, and which columns are targets."""

    split: str
    skip: int
    targets: list[int]


def columns_of(file: str) -> Columns | None:
    """Return how a table is written; None for a file of arrays."""
    path = _path(file)
    return None if _is_archive(path) else _read_csv(path)[0]


def _read_csv(path: Path) -> tuple[Columns, Array]:
    """Read a table; its first line has names unless it has numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline=None) as opened:
            return _table(path, opened)
    except Refusal:
        raise
    except (UnicodeError, ValueError) as error:
        why = "it is not text" if isinstance(error, UnicodeError) else str(error)
        raise Refusal("file", path, "data", text=f"this file cannot be read: {why}. {_ROWS}") from None


def _from_csv(path: Path) -> Rows:
    columns, table = _read_csv(path)
    return np.delete(table, columns.targets, axis=1), table[:, columns.targets]


def _table(path: Path, opened: TextIO) -> tuple[Columns, Array]:
    """Read a table line by line, once it is known to be small enough."""
    lines = ((number, line) for number, line in enumerate(_lines(opened), 1) if line.strip())
    (_, header), second = next(lines, (0, "")), next(lines, None)
    if second is None:
        raise ValueError(f"it has {int(bool(header))} lines")
    split = max(",;\t", key=header.count)
    first = [cell.strip().strip('"') for cell in header.split(split)]
    if len(first) < 2:
        raise ValueError("it has only one column")
    skip = 0 if all(_is_number(cell) for cell in first) else 1
    targets = [index for index, name in enumerate(first) if skip and _TARGET.fullmatch(name)]
    if not 0 < len(targets) < len(first):
        targets = [len(first) - 1]
    _check_sizes(path, _count_lines(path) - skip, len(first) - len(targets), len(targets))
    numbers = array("d")
    for number, line in itertools.chain([(1, header)] * (1 - skip), [second], lines):
        cells = line.split(split)
        if len(cells) != len(first) or not all(_is_number(cell) for cell in cells):
            raise ValueError(f"line {number} should have {len(first)} numbers, but is {line.strip()!r:.60}")
        numbers.extend(map(float, cells))
    return Columns(split, skip, targets), np.array(numbers).reshape(-1, len(first))


def _count_lines(path: Path) -> int:
    """Return how many lines a file has at most."""
    ends = {b"\n": 1, b"\r": 1}
    with path.open("rb") as opened:
        while chunk := opened.read(2**20):
            for end in ends:
                ends[end] += chunk.count(end)
    return max(ends.values())


def _lines(opened: TextIO) -> Iterator[str]:
    while line := opened.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"it has a line of more than {_LONGEST_LINE // 2**20} MB")
        yield line


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def described(request: dict[str, Any]) -> dict[str, Any]:
    """Return what is in a data set: numbers of rows, of directions and of outputs, and the noise."""
    file = read_file(request.get("file"))
    x, _ = rows_of(file)
    spectrum = spectrum_of(file, whole=True)
    return {
        "rows": len(x),
        "directions": len(spectrum.eigenvalues),
        "outputs": spectrum.outputs,
        "noise": spectrum.noise,
        "largest": max(spectrum.eigenvalues),
    }
