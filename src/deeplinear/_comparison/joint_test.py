"""One test of all observables together: are the seeds' deviations from theory as likely with their signs reversed?"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.observables import ComparedObservable
from deeplinear._comparison.sign_flip import flip_signs, least_noticed, rank
from deeplinear._core.dataset import LOSSES
from deeplinear._core.threads import one_blas_thread

Array = NDArray[np.float64]

LEVEL = 0.01
"""Significance at which theory and experiment count as different."""


@dataclass(frozen=True, eq=False)
class SignFlipTest:
    """The sign-flip test of all observables.

    Attributes
    ----------
    overall, separate
        Its p-value of all observables together, and of each.
    columns
        Deviations that are tested, of each observable, shape (seed, columns).
    maxima
        Largest statistic of each observable, for each pattern of signs, shape (patterns, observables).
    names
        Of the observables.
    """

    overall: float
    separate: list[float]
    columns: list[Array]
    maxima: Array
    names: list[str]

    @classmethod
    def of(cls, groups: list[ComparedObservable]) -> "SignFlipTest":
        """Test observables."""
        columns, contradicted = [], []
        for group in groups:
            curves = group.tested
            usable = [~(curve.is_equal | curve.is_contradicted) & curve.is_finite for curve in curves]
            deviations = [c.values[:, use] - c.theory[use] for c, use in zip(curves, usable, strict=True)]
            columns.append(np.concatenate(deviations, axis=1))
            contradicted.append(any(curve.is_contradicted.any() for curve in curves))
        with one_blas_thread():  # the products are many and thin
            maxima = flip_signs(columns)
        separate = [0.0 if wrong else rank(statistic) for statistic, wrong in zip(maxima.T, contradicted, strict=True)]
        overall = 0.0 if any(contradicted) else rank(maxima.max(axis=1))
        return cls(overall, separate, columns, maxima, [group.name for group in groups])

    def noticed(self) -> list[float]:
        """Return the standard errors by which each loss must be off to be rejected; ``nan`` of all else."""
        found = [math.nan] * len(self.columns)
        if self.overall < LEVEL or 1.0 / len(self.maxima) >= LEVEL:
            return found
        with one_blas_thread():
            for index, columns in enumerate(self.columns):
                if self.names[index] in LOSSES and columns.size:
                    rest = np.delete(self.maxima, index, axis=1).max(axis=1, initial=0.0)
                    found[index] = least_noticed(columns, rest, LEVEL)
        return found
