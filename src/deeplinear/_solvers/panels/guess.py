"""First guesses of what the rows of a panel are, from the rows before it."""

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._time.grid import PANEL_NODES, Grid


def constant(correlation: Symmetric, rows: slice, outputs: int) -> Array:
    """First guess of a correlation: as at the last node."""
    matrix = correlation.matrix
    last = slice(rows.start - outputs, rows.start)
    earlier = np.concatenate([matrix[..., last, : rows.start], *[matrix[..., last, last]] * PANEL_NODES], axis=-1)
    return np.concatenate([earlier] * PANEL_NODES, axis=-2)


def response(function: Causal, rows: slice, previous: slice, grid: Grid, outputs: int) -> Array:
    """First guess of a response.

    It is an instantaneous part and a sum over the past. Late rows respond to early times as the last one
    did; after a panel, the response to recent times, which stiff equations let decay within it, is taken
    to stand to this panel as it stood to the panel before.
    """
    matrix, start, count = function.matrix, rows.start, rows.stop - rows.start
    at_once = matrix[..., outputs : 2 * outputs, outputs : 2 * outputs]
    last = matrix[..., start - outputs : start, :start].copy()
    last[..., -outputs:] -= at_once
    guess = np.zeros((*matrix.shape[:-2], count, rows.stop), matrix.dtype)
    guess[..., :start] = np.concatenate([last] * PANEL_NODES, axis=-2)
    if previous.stop - previous.start == count:
        guess[..., rows] = matrix[..., previous, previous]
        if len(grid.lengths) > 2 and grid.lengths[-3] > 1:
            before = slice(previous.start - count, previous.start)
            guess[..., previous] = matrix[..., previous, before]
    else:
        per_step = last[..., -2 * outputs : -outputs]
        inside = grid.sums()[:, grid.last]
        guess[..., rows] = _kron(inside, per_step) + _kron(np.eye(PANEL_NODES), at_once)
    return guess


def _kron(over_time: Array, block: Array) -> Array:
    """Kronecker product with a block that has leading axes."""
    rows, columns = over_time.shape
    tiled = np.tile(block, (1,) * (block.ndim - 2) + (rows, columns))
    product: Array = tiled * np.kron(over_time, np.ones(block.shape[-2:]))
    return product
