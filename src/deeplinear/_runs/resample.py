"""Errors of a fitted law at the level of whole runs: each is predicted from others.

Errors along one run go together, so the scatter of its losses says nothing about the error of a prediction. Runs are
left out instead, and drawn again with replacement; a run that was not drawn is predicted.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._runs.solve_law import Data, Fitted, solve_law

Array = NDArray[np.float64]

_DRAWS = 12
"""Draws with replacement of four runs and more, beside every run left out once."""

_QUANTILE = 0.9

_LEAST = 0.01
"""Least half width of the band, as a fraction of the range of losses that was fitted. Runs that are left out of three
hardly tell more than this constant about the errors of others (``benchmarks/runs.md``)."""

_FEW = 3
"""Runs of which each is left out, and no more."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """Fits to some of the runs, and their errors in the others.

    Attributes
    ----------
    fits
        One for every run that was left out, and then for every draw.
    held_out
        Mean absolute error of each run in the fit that left it out, shape (runs,); nan for one run.
    errors
        Root mean square errors of all runs that were left out in all fits.
    span
        Range of all losses.
    """

    fits: tuple[Fitted, ...]
    held_out: Array
    errors: Array
    span: float

    @property
    def band(self) -> float:
        """Half width of a 90 % band of the loss of a new run."""
        measured = float(np.quantile(self.errors, _QUANTILE)) if len(self.errors) else 0.0
        return max(_LEAST * self.span, measured)


def resample(data: Data, fitted: Fitted) -> Resampled:
    """Leave runs out, and draw them again."""
    number = len(data.losses)
    if number == 1:
        return Resampled((), np.array([math.nan]), np.empty(0), data.span)
    fits, held_out, errors = [], np.full(number, math.nan), []
    for index, drawn in enumerate(_draws(number)):
        kept = sorted(set(drawn))
        left = [run for run in range(number) if run not in kept]
        found = solve_law(fitted.law, data[kept], [drawn.count(run) for run in kept], start=fitted)
        fits.append(found)
        for run, law in zip(left, found.losses(data.paths[left]), strict=True):
            off = np.abs(law - data.losses[run])
            errors.append(float(np.sqrt(np.mean(off**2))))
            if index < number:
                held_out[run] = off.mean()
    return Resampled(tuple(fits), held_out, np.array(errors), data.span)


def _draws(number: int) -> list[Sequence[int]]:
    """Each run left out, and draws with replacement that leave some out."""
    single = [tuple(run for run in range(number) if run != left) for left in range(number)]
    if number <= _FEW:
        return list(single)
    rng = np.random.default_rng(0)
    drawn = (tuple(sorted(rng.integers(0, number, number).tolist())) for _ in itertools.count())
    useful = (each for each in drawn if 2 <= len(set(each)) < number)
    return [*single, *itertools.islice(useful, _DRAWS)]
