"""All equations of a batch of problems together: what solvers fill, and solutions read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._equations import deep_chain, layer_zero, layers
from deeplinear._equations.chain import Chain, make_chain
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.layer_zero import DataCovariances, DataResponses
from deeplinear._equations.products import mean_diagonal
from deeplinear._equations.two_time import Room
from deeplinear._equations.weights import WeightLayers

DIVERGED = 1e12
"""Training counts as diverged once the loss is this many times its initial value."""

_LARGEST = 1e300
"""Largest loss of all: products with larger ones overflow."""


@dataclass(frozen=True)
class EqualTimes:
    """Values at equal times, in NumPy; shape (batch, rows), of the residual (batch, steps, outputs, outputs)."""

    error: NDArray[Any]  # C_v(t, t)
    residual: NDArray[Any]  # C_Delta(t, t), where there is sampling noise
    kernel: NDArray[Any]  # (batch, steps)
    bias: NDArray[Any]  # parts of C_v(t, t), as in ``DataCovariances``
    width: NDArray[Any]
    data: NDArray[Any]


class Equations:
    """Every two-time function, filled by sets of rows in the order of a training step.

    The rows of a single step follow from earlier ones in one pass. Those of a panel also depend on each
    other, and one pass is one sweep towards the solution.
    """

    def __init__(self, c: Coefficients, weights: WeightLayers, room: Room) -> None:
        self.c, self.weights, self.room = c, weights, room
        self.data = DataResponses(c, weights.input, room)
        self.data_covariances = DataCovariances(self.data, room)
        self.chain: Chain = make_chain(c, weights, self.data_covariances.Ch, room)

    def fill(self, rows: slice) -> None:
        """Fill rows of everything."""
        self.chain.backward(rows)  # eq-order
        self.data.step(self.chain.Rgu_hat_first(rows), self.chain.Cg_first, rows)
        self.data_covariances.step(self.chain.Cg_first, rows)
        self.chain.forward(self.data.Rhr, rows)

    def replica(self, same_data: bool) -> tuple[DataCovariances, "Chain | None"]:
        """Return empty covariances with another network, that shares the data only, or the initial weights only.

        With other initial weights nothing is left of the hidden layers' correlations that layer 0 would feel.
        """
        room = Room(self.room.size, self.c.gamma0)
        covariances = DataCovariances(self.data, room, same_data)
        return covariances, None if same_data else self.chain.replica(covariances.Ch, room)

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
        errors = mean_diagonal(self.data_covariances.Cv.block(rows), outputs)
        losses: Array = outputs * (errors + self.c.sigma2[:, 0])  # eq-losses
        return losses

    @cached_property
    def label_noise(self) -> NDArray[Any]:
        """Part of the test loss that is the noise of its labels, shape (batch, 1)."""
        return self.c.structure.outputs * to_numpy(self.c.sigma2[:, 0])

    @cached_property
    def train_losses(self) -> NDArray[Any] | None:
        """Train losses once all rows are filled, shape (batch, steps); None where they are the test losses."""
        C0 = self.data_covariances
        return np.trace(to_numpy(C0.CDelta_equal), axis1=-2, axis2=-1) if C0.noisy else None

    def diverges(self, steps: slice) -> NDArray[np.bool_]:
        """Whether training has left all bounds at some steps or nodes, shape (batch, steps)."""
        loss, first = (np.abs(to_numpy(self.loss_curve(each)).real) for each in (steps, slice(0, 1)))
        bounded = loss <= np.minimum(DIVERGED * (first + self._subtracted), _LARGEST)
        # A step that cannot be solved while the loss grows is one that blows up along the depth.
        diverged: NDArray[np.bool_] = ~bounded | (self.chain.unsettled[:, None] & (loss > first))
        return diverged

    @property
    def _subtracted(self) -> NDArray[Any] | float:
        """Loss that the function at initialisation would have, where training may uncover it, shape (batch, 1).

        A centered network whose weights decay is left with what was subtracted, which is no divergence.
        """
        c = self.c
        if c.scale is None or not c.structure.decays:
            return 0.0
        variance, scale, mean = (to_numpy(x).real for x in (c.initial_variance, c.scale, c.moments[1].sum(axis=1)))
        with np.errstate(over="ignore", divide="ignore"):
            size: NDArray[Any] = c.structure.outputs * (variance * mean / scale / scale)[:, 0]
        return size

    @cached_property
    def equal_times(self) -> EqualTimes:
        """What is read off once all rows are filled."""
        C0 = self.data_covariances
        with np.errstate(over="ignore", invalid="ignore"):  # at a divergence
            kernel, bias = self.chain.kernel(), C0.bias
        every = (C0.Cv.diagonal(), C0.CDelta_equal, kernel, bias, C0.width, C0.data)
        return EqualTimes(*map(to_numpy, every))


def kept(shape: Structure) -> int:
    """Count the matrices that the equations of one problem keep."""
    return (deep_chain.kept(shape) if shape.nodes else layers.kept(shape)) + layer_zero.kept(shape)


def memory(shape: Structure, batch: int = 1, *, complex_numbers: bool = False) -> int:
    """Bytes of the equations of a batch of problems, almost all of which are matrices over pairs of rows."""
    matrices = kept(shape) + (1 if shape.outputs == 1 else 2)  # and the weights
    objects = 0 if shape.nodes else layers.object_bytes(shape)
    return 8 * (1 + complex_numbers) * batch * matrices * shape.size**2 + objects


def products(shape: Structure) -> tuple[int, int]:
    """Count the products of a row with causal, and with symmetric, matrices in one step."""
    hidden = deep_chain.products(shape) if shape.nodes else layers.products(shape)
    causal, symmetric = (sum(both) for both in zip(hidden, layer_zero.products(shape), strict=True))
    return causal, symmetric


def matrices_read(shape: Structure) -> float:
    """Count the matrices read in one step; a product with a causal one reads half of it."""
    causal, symmetric = products(shape)
    return causal / 2 + symmetric


def row_set(c: Coefficients, step: int) -> slice:
    """Rows of one step: one per output."""
    outputs = c.structure.outputs
    return slice(step * outputs, (step + 1) * outputs)
