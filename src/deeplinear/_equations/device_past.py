"""What Anderson's method remembers of earlier sweeps, kept on a graphics card, so that a sweep is replayed as a whole.

The equations are those of ``fixed_point.py``. There the few numbers that tell how to combine sweeps are looked at on
the processor; here a kernel solves for them, since to wait for them takes as long as a sweep of a short run.
"""

from typing import Any

import torch

from deeplinear._equations import device_kernels as kernels
from deeplinear._equations.fixed_point import MEMORY, RIDGE

Array = Any
"""A tensor of PyTorch."""


class PastOnCard:
    """Earlier sweeps, newest first; all operations are the same for every sweep."""

    def __init__(self, like: Array) -> None:
        batch, unknowns = like.shape
        self._f = like.new_zeros((batch, MEMORY, unknowns))
        self._moves = like.new_zeros((batch, MEMORY, unknowns))  # of x + f

    def forget(self) -> None:
        """Begin anew."""
        self._f.zero_()
        self._moves.zero_()

    def add(self, dx: Array, df: Array, x: Array, residual: Array) -> Array:
        """Remember a sweep in place of the oldest; return the largest unknown and residual, shape (batch, 2)."""
        for kept, newest in ((self._f, df), (self._moves, dx + df)):
            kept.copy_(torch.cat([newest[:, None], kept[:, :-1]], dim=1))
        largest: Array = torch.stack([x, residual], dim=1).abs().amax(dim=2)
        return largest

    def combined(self, residual: Array) -> Array:
        """Sum over earlier sweeps of c_j (dx_j + df_j), with the c that minimise |f - sum_j c_j df_j|."""
        products = self._f @ torch.cat([self._f, residual[:, None]], dim=1).mT
        factors = products.new_empty((len(products), 1, MEMORY))
        kernels.combination[(len(products),)](factors, products, RIDGE=RIDGE, M=MEMORY)
        combined: Array = (factors @ self._moves)[:, 0]
        return combined
