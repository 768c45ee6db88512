"""Products of rows with functions of two times; with causal ones they skip the half that is zero."""

import math
from typing import Any

import numpy as np

from deeplinear._core.arrays import Array, identity, is_tensor, namespace
from deeplinear._equations import compiled as compiled_products
from deeplinear._equations.two_time import Causal, Symmetric, TwoTime
from deeplinear._time.history import BLOCK_NODES

_rows = compiled_products.load()

compiled_rows = _rows

COMPUTED = "computed by NumPy" if _rows is None else "compiled"
"""How the products of steps are computed on a processor, in words."""

_BLOCK = 64
"""Least width of a stripe; six stripes at most, enough to skip most zeros in a few fast products."""

_LAUNCH, _LAUNCH_ON_DEVICE = 2**16, 2**24
"""Least number of entries in a stripe: starting a product takes the time of reading as many."""

SETS = BLOCK_NODES
"""Zeros are skipped in blocks of this many row sets, and so never inside of a block of the past, where rows are all
coupled, nor of a panel, which has half as many."""


def rows_times(x: Array, function: Causal | None) -> Array:
    """Rows x (..., r, e) times the leading e x e block of a causal function; None is the identity."""
    if function is None:
        return x
    product: Array
    lower, e = function.matrix, x.shape[-1]
    if (fast := compiled_product(function, x.shape[-2])) is not None:
        product = fast.rows_times(x, lower, e, SETS)
    elif e <= (least := _least_width(lower, e)):
        product = x @ lower[..., :e, :e]
    else:
        stripes = [x[..., s.start : e] @ lower[..., s.start : e, s] for s in _stripes(x.shape[-2], e, least)]
        product = namespace(x).concat(stripes, axis=-1)
    return product


def rows_times_transpose(x: Array, function: Causal | None) -> Array:
    """Rows x (..., r, e) times the transpose of the leading e x e block of a causal function."""
    if function is None:
        return x
    product: Array
    lower, e = function.matrix, x.shape[-1]
    if (fast := compiled_product(function, x.shape[-2])) is not None:
        product = fast.rows_times_transpose(x, lower, e, SETS)
    elif e <= (least := _least_width(lower, e)):
        product = (lower[..., :e, :e] @ x.mT).mT
    else:
        stripes = [lower[..., s, : s.stop] @ x.mT[..., : s.stop, :] for s in _stripes(x.shape[-2], e, least)]
        product = namespace(x).concat(stripes, axis=-2).mT
    return product


def rows_times_symmetric(x: Array, function: Symmetric) -> Array:
    """Rows x (..., r, e) times the leading e x e block of a symmetric function."""
    fast, matrix, e = compiled_product(function, x.shape[-2], most=2), function.matrix, x.shape[-1]
    product: Array = x @ matrix[..., :e, :e] if fast is None else fast.rows_times_symmetric(x, matrix, e)
    return product


def compiled(function: TwoTime, rows: int) -> Any:
    """Return compiled operations on the rows of one time where they can be used; None elsewhere.

    They are those for NumPy, or where a recorded step is replayed on a device those that it was recorded with.
    """
    return None if is_recorded(function) else compiled_product(function, rows)


def compiled_product(function: TwoTime, rows: int, most: int = 1) -> Any:
    """Return compiled products of so many rows with a function where they can be used; None elsewhere."""
    matrix: Any = function.matrix
    if is_recorded(function):
        return matrix.products
    if rows > most:
        return None
    return _rows if isinstance(matrix, np.ndarray) else function.replayed


def is_recorded(function: TwoTime) -> bool:
    """Return whether what is done to a function is written down (``recording.py``)."""
    return hasattr(function.matrix, "products")


def times(*factors: Array | None) -> Array:
    """Product, entry by entry, of factors of which None stands for 1, but not all of them."""
    total = times_or_one(*factors)
    assert total is not None
    return total


def times_or_one(*factors: Array | None) -> Array | None:
    """Product of factors of which None stands for 1, itself None if all are."""
    total = None
    for factor in factors:
        if factor is not None:
            total = factor if total is None else total * factor
    return total


