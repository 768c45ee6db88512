"""How long work tells what is done."""

import threading
from collections.abc import Callable

Progress = Callable[[int, int], object]
"""Called as ``progress(done, total)``; an exception that it raises ends the work."""


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
