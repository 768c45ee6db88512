"""Two-time functions of one problem, read off equations that have been filled; each in NumPy, shape (..., n, n)."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import computing, to_numpy
from deeplinear._core.dataset import FIELDS
from deeplinear._equations.system import Equations

Array = NDArray[Any]


Rows = slice | None
"""Some rows, up to their own time; None for all of them."""


def _feature_response(eq: Equations, index: int, rows: Rows) -> Array:
    """R_hr of layers 0 .. L; that of a layer to a single step is of order 1 / gamma0, and may leave all bounds."""
    with np.errstate(over="ignore"):
        return np.stack([to_numpy(eq.data.response_to_r0(index, rows)), *_stacked(index, eq.chain.Rhr(rows))])


def _residual_response(eq: Equations, index: int, rows: Rows) -> Array:
    RDelta, rows = eq.data.RDelta, _some(eq, rows)
    return np.eye(rows.stop)[rows] if RDelta is None else to_numpy(RDelta[rows][index]).copy()


def _some(eq: Equations, rows: Rows) -> slice:
    return rows or slice(0, eq.c.structure.size)


def _stacked(index: int, layers: Iterable[Array]) -> Array:
    """One problem's matrices of all layers."""
    return np.stack([to_numpy(matrix[index]) for matrix in layers])


def two_time(eq: Equations, index: int, name: str) -> Array:
    """Return a function of two times of one problem, at the rows that are reported."""
    s = eq.c.structure
    with computing(eq.c.gamma0):
        matrix = TWO_TIME[name](eq, index, None)
    if s.reported is None:
        return matrix
    rows = (s.reported[:, None] * s.outputs + np.arange(s.outputs)).ravel()
    return np.asarray(matrix[..., rows[:, None], rows])


TWO_TIME: dict[str, Callable[[Equations, int, Rows], Array]] = {
    "feature_correlation": lambda eq, i, r: _stacked(i, [eq.data_covariances.Ch[_some(eq, r)], *eq.chain.Ch(r)]),
    "gradient_correlation": lambda eq, i, r: _stacked(i, eq.chain.Cg(r)),
    "error_correlation": lambda eq, i, r: to_numpy(eq.data_covariances.Cv[_some(eq, r)][i]).copy(),
    "residual_correlation": lambda eq, i, r: eq.data_covariances.noise.CDelta(i, r),
    "feature_response": _feature_response,
    "gradient_response": lambda eq, i, r: to_numpy(eq.c.whole_gamma0[i]) * _stacked(i, eq.chain.Rgu_hat(r)),
    "error_response": lambda eq, i, r: to_numpy(eq.data.Rvu(i, r)),
    "residual_response": _residual_response,
}
"""By the names that a solution gives them; ``FIELDS`` says which are symmetric."""


def matrices(layers: int, names: Iterable[str] = TWO_TIME) -> int:
    """Number of matrices of some of these, of so many layers, or nodes that stand for them.

    Examples
    --------
    >>> matrices(3), matrices(3, ["feature_response", "gradient_response", "error_response"])
    (18, 8)
    """
    first = [FIELDS[name].first_layer for name in names]
    return sum(1 if each is None else layers + 1 - each for each in first)
