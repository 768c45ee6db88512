"""Products with causal (lower triangular) matrices that skip the half that is zero."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BLOCK = 128
"""Stripe width: wide enough for fast products, narrow enough to skip most zeros."""


def rows_times(x: Array, lower: Array | None, e: int) -> Array:
    """Rows x (..., r, e) times the leading e x e block of a causal matrix; None is the identity."""
    if lower is None:
        return x
    if e <= _BLOCK:
        product: Array = x @ lower[..., :e, :e]
        return product
    stripes = (slice(start, min(start + _BLOCK, e)) for start in range(0, e, _BLOCK))
    return np.concatenate([x[..., s.start : e] @ lower[..., s.start : e, s] for s in stripes], axis=-1)


def rows_times_transpose(x: Array, lower: Array | None, e: int) -> Array:
    """Rows x (..., r, e) times the transpose of the leading e x e block of a causal matrix."""
    if lower is None:
        return x
    columns = x.mT
    if e <= _BLOCK:
        product: Array = (lower[..., :e, :e] @ columns).mT
        return product
    stripes = (slice(start, min(start + _BLOCK, e)) for start in range(0, e, _BLOCK))
    return np.concatenate([lower[..., s, : s.stop] @ columns[..., : s.stop, :] for s in stripes], axis=-2).mT


def add_identity(block: Array, rows: slice) -> None:
    """Add the identity on the diagonal to rows of a matrix, in place."""
    block[..., rows] += np.eye(rows.stop - rows.start)


def write_symmetric(matrix: Array, values: Array, rows: slice) -> None:
    """Write rows of a symmetric matrix and the columns that mirror them."""
    matrix[..., rows, : rows.stop] = values
    matrix[..., : rows.stop, rows] = values.mT


def mean_diagonal(matrix: Array, outputs: int) -> Array:
    """Equal-time values averaged over outputs: (batch, steps * outputs, ...) to (batch, steps)."""
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    mean: Array = diagonal.reshape(len(matrix), -1, outputs).mean(axis=-1)
    return mean
