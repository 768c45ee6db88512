"""How long work tells what is done."""

import math
import sys
import threading
import time
from collections.abc import Callable

from deeplinear._core.refusal import Refusal
from deeplinear._core.words import in_time

Progress = Callable[[int, int], object]
"""Called as ``progress(done, total)``; an exception that it raises ends the work."""

_SECONDS = 0.2
"""Time between two looks of a line of progress."""


def read_progress(progress: Progress | bool | None) -> Progress | None:
    """Return whom to tell: nobody for None or False, a line on stderr for True, or who was given.

    Examples
    --------
    >>> read_progress(False) is None, read_progress(print) is print
    (True, True)
    """
    if progress is None or progress is False:
        return None
    if progress is True:
        return Line()
    if not callable(progress):
        raise Refusal("progress", progress, "True, or a function of (done, total)")
    return progress


class Line:
    """One line on stderr that says how much is done, and for how long it has been worked on."""

    def __init__(self) -> None:
        self._start, self._shown = time.monotonic(), -math.inf

    def __call__(self, done: int, total: int) -> None:
        """Show the line, unless it was shown a moment ago; end it when all is done."""
        now, is_last = time.monotonic(), done >= total
        if not is_last and now - self._shown < _SECONDS:
            return
        self._shown = now
        text = f"{100 * done / max(total, 1):3.0f} % after {in_time(now - self._start)}"
        print(f"\r{text:<30}", end="\n" if is_last else "", file=sys.stderr, flush=True)


class Stopped(Exception):
    """Raised where work goes on that was stopped elsewhere."""


class Counter:
    """Counts work that is done, in any thread, and reports it.

    Parameters
    ----------
    progress
        Called as ``progress(done, total)``, or nothing.
    total
        How much work there is, as far as is known.
    scale
        How much a piece of work counts in reports.
    every
        Part of the total that is done between two reports at least; 0 reports each time.

    Examples
    --------
    >>> counter = Counter(print, 2, scale=10)
    >>> counter.advance(0.5)
    5 20
    >>> counter.expect(2)
    >>> counter.end()
    25 25
    """

    def __init__(self, progress: Progress | None, total: float, *, scale: int = 1, every: float = 0.0) -> None:
        self._progress, self._scale, self._every = progress, scale, every
        self._total, self._done, self._reported = total, 0.0, 0.0
        self._is_stopped, self._lock = False, threading.Lock()

    def expect(self, more: float) -> None:
        """Say how much is left, at least."""
        self._total = max(self._total, self._done + more)

    def settle(self, more: float) -> None:
        """Say how much is left, neither more nor less."""
        self._total = self._done + more

    def advance(self, work: float) -> None:
        """Count some more."""
        if self._is_stopped:
            raise Stopped
        with self._lock:
            self._done = min(self._done + work, self._total)
            if self._done == self._total or self._done - self._reported >= self._every * self._total:
                self._reported = self._done
                self._report()

    def end(self) -> None:
        """Nothing is left."""
        self._done = self._total
        self._report()

    def stop(self) -> None:
        """Let every thread end when it counts again."""
        self._is_stopped = True

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(round(self._scale * self._done), round(self._scale * self._total))
