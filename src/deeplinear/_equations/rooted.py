"""Correlations that are kept by a root, C = Z Z^T, for runs in which rounding errors would grow.

Where training becomes unstable along directions that have been trained away, responses F grow, and what they multiply
is as small as they are large. A correlation C = sum_i F_i S_i F_i^T that is made of entries has the rounding errors of
these times |F|^2, and may become negative, so that what ought to end an instability feeds it. Of roots S_i = Z_i Z_i^T
each row of C has a row y = (F_1 Z_1, F_2 Z_2, ...), whose errors are those of entries times |F| only; and no square is
negative. Rows y have a column for every random number, more and more of them. Their products are all that counts, so
each is kept by its coordinates Z on an orthonormal basis of the rows so far, and there are no more columns than rows.
"""

from collections.abc import Sequence

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._equations.two_time import Replaying, Symmetric

_MOST_ROUNDS = 5
"""Rounds of orthogonalising; two are enough unless a row is a sum of earlier ones, to rounding."""

_NOTHING = 1e-17
"""What is left of a row, relative to it, that is nothing new."""


class Rooted(Symmetric):
    """A correlation with its root; arrays of NumPy with one leading axis, that of the batch.

    Attributes
    ----------
    Z
        Lower triangular, shape (batch, rows, rows).
    """

    def __init__(self, matrix: Array, replaying: Replaying | None = None) -> None:
        super().__init__(matrix, replaying)
        self.Z: Array = np.zeros(matrix.shape)
        self._basis: Array | None = None  # shape (batch, rows, columns)

    def add(self, rows: slice, parts: Sequence[Array]) -> None:
        """Fill rows, given parts (batch, r, columns) of the rows y, which are as long for all rows."""
        y = np.concatenate(parts, axis=-1)
        if self._basis is None:
            self._basis = np.zeros((*self.Z.shape[:2], y.shape[-1]))
        for row in range(rows.start, rows.stop):
            self._append(row, y[:, row - rows.start], self._basis)
        self[rows] = self.Z[:, rows] @ self.Z[:, : rows.stop].mT  # eq-roots

    def clear(self, rows: slice) -> None:
        """Set rows, and the columns of the same times, to zero."""
        super().clear(rows)
        self.Z[:, rows] = 0.0
        if self._basis is not None:
            self._basis[:, rows] = 0.0

    def _append(self, row: int, y: Array, basis: Array) -> None:
        before = basis[:, :row]
        left, size = y, np.linalg.norm(y, axis=-1)
        whole = size
        for _ in range(_MOST_ROUNDS):
            along = (before @ left[..., None])[..., 0]
            self.Z[:, row, :row] += along
            left = left - (along[:, None] @ before)[:, 0]
            known, size = size, np.linalg.norm(left, axis=-1)
            if not ((size < 0.5 * known) & (size > _NOTHING * whole)).any():
                break
        new = size > _NOTHING * whole
        self.Z[:, row, row] = np.where(new, size, 0.0)
        basis[:, row] = np.where(new, 1.0, 0.0)[:, None] * left / np.where(new, size, 1.0)[:, None]
