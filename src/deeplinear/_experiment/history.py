"""Fields of a network over time, and their correlations.

A history has shape (..., steps, C, size): one row per step and output, one column per neuron, input
coordinate or sample, or per coordinate in a rotated frame; the leading axis is that of networks trained together, if
they are. The index n = steps * C of a correlation is time-major: (t, c) stands at t * C + c.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace, to_numpy


def correlation(history: Array, unit: int) -> Array:  # eq-correlations
    """Correlate a field with itself over time, (..., steps, C, size) to (..., n, n): its overlaps over ``unit``.

    Examples
    --------
    >>> correlation(np.array([[[1.0, 1.0]], [[1.0, 3.0]]]), unit=2)  # two steps, one output, two sites
    array([[1., 2.],
           [2., 5.]])
    """
    *networks, steps, outputs, size = history.shape
    rows = history.reshape(*networks, steps * outputs, size)
    product: Array = rows @ rows.mT
    product /= unit
    return product


def equal_time_correlation(history: Array, unit: int) -> Array:
    """Correlate as ``correlation`` does, but only at equal times: zero elsewhere."""
    *networks, steps, outputs, _ = history.shape
    blocks = (history @ history.mT / unit)[..., None, :]  # (..., step, output, 1, output)
    same_step = namespace(history).eye(steps, dtype=history.dtype, device=history.device)
    spread = blocks * same_step[:, None, :, None]
    every: Array = spread.reshape(*networks, steps * outputs, steps * outputs)
    return every


def at_all_times(gram: Array, steps: int) -> Array:
    """Repeat a matrix over outputs, (C, C), for every pair of steps, shape (n, n)."""
    every: Array = namespace(gram).tile(gram, (steps, steps))
    return every


def stack_layers(matrices: Iterable[Array], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Stack correlations of the steps reached into ``shape``, (..., layers, n, n), nan beyond those steps."""
    stack = np.full(shape, np.nan)
    for layer, matrix in enumerate(matrices):
        stack[..., layer, : matrix.shape[-1], : matrix.shape[-1]] = to_numpy(matrix)
    return stack