def _least_width(lower: Array, e: int) -> int:
    """Width of a stripe below which a product of its own does not pay."""
    launch = _LAUNCH if isinstance(lower, np.ndarray) else _LAUNCH_ON_DEVICE  # type: ignore[redundant-expr]
    return max(_BLOCK, launch // (e * math.prod(lower.shape[:-2])))


def _stripes(rows: int, e: int, least: int) -> list[slice]:
    width = SETS * rows * max(1, max(least, e // 6) // (SETS * rows))
    return [slice(start, min(start + width, e)) for start in range(0, e, width)]


def is_panel(rows: slice, outputs: int) -> bool:
    """Whether rows belong to more than one time, so that they are coupled to each other."""
    return bool(rows.stop - rows.start > outputs)


def fill_resolvent(function: Causal, kernel: Array, rows: slice, panel: bool) -> Array:
    """Fill and return rows of F = (1 - kernel)^-1 = 1 + kernel F, given those of the kernel and earlier ones of F."""
    e, start = rows.stop, rows.start
    if (fast := compiled(function, e - start)) is not None:
        fast.fill_resolvent(function.matrix, kernel, e, SETS)
    elif not panel:
        F = rows_times(kernel, function)
        add_identity(F, rows)
        function[rows] = F
    else:
        F = namespace(kernel).zeros_like(kernel)
        F[..., :start] = rows_times(kernel[..., :start], function)
        add_identity(F, rows)
        function[rows] = solve_block(kernel[..., rows], F)
    return function[rows]


def solve_block(block: Array, rows: Array) -> Array:
    """(1 - block)^-1 rows, for the diagonal block of a kernel.

    What is singular is refused by NumPy. On a device, where others are solved beside it and that would have to be
    waited for, it has rows that are not finite.
    """
    xp, matrix = namespace(block), identity(block.shape[-1], block) - block
    if isinstance(block, np.ndarray):
        return np.linalg.solve(matrix, rows)
    solved, info = xp.linalg.solve_ex(matrix, rows)
    found: Array = xp.where((info == 0)[..., None, None], solved, math.nan)
    return found


def add_identity(block: Array, rows: slice, factor: Array | float = 1.0) -> None:
    """Add a multiple of the identity on the diagonal to rows of a matrix, in place."""
    if (moving := getattr(rows, "identity", None)) is not None:  # of a row that only a device knows
        block += moving if isinstance(factor, float) and factor == 1.0 else factor * moving
        return
    diagonal, count = block[..., rows], rows.stop - rows.start
    diagonal += factor if count == 1 else factor * identity(count, block)


def over_time(x: Array, outputs: int) -> Array:
    """Sum over times of rows (..., steps * outputs), shape (..., outputs)."""
    total: Array
    if outputs == 1:
        total = x.sum(axis=-1, keepdims=True)
    else:
        total = x.reshape(*x.shape[:-1], x.shape[-1] // outputs, outputs).sum(axis=-2)
    return total


def over_outputs(x: Array) -> Array:
    """Sum over pairs of outputs of the rows of one time, (batch, outputs, times * outputs) to (batch, times)."""
    batch, outputs = x.shape[0], x.shape[-2]
    total: Array = x.sum(axis=-2).reshape(batch, -1, outputs).sum(axis=-1)
    return total


def within_outputs(x: Array) -> Array:
    """Rows of one time (batch, outputs, times * outputs) with zeros for pairs of unequal outputs."""
    outputs = x.shape[-2]
    return x if outputs == 1 else x * namespace(x).tile(identity(outputs, x), (1, x.shape[-1] // outputs))


def mean_diagonal(matrix: Array, outputs: int) -> Array:
    """Equal-time values averaged over outputs: (batch, steps * outputs, ...) to (batch, steps)."""
    diagonal = namespace(matrix).linalg.diagonal(matrix)
    mean: Array = diagonal.reshape(len(matrix), -1, outputs).mean(axis=-1)
    return mean


def equal_times(block: Array, outputs: int) -> Array:
    """Blocks on the diagonal, (batch, steps * outputs, steps * outputs) to (batch, steps, outputs, outputs)."""
    batch, size = block.shape[:2]
    if size == outputs:
        return block[:, None]
    steps, xp = size // outputs, namespace(block)
    pairs_of_steps = xp.permute_dims(block.reshape(batch, steps, outputs, steps, outputs), (0, 2, 4, 1, 3))
    values: Array = xp.permute_dims(xp.linalg.diagonal(pairs_of_steps), (0, 3, 1, 2))
    return values


def row_products(x: Array, y: Array) -> Array:
    """Product of each row of x with the same row of y, shape (..., r, 1)."""
    product: Array
    if x.shape[-2] == 1 and not is_tensor(x):
        product = x @ y.mT
        return product
    product = (x * y).sum(axis=-1, keepdims=True)  # on a device this is faster than a product of matrices
    return product
