"""What a panel leaves unresolved, and whether training is stable within it."""

import math

import numpy as np

from deeplinear._core.arrays import Array
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

_TAIL = 0.5
"""Part of a panel's error that adds up in each decade by which losses fall, as errors of the rate of decay do."""


class Errors:
    """Relative errors of the losses and correlations of a run.

    Attributes
    ----------
    floor
        Errors of a loss are relative to this fraction of the initial loss where the loss is smaller.
    initial
        Losses, then C_h and C_g of the hidden layers, at the first step, once that is known.
    """

    def __init__(self, nodes: NodesInTime, tolerance: float) -> None:
        self._nodes, self._tolerance = nodes, tolerance
        # What rounding leaves of a smaller loss is more than the tolerance.
        self.floor = max(LOSS_FLOOR, VANISHED / tolerance)
        self.initial: list[float] = []

    def begin(self, rows: slice) -> None:
        """Take the values at the first step, which has these rows."""
        self.initial = [float(np.abs(values[0])) for values in self.equal_times(rows)]

    def losses(self, rows: slice) -> Array:
        """Test loss, and train loss if it differs, per output at the nodes of a set, shape (1 or 2, nodes)."""
        return self._nudged_losses(rows).real

    def _nudged_losses(self, rows: slice) -> Array:
        """The same with the imaginary parts that belong to a derivative, if a field of the problem has one."""
        equations, outputs = self._nodes.equations, self._nodes.outputs
        C0, nodes = equations.data_covariances, slice(rows.start // outputs, rows.stop // outputs)
        test: Array = equations.loss_curve(nodes)[0] / outputs
        if not C0.noisy:
            return test[None]
        return np.stack([test, np.trace(C0.noise.CDelta_equal[0, nodes], axis1=-2, axis2=-1) / outputs])

    def equal_times(self, rows: slice) -> list[Array]:
        """Losses, then C_h and C_g of the hidden layers, at the nodes of a set."""
        correlations, outputs = self._nodes.equations.chain.correlations(), self._nodes.outputs
        fields = (mean_diagonal(C.block(rows), outputs)[0].real for C in correlations)
        return [*self.losses(rows), *fields]

    @property
    def loss_floors(self) -> Array:
        """What losses are judged by if they are smaller, shape (1 or 2, 1)."""
        losses = 2 if self._nodes.equations.data_covariances.noisy else 1
        return np.array([[self.floor * each] for each in self.initial[:losses]])

    def left(self, rows: slice) -> float:
        """Part of the initial loss that is left at the last of these rows."""
        last = self.floor * relative(self.losses(rows)[:, -1:], self.loss_floors)
        return float(last.min())

    def alternating(self) -> float:
        """Relative size of what still alternates in the losses of the last single steps; it would end with a panel."""
        nodes, grid = self._nodes, self._nodes.grid
        count = min(len(grid), PANEL_NODES + 1)
        if any(length > 1 for length in grid.lengths[-count:]):
            return 0.0
        losses = self.losses(nodes.rows(slice(len(grid) - count, len(grid))))
        differences = np.abs(np.diff(losses, n=count - 1, axis=1)) / 2.0 ** (count - 1)
        return float(relative(differences, np.maximum(np.abs(losses[:, -1:]), self.loss_floors)).max())

    def added_up(self, left: float) -> float:
        """What errors of panels, at most, have added up to where this part of the initial loss is left."""
        return max(1.0, -_TAIL * math.log10(max(left, self.floor)))

    def truncation(self, rows: slice) -> float:
        """Relative size of what comes after the last coefficients of the panel's polynomials.

        Features that have died out only count through what they still add to the kernels, lr t C_h.
        """
        losses, weights = len(self.loss_floors), self._nodes.equations.weights
        added = float(np.abs(weights.input.a[rows][0, -1]).sum()) / self._nodes.outputs
        worst = 0.0
        for index, (values, initial) in enumerate(zip(self.equal_times(rows), self.initial, strict=True)):
            floor = self.floor if index < losses else max(1.0 / (1.0 + added), NOISE / self._tolerance)
            scale = max(np.abs(values).min() if index < losses else np.abs(values).max(), floor * initial)
            worst = max(worst, rest(values, scale))
        derivatives = self._nudged_losses(slice(0, rows.stop)).imag
        for values, largest in zip(derivatives[:, -PANEL_NODES:], np.abs(derivatives).max(axis=1), strict=True):
            worst = max(worst, rest(values, largest))
        return worst


def relative(change: Array, scale: Array) -> Array:
    """Size of a change over a scale: zero where there is none, also of what is zero."""
    size = np.abs(change)
    ratio: Array = np.where(size == 0, 0.0, size / scale)
    return ratio


def rest(values: Array, scale: float) -> float:
    """What comes after the last coefficients of the polynomial through values at the nodes of a panel, over a scale.

    Coefficients are taken to go on falling as they do at the end, but no faster than before that, since one that is
    small by chance says nothing about the next; and all that follow are summed. It is infinite if a value is
    not finite, and zero if nothing is left, whatever the scale.
    """
    sizes = np.abs(to_legendre() @ values)
    earlier, before, last = sizes[-6:-4].max(), sizes[-4:-2].max(), sizes[-2:].max()
    falls = [after / size for size, after in ((earlier, before), (before, last)) if size > 0]
    ratio = min(_SLOWEST, max(falls, default=_SLOWEST))
    rest = last * ratio / (1.0 - ratio)
    if not np.isfinite(rest):
        return np.inf
    return float(rest / scale) if rest else 0.0


def grows(answer: Array) -> bool:
    """Whether what alternates from step to step, in the answer (modes, steps, ...) to a disturbance, does not die out.

    High differences remove what is smooth. Near the edge of a continuous spectrum of rates, what alternates at the edge
    of stability falls as the power 3/2 of the time, so it must fall faster than that. And what grows fast need not
    do so until the end: it lowers the kernel then, and stops.
    """
    differences = np.abs(np.diff(answer, n=8, axis=1)) / 2.0**8
    alternating = differences.reshape(len(answer), differences.shape[1], -1).max(axis=(0, 2))
    third, last = np.split(alternating * (1.0 + np.arange(len(alternating))) ** 1.5, 4)[2:]
    at_first, later = np.split(alternating, [len(alternating) // 4])
    lasts = last.max() > third.max() and alternating[-len(last) :].max() > NOISE
    return bool(lasts or not later.max() <= at_first.max())
