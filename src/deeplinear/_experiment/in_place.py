"""Sums of matrices in place, in one or two passes over them, and copies beside them."""

import numpy as np

from deeplinear._core.arrays import Array, namespace
from deeplinear._experiment.network import Outer


def copied(array: Array) -> Array:
    """Return a copy in the library and on the device of an array."""
    copy: Array = namespace(array).asarray(array, copy=True)
    return copy


def add_outer(matrix: Array, outer: Outer, factor: float = 1.0, keep: float = 1.0) -> None:
    """Replace ``matrix`` by ``keep * matrix + factor * outer``, in place.

    BLAS writes in place into column-ordered arrays only; a row-ordered matrix is the column-ordered
    transpose, hence the exchange of left and right.
    """
    from scipy.linalg import blas  # slow to import

    scale = factor * outer.scale
    if not isinstance(matrix, np.ndarray):
        left, right = (factor.expand(*matrix.shape[:-2], -1, -1) for factor in (outer.left, outer.right.mT))
        matrix.baddbmm_(left, right, beta=keep, alpha=scale)
    elif matrix.ndim > 2:  # readouts and coefficients of several networks, which are small
        matrix *= keep
        matrix += scale * (outer.left @ outer.right.mT)
    elif keep == 1.0 and outer.left.shape[1] == 1:
        blas.dger(scale, outer.right[:, 0], outer.left[:, 0], a=matrix.T, overwrite_a=1)
    else:
        blas.dgemm(scale, outer.right.T, outer.left.T, beta=keep, c=matrix.T, trans_a=1, overwrite_c=1)


def add(matrix: Array, other: Array, factor: float, keep: float = 1.0) -> None:
    """Replace ``matrix`` by ``keep * matrix + factor * other``, in place."""
    from scipy.linalg import blas  # slow to import

    if keep != 1.0:
        matrix *= keep
    if not isinstance(matrix, np.ndarray):
        matrix.add_(other, alpha=factor)
    elif matrix.ndim > 2:
        matrix += factor * other
    else:
        blas.daxpy(other.reshape(-1), matrix.reshape(-1), a=factor)
