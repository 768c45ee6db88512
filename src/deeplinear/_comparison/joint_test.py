"""One test of all observables together: are the seeds' deviations from theory as likely with their signs reversed?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.observables import ROUNDING, ComparedObservable
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
    columns, theory
        Deviations that are tested, of each observable, shape (seed, columns), and what they are deviations from.
    maxima
        Largest statistic of each observable, for each pattern of signs, shape (patterns, observables).
    names
        Of the observables.
    """

    overall: float
    separate: list[float]
    columns: list[Array]
    theory: list[Array]
    maxima: Array
    names: list[str]

    @classmethod
    def of(cls, groups: Sequence[ComparedObservable], explained: Sequence[Array] | None = None) -> "SignFlipTest":
        """Test observables, or what is left of their deviations from theory once a part of them is explained."""
        columns, theory, contradicted = [], [], []
        for index, group in enumerate(groups):
            together = group.together
            use = ~(together.is_equal | together.is_contradicted) & together.is_finite
            if explained is not None and len(together.values) == 1:
                use &= together.values[0] - together.theory != explained[index]
            deviations = together.values[:, use] - together.theory[use]
            columns.append(deviations if explained is None else deviations - explained[index][use])
            theory.append(together.theory[use])
            with np.errstate(invalid="ignore", over="ignore"):
                left = together.mean - together.theory - (0.0 if explained is None else explained[index])
            is_off = ~(np.abs(left) <= ROUNDING * together.scale)
            contradicted.append(bool((together.is_contradicted & is_off).any()))
        with one_blas_thread():  # the products are many and thin
            maxima = flip_signs(columns)
        separate = [0.0 if wrong else rank(statistic) for statistic, wrong in zip(maxima.T, contradicted, strict=True)]
        overall = 0.0 if any(contradicted) else rank(maxima.max(axis=1))
        return cls(overall, separate, columns, theory, maxima, [group.name for group in groups])

    def noticed(self) -> list[float]:
        """Return the standard errors by which each loss must be off to be rejected; ``nan`` of all else."""
        found = [math.nan] * len(self.columns)
        if self.overall < LEVEL or 1.0 / len(self.maxima) >= LEVEL:
            return found
        with one_blas_thread():
            for index, columns in enumerate(self.columns):
                if self.names[index] in LOSSES and columns.size:
                    found[index] = least_noticed(columns, self._rest(index), LEVEL)
        return found

    @property
    def is_blind(self) -> bool:
        """Whether losses scatter so much that none would be rejected were it off by 100 % throughout, up or down."""
        losses = [index for index, name in enumerate(self.names) if name in LOSSES]
        with one_blas_thread():
            return all(self.columns[i].size and not self._rejects_twice_and_nothing(i) for i in losses)

    def _rejects_twice_and_nothing(self, index: int) -> bool:
        """Whether the test would reject twice the theory of one observable, as well as a theory of zero."""
        off = [flip_signs([self.columns[index] + side * self.theory[index]])[:, 0] for side in (-1.0, 1.0)]
        return all(rank(np.maximum(self._rest(index), each)) < LEVEL for each in off)

    def _rest(self, index: int) -> Array:
        """Largest statistic of all other observables, for each pattern of signs."""
        return np.asarray(np.delete(self.maxima, index, axis=1).max(axis=1, initial=0.0))
