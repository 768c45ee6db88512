"""Layer 0: the error v in weight space, the residuals Delta and the data signal h_0, for each mode k.

    v_k = w_k - r0 - K h_k ,      h_k = u_k + lam_k R_Delta v_k
    K = (nu_1 / nu_L) (dd o R_gu^1 / gamma0 + a o C_g^1)                       strictly lower triangular
    H_k = (1 + lam_k K R_Delta)^-1 ;   dv_k/dw = H_k 1,  dv_k/dr0 = -H_k,  dv_k/du_k = -H_k K
    R_Delta = (1 - reuse R_vu)^-1 ,   R_vu = sum_k p_k lam_k dv_k/du_k
    R_hr^0 = sum_k p_k dh_k/dr0 = -sum_k p_k lam_k R_Delta H_k

    <r0 r0> = initial_variance dd o C_g^1
    <u_k u_k> = lam_k R_Delta Z R_Delta^T ,   Z = reuse (C_v + sigma^2) + subsampling diag C_Delta(t,t)
    C_v = sum_k p_k lam_k <v_k v_k> ,   C_h^0 = sum_k p_k <h_k h_k>

In a centered network r0(t) - r0(0) stands for r0, which is P F g~ in the letters of ``increments.py``: R_hr^0 P for
R_hr^0 and P F C_g~ F^T P for dd o C_g. The coefficients have the scale.

Rows that see the same examples are those with S(t, s) = 1 (``data_sets.py``), where these are not all of them. Then
S o R_vu stands for R_vu in R_Delta, and S o (C_v + sigma^2) for C_v + sigma^2 in Z. With several targets, one for each
phase of training, w_k is that of the row, and 1 w_k^2 1^T becomes the matrix of their products.

Two evaluations on one batch that is drawn from a data set, rows p and q = p + 1, have the same weights c of examples, 0
or 1/b, of mean 1. A path through both has c^2, of mean 1/b, so R_vu(q, p) counts 1/b times in R_Delta. What draws add
to Z is subsampling times the correlation, for both rows and between them, of e, the residual without what the step's
own draw has done to it: e(p) = Delta(p), and e(q) = Delta(q) where c = 0. It has R_Delta(q) - R_Delta(q, p) R_Delta(p)
for R_Delta(q).

The sampling rules differ in two numbers only:

    population: reuse = subsampling = 0                  full batch:  reuse = 1/alpha, subsampling = 0
    online SGD: reuse = 0, subsampling = 1/alpha_B       multi-pass:  reuse = 1/alpha, subsampling = (1-b)/(b alpha)

Small batches: fresh batches of B examples of trace-class data also make mode k noisy by its own error, with
lam_k^2 diag <v_k(t)^2> / B added to <u_k u_k>. The limit of large batches drops that; ``own_noise`` keeps it.

What has been learned of a mode is 1 - H_k = lam_k H_k K R_Delta, so that noise enters without K:

    <v_k v_k> = H_k (1 w_k^2 1^T + <r0 r0>) H_k^T + (1 - H_k) Z (1 - H_k)^T / lam_k
    C_h^0 = R_Delta Psi R_Delta^T ,   Psi = sum_k p_k lam_k (H_k Z + Z H_k^T - Z) + sum_k p_k lam_k^2 <v_k v_k>
"""

from collections.abc import Callable

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._core.cached import cached_property
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.data_noise import DataNoise
from deeplinear._equations.data_responses import DataResponses, mode_sum, over_tasks
from deeplinear._equations.increments import backward_source, without_initial
from deeplinear._equations.products import add_identity, is_panel, row_products, rows_times_transpose
from deeplinear._equations.rooted import Rooted
from deeplinear._equations.source import Sandwich, Source
from deeplinear._equations.two_time import Room, Symmetric


