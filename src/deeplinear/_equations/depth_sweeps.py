"""Sweeps along a chain of nodes in depth, until the rows of a step stand still.

A row of the unknowns depends on the same row at the other nodes. The equations are of Volterra type along the chain, so
sweeping them converges fast. A row passes from node to node first of all unchanged, R_hr = Y + ... and C_h = S + ...,
so the correction of each sweep is carried along the chain with (1 - beta^2 sum)^-1.
"""

from collections.abc import Callable

import numpy as np

from deeplinear._core.arrays import Array, alike, identity, to_numpy
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.fixed_point import fixed_point, solve
from deeplinear._equations.products import is_panel
from deeplinear._equations.replay import earlier_rows, recorded_sweeps
from deeplinear._equations.two_time import Causal, Symmetric

SETTLED = 1e-10
"""Relative change of a step's unknowns at which sweeping them ends."""

_MOST_SWEEPS, USUAL_SWEEPS = 60, 10
_MANY_SWEEPS, _MANY_IN_MEMORY = 240, 120
"""Sweeps of a second trial, and how many it remembers, where the first one did not settle."""

FEW_LAYERS = 1024
"""Depth up to which it is cheaper, and exact, to solve layer by layer what does not settle at once."""

Sweep = Callable[[Array, Array], tuple[Array, Array]]
"""Takes rows of a kernel and of a covariance at all nodes to those that follow from them."""


class DepthSweeps:
    """Sweeps of one chain, up and down.

    Attributes
    ----------
    unsettled
        Which problems of the batch had a step that did not come to a standstill, shape (batch,).
    """

    def __init__(self, c: Coefficients) -> None:
        self.c = c
        self.unsettled = np.zeros(c.batch, bool)
        self._carried: dict[str, Array] = {}
        self._are_many = c.structure.edges is None or c.structure.edges >= FEW_LAYERS

    def settle(self, name: str, sweep: Sweep, over: Array, kernel: Causal, covariance: Symmetric, rows: slice) -> None:
        """Sweep a step's rows until they stand still, starting from those of the step before; a panel's rows once.

        ``name`` tells the two directions apart, and ``over`` sums over the edges on the way to each node.
        """
        e, count, xp = rows.stop, rows.stop - rows.start, self.c.xp
        carry = self._carry(name, over)

        def carried(unknowns: Array) -> Array:
            change = xp.stack(sweep(unknowns[:, 0], unknowns[:, 1]), axis=1) - unknowns
            swept = [unknowns[:, i] + along(carry, change[:, i]) for i in range(2)]
            result: Array = xp.stack(swept, axis=1)
            return result

        if is_panel(rows, self.c.structure.outputs):
            swept = carried(xp.stack([kernel[rows], covariance[rows]], axis=1))
            kernel[rows], covariance[rows] = swept[:, 0], swept[:, 1]
            return
        before = earlier_rows(rows, count)
        start = xp.stack([each.matrix[..., before, :e] for each in (kernel, covariance)], axis=1)
        flat = start.reshape(len(start), -1)
        # At the first weights of a centered network there is nothing but rounding errors of the step before.
        size = to_numpy(xp.max(xp.abs(flat), axis=1))

        def swept_once(flat: Array) -> Array:
            return carried(flat.reshape(start.shape)).reshape(flat.shape)

        if (first := recorded_sweeps(rows, name, swept_once, flat)) is not None:
            last, moving = solve(first, flat, SETTLED, _MOST_SWEEPS, self.unsettled, size)
        else:
            last, moving = fixed_point(
                swept_once, flat, tolerance=SETTLED, most_sweeps=_MOST_SWEEPS, ignore=self.unsettled, before=size
            )
        if self._are_many and (moving & ~self.unsettled).any() and bool(xp.all(xp.isfinite(last))):
            # What has grown much along the depth: too much for few sweeps in memory, not yet a divergence.
            _, moving = fixed_point(
                swept_once,
                flat,
                tolerance=SETTLED,
                most_sweeps=_MANY_SWEEPS,
                memory=_MANY_IN_MEMORY,
                ignore=self.unsettled,
                before=size,
            )
        self.unsettled |= moving

    def _carry(self, name: str, over: Array) -> Array:
        """(1 - beta^2 sum)^-1, which is the same at all steps."""
        if name not in self._carried:
            self._carried[name] = self.c.xp.linalg.inv(identity(len(over), over) - self.c.beta2 * over)
        return self._carried[name]


def along(matrix: Array, rows: Array) -> Array:
    """Apply a matrix over the nodes to rows of shape (batch, nodes, r, e), which may be complex."""
    flat = rows.reshape(*rows.shape[:2], -1)
    product: Array = (alike(matrix, flat) @ flat).reshape(rows.shape)
    return product
