"""Fields of a network over time, and their correlations.

A history has shape (..., steps, C, size): one row per step and output, one column per neuron, input
coordinate or sample, or per coordinate in a rotated frame; the leading axis is that of networks trained together, if
they are. The index n = steps * C of a correlation is time-major: (t, c) stands at t * C + c.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, namespace, to_numpy, zeros
from deeplinear._experiment.data_sets import DataSet


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


def residual_correlation(
    data: Sequence[DataSet], residuals: Array, error_correlation: Array, label_gram: Array | None = None
) -> Array:
    """Correlate the residuals of all steps, which were divided by the root of the number of samples.

    Steps that share no samples have none. With unlimited data it is the average over a sample that stays the same
    throughout its data set, with its label noise.

    Parameters
    ----------
    data
        The data sets of all steps, in order.
    residuals
        Shape (..., steps, C, samples), of as many steps as were made.
    error_correlation
        Of the same steps, shape (..., n, n).
    label_gram
        Covariance of label noise between outputs, in units of its variance, shape (C, C); the identity unless given.
    """
    steps, outputs = residuals.shape[-3:-1]
    every = zeros(error_correlation.shape, error_correlation)
    for each in data:
        start, stop = each.start, min(each.stop, steps)
        if start >= steps:
            break
        here = slice(start * outputs, stop * outputs)
        history = residuals[..., start:stop, :, :]
        if not each.drawn:
            noises = each.noises[: stop - start]
            gram = np.eye(outputs) if label_gram is None else label_gram
            labels = beside(np.kron(np.outer(noises, noises), gram), every)
            every[..., here, here] = error_correlation[..., here, here] + labels
        else:
            every[..., here, here] = (equal_time_correlation if each.fresh else correlation)(history, 1)
    return every


def stack_layers(matrices: Iterable[Array], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Stack correlations of the steps reached into ``shape``, (..., layers, n, n), nan beyond those steps."""
    stack = np.full(shape, np.nan)
    for layer, matrix in enumerate(matrices):
        stack[..., layer, : matrix.shape[-1], : matrix.shape[-1]] = to_numpy(matrix)
    return stack
