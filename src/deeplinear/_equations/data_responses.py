"""Responses of layer 0: how the errors, the residuals and the data signal answer to disturbances.

The equations are in ``layer_zero.py``.
"""

import itertools
from collections.abc import Callable

import numpy as np

from deeplinear._core.arrays import Array, beside, computing, finite, namespace
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.increments import without_initial
from deeplinear._equations.layers import kernel_on_h
from deeplinear._equations.products import fill_resolvent, is_panel, over_time, rows_times, rows_times_transpose
from deeplinear._equations.two_time import Causal, Room, Symmetric
from deeplinear._equations.weights import Weights


class DataResponses:
    """Responses of layer 0.

    Attributes
    ----------
    K, Rhr
        With one leading axis, of the batch.
    RDelta
        The same, or None where it is the identity.
    H
        Transfer function of each mode, with leading axes (batch, modes).
    H1
        H_k applied to constants, or to the rows of each target: the mean of v_k per unit target, shape
        (batch, modes, rows, tasks * outputs).
    subsampling
        Strength of the noise that drawing a batch adds, shape (batch, 1) or (batch, times): that of the coefficients,
        unless a solver whose rows do not stand for one step each has another.
    """

    def __init__(self, c: Coefficients, weights: Weights, room: Room) -> None:
        self.c: Coefficients = c
        self.weights: Weights = weights
        s = c.structure
        self.K: Causal = room.causal(c.batch)
        self.Rhr: Causal = room.causal(c.batch)
        self.RDelta: Causal | None = room.causal(c.batch) if s.reuses_data else None
        self._mean_H = room.causal(c.batch) if s.modes > 1 else None
        self.H: Causal = room.causal(c.batch, s.modes)
        self._first_H = self.H.part(slice(None), 0)
        self.H1: Array = room.series((c.batch, s.modes, room.size, s.sets.count * s.outputs), axis=-2)
        self.subsampling: Array = c.subsampling
        self._minus_eigenvalues, self._reuse = -c.eigenvalues, c.reuse[..., None]
        self._shares = _shares(c) if s.sets.sets else None
        self.mixed: list[tuple[slice, Array]] = []  # rows whose signal is a sum over earlier ones, with its factors

    def step(
        self, Rgu_hat: Array, Cg: Symmetric, rows: slice, *, residuals: bool = True, passive: bool = False
    ) -> None:
        """Fill rows, from the same rows of R_gu / gamma0, and from C_g, of layer 1; of residuals if wanted.

        Rows that are only looked at are not coupled to each other, and have no response of h_0.
        """
        c, outputs = self.c, self.c.structure.outputs
        K = kernel_on_h(c, self.weights, self.K.given(Rgu_hat), Cg, rows, c.first_to_last, c.first_to_last)  # eq-K
        for own, factors in self.mixed:
            K[..., : own.start] += K[..., own] @ factors  # eq-mixed
            K[..., own] = 0.0
        self.K[rows] = K
        KR, panel = rows_times(K, self.RDelta), not passive and is_panel(rows, outputs)

        H = fill_resolvent(self.H, self._minus_eigenvalues * KR[:, None], rows, panel)  # eq-H
        self.H1[..., rows, :] = over_tasks(H, outputs, c.structure.sets.tasks)
        if not residuals:
            return
        mean_H, RDelta = mode_sum(c, H, 1), None
        if self._mean_H is not None:
            self._mean_H[rows] = mean_H

        if self.RDelta is not None:
            Rvu = -rows_times(mean_H, self.K)  # eq-mode-sums
            felt = self.reused(Rvu, rows)
            if c.structure.sets.is_second(rows.start // outputs):
                self._feel_the_draw_again(felt, rows)
            RDelta = fill_resolvent(self.RDelta, felt, rows, panel)  # eq-noise
        if not passive:
            Rhr = -mean_H if RDelta is None else -self.times_mean_H(RDelta)
            self.Rhr[rows] = without_initial(c, Rhr) if c.structure.centered else Rhr

    def mix(self, rows: slice, factors: Array) -> None:
        """Let the signal h_0 of rows that were filled be a sum over earlier ones, with factors (rows, earlier rows)."""
        for function in (self.Rhr, self.RDelta):
            if function is not None:
                mixed = factors @ function.matrix[..., : rows.start, : rows.start]
                function.matrix[..., rows, :] = 0.0
                function.matrix[..., rows, : rows.start] = mixed
        self.mixed.append((rows, factors))

    def reused(self, x: Array, rows: slice) -> Array:
        """Rows of reuse S o x, given those of x."""
        shared: Array = (self._reuse if self._shares is None else self._shares[:, rows, : rows.stop]) * x
        return shared

    def _feel_the_draw_again(self, felt: Array, rows: slice) -> None:
        """Let a row feel the row before 1/b times, whose batch it sees; in place."""
        c, time, outputs = self.c, rows.start // self.c.structure.outputs, self.c.structure.outputs
        again = self.subsampling[:, time] / c.reuse[:, time]  # 1/b - 1
        felt[..., rows.start - outputs : rows.start] *= 1.0 + again[:, None, None]  # eq-drawn-twice

    def times_mean_H(self, x: Array) -> Array:
        """Rows times sum_k p_k lam_k H_k."""
        return self._mean_product(rows_times, x)

    def times_mean_H_transpose(self, x: Array) -> Array:
        """Rows times the transpose of sum_k p_k lam_k H_k."""
        return self._mean_product(rows_times_transpose, x)

    def _mean_product(self, product: Callable[[Array, Causal], Array], x: Array) -> Array:
        if self._mean_H is not None:
            return product(x, self._mean_H)
        one = product(x, self._first_H)
        return one if self.c.is_isotropic else self.c.moments[1][:, 0] * one

    def response_to_r0(self, index: int, rows: slice | None = None) -> Array:
        """R_hr^0 for one problem; in a centered network r0 acts through r0(t) - r0(0). Shape (rows, rows).

        Or some rows of it up to their own time, as of all that follows.
        """
        response: Array = self.c.xp.asarray(self.Rhr[rows or self._all][index], copy=True)
        if self.c.structure.centered:
            outputs = self.c.structure.outputs
            response[:, :outputs] = -over_time(response, outputs)
        return response

    def Rvu(self, index: int, rows: slice | None = None) -> Array:
        """Response of the error to noise in the data signal for one problem, shape (rows, rows)."""
        rows = rows or self._all
        with computing(self.K.matrix):
            mean = (self.c.moments[1][index] * finite(self.H[rows][index])).sum(axis=0)
            response: Array = -finite(mean) @ finite(self.K.matrix[index, : rows.stop, : rows.stop])
        return response

    @property
    def _all(self) -> slice:
        return slice(0, self.c.structure.size)


def over_tasks(x: Array, outputs: int, tasks: tuple[int, ...]) -> Array:
    """Sum over the times of each task of rows (..., e), shape (..., tasks * outputs); one for all if none are given."""
    if not tasks:
        return over_time(x, outputs)
    ends = np.cumsum([0, *tasks]) * outputs
    parts = [over_time(x[..., start:stop], outputs) for start, stop in itertools.pairwise(ends)]
    total: Array = namespace(x).concat(parts, axis=-1)
    return total


def _shares(c: Coefficients) -> Array:
    """Return reuse S, shape (batch, rows, rows)."""
    outputs, sets = c.structure.outputs, np.array(c.structure.sets.sets)
    same = beside(np.kron(sets[:, None] == sets, np.ones((outputs, outputs))), c.reuse)
    shares: Array = c.xp.repeat(c.reuse, outputs, axis=-1)[:, :, None] * same  # eq-shared-data
    return shares


def mode_sum(c: Coefficients, x: Array, power: int) -> Array:
    """sum_k p_k lam_k^power x_k over the axis of modes."""
    each = x if c.is_isotropic else c.moments[power] * x
    total: Array = each.sum(axis=1) if c.structure.modes > 1 else each[:, 0]
    return total
