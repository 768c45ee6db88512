"""All equations of a batch of problems together: what solvers fill, and solutions read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._equations import deep_chain, layer_zero, layers, matrix_averages
from deeplinear._equations.chain import Chain, make_chain
from deeplinear._equations.coefficients import Coefficients, Structure, row_set, times_of
from deeplinear._equations.data_responses import DataResponses
from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.products import mean_diagonal
from deeplinear._equations.replay import part_of_step
from deeplinear._equations.rules import orthogonal_layers
from deeplinear._equations.two_time import Room
from deeplinear._equations.weights import WeightLayers
from deeplinear._rules.averages import Average

DIVERGED = 1e12
"""Training counts as diverged once the loss is this many times its initial value."""

_GROWN = 1e3
"""Factor by which a loss has grown where overflow may be some steps away."""

_KEPT_BY_MUON = 4
"""Matrices that a layer keeps beside its weights where it takes orthogonal steps."""

_LARGEST = 1e300
"""Largest loss of all: products with larger ones overflow."""


class Values(NamedTuple):
    """Values at equal times, in NumPy; shape (batch, rows) unless it says otherwise."""

    error: NDArray[Any]  # C_v(t, t)
    residual: NDArray[Any]  # C_Delta(t, t), where there is sampling noise, (batch, times, outputs, outputs)
    kernel: NDArray[Any]  # (batch, times)
    bias: NDArray[Any]  # parts of C_v(t, t), as in ``DataCovariances``
    width: NDArray[Any]
    data: NDArray[Any]
    mean: NDArray[Any]  # the mean of v per unit target, (batch, modes, times, outputs, tasks, outputs)


class Equations:
    """Every two-time function, filled by sets of rows in the order of a training step.

    The rows of a single step follow from earlier ones in one pass. Those of a panel also depend on each
    other, and one pass is one sweep towards the solution.
    """

    def __init__(self, c: Coefficients, weights: WeightLayers, room: Room) -> None:
        self.c: Coefficients = c
        self.weights: WeightLayers = weights
        self.room: Room = room
        self.data: DataResponses = DataResponses(c, weights.input, room)
        self.data_covariances: DataCovariances = DataCovariances(self.data, room)
        self.chain: Chain = make_chain(c, weights, self.data_covariances.Ch, room)
        self.reported: list[tuple[list[int], Values]] = []  # rows in whose place others are reported, and these

    def fill(self, rows: slice) -> None:
        """Fill rows of everything."""
        self.chain.backward(rows)  # eq-order
        part_of_step(rows, "data", lambda: self._fill_data(rows))()
        self.chain.forward(self.data.Rhr, rows)

    def _fill_data(self, rows: slice) -> None:
        self.data.step(self.chain.Rgu_hat_first(rows), self.chain.Cg_first, rows)
        self.data_covariances.step(self.chain.Cg_first, rows)

    def fill_mixed(self, rows: slice, factors: Array) -> None:
        """Fill rows whose signal is a sum over that of earlier rows, with factors (rows, earlier rows)."""
        self.chain.backward(rows)
        self._fill_data(rows)
        self.data.mix(rows, factors)
        self.data_covariances.mix(rows, factors)
        self.chain.forward(self.data.Rhr, rows)

    def passive_losses(self, rows: slice) -> NDArray[Any]:
        """Test losses (batch, times) at rows that nothing depends on, in the place of some that are filled next.

        These may be several, of the same phase, of which none has learned from another. They are empty afterwards.
        """
        self.chain.backward(rows, coupled=False)
        self.data.step(self.chain.Rgu_hat_first(rows), self.chain.Cg_first, rows, residuals=False, passive=True)
        error = to_numpy(self.data_covariances.error_at(self.chain.Cg_first, rows))
        self.room.clear(rows)
        return self.loss_of(error, times_of(rows, self.c.structure.outputs).start)

    def passive(self, rows: slice) -> Values:
        """Return the values of such rows, with those of the training set."""
        self.chain.backward(rows, coupled=False)
        self.data.step(self.chain.Rgu_hat_first(rows), self.chain.Cg_first, rows, passive=True)
        self.data_covariances.step_aside(self.chain.Cg_first, rows)
        values = self._values(rows, times_of(rows, self.c.structure.outputs), kernel=False)
        self.room.clear(rows)
        return values

    def loss_of(self, error: NDArray[Any], time: int) -> NDArray[Any]:
        """Test losses (batch, times) of errors C_v(t, t) (batch, rows) on the examples of a row over times."""
        noise = self._noise_of_labels
        return self._losses(error, noise[:, min(time, noise.shape[1] - 1), None])

    def test_losses(self, error: NDArray[Any]) -> NDArray[Any]:
        """Test losses (batch, steps) of errors C_v(t, t) (batch, rows) at the rows that are reported."""
        return self._losses(error, self._reported_noise)

    def _losses(self, error: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
        outputs = self.c.structure.outputs
        return np.asarray(error.reshape(len(error), -1, outputs).sum(axis=-1) + noise)  # eq-losses

    def inner_products(self, step: int, *, alone: bool) -> list[Array]:
        """Inner products of the gradient of each weight layer with those up to it, or itself, over the last width."""
        gamma0, rows = self.c.whole_gamma0[..., 0], row_set(self.c, step)
        every = self.chain.gradient_products(rows, rows if alone else slice(None))
        products = [gamma0**2 * each for each in every]
        if self.c.structure.branches_vanish:
            products[1] = 0.0 * products[1]
        return products

    def gradient_products(self, step: int) -> list[Array]:
        """Products of the gradient of each weight layer with those up to it, over the last width and gamma0^2.

        Each has shape (batch, times).
        """
        return self.chain.gradient_products(row_set(self.c, step))

    def fields_around(self, layer: int, end: int) -> tuple[Array, Array]:
        """C_g above and C_h below a weight layer, up to a row, each of shape (batch, end, end)."""
        return self.chain.fields_around(layer, slice(0, end))

    def gradient_factor(self, layer: int) -> Array:
        """gamma0 and branch in front of the gradient of a weight layer, shape (batch, 1)."""
        branch = self.c.f[layer]
        factor: Array = self.c.whole_gamma0 if branch is None else self.c.whole_gamma0 * branch
        return factor[..., 0]

    def replica(self, same_data: bool, room: Room | None = None) -> tuple[DataCovariances, "Chain | None"]:
        """Return empty covariances with another network, that shares the data only, or the initial weights only.

        With other initial weights nothing is left of the hidden layers' correlations that layer 0 would feel. They have
        a room of their own unless one is given.
        """
        room = Room(self.room.size, self.c.gamma0) if room is None else room
        covariances = DataCovariances(self.data, room, same_data)
        return covariances, None if same_data else self.chain.replica(covariances.Ch, room)

    def fill_covariances(self, rows: slice, chain: Chain, covariances: DataCovariances) -> None:
        """Fill rows of other covariances that go with the same responses."""
        chain.backward(rows, respond=False)
        covariances.step(chain.Cg_first, rows)
        chain.forward(self.data.Rhr, rows, respond=False)

    def loss_curve(self, steps: slice) -> Array:
        """Test losses of each problem at some steps or nodes, shape (batch, steps)."""
        outputs = self.c.structure.outputs
        rows = slice(steps.start * outputs, steps.stop * outputs)
        errors = mean_diagonal(self.data_covariances.Cv.block(rows), outputs)
        sigma = self.c.sigma if self.c.sigma.shape[1] == 1 else self.c.sigma[:, steps]
        losses: Array = outputs * (errors + sigma**2)  # eq-losses
        return losses

    @property
    def _noise_of_labels(self) -> NDArray[Any]:
        """Part of the test loss that is the noise of its labels, shape (batch, 1), or (batch, rows over times)."""
        return np.asarray(self.c.structure.outputs * to_numpy(self.c.sigma**2))

    @cached_property
    def _reported_noise(self) -> NDArray[Any]:
        """The same at the rows that are reported."""
        noise, reported = self._noise_of_labels, self.c.structure.reported
        return noise if reported is None or noise.shape[1] == 1 else np.asarray(noise[:, reported])

    @cached_property
    def task_losses(self) -> NDArray[Any]:
        """Test losses on the targets of all phases once all rows are filled, shape (batch, tasks, steps).

        The error on another target is that on the row's own, and the difference of the two targets.
        """
        c, s, equal = self.c, self.c.structure, self.equal_times
        tasks, outputs = s.sets.count, s.outputs
        lengths = s.sets.tasks if s.reported is None else [rule.stop - rule.start for rule in s.rules]
        own = np.repeat(np.arange(tasks), lengths)
        moments, target = to_numpy(c.moments[1])[..., 0, 0], to_numpy(c.target)
        errors = equal.error.reshape(c.batch, -1, outputs).sum(axis=-1)
        noise = outputs * to_numpy(c.task_sigma) ** 2

        def bias(mean: NDArray[Any]) -> NDArray[Any]:
            """sum_k p_k lam_k tr(mean target mean^T), shape (batch, steps)."""
            flat = mean.reshape(*mean.shape[:-2], tasks * outputs)
            return np.asarray(np.einsum("bk,bktci,bkij,bktcj->bt", moments, flat, target, flat))

        losses = []
        for task in range(tasks):
            shift = np.zeros((len(own), outputs, tasks, outputs))
            for output in range(outputs):
                shift[:, output, task, output] += 1.0
                shift[np.arange(len(own)), output, own, output] -= 1.0
            with np.errstate(over="ignore", invalid="ignore"):  # of runs that have diverged, whose losses are cut off
                losses.append(
                    errors - bias(equal.mean) + bias(equal.mean + shift) + noise[:, task, None]  # eq-task-loss
                )
        return np.stack(losses, axis=1)

    def grows(self, step: int) -> bool:
        """Whether the loss of some problem is far above its first one at a step, on its way to a divergence."""
        loss, first = (np.abs(to_numpy(self.loss_curve(slice(each, each + 1))).real) for each in (step, 0))
        return not bool((loss <= np.minimum(_GROWN * (first + self._subtracted), _LARGEST / _GROWN)).all())

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
    def equal_times(self) -> Values:
        """What is read off once all rows are filled, at the rows that are reported."""
        s = self.c.structure
        values = self._values(slice(0, s.size), slice(0, s.steps))
        if self.reported:
            # Rules that take gradients elsewhere report weights that were only looked at.
            at = [row for rows, _ in self.reported for row in rows]
            for name in ("error", "residual", "bias", "width", "data", "mean"):
                axis = 2 if name == "mean" else 1
                whole = getattr(values, name)
                looked = np.concatenate([getattr(each, name) for _, each in self.reported], axis=axis)
                size = looked.shape[axis] // len(at)
                rows = (np.array(at)[:, None] * size + np.arange(size)).ravel()
                whole[(slice(None),) * axis + (rows,)] = looked
        reported = s.reported
        if reported is None:
            return values
        rows = (reported[:, None] * s.outputs + np.arange(s.outputs)).ravel()
        by_time = {"residual", "kernel"}
        chosen = {
            name: value[:, reported if name in by_time else rows] if name != "mean" else value[:, :, reported]
            for name, value in values._asdict().items()
        }
        return Values(**chosen)

    def values(self, times: slice) -> Values:
        """Return what is known at equal times of some rows over times, once these are filled."""
        outputs = self.c.structure.outputs
        values = self._values(slice(times.start * outputs, times.stop * outputs), times)
        return values._replace(kernel=values.kernel[:, times])

    def _values(self, rows: slice, times: slice, *, kernel: bool = True) -> Values:
        C0, s = self.data_covariances, self.c.structure
        with np.errstate(over="ignore", invalid="ignore"):  # at a divergence
            bias, mean = C0.bias(rows), self.data.H1[..., rows, :]
            gains = self.chain.kernel() if kernel else C0.width[:, rows]
        diagonal = self.c.xp.linalg.diagonal(C0.Cv.block(rows))
        mean = mean.reshape(*mean.shape[:2], -1, s.outputs, s.sets.count, s.outputs)
        every = (diagonal, C0.noise.CDelta_equal[:, times], gains, bias, C0.width[:, rows], C0.data[:, rows], mean)
        return Values(*(np.array(to_numpy(each)) for each in every))


def kept(shape: Structure) -> int:
    """Count the matrices that the equations of one problem keep."""
    weights = len(set(shape.groups)) + (shape.outputs > 1) + _KEPT_BY_MUON * _orthogonal(shape)
    return weights + (deep_chain.kept(shape) if shape.depth_nodes else layers.kept(shape)) + layer_zero.kept(shape)


def memory(shape: Structure, batch: int = 1, *, complex_numbers: bool = False, averages: Sequence[Average] = ()) -> int:
    """Bytes of the equations of a batch of problems, almost all of which are matrices over pairs of rows."""
    steps = shape.rules[-1].stop
    matrices = kept(shape) + _orthogonal(shape) * sum(matrix_averages.kept(average, steps) for average in averages)
    objects = 0 if shape.depth_nodes else layers.object_bytes(shape)
    return 8 * (1 + complex_numbers) * batch * matrices * shape.size**2 + objects


def products(shape: Structure) -> tuple[int, int]:
    """Count the products of a row with causal, and with symmetric, matrices in one step."""
    hidden = deep_chain.products(shape) if shape.depth_nodes else layers.products(shape)
    causal, symmetric = (sum(both) for both in zip(hidden, layer_zero.products(shape), strict=True))
    # A layer that takes orthogonal steps multiplies matrices of as many directions as its gradients have, which takes
    # as long as about so many products where training oscillates; less where it is smooth.
    return causal, symmetric + shape.size // 3 * _orthogonal(shape)


def _orthogonal(shape: Structure) -> int:
    """Count the weight layers that take orthogonal steps."""
    return len(orthogonal_layers(shape.rules, len(shape.groups)))


def matrices_read(shape: Structure) -> float:
    """Count the matrices read in one step; a product with a causal one reads half of it."""
    causal, symmetric = products(shape)
    return causal / 2 + symmetric