class DataCovariances:
    """Correlations of layer 0, between two replicas that share initial weights and data, or not.

    Attributes
    ----------
    Cv, Ch
        With one leading axis, of the batch.
    noise, noisy
        Noise of the data that the replicas share, and whether there is any.
    width, data
        Parts of C_v(t, t) due to r0 and to the noise u, shape (batch, rows); the rest is ``bias``.
    """

    def __init__(self, responses: DataResponses, room: Room, same_data: bool = True) -> None:
        self.responses: DataResponses = responses
        self.c: Coefficients = responses.c
        self.room: Room = room
        s, batch, size = self.c.structure, self.c.batch, room.size
        self.Cv: Symmetric = room.symmetric(batch)
        self.Ch: Symmetric = room.symmetric(batch)
        self._Cv2 = room.symmetric(batch) if s.modes > 1 else None
        self._Psi = room.symmetric(batch) if s.reuses_data else self.Ch
        RDelta = responses.RDelta
        self._signal_of_data = None if RDelta is None else Sandwich(self.Ch, RDelta.part(None), Source(self._Psi))
        self.noise: DataNoise = DataNoise(responses, self.Cv, room, same_data)
        self.noisy: bool = self.noise.is_there
        # <v_k(t)^2> / B for each mode.
        self._own = room.series((batch, s.modes, 1, size), is_density=True) if s.own_noise and same_data else None
        self._r0: Source | None = None
        self.width: Array = room.series((batch, size))
        self.data: Array = room.series((batch, size))
        # What has eigenvalue zero is never learned: 1 - H = 0 over any number.
        lam = self.c.eigenvalues
        self._eigenvalues = self.c.xp.where(lam == 0, self.c.xp.ones_like(lam), lam)

    def bias(self, rows: slice) -> Array:
        """Part of C_v(t, t) due to the mean error, shape (batch, rows)."""
        c, H1 = self.c, self.responses.H1[..., rows, :]
        return mode_sum(c, row_products(H1 @ c.target, H1), 1)[..., 0]

    def step(self, Cg: Symmetric | None, rows: slice) -> None:
        """Fill rows, from the correlation of g in layer 1 (None where initial weights differ)."""
        if isinstance(self.Cv, Rooted):
            self._error_by_roots(self.Cv, Cg, rows)
            self._signal_by_roots(Cg, rows)
            return
        if is_panel(rows, self.c.structure.outputs):
            self.noise.remember(rows)  # what was guessed, or swept before
        of_noise = self._error(Cg, rows)
        self.noise.remember(rows)
        self._signal(rows, None if of_noise is None else self.noise.in_signal(rows, *of_noise))

    def step_aside(self, Cg: Symmetric, rows: slice) -> None:
        """Fill rows of errors and residuals that nothing depends on: those of h_0 are left as they are."""
        if isinstance(self.Cv, Rooted):
            self._error_by_roots(self.Cv, Cg, rows)
            return
        self._error(Cg, rows)
        self.noise.remember(rows)
        if self.noisy:
            self.noise.look_at_residuals(rows)

    def _error(self, Cg: Symmetric | None, rows: slice) -> tuple[Array, Array] | None:
        """C_v = sum_k p_k lam_k [H_k 1 w_k^2 1^T H_k^T + H_k <r0 r0> H_k^T + (1 - H_k) Z (1 - H_k)^T / lam_k].

        On the way 1 - H_k and that times Z, which are returned where training is noisy.
        """
        c, e, R = self.c, rows.stop, self.responses
        H = R.H[rows]
        width = c.xp.zeros_like(H) if Cg is None else self._through_r0(H, Cg)
        bias = _matrix_product(_matrix_product(R.H1[..., rows, :], c.target), R.H1[..., :e, :].mT)
        Cv, through_H, of_noise = bias, width, None  # eq-parts
        if self.noisy:
            learned, learned_Z, data = self._of_data(H, rows)
            Cv, through_H = bias + data, width - data  # of 1 - H and H, so one product does for both
            self.data[:, rows] = mode_sum(c, row_products(learned, data), 1)[..., 0]
            of_noise = learned, learned_Z
        Cv = Cv + rows_times_transpose(through_H, R.H)
        if self._own is not None:
            strength = self.responses.subsampling
            drawn = strength if strength.shape[1] == 1 else strength[:, rows]
            self._own[..., rows] = (drawn[:, None] * c.xp.linalg.diagonal(Cv[..., rows]))[..., None, :]
        self.Cv[rows] = mode_sum(c, Cv, 1)
        if self._Cv2 is not None:
            self._Cv2[rows] = mode_sum(c, Cv, 2)
        self.width[:, rows] = mode_sum(c, row_products(H, width), 1)[..., 0]
        return of_noise

    def error_at(self, Cg: Symmetric, rows: slice) -> Array:
        """C_v(t, t) of rows that nothing depends on, shape (batch, rows); nothing is filled."""
        c, H = self.c, self.responses.H[rows]
        if isinstance(self.Cv, Rooted):
            total: Array = sum((part**2).sum(axis=-1) for part in self._roots_of_error(Cg, rows))
            return total
        total = self.bias(rows) + mode_sum(c, row_products(H, self._through_r0(H, Cg)), 1)[..., 0]
        if not self.noisy:
            return total
        learned, _, data = self._of_data(H, rows)
        return total + mode_sum(c, row_products(learned, data), 1)[..., 0]

    def _error_by_roots(self, Cv: Rooted, Cg: Symmetric | None, rows: slice) -> None:
        """Fill rows of C_v by its root, and of the residuals on the training set."""
        bias, *others = self._roots_of_error(Cg, rows)
        Cv.add(rows, [bias, *others])
        for kept, part in zip((self.width, self.data), others, strict=False):
            kept[:, rows] = (part**2).sum(axis=-1)
        if self.noisy:
            self.noise.residual_by_roots(rows)

    def _roots_of_error(self, Cg: Symmetric | None, rows: slice) -> list[Array]:
        """Rows of a root of C_v: v_k = H_k (w_k - r0) - (1 - H_k) z / sqrt(lam_k), with Z = <z z>.

        Each part has the columns of all modes, with the root of p_k lam_k; all are independent.
        """
        H = self.responses.H[rows]
        mean = self.responses.H1[..., rows, :] @ self._target_root
        parts = [mean] if Cg is None else [mean, self._root_through_r0(H, Cg)]
        if self.noisy:
            learned = -H
            add_identity(learned, rows)
            parts.append(for_all_modes(self.noise.times_root, learned) / self._eigenvalues**0.5)
        return [over_modes(part * self.c.moments[1] ** 0.5) for part in parts]

    def _signal_by_roots(self, Cg: Symmetric | None, rows: slice) -> None:
        """Fill rows of C_h^0 by its root: h_k = R_Delta H_k (lam_k (w_k - r0) + sqrt(lam_k) z)."""
        c, R = self.c, self.responses
        x = R.H[rows] if R.RDelta is None else R.RDelta[rows][:, None] @ R.H.matrix[..., : rows.stop, : rows.stop]
        parts = [c.eigenvalues * (over_tasks(x, c.structure.outputs, c.structure.sets.tasks) @ self._target_root)]
        if Cg is not None:
            parts.append(c.eigenvalues * self._root_through_r0(x, Cg))
        if self.noisy:
            parts.append(c.eigenvalues**0.5 * for_all_modes(self.noise.times_root, x))
        assert isinstance(self.Ch, Rooted)
        self.Ch.add(rows, [over_modes(part * c.weight**0.5) for part in parts])

    @cached_property
    def _target_root(self) -> Array:
        """Root of the products of targets, of each mode."""
        values, vectors = np.linalg.eigh(self.c.target)
        root: Array = vectors * np.maximum(values, 0.0)[..., None, :] ** 0.5
        return root

    def _root_through_r0(self, x: Array, Cg: Symmetric) -> Array:
        """Rows times a root of the covariance of r0."""
        r0 = backward_source(self.c, self.responses.weights, Cg, self.c.initial_variance)
        return for_all_modes(r0.times_root, without_initial(self.c, x) if self.c.structure.centered else x)

    def _of_data(self, H: Array, rows: slice) -> tuple[Array, Array, Array]:
        """What is learned, 1 - H_k, that times Z, and what it makes of the noise of the data, (1 - H_k) Z / lam_k."""
        learned = -H
        add_identity(learned, rows)
        learned_Z = for_all_modes(self.noise.times_Z, learned)
        data = learned_Z if self.c.is_isotropic else learned_Z / self._eigenvalues
        if self._own is not None:
            data = data + learned * self._own[..., : rows.stop]  # eq-small-batch
        return learned, learned_Z, data

    def _through_r0(self, x: Array, Cg: Symmetric) -> Array:
        """Rows times the covariance of r0, the function at initialisation as it is carried along."""
        c = self.c
        r0 = self._r0
        if r0 is None or r0.correlation is not Cg:
            self._r0 = r0 = backward_source(c, self.responses.weights, Cg, c.initial_variance)
        if not c.structure.centered:
            return for_all_modes(r0.times, x)
        return without_initial(c, for_all_modes(r0.times, without_initial(c, x)))

    def _signal(self, rows: slice, noise: Array | None) -> None:
        """C_h^0 = R_Delta Psi R_Delta^T, with all that goes into Psi."""
        c, R = self.c, self.responses
        Psi = (self.Cv if self._Cv2 is None else self._Cv2)[rows]
        if self._Cv2 is None and not c.is_isotropic:
            Psi = c.eigenvalues[:, 0] * Psi  # eq-layer0
        if noise is not None:
            Psi = Psi + noise
        if self._own is not None:
            # <u_k u_k> + lam_k <v_k u_k>; lam_k^2 <v_k v_k> has its part of it.
            Psi = Psi + mode_sum(c, R.H[rows] * self._own[..., : rows.stop], 2)
        self._Psi[rows] = Psi
        if self._signal_of_data is not None:
            self._signal_of_data.fill(rows)
        for own, factors in R.mixed:
            mixed = self.Ch.matrix[:, rows, : own.start] @ factors.mT
            self.Ch.matrix[:, rows, own] = mixed
            self.Ch.matrix[:, own, rows] = mixed.mT

    def mix(self, rows: slice, factors: Array) -> None:
        """Fill C_h^0 of rows whose signal is a sum over earlier ones."""
        mixed = factors @ self.Ch.matrix[:, : rows.start, : rows.start]
        self.Ch[rows] = self.c.xp.concat([mixed, mixed @ factors.mT], axis=-1)


