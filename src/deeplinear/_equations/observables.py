"""Two-time functions of one problem, read off equations that have been filled; each in NumPy, shape (..., n, n)."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import to_numpy
from deeplinear._equations.system import Equations

Array = NDArray[Any]


def _feature_response(eq: Equations, index: int) -> Array:
    """R_hr of layers 0 .. L; that of a layer to a single step is of order 1 / gamma0, and may leave all bounds."""
    with np.errstate(over="ignore"):
        return np.stack([to_numpy(eq.data.response_to_r0(index)), *_stacked(index, eq.chain.Rhr())])


def _residual_response(eq: Equations, index: int) -> Array:
    RDelta = eq.data.RDelta
    return np.eye(eq.c.structure.size) if RDelta is None else to_numpy(RDelta.matrix[index]).copy()


def _stacked(index: int, layers: Iterable[Array]) -> Array:
    """One problem's matrices of all layers."""
    return np.stack([to_numpy(matrix[index]) for matrix in layers])


def two_time(eq: Equations, index: int, name: str) -> Array:
    """Return a function of two times of one problem, at the rows that are reported."""
    matrix, s = TWO_TIME[name](eq, index), eq.c.structure
    if s.reported is None:
        return matrix
    rows = (s.reported[:, None] * s.outputs + np.arange(s.outputs)).ravel()
    return np.asarray(matrix[..., rows[:, None], rows])


TWO_TIME: dict[str, Callable[[Equations, int], Array]] = {
    "feature_correlation": lambda eq, i: _stacked(i, [eq.data_covariances.Ch.matrix, *eq.chain.Ch()]),
    "gradient_correlation": lambda eq, i: _stacked(i, eq.chain.Cg()),
    "error_correlation": lambda eq, i: to_numpy(eq.data_covariances.Cv.matrix[i]).copy(),
    "residual_correlation": lambda eq, i: eq.data_covariances.CDelta(i),
    "feature_response": _feature_response,
    "gradient_response": lambda eq, i: to_numpy(eq.c.whole_gamma0[i]) * _stacked(i, eq.chain.Rgu_hat()),
    "error_response": lambda eq, i: to_numpy(eq.data.Rvu(i)),
    "residual_response": _residual_response,
}
"""By the names that a solution gives them."""
