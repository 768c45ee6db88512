"""Fields of a network over time, and their correlations.

A history has shape (steps, C, size): one row per step and output, one column per neuron, input
coordinate or sample. Steps not reached stay nan. The index n = steps * C of a correlation is
time-major: (t, c) stands at t * C + c.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def empty_history(steps: int, outputs: int, size: int) -> Array:
    """Return a history in which no step was reached."""
    return np.full((steps, outputs, size), np.nan)


def correlation(history: Array, unit: int | None = None) -> Array:
    """Correlate a field with itself over time, averaged over its sites: (steps, C, size) to (n, n).

    With ``unit`` the sum over sites is divided by that instead of their number.

    Examples
    --------
    >>> correlation(np.array([[[1.0, 1.0]], [[1.0, 3.0]]]))  # two steps, one output, two sites
    array([[1., 2.],
           [2., 5.]])
    """
    rows = history.reshape(-1, history.shape[-1])
    product: Array = rows @ rows.T
    product /= unit or rows.shape[1]
    return product


def equal_time_correlation(history: Array) -> Array:
    """Correlate as ``correlation`` does, but only at equal times: zero elsewhere."""
    steps, outputs, size = history.shape
    blocks = np.zeros((steps, outputs, steps, outputs))
    index = np.arange(steps)
    blocks[index, :, index, :] = history @ history.transpose(0, 2, 1) / size
    return blocks.reshape(steps * outputs, steps * outputs)


def stack_layers(matrices: Iterable[Array], layers: int, n: int) -> Array:
    """Stack correlations of the steps reached into (layers, n, n), nan beyond those steps."""
    stack = np.full((layers, n, n), np.nan)
    for layer, matrix in zip(stack, matrices, strict=True):
        layer[: len(matrix), : len(matrix)] = matrix
    return stack