def kept(shape: Structure) -> int:
    """Count the matrices that layer 0 keeps."""
    data = 4 + shape.modes  # K, R_hr, C_v, C_h and H for each mode
    data += 3 if shape.reuses_data else 0  # R_Delta, Psi, and what is remembered
    data += 1 if shape.sets.sets else 0  # which rows share their examples
    return data + 2 if shape.modes > 1 else data  # mean of H, second moment of C_v


def products(shape: Structure) -> tuple[int, int]:
    """Count the products with causal, and with symmetric, matrices in one step."""
    causal, symmetric = 2 * shape.modes, 1  # H and C_v; the initial function in C_v
    if shape.reuses_data or shape.subsamples:
        causal += 1  # Z with the mean of H
    if shape.reuses_data:
        causal += 5  # R_Delta with K, its own rows, and its transpose in C_h; R_hr
        symmetric += 3  # C_v in the noise, and in C_Delta and Psi together; Psi in C_h
    return causal, symmetric


def for_all_modes(operation: Callable[[Array], Array], x: Array) -> Array:
    """Apply an operation whose matrix all modes share to the rows of all of them at once."""
    batch, modes, r, e = x.shape
    return operation(x.reshape(batch, modes * r, e)).reshape(batch, modes, r, -1)


def over_modes(x: Array) -> Array:
    """Columns of all modes beside each other, (batch, modes, r, columns) to (batch, r, modes * columns)."""
    return x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)


def _matrix_product(x: Array, y: Array) -> Array:
    """Product of two matrices; of a column with a row it is made entry by entry, which a device does faster."""
    product: Array = x * y if x.shape[-1] == 1 else x @ y
    return product
