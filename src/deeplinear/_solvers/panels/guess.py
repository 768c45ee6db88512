"""First guesses of what the rows of a panel are, from the rows before it."""

from deeplinear._core.arrays import Array, beside, identity, namespace, zeros
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._time.grid import PANEL_NODES, Grid


def constant(correlation: Symmetric, rows: slice, outputs: int) -> Array:
    """First guess of a correlation: as at the last node."""
    matrix, xp = correlation.matrix, namespace(correlation.matrix)
    last = slice(rows.start - outputs, rows.start)
    earlier = xp.concat([matrix[..., last, : rows.start], *[matrix[..., last, last]] * PANEL_NODES], axis=-1)
    guess: Array = xp.concat([earlier] * PANEL_NODES, axis=-2)
    return guess


def response(function: Causal, rows: slice, previous: slice, grid: Grid, outputs: int) -> Array:
    """First guess of a response.

    It is an instantaneous part and a sum over the past. Late rows respond to early times as the last one
    did; after a panel, the response to recent times, which stiff equations let decay within it, is taken
    to stand to this panel as it stood to the panel before.
    """
    matrix, start, count = function.matrix, rows.start, rows.stop - rows.start
    xp = namespace(matrix)
    at_once = matrix[..., outputs : 2 * outputs, outputs : 2 * outputs]
    last = xp.asarray(matrix[..., start - outputs : start, :start], copy=True)
    last[..., -outputs:] -= at_once
    guess = zeros((*matrix.shape[:-2], count, rows.stop), matrix)
    guess[..., :start] = xp.concat([last] * PANEL_NODES, axis=-2)
    if previous.stop - previous.start == count:
        guess[..., rows] = matrix[..., previous, previous]
        if len(grid.lengths) > 2 and grid.lengths[-3] > 1:
            before = slice(previous.start - count, previous.start)
            guess[..., previous] = matrix[..., previous, before]
    else:
        per_step = last[..., -2 * outputs : -outputs]
        inside = beside(grid.sums()[:, grid.last], matrix)
        guess[..., rows] = _kron(inside, per_step) + _kron(identity(PANEL_NODES, matrix), at_once)
    return guess


def _kron(over_time: Array, block: Array) -> Array:
    """Kronecker product with a block that has leading axes."""
    xp, (rows, columns), outputs = namespace(block), over_time.shape, block.shape[-1]
    tiled = xp.tile(block, (1,) * (block.ndim - 2) + (rows, columns))
    repeated = xp.repeat(xp.repeat(over_time, outputs, axis=0), outputs, axis=1)
    product: Array = tiled * repeated
    return product
