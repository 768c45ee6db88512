"""Products with causal (lower triangular) matrices that skip the half that is zero."""

import math
from functools import reduce
from operator import mul

import numpy as np

from deeplinear._arrays import Array, identity, namespace

_BLOCK = 64
"""Least width of a stripe; six stripes at most, enough to skip most zeros in a few fast products."""

_LAUNCH, _LAUNCH_ON_DEVICE = 2**16, 2**24
"""Least number of entries in a stripe: starting a product takes the time of reading as many."""

_SETS = 8
"""Stripes begin at multiples of this many row sets, and so never inside of a panel, where rows are all coupled."""


def rows_times(x: Array, lower: Array | None, e: int) -> Array:
    """Rows x (..., r, e) times the leading e x e block of a causal matrix; None is the identity."""
    if lower is None:
        return x
    least = _least_width(lower, e)
    if e <= least:
        product: Array = x @ lower[..., :e, :e]
        return product
    stripes = [x[..., s.start : e] @ lower[..., s.start : e, s] for s in _stripes(x.shape[-2], e, least)]
    joined: Array = namespace(x).concat(stripes, axis=-1)
    return joined


def rows_times_transpose(x: Array, lower: Array | None, e: int) -> Array:
    """Rows x (..., r, e) times the transpose of the leading e x e block of a causal matrix."""
    if lower is None:
        return x
    columns, least = x.mT, _least_width(lower, e)
    if e <= least:
        product: Array = (lower[..., :e, :e] @ columns).mT
        return product
    stripes = [lower[..., s, : s.stop] @ columns[..., : s.stop, :] for s in _stripes(x.shape[-2], e, least)]
    joined: Array = namespace(x).concat(stripes, axis=-2).mT
    return joined


def times(*factors: Array | None) -> Array:
    """Product, entry by entry, of factors of which None stands for 1."""
    return reduce(mul, [factor for factor in factors if factor is not None])


def _least_width(lower: Array, e: int) -> int:
    """Width of a stripe below which a product of its own does not pay."""
    launch = _LAUNCH if isinstance(lower, np.ndarray) else _LAUNCH_ON_DEVICE
    return max(_BLOCK, launch // (e * math.prod(lower.shape[:-2])))


def _stripes(rows: int, e: int, least: int) -> list[slice]:
    width = _SETS * rows * max(1, max(least, e // 6) // (_SETS * rows))
    return [slice(start, min(start + width, e)) for start in range(0, e, width)]


def is_panel(rows: slice, outputs: int) -> bool:
    """Whether rows belong to more than one time, so that they are coupled to each other."""
    return bool(rows.stop - rows.start > outputs)


def resolvent_rows(kernel: Array, matrix: Array, rows: slice, panel: bool) -> Array:
    """Rows of F = (1 - kernel)^-1 = 1 + kernel F, given those of the kernel and the earlier rows of F."""
    e, start = rows.stop, rows.start
    if not panel:
        F = rows_times(kernel, matrix, e)
        add_identity(F, rows)
        return F
    F = namespace(kernel).zeros_like(kernel)
    F[..., :start] = rows_times(kernel[..., :start], matrix, start)
    add_identity(F, rows)
    return solve_block(kernel[..., rows], F)


def solve_block(block: Array, rows: Array) -> Array:
    """(1 - block)^-1 rows, for the diagonal block of a kernel."""
    solved: Array = namespace(block).linalg.solve(identity(block.shape[-1], block) - block, rows)
    return solved


def add_identity(block: Array, rows: slice) -> None:
    """Add the identity on the diagonal to rows of a matrix, in place."""
    diagonal = block[..., rows]
    diagonal += identity(rows.stop - rows.start, block)


def write_symmetric(matrix: Array, values: Array, rows: slice) -> None:
    """Write rows of a symmetric matrix and the columns that mirror them."""
    matrix[..., rows, : rows.stop] = values
    matrix[..., : rows.stop, rows] = values.mT


def mean_diagonal(matrix: Array, outputs: int) -> Array:
    """Equal-time values averaged over outputs: (batch, steps * outputs, ...) to (batch, steps)."""
    diagonal = namespace(matrix).linalg.diagonal(matrix)
    mean: Array = diagonal.reshape(len(matrix), -1, outputs).mean(axis=-1)
    return mean
