"""All equations of a batch of problems together: what solvers fill, and solutions read."""

import numpy as np
from numpy.typing import NDArray

from deeplinear._closure.causal import Array
from deeplinear._closure.chain import Chain, make_chain
from deeplinear._closure.data import DataCovariances, DataResponses
from deeplinear._coefficients import Coefficients

DIVERGED = 1e12
"""Training counts as diverged once the loss is this many times its initial value."""


class Equations:
    """Every two-time function, filled by sets of rows in the order of a training step.

    The rows of a single step follow from earlier ones in one pass. Those of a panel also depend on each
    other, and one pass is one sweep towards the solution.
    """

    def __init__(self, c: Coefficients) -> None:
        self.c = c
        self.data = DataResponses(c)
        self.data_covariances = DataCovariances(self.data)
        self.chain: Chain = make_chain(c, self.data_covariances.Ch)

    def fill(self, rows: slice) -> None:
        """Fill rows of everything."""
        self.chain.backward(rows)
        self.data.step(self.chain.Rgu_hat_first(rows), self.chain.Cg_first, rows)
        self.data_covariances.step(self.chain.Cg_first, rows)
        self.chain.forward(self.data.Rhr, rows)

    def fill_covariances(self, rows: slice, chain: Chain, covariances: DataCovariances) -> None:
        """Fill rows of other covariances that go with the same responses."""
        chain.backward(rows, respond=False)
        covariances.step(chain.Cg_first, rows)
        chain.forward(self.data.Rhr, rows, respond=False)

    def test_loss(self, step: int) -> Array:
        """Test loss of each problem at one step or node, shape (batch,)."""
        rows = row_set(self.c, step)
        block = self.data_covariances.Cv[:, rows, rows]
        loss: Array = np.trace(block, axis1=-2, axis2=-1) + self.c.structure.outputs * self.c.sigma2[:, 0, 0]
        return loss

    def diverges(self, step: int) -> NDArray[np.bool_]:
        """Whether training has left all bounds at a step or node, shape (batch,)."""
        loss, first = np.abs(self.test_loss(step).real), np.abs(self.test_loss(0).real)
        # A step that cannot be solved while the loss grows is one that blows up along the depth.
        diverged: NDArray[np.bool_] = ~(loss <= DIVERGED * first) | (self.chain.unsettled & (loss > first))
        return diverged


def row_set(c: Coefficients, step: int) -> slice:
    """Rows of one step: one per output."""
    outputs = c.structure.outputs
    return slice(step * outputs, (step + 1) * outputs)
