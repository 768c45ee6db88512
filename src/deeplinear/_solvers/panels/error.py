"""What a panel leaves unresolved, and whether training is stable within it."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, to_numpy
from deeplinear._equations.products import mean_diagonal
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.rounding import LOSS_FLOOR
from deeplinear._time.grid import PANEL_NODES, to_legendre

_SLOWEST = 0.5
"""Ratio of coefficients of a polynomial to those two orders lower, at which they are said not to fall."""

NOISE = 1e-12
"""What rounding leaves of correlations, relative to their initial values."""

VANISHED = 5e-12
"""What is left of losses that have vanished, relative to their initial values, by sums over responses in a panel."""

_GROWN = 10.0
"""How much what alternates grows, from the disturbance on, where it grows at all."""

_TAIL = 0.5
"""Part of a panel's error that adds up in each decade by which losses fall, as errors of the rate of decay do."""


class Errors:
    """Relative errors of the losses and correlations of a run, for each problem of its batch.

    Attributes
    ----------
    floor
        Errors of a loss are relative to this fraction of the initial loss where the loss is smaller.
    initial
        Losses, then C_h and C_g of the hidden layers, at the first step, shape (batch, functions); nothing until that
        is known.
    """

    def __init__(self, nodes: NodesInTime, tolerance: float) -> None:
        self._nodes, self._tolerance = nodes, tolerance
        # What rounding leaves of a smaller loss is more than the tolerance.
        self.floor = max(LOSS_FLOOR, VANISHED / tolerance)
        self.initial: NDArray[Any] = np.zeros((0, 0))

    def begin(self, rows: slice) -> None:
        """Take the values at the first step, which has these rows."""
        self.initial = np.abs(self.equal_times(rows)[..., 0])

    def losses(self, rows: slice) -> Array:
        """Test loss, and train loss if it differs, per output at the nodes of a set, shape (batch, 1 or 2, nodes)."""
        return self._nudged_losses(rows).real

    def _nudged_losses(self, rows: slice) -> Array:
        """The same with the imaginary parts that belong to a derivative, if a field of the problem has one."""
        equations, outputs = self._nodes.equations, self._nodes.outputs
        C0, nodes, xp = equations.data_covariances, slice(rows.start // outputs, rows.stop // outputs), equations.c.xp
        test: Array = equations.loss_curve(nodes) / outputs
        if not C0.noisy:
            return test[:, None]
        both: Array = xp.stack([test, xp.linalg.trace(C0.noise.CDelta_equal[:, nodes]) / outputs], axis=1)
        return both

    def equal_times(self, rows: slice) -> NDArray[Any]:
        """Losses, then C_h and C_g of the hidden layers, at the nodes of a set, shape (batch, functions, nodes)."""
        equations, outputs = self._nodes.equations, self._nodes.outputs
        fields = [mean_diagonal(C.block(rows), outputs).real[:, None] for C in equations.chain.correlations()]
        return to_numpy(equations.c.xp.concat([self.losses(rows), *fields], axis=1))

    @property
    def _losses(self) -> int:
        """Number of losses."""
        return 2 if self._nodes.equations.data_covariances.noisy else 1

    @property
    def loss_floors(self) -> NDArray[Any]:
        """What losses are judged by if they are smaller, shape (batch, 1 or 2, 1)."""
        floors: NDArray[Any] = self.floor * self.initial[:, : self._losses, None]
        return floors

    def left(self, rows: slice) -> NDArray[Any]:
        """Part of the initial loss that is left at the last of these rows, shape (batch,)."""
        last: NDArray[Any] = self.floor * relative(to_numpy(self.losses(rows))[..., -1:], self.loss_floors)
        return np.asarray(last.min(axis=(1, 2)))

    def alternating(self) -> NDArray[Any] | float:
        """Relative size of what still alternates in the losses of the last single steps; it would end with a panel.

        Shape (batch,); or 0 if there are none.
        """
        nodes, grid = self._nodes, self._nodes.grid
        count = min(len(grid), PANEL_NODES + 1)
        if any(length > 1 for length in grid.lengths[-count:]):
            return 0.0
        losses = to_numpy(self.losses(nodes.rows(slice(len(grid) - count, len(grid)))))
        differences = np.abs(np.diff(losses, n=count - 1)) / 2.0 ** (count - 1)
        part = relative(differences, np.maximum(np.abs(losses[..., -1:]), self.loss_floors))
        return np.asarray(part.max(axis=(1, 2)))

    def added_up(self, left: NDArray[Any]) -> NDArray[Any]:
        """What errors of panels, at most, have added up to where these parts of the initial loss are left."""
        return np.array([max(1.0, -_TAIL * math.log10(max(each, self.floor))) for each in left])

    def truncation(self, rows: slice) -> NDArray[Any]:
        """Relative size of what comes after the last coefficients of the panel's polynomials, shape (batch,).

        Features that have died out only count through what they still add to the kernels, lr t C_h.
        """
        values, losses, weights = self.equal_times(rows), self._losses, self._nodes.equations.weights
        added = np.abs(to_numpy(weights.input.a[rows][:, -1])).sum(axis=-1) / self._nodes.outputs
        sizes, floors = np.abs(values), np.full(self.initial.shape, self.floor)
        floors[:, losses:] = larger(1.0 / (1.0 + added), NOISE / self._tolerance)[:, None]
        scales = np.concatenate([sizes[:, :losses].min(axis=-1), sizes[:, losses:].max(axis=-1)], axis=1)
        worst = rest(values, larger(scales, floors * self.initial)).max(axis=1)
        c = self._nodes.equations.c
        if c.xp.isdtype(c.gamma0.dtype, "complex floating"):
            derivatives = to_numpy(self._nudged_losses(slice(0, rows.stop))).imag
            left = rest(derivatives[..., -PANEL_NODES:], np.abs(derivatives).max(axis=-1))
            worst = larger(worst, left.max(axis=1))
        return np.asarray(worst)


def larger(first: Any, second: Any) -> NDArray[Any]:
    """Return the larger of two numbers, the first if they cannot be compared."""
    chosen: NDArray[Any] = np.where(second > first, second, first)
    return chosen


def relative(change: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    """Size of a change over a scale: zero where there is none, also of what is zero."""
    size = np.abs(change)
    return np.where(size == 0, 0.0, size / scale)


def rest(values: NDArray[Any], scale: NDArray[Any] | float) -> NDArray[Any]:
    """What comes after the last coefficients of the polynomial through values at the nodes of a panel, over a scale.

    Values have shape (..., nodes), and scales (...).

    Coefficients are taken to go on falling as they do at the end, but no faster than before that, since one that is
    small by chance says nothing about the next; and all that follow are summed. It is infinite if a value is
    not finite, and zero if nothing is left, whatever the scale.
    """
    sizes = np.abs((to_legendre() @ values[..., None])[..., 0])
    earlier, before, last = (sizes[..., end - 2 : end].max(axis=-1) for end in (-4, -2, PANEL_NODES))
    falls = [
        np.divide(after, size, out=np.full(size.shape, -np.inf), where=size > 0)
        for size, after in ((earlier, before), (before, last))
    ]
    fastest = larger(*falls)
    ratio = np.where(fastest > -np.inf, np.fmin(_SLOWEST, fastest), _SLOWEST)
    rest = last * ratio / (1.0 - ratio)
    over_scale = np.divide(rest, scale, out=np.zeros(rest.shape), where=rest != 0)
    return np.where(np.isfinite(rest), over_scale, np.inf)


def grows(answer: NDArray[Any]) -> bool:
    """Whether what alternates from step to step, in the answer (modes, steps, ...) to a disturbance, does not die out.

    High differences remove what is smooth. Near the edge of a continuous spectrum of rates, what alternates at the edge
    of stability falls as the power 3/2 of the time, so it must fall faster than that. And what grows fast need not
    do so until the end: it lowers the kernel then, and stops, which may take a few steps only.
    """
    differences = np.abs(np.diff(answer, n=8, axis=1)) / 2.0**8
    alternating = differences.reshape(len(answer), differences.shape[1], -1).max(axis=(0, 2))
    third, last = np.split(alternating * (1.0 + np.arange(len(alternating))) ** 1.5, 4)[2:]
    at_first, later = np.split(alternating, [len(alternating) // 4])
    lasts = last.max() > third.max() and alternating[-len(last) :].max() > NOISE
    has_grown = not alternating.max() <= max(_GROWN * alternating[0], NOISE)
    return bool(lasts or has_grown or not later.max() <= at_first.max())
