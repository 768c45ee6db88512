"""How far a search has come."""

from deeplinear._core.progress import Progress


class Counter:
    """Counts solutions, of a number that grows as more turn out to be needed.

    Parameters
    ----------
    steps
        Steps of a solution, in which ``progress`` is told.
    progress
        Called as ``progress(done, total)``.
    usual
        How many solutions it usually takes at least.
    """

    def __init__(self, steps: int, progress: Progress | None, usual: float) -> None:
        self._steps, self._progress = steps, progress
        self._done, self._total = 0.0, usual

    def expect(self, more: float) -> None:
        """Say how much is left, at least."""
        self._total = max(self._total, self._done + more)

    def advance(self, solutions: float) -> None:
        """Count some more."""
        self._done = min(self._done + solutions, self._total)
        if self._progress is not None:
            self._progress(round(self._steps * self._done), round(self._steps * self._total))

    def end(self) -> None:
        """Nothing is left."""
        self.advance(self._total)
