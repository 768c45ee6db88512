"""Noise of the data of layer 0: the covariance Z that examples and batches make, and the residuals on the training set.

The equations are in ``layer_zero.py``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, finite, identity, is_tensor, to_numpy
from deeplinear._equations.coefficients import Coefficients, times_of
from deeplinear._equations.data_responses import DataResponses, mode_sum
from deeplinear._equations.products import (
    add_identity,
    equal_times,
    is_panel,
    over_time,
    row_products,
    rows_times_symmetric,
)
from deeplinear._equations.rooted import Rooted
from deeplinear._equations.two_time import Room, Symmetric


class DataNoise:
    """Noise of the data that two replicas share, or not.

    Attributes
    ----------
    is_there
        Whether data that the replicas share, or batches of them, make training noisy.
    CDelta_equal
        Correlation of the training residuals at equal times, shape (batch, steps, outputs, outputs); zero if not noisy.
    """

    def __init__(self, responses: DataResponses, Cv: Symmetric, room: Room, same_data: bool) -> None:
        self.responses: DataResponses = responses
        self.c: Coefficients = responses.c
        self._Cv = Cv
        s, batch, size = self.c.structure, self.c.batch, room.size
        self.is_there: bool = same_data and (s.reuses_data or s.subsamples)
        # reuse S o (C_v + sigma^2).
        self._remembered = room.symmetric(batch) if s.reuses_data else None
        self.CDelta_equal: Array = room.series((batch, size // s.outputs, s.outputs, s.outputs), 1, s.outputs)
        # The same between a row and the row before, whose batch it sees.
        self._before = room.series(self.CDelta_equal.shape, 1, s.outputs) if s.sets.twice else None
        self._mean_eigenvalue = self.c.moments[1].sum(axis=1)
        # sigma(t) sigma(s) for every pair of times, within one output, but for the first factor.
        self._sigma = self.c.sigma if s.outputs == 1 else self.c.xp.repeat(self.c.sigma, s.outputs, axis=-1)
        self._constant_noise = self._sigma[:, :1, None] ** 2
        self._within = self.c.xp.tile(identity(s.outputs, self.c.sigma), (1, size // s.outputs))

    def remember(self, rows: slice) -> None:
        """Fill rows of what examples that are seen again remember of errors and label noise."""
        if self._remembered is not None:
            self._remembered[rows] = self.responses.reused(self._fresh(rows), rows)  # eq-noise

    def _Z(self, rows: slice) -> Array:
        """Rows of Z."""
        total: Array = self.c.xp.zeros_like(self._Cv[rows]) if self._remembered is None else self._remembered[rows]
        if self.c.structure.subsamples:
            one = self.c.xp.zeros_like(total)
            add_identity(one, rows)
            total = total + self._draws(one)
        return total

    def times_Z(self, x: Array) -> Array:
        """Rows times Z; draws of batches not yet known count zero."""
        if self._remembered is None:
            return self._draws(x)
        total = rows_times_symmetric(x, self._remembered)
        return total + self._draws(x) if self.c.structure.subsamples else total

    def times_root(self, x: Array) -> Array:
        """Rows times a root of Z, of which C_v has one; draws of batches not yet known count zero."""
        c, e, outputs, parts = self.c, x.shape[-1], self.c.structure.outputs, []
        assert isinstance(self._Cv, Rooted)
        if c.structure.reuses_data:
            sigma = self._sigma if self._sigma.shape[1] == outputs else self._sigma[:, None, :e]
            labels = over_time(x, outputs) * sigma[:, None] if sigma.ndim == 2 else over_time(x * sigma, outputs)
            parts = [self._reuse_root * (x @ self._Cv.Z[:, :e]), self._reuse_root * labels]
        if c.structure.subsamples:
            drawn = self.responses.subsampling * self.CDelta_equal[:, :, 0, 0]
            parts.append(x * drawn[:, None, :e] ** 0.5)
            parts.append(np.zeros((*x.shape[:-1], self.CDelta_equal.shape[1] - e)))
        return np.concatenate(parts, axis=-1)

    def residual_by_roots(self, rows: slice) -> None:
        """Fill C_Delta(t, t) of rows, of which C_v is known."""
        F, outputs = self.responses.RDelta, self.c.structure.outputs
        if F is None:
            residual = self._fresh_block(rows)
        else:
            y = self.times_root(F[rows]) / self._reuse_root
            residual = y @ y.mT
        self.CDelta_equal[:, times_of(rows, outputs)] = equal_times(residual, outputs)

    @property
    def _reuse_root(self) -> Array:
        return self.c.reuse[:, :1, None] ** 0.5

    def in_signal(self, rows: slice, learned: Array, learned_Z: Array) -> Array:
        """Noise in Psi: sum_k p_k lam_k (H_k Z + Z H_k^T - Z) = Z M^T - (m - M) Z, M = sum_k p_k lam_k H_k.

        Given 1 - H_k, and that times Z as it was before this step was remembered, which is the same where nothing is.
        On the way C_Delta = R_Delta Z R_Delta^T / reuse at equal times, without this step's own draw, or
        C_v + sigma^2.
        """
        c, R, outputs = self.c, self.responses, self.c.structure.outputs
        if R.RDelta is None:
            residual = self._fresh(rows)[..., rows] if is_tensor(learned_Z) else self._fresh_block(rows)
            self.CDelta_equal[:, times_of(rows, outputs)] = equal_times(residual, outputs)
            return self._Z_times_mean_H_transpose_less(mode_sum(c, learned_Z, 1), rows)
        learned = mode_sum(c, learned, 1)  # m - M
        if c.structure.sets.is_second(rows.start // outputs):
            residual = self._second_residual(rows)
            self.CDelta_equal[:, times_of(rows, outputs)] = equal_times(residual, outputs)
            mean_Z = self.times_Z(learned)  # which has what the batch does to both rows
        else:
            F = R.RDelta[rows]
            both = self.times_Z(c.xp.concat([learned, F], axis=-2))
            mean_Z, F_Z = both[:, : -F.shape[-2]], both[:, -F.shape[-2] :]
            residual = self._residual(_with_each_other(F_Z, F), rows)
        self.CDelta_equal[:, times_of(rows, outputs)] = equal_times(residual, outputs)
        return self._Z_times_mean_H_transpose_less(mean_Z, rows)

    def _Z_times_mean_H_transpose_less(self, mean_Z: Array, rows: slice) -> Array:
        """Z M^T less some rows; where Z is white it has nothing before their own time, as M is causal."""
        R = self.responses
        outputs, strength = self.c.structure.outputs, self.responses.subsampling
        is_white = self._remembered is None and self._before is None and not is_panel(rows, outputs)
        if not is_white or is_tensor(strength):  # rows that move on a card are as long as all
            return R.times_mean_H_transpose(self._Z(rows)) - mean_Z
        time = rows.start // outputs
        strength = strength if strength.shape[1] == 1 else strength[:, time : time + 1]
        draws = strength[..., None] * self.CDelta_equal[:, time]
        noise = -mean_Z
        noise[..., rows] += self._mean_eigenvalue * draws  # M = m at equal times
        return noise

    def look_at_residuals(self, rows: slice) -> None:
        """Fill C_Delta(t, t) of rows that nothing depends on."""
        F, outputs = self.responses.RDelta, self.c.structure.outputs
        if F is None:
            residual = self._fresh(rows)[..., rows]
        else:
            residual = self._residual(self.times_Z(F[rows]) @ F[rows].mT, rows)
        self.CDelta_equal[:, times_of(rows, outputs)] = equal_times(residual, outputs)

    def _second_residual(self, rows: slice) -> Array:
        """Correlation of e of a row that sees the batch of the row before, whose correlation with e there is kept."""
        outputs, R = self.c.structure.outputs, self.responses.RDelta
        assert R is not None
        assert self._before is not None
        first = slice(rows.start - outputs, rows.start)
        second, before = R[rows], R.matrix[:, first, : rows.stop]
        e = second - second[..., first] @ before
        e_Z = self.times_Z(e)
        time = rows.start // outputs
        self._before[:, time] = e_Z @ before.mT / self.c.reuse[:, time, None, None]  # eq-drawn-twice
        return self._residual(e_Z @ e.mT, rows)

    def _residual(self, remembered: Array, rows: slice) -> Array:
        """C_Delta at equal times from what is remembered of it, or C_v + sigma^2 where nothing is seen again."""
        reuse, outputs = self.c.reuse, self.c.structure.outputs
        if reuse.shape[1] == 1:
            residual: Array = remembered / reuse[..., None]
            return residual
        own = reuse[:, times_of(rows, outputs), None]
        if outputs > 1 and is_panel(rows, outputs):
            own = self.c.xp.repeat(own, outputs, axis=1)
        seen = own != 0
        fresh = self._fresh(rows)[..., rows]
        residual = self.c.xp.where(seen, remembered / self.c.xp.where(seen, own, 1.0 + own), fresh)
        return residual

    def _fresh(self, rows: slice) -> Array:
        """Rows of C_v + sigma^2, the correlation of residuals on fresh examples."""
        errors: Array = self._Cv[rows] + self._label_noise(rows, slice(0, rows.stop))
        return errors

    def _fresh_block(self, rows: slice) -> Array:
        """C_v + sigma^2 at pairs of the rows of one time."""
        errors: Array = self._Cv.block(rows) + self._label_noise(rows, rows)
        return errors

    def _label_noise(self, rows: slice, columns: slice) -> Array:
        """sigma^2 between rows and columns, which the labels of each output have on their own."""
        outputs, sigma, within = self.c.structure.outputs, self._sigma, self._within[..., columns]
        if is_panel(rows, outputs):
            within = self.c.xp.tile(within, ((rows.stop - rows.start) // outputs, 1))
        if sigma.shape[1] == outputs:  # the same at all times
            constant: Array = self._constant_noise if outputs == 1 else self._constant_noise * within
            return constant
        noise: Array = sigma[:, rows, None] * sigma[:, None, columns] * within
        return noise

    def _draws(self, x: Array) -> Array:
        """Rows times the noise of drawn batches, subsampling diag C_Delta(t,t)."""
        steps, outputs = x.shape[-1] // self.c.structure.outputs, self.c.structure.outputs
        if outputs == 1 and self._before is None:
            alone: Array = self.responses.subsampling[:, None, :steps] * (x * self.CDelta_equal[:, None, :steps, 0, 0])
            return alone  # eq-multipass
        parts = x.reshape(*x.shape[:-1], steps, 1, outputs)
        by_step = parts @ self.CDelta_equal[:, None, :steps]
        if self._before is not None:
            before = self._before[:, None, 1:steps]
            by_step[:, :, 1:] += parts[:, :, :-1] @ before.mT
            by_step[:, :, :-1] += parts[:, :, 1:] @ before
        subsampling = self.responses.subsampling[:, None, :steps, None, None]
        drawn: Array = (subsampling * by_step).reshape(x.shape)  # eq-multipass
        return drawn

    def CDelta(self, index: int, rows: slice | None = None) -> NDArray[Any]:
        """C_Delta of one problem over all pairs of times, in NumPy, shape (rows, rows), or some rows of it.

        C_Delta = R_Delta (C_v + sigma^2) R_Delta^T + (R_Delta - 1) draws (R_Delta - 1)^T: a residual feels the batches
        that were drawn before its time, by draws = subsampling / reuse C_Delta(t, t) each. Rows that see the batch of
        the row before, which nobody reports, have no meaning here.
        """
        c, s, rows = self.c, self.c.structure, rows or slice(0, self.c.structure.size)
        RDelta, end, e = self.responses.RDelta, rows.stop // s.outputs, rows.stop
        equal, steps = np.zeros((end, s.outputs, end, s.outputs)), np.arange(end)
        equal[steps, :, steps, :] = to_numpy(self.CDelta_equal[index, :end])
        if self._before is not None:
            before = to_numpy(self._before[index, :end])
            equal[steps[1:], :, steps[:-1], :] = before[1:]
            equal[steps[:-1], :, steps[1:], :] = np.swapaxes(before[1:], -1, -2)
        equal_times = equal.reshape(e, e)
        if self.is_there and RDelta is None and not s.sets.sets:
            return equal_times[rows]
        direct: NDArray[Any] = to_numpy(self._fresh(slice(0, e))[index])
        if s.sets.sets:
            number = np.repeat(s.sets.sets, s.outputs)[:e]
            direct = np.where(number[:, None] == number, direct, 0.0)
        if RDelta is None:
            return direct[rows]
        R = finite(to_numpy(RDelta.matrix[index, :e, :e]))
        past = R - np.eye(e)
        subsampling, reuse = (
            np.broadcast_to(to_numpy(x[index]), s.steps)[:end] for x in (self.responses.subsampling, c.reuse)
        )
        draws = np.repeat(np.divide(subsampling, reuse, out=np.zeros_like(subsampling), where=reuse != 0), s.outputs)
        with np.errstate(over="ignore", invalid="ignore"):  # just before a divergence
            drawn = finite(past[rows] @ finite(draws * finite(equal_times)))  # zero times infinity would be no number
            return np.asarray(finite(R[rows] @ finite(direct)) @ R.T + drawn @ past.T)


def _with_each_other(x: Array, y: Array) -> Array:
    """Products of all rows of x with all of y."""
    return row_products(x, y) if x.shape[-2] == 1 else x @ y.mT
