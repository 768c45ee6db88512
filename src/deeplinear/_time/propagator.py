"""What an optimiser does to a weight: any rule linear in past gradients is two response functions.

    W(t) = d(t) W(0) + sum_{s<t} a(t, s) G(s)

with G(s) the gradient outer product at step s. Plain gradient descent has d = 1, a(t, s) = lr_s.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import factorial
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace
from deeplinear._time.grid import PANEL_NODES, Grid, radau_nodes


def plain_responses(rates: Array) -> Array:
    """Return the responses a(t, s) to gradients without momentum and weight decay, shape (..., T, T).

    Examples
    --------
    >>> plain_responses(np.array([0.1, 0.2]))
    array([[0. , 0. ],
           [0.1, 0. ]])
    """
    xp, steps = namespace(rates), rates.shape[-1]
    a: Array = xp.tril(xp.broadcast_to(rates[..., None, :], (*rates.shape, steps)), k=-1)
    return a


class GridPropagator:
    """The same responses on a time grid, for gradient descent without momentum.

    With decay(s) = log(1 - lr_s weight_decay), d(t) = exp sum_{s<t} decay(s) and
    a(t, s) = lr_s d(t) / d(s + 1); sums over steps become sums over nodes with the weights of the grid.

    Parameters
    ----------
    rates
        Learning rate at each step, shape (..., T), or one number for all, of shape (..., 1) or no shape.
    weight_decay
        As in ``GradientDescent``, smaller than 1 / lr; a number, or of shape (..., 1).
    grid
        The time grid; rows are asked for set by set, as it grows.
    """

    def __init__(self, rates: Any, weight_decay: Any, grid: Grid) -> None:
        self._rates, self._weight_decay, self._grid = np.atleast_1d(rates), weight_decay, grid
        kind = np.result_type(self._rates, weight_decay, float)
        self._rate, self._decay, self._log_d = np.zeros((3, *self._rates.shape[:-1], 0), kind)  # at the nodes

    def rows(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Values for the last set of the grid, and how badly a polynomial fits.

        Returns
        -------
        lost, d
            d - 1 and d, shape (..., r).
        a
            Shape (..., r, nodes).
        misfit
            Shape (...).
        """
        nodes, sums = self._grid.last, self._grid.sums()
        rate, misfit = self._fit()
        decay = np.log1p(-rate * self._weight_decay)
        self._rate = np.append(self._rate[..., : nodes.start], rate, axis=-1)
        self._decay = np.append(self._decay[..., : nodes.start], decay, axis=-1)
        log_d = _times(sums, self._decay)
        self._log_d = np.append(self._log_d[..., : nodes.start], log_d, axis=-1)
        a = (
            sums
            * self._rate[..., None, :]
            * np.exp(log_d[..., None] - self._log_d[..., None, :] - self._decay[..., None, :])
        )
        misfit = np.maximum(misfit, _exponential_misfit(decay, self._grid.lengths[-1]))
        return np.expm1(log_d), np.exp(log_d), a, misfit

    @property
    def rate(self) -> NDArray[Any]:
        """Learning rate at the nodes, shape (..., nodes)."""
        rate: NDArray[Any] = self._rate
        return rate

    @contextmanager
    def held(self, rate: Any) -> Iterator[None]:
        """Take this learning rate at all steps, a number or of shape (..., 1)."""
        scheduled, self._rates = self._rates, np.zeros((*self._rates.shape[:-1], 1), self._rate.dtype) + rate
        try:
            yield
        finally:
            self._rates = scheduled

    def keep(self, members: NDArray[np.int64]) -> None:
        """Go on with some of the problems of a batch, which is the first axis, only."""
        self._rates, self._rate, self._decay, self._log_d = (
            values[members] for values in (self._rates, self._rate, self._decay, self._log_d)
        )
        if np.ndim(self._weight_decay):
            self._weight_decay = self._weight_decay[members]

    def _fit(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Learning rate at the nodes of the last set, and the largest relative deviation at its steps."""
        length, end = self._grid.lengths[-1], self._grid.end
        count = self._grid.last.stop - self._grid.last.start
        fits = np.zeros(self._rates.shape[:-1])
        if self._rates.shape[-1] == 1:
            return np.repeat(self._rates, count, axis=-1), fits
        rates = self._rates[..., end + 1 - length : end + 1]
        if length == 1:
            return rates, fits
        degree = min(PANEL_NODES, length) - 1  # what is left between two jumps may be shorter than a panel has nodes
        basis = legendre.legvander(2.0 * np.arange(1, length + 1) / length - 1.0, degree)
        coefficients = np.linalg.solve(basis.T @ basis, _times(basis.T, rates)[..., None])[..., 0]
        largest = np.abs(rates).max(axis=-1)
        misfit: NDArray[Any] = np.abs(_times(basis, coefficients) - rates).max(axis=-1)
        at_nodes = legendre.legval(radau_nodes(), np.moveaxis(coefficients, -1, 0))
        return at_nodes, np.divide(misfit, largest, out=fits, where=largest != 0)


def _times(matrix: NDArray[Any], vectors: NDArray[Any]) -> NDArray[Any]:
    """Matrix times vectors of shape (..., n)."""
    product: NDArray[Any] = (matrix @ vectors[..., None])[..., 0]
    return product


def _exponential_misfit(decay: NDArray[Any], length: int) -> NDArray[Any]:
    """Error of the best polynomial on a panel for an exponential that falls at this rate."""
    exponent = np.abs(decay).max(axis=-1) * (length if length > 1 else 0)
    return np.asarray(2.0 * np.float_power(exponent / 4.0, PANEL_NODES) / factorial(PANEL_NODES))
