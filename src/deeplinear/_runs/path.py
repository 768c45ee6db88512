"""The rates of several runs as stretches in which they hardly change, so that the law need not follow every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

_CHANGE = 0.04
"""Change of the rate, as a fraction of its largest value, within a stretch of several steps."""

_STRETCHES = 60
"""Stretches at least, for runs of more steps than this."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Stretches of several runs side by side; runs with fewer of them end with stretches of no length.

    Attributes
    ----------
    lengths
        Number of steps of each stretch, shape (stretches, runs).
    rates, squares
        Mean of the rate over each stretch, and of its square, same shape.
    places
        For each run, the index among ends of stretches of every step that was asked for; -1 is the start. Of shape
        (steps,), or (steps, several) where the loss is the mean over several steps.
    """

    lengths: Array
    rates: Array
    squares: Array
    places: tuple[Steps, ...]

    @staticmethod
    def of(rates: Sequence[Array], steps: Sequence[Steps]) -> "Paths":
        """Cut runs, each given by its rate at every training step, so that stretches end at the given steps.

        A step s is before its update: s updates have been made.
        """
        cuts = [_cuts(each, at) for each, at in zip(rates, steps, strict=True)]
        most = max(len(each) for each in cuts) - 1
        lengths, means, squares = np.zeros((3, most, len(cuts)))
        for run, (each, at) in enumerate(zip(rates, cuts, strict=True)):
            number = len(at) - 1
            total = np.concatenate([[0.0], np.cumsum(each)])
            square = np.concatenate([[0.0], np.cumsum(each**2)])
            lengths[:number, run] = np.diff(at)
            means[:number, run] = np.diff(total[at]) / np.diff(at)
            squares[:number, run] = np.diff(square[at]) / np.diff(at)
        places = tuple(np.searchsorted(at, wanted) - 1 for at, wanted in zip(cuts, steps, strict=True))
        return Paths(lengths, means, squares, places)

    def __getitem__(self, runs: Sequence[int]) -> "Paths":
        """Some of the runs."""
        kept = list(runs)
        return Paths(
            self.lengths[:, kept], self.rates[:, kept], self.squares[:, kept], tuple(self.places[run] for run in kept)
        )


def _cuts(rates: Array, steps: Steps) -> Steps:
    """Ends of stretches from 0 to the last step that was asked for."""
    last = int(steps.max())
    used = rates[:last]
    changed = np.abs(np.diff(used, prepend=used[:1])) / max(float(used.max(initial=0.0)), 1e-300)
    passed = np.cumsum(changed) / _CHANGE + np.arange(last) * _STRETCHES / last
    inner = 1 + np.flatnonzero(np.diff(np.floor(passed)))
    return np.unique(np.concatenate([[0], inner, steps.ravel()])).astype(np.int64)
