"""Averages of weights that take orthogonal steps, kept up to date step after step.

What such weights have learned is a matrix over pairs of rows. A history of these would be as large as the cube of the
number of steps, so that averages are running ones; only a mean over the last part of training keeps what is still to
leave it.
"""

from collections import deque

from deeplinear._core.arrays import Array, namespace
from deeplinear._rules.averages import Average


class MatrixAverage:
    """An average of matrices over training.

    Parameters
    ----------
    average
        The rule.
    X
        A matrix of the shape of those that are averaged, (batch, rows, rows).
    """

    def __init__(self, average: Average, X: Array) -> None:
        self._average, self._step = average, 0
        self._total = namespace(X).zeros_like(X)
        self._inside: deque[Array] = deque()

    def update(self, X: Array, end: int) -> None:
        """Add the matrix of the next step, which has entries up to a row."""
        new, total = X[:, :end, :end], self._total[:, :end, :end]
        total *= self._average.carried(self._step)
        total += self._average.share(self._step) * new  # eq-average
        if self._average.keeps_past:
            self._inside.append(namespace(X).asarray(new, copy=True))
        while len(self._inside) > self._average.length(self._step):
            old = self._inside.popleft()
            self._total[:, : old.shape[1], : old.shape[1]] -= old
        self._step += 1

    def mean(self, end: int) -> Array:
        """Return the average up to a row, shape (batch, end, end)."""
        total: Array = self._total[:, :end, :end]
        mean: Array = total / self._average.length(self._step - 1)
        return mean


def kept(average: Average, steps: int) -> int:
    """Count the matrices of all rows that an average keeps, at most."""
    return 1 + (average.length(steps - 1) if average.keeps_past else 0)
