"""All equations of a batch of problems together: what solvers fill, and solutions read."""

from deeplinear._arrays import Array
from deeplinear._closure.causal import mean_diagonal
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
        return self.loss_curve(slice(step, step + 1))[:, 0]

    def loss_curve(self, steps: slice) -> Array:
        """Test losses of each problem at some steps or nodes, shape (batch, steps)."""
        outputs = self.c.structure.outputs
        rows = slice(steps.start * outputs, steps.stop * outputs)
        errors = mean_diagonal(self.data_covariances.Cv[:, rows, rows], outputs)
        losses: Array = outputs * (errors + self.c.sigma2[:, 0])
        return losses

    def diverges(self, step: int) -> Array:
        """Whether training has left all bounds at a step or node, shape (batch,)."""
        loss, first = abs(self.test_loss(step).real), abs(self.test_loss(0).real)
        # A step that cannot be solved while the loss grows is one that blows up along the depth.
        diverged: Array = ~(loss <= DIVERGED * first) | (self.chain.unsettled & (loss > first))
        return diverged


def row_set(c: Coefficients, step: int) -> slice:
    """Rows of one step: one per output."""
    outputs = c.structure.outputs
    return slice(step * outputs, (step + 1) * outputs)
