"""The optimizer as it acts on real weights: a recursion in place, with momentum buffers if needed.

    m_{t+1} = momentum m_t + G_t - decay W_t
    W_{t+1} = W_t + lr_t m_{t+1}                                   plain and heavy-ball momentum
    W_{t+1} = W_t + lr_t (momentum m_{t+1} + G_t - decay W_t)      Nesterov

Gradients have rank C, so each update is one or two passes over a weight and makes no copy of it.
"""

import numpy as np
from scipy.linalg import blas

from deeplinear._core.arrays import Array, namespace
from deeplinear._experiment.network import Outer
from deeplinear._problem.optimizer import GradientDescent


class Descent:
    """Updates weights in place, step after step.

    Parameters
    ----------
    optimizer
        The update rule.
    weights
        C-ordered float64 arrays, changed by every call of ``step``.
    steps
        Number of steps of the learning-rate schedule.
    """

    def __init__(self, optimizer: GradientDescent, weights: list[Array], steps: int) -> None:
        self._rule = optimizer
        self._rates = optimizer.rates(steps)
        self._weights = weights
        self._momenta = [namespace(weight).zeros_like(weight) for weight in weights] if optimizer.momentum else None

    def step(self, t: int, gradients: list[Outer]) -> None:
        """Take the weights from step t to t + 1."""
        lr, decay = float(self._rates[t]), self._rule.weight_decay
        if self._momenta is None:
            for weight, gradient in zip(self._weights, gradients, strict=True):
                add_outer(weight, gradient, lr, keep=1.0 - lr * decay)
            return
        mu = self._rule.momentum
        for weight, momentum, gradient in zip(self._weights, self._momenta, gradients, strict=True):
            add_outer(momentum, gradient, keep=mu)
            if decay:
                _add(momentum, weight, -decay)
            if self._rule.nesterov:
                add_outer(weight, gradient, lr, keep=1.0 - lr * decay)
                _add(weight, momentum, lr * mu)
            else:
                _add(weight, momentum, lr)


def add_outer(matrix: Array, outer: Outer, factor: float = 1.0, keep: float = 1.0) -> None:
    """Replace ``matrix`` by ``keep * matrix + factor * outer``, in place.

    BLAS writes in place into column-ordered arrays only; a row-ordered matrix is the column-ordered
    transpose, hence the exchange of left and right.
    """
    scale = factor * outer.scale
    if not isinstance(matrix, np.ndarray):
        right = outer.right.mT.expand(*matrix.shape[:-2], -1, -1)
        matrix.baddbmm_(outer.left, right, beta=keep, alpha=scale)
    elif matrix.ndim > 2:  # readouts of several networks, which are small
        matrix *= keep
        matrix += scale * (outer.left @ outer.right.mT)
    elif keep == 1.0 and outer.left.shape[1] == 1:
        blas.dger(scale, outer.right[:, 0], outer.left[:, 0], a=matrix.T, overwrite_a=1)
    else:
        blas.dgemm(scale, outer.right.T, outer.left.T, beta=keep, c=matrix.T, trans_a=1, overwrite_c=1)


def _add(matrix: Array, other: Array, factor: float) -> None:
    """Add ``factor * other`` to ``matrix``, in place."""
    if not isinstance(matrix, np.ndarray):
        matrix.add_(other, alpha=factor)
    elif matrix.ndim > 2:
        matrix += factor * other
    else:
        blas.daxpy(other.reshape(-1), matrix.reshape(-1), a=factor)
