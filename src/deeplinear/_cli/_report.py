"""What the user sees: progress on stderr, results on stdout, or one JSON document."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from deeplinear._core.json import plain
from deeplinear._core.words import in_time

_PATIENCE = 10.0
"""Seconds between lines of progress where there is no terminal to draw a bar on."""

_BEGUN = 1.0
"""Seconds after which work has begun even if it has not reported any progress. Arguments are refused sooner."""

_SHORT = 24
"""Most letters of what is never cut or broken into lines."""

_WIDEST = 1000
"""Columns that are enough for every table."""

Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Report:
    """How one command reports.

    Attributes
    ----------
    json
        Whether stdout is for one JSON document.
    quiet
        Whether to show no progress.
    """

    json: bool
    quiet: bool

    @property
    def shows_progress(self) -> bool:
        """Whether anything is shown before the result."""
        return not (self.json or self.quiet)

    @contextmanager
    def stage(self, name: str, work: Callable[[int], float] = float) -> Iterator[Advance | None]:
        """Show the progress of one piece of work; ``work(done)`` is what the first ``done`` steps cost."""
        if not self.shows_progress:
            yield None
        elif sys.stderr.isatty():
            with _bar(name, work) as advance:
                yield advance
        else:
            with _lines(name, work) as advance:
                yield advance

    def result(self, document: dict[str, Any], *shown: str | Table) -> None:
        """Print the result: the document as JSON, or what people read."""
        if self.json:
            print(json.dumps(plain(document), indent=2, allow_nan=False))
            return
        console = Console(highlight=False)
        for each in shown:
            if isinstance(each, str):
                console.print(_spelled(each), soft_wrap=True, markup=False)
            else:
                # In a window that is too narrow lines wrap; columns without room would show nothing, or half a number.
                console.width = max(console.width, _least_width(each))
                console.print(each, markup=False)


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """Lay out rows of text: the first column to the left, numbers to the right."""
    laid_out = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        longest = max(len(text) for text in (column, *(row[index] for row in rows)))
        is_short = longest <= _SHORT
        laid_out.add_column(
            _spelled(column),
            justify="right" if index else "left",
            no_wrap=is_short,
            min_width=longest if is_short else None,
        )
    for row in rows:
        laid_out.add_row(*map(_spelled, row))
    return laid_out


def _least_width(shown: Table) -> int:
    """Return the width at which no word of a table is cut."""
    wide = Console(width=_WIDEST)
    return Measurement.get(wide, wide.options, shown).minimum


def _spelled(text: str) -> str:
    """Write what stdout has no letters for with those it has."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return text.replace("±", "+-")
    return text


@contextmanager
def _bar(name: str, work: Callable[[int], float]) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(name, total=None)

    def advance(done: int, total: int) -> None:
        progress.update(task, completed=work(done), total=work(total))

    try:
        with _announced(progress.start, advance) as announced:
            yield announced
    finally:
        progress.stop()


@contextmanager
def _lines(name: str, work: Callable[[int], float]) -> Iterator[Advance]:
    start = last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _PATIENCE:
            last = time.monotonic()
            part = work(done) / work(total)
            left = f", about {in_time((last - start) * (1 / part - 1))} left" if part else ""
            print(f"{name}: {100 * part:.0f} % after {last - start:.0f} s{left}", file=sys.stderr, flush=True)

    with _announced(lambda: print(f"{name}: started", file=sys.stderr, flush=True), advance) as announced:
        yield announced
    print(f"{name}: done in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def _announced(announce: Callable[[], None], advance: Advance) -> Iterator[Advance]:
    """Call ``announce`` once, when work begins: not before its arguments have been checked."""
    begun = threading.Lock()

    def begin() -> None:
        if begun.acquire(blocking=False):
            announce()

    def begin_and_advance(done: int, total: int) -> None:
        begin()
        advance(done, total)

    timer = threading.Timer(_BEGUN, begin)
    timer.daemon = True
    timer.start()
    try:
        yield begin_and_advance
    finally:
        timer.cancel()
