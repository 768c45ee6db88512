"""Layer 0: the error v in weight space, the residuals Delta and the data signal h_0, for each mode k.

    v_k = w_k - r0 - K h_k ,      h_k = u_k + lam_k R_Delta v_k
    K = (nu_1 / nu_L) (dd o R_gu^1 / gamma0 + a o C_g^1)                       strictly lower triangular
    H_k = (1 + lam_k K R_Delta)^-1 ;   dv_k/dw = H_k 1,  dv_k/dr0 = -H_k,  dv_k/du_k = -H_k K
    R_Delta = (1 - reuse R_vu)^-1 ,   R_vu = sum_k p_k lam_k dv_k/du_k
    R_hr^0 = sum_k p_k dh_k/dr0 = -sum_k p_k lam_k R_Delta H_k                 (centered: times S)

    <r0 r0> = initial_variance dd o C_g^1            (centered: S <r0 r0> S^T with S = 1 - 1 e_0^T)
    <u_k u_k> = lam_k Noise ,   Noise = R_Delta [reuse (C_v + sigma^2) + subsampling diag C_Delta(t,t)] R_Delta^T
    C_v = sum_k p_k lam_k <v_k v_k> ,   C_h^0 = sum_k p_k <h_k h_k>

The sampling rules differ in two numbers only:

    population: reuse = subsampling = 0                  full batch:  reuse = 1/alpha, subsampling = 0
    online SGD: reuse = 0, subsampling = 1/alpha_B       multi-pass:  reuse = 1/alpha, subsampling = (1-b)/(b alpha)

Small batches: fresh batches of B examples of trace-class data also make mode k noisy by its own error, with
<u_k u_k> = lam_k Noise + lam_k^2 diag <v_k(t)^2> / B. The limit of large batches drops that; ``own_noise`` keeps it.

Only the matrices H_k depend on the mode; sums over modes need their moments sum_k p_k lam_k^j H_k.
"""

from deeplinear._arrays import Array, finite, identity, namespace, zeros
from deeplinear._closure.causal import (
    add_identity,
    is_panel,
    resolvent_rows,
    rows_times,
    rows_times_transpose,
    write_symmetric,
)
from deeplinear._closure.hidden import decayed, plain, weighted
from deeplinear._closure.site import Source
from deeplinear._coefficients import Coefficients


class DataResponses:
    """Responses of layer 0.

    Attributes
    ----------
    K, Rhr
        Shape (batch, rows, rows).
    RDelta, J
        The same, or None where R_Delta is the identity, and where there is no noise. J = R_Delta H2 K.
    H
        Transfer function of each mode, shape (batch, modes, rows, rows).
    H1
        H_k applied to constants: the mean of v_k per unit target, shape (batch, modes, rows, outputs).
    """

    def __init__(self, c: Coefficients) -> None:
        self.c = c
        s = c.structure
        batch, size = c.d.shape

        def matrix() -> Array:
            return zeros((batch, size, size), c.d)

        self.K, self.Rhr = matrix(), matrix()
        self.RDelta = matrix() if s.reuses_data else None
        self.J = matrix() if s.reuses_data or s.subsamples else None
        self.H = zeros((batch, s.modes, size, size), c.d)
        self.H1 = zeros((batch, s.modes, size, s.outputs), c.d)
        self._moments = [matrix(), matrix()] if s.modes > 1 else None

    def step(self, Rgu_hat: Array, Cg: Array, rows: slice) -> None:
        """Fill rows, from the same rows of R_gu / gamma0, and from C_g, of layer 1."""
        c, e, outputs = self.c, rows.stop, self.c.structure.outputs
        K = c.first_to_last * (decayed(c, Rgu_hat, rows) + c.a[:, rows, :e] * Cg[:, rows, :e])
        self.K[:, rows, :e] = K
        KR = rows_times(K, self.RDelta, e)
        panel = is_panel(rows, outputs)

        H = resolvent_rows(-c.eigenvalues * KR[:, None], self.H, rows, panel)
        self.H[..., rows, :e] = H
        self.H1[..., rows, :] = H.reshape(*H.shape[:-1], e // outputs, outputs).sum(axis=-2)
        if self._moments is not None:
            for power, moment in enumerate(self._moments, start=1):
                moment[:, rows, :e] = mode_sum(c, H, power)

        if self.RDelta is not None:
            Rvu = -rows_times(mode_sum(c, H, 1), self.K, e)
            RDelta = resolvent_rows(c.reuse * Rvu, self.RDelta, rows, panel)
            self.RDelta[:, rows, :e] = RDelta
        else:
            RDelta = c.xp.zeros_like(K)
            add_identity(RDelta, rows)
        Rhr = -self._times_moment(RDelta, 1, e)
        if c.structure.centered:
            subtract_initial(Rhr, outputs)
        self.Rhr[:, rows, :e] = Rhr
        if self.J is not None:
            self.J[:, rows, :e] = rows_times(self._times_moment(RDelta, 2, e), self.K, e)

    def _times_moment(self, x: Array, power: int, e: int) -> Array:
        """Rows times sum_k p_k lam_k^power H_k."""
        if self._moments is not None:
            return rows_times(x, self._moments[power - 1], e)
        product: Array = self.c.moments[power][:, 0] * rows_times(x, self.H[:, 0], e)
        return product

    def times_K(self, x: Array, e: int) -> Array:
        """Rows times K."""
        return rows_times(x, self.K, e)

    def Rvu(self, index: int) -> Array:
        """Response of the error to noise in the data signal for one problem, shape (rows, rows)."""
        response: Array = -(self.c.moments[1][index] * self.H[index]).sum(axis=0) @ finite(self.K[index])
        return response


class DataCovariances:
    """Correlations of layer 0, between two replicas that share initial weights and data, or not.

    Attributes
    ----------
    Cv, Ch
        Shape (batch, rows, rows).
    Noise
        The same, or None without sampling noise.
    CDelta_equal
        Correlation of the training residuals at equal times, shape (batch, steps, outputs, outputs).
    bias, width, data
        Parts of C_v(t, t) due to the mean error, to r0 and to the noise u, shape (batch, rows).
    """

    def __init__(self, responses: DataResponses, same_data: bool = True) -> None:
        self.responses, self.c = responses, responses.c
        s, R, zeros_like = self.c.structure, responses, self.c.xp.zeros_like
        self.Cv, self.Ch = zeros_like(R.K), zeros_like(R.K)
        self.Noise = zeros_like(R.K) if same_data and R.J is not None else None
        self._Cv2 = zeros_like(R.K) if s.modes > 1 else None
        batch, size = self.c.d.shape
        # lam_k^2 <v_k(t)^2> / B for each mode.
        self._own = zeros((batch, s.modes, 1, size), R.K) if s.own_noise and same_data else None
        self.CDelta_equal = zeros((batch, s.steps, s.outputs, s.outputs), R.K)
        self.bias, self.width, self.data = (zeros((batch, size), R.K) for _ in range(3))
        # sigma^2 for every pair of times, within one output.
        self._label_noise = self.c.sigma2 * self.c.xp.tile(identity(s.outputs, R.K), (1, s.steps))

    def step(self, Cg: Array | None, rows: slice) -> None:
        """Fill rows, from the correlation of g in layer 1 (None where initial weights differ)."""
        self._error(Cg, rows)
        if self.Noise is not None:
            self._noise(rows)
        self._signal(rows)

    def _error(self, Cg: Array | None, rows: slice) -> None:
        """C_v = sum_k p_k lam_k [H_k 1 w_k^2 1^T H_k^T + H_k <r0 r0> H_k^T + lam_k H_k K Noise K^T H_k^T]."""
        c, e, R = self.c, rows.stop, self.responses
        H = R.H[..., rows, :e]
        width = c.xp.zeros_like(H) if Cg is None else self._initial_function(Cg)(H, e)
        data = c.xp.zeros_like(H)
        if self.Noise is not None:
            HK = for_all_modes(R.times_K, H, e)
            source = c.eigenvalues * for_all_modes(plain(self.Noise), HK, e)
            if self._own is not None:
                source += HK * self._own[..., :e]
            data = for_all_modes(lambda x, e: rows_times_transpose(x, R.K, e), source, e)
        bias = R.H1[..., rows, :] @ c.target @ R.H1[..., :e, :].mT
        Cv = bias + rows_times_transpose(width + data, R.H, e)
        if self._own is not None:
            own = c.subsampling[:, None] * c.eigenvalues**2 * Cv[..., rows]
            self._own[..., rows] = c.xp.linalg.diagonal(own)[..., None, :]
        write_symmetric(self.Cv, mode_sum(c, Cv, 1), rows)
        if self._Cv2 is not None:
            write_symmetric(self._Cv2, mode_sum(c, Cv, 2), rows)
        self.bias[:, rows] = c.xp.linalg.diagonal(mode_sum(c, bias[..., rows], 1))
        self.width[:, rows] = mode_sum(c, (H * width).sum(axis=-1, keepdims=True), 1)[..., 0]
        self.data[:, rows] = mode_sum(c, (H * data).sum(axis=-1, keepdims=True), 1)[..., 0]

    def _initial_function(self, Cg: Array) -> Source:
        """Covariance of r0, the function at initialisation as it is carried along."""
        c = self.c
        cov = weighted(Cg, c)

        def apply(x: Array, e: int) -> Array:
            if c.structure.centered:
                x = c.xp.asarray(x, copy=True)
                subtract_initial(x, c.structure.outputs)
            y = for_all_modes(cov, x, e)
            if c.structure.centered:
                y = y - c.xp.tile(y[..., : c.structure.outputs], (e // c.structure.outputs,))
            scaled: Array = c.initial_variance[:, None] * y
            return scaled

        return apply

    def _noise(self, rows: slice) -> None:
        c, e, R, outputs = self.c, rows.stop, self.responses, self.c.structure.outputs
        assert self.Noise is not None
        steps = slice(rows.start // outputs, rows.stop // outputs)
        if R.RDelta is None:
            residual = self.Cv[:, rows, rows] + self._label_noise[..., :outputs]
            noise = c.xp.zeros_like(self.Cv[:, rows, :e])
        else:
            F = R.RDelta[:, rows, :e]
            # Noise rows without this step's own draw of a batch, which the residual does not feel.
            source = c.reuse * (F @ self.Cv[:, :e, :e] + self._apply_label_noise(F, e))
            if c.structure.subsamples:
                source += c.subsampling * self._past_draws(F, e)
            noise = rows_times_transpose(source, R.RDelta, e)
            residual = noise[..., rows] / c.reuse
        self.CDelta_equal[:, steps] = equal_times(residual, outputs)
        if c.structure.subsamples:
            noise[..., rows] += c.subsampling * residual
        write_symmetric(self.Noise, noise, rows)

    def _apply_label_noise(self, x: Array, e: int) -> Array:
        outputs = self.c.structure.outputs
        total = x.reshape(*x.shape[:-1], e // outputs, outputs).sum(axis=-2)
        product: Array = total @ self._label_noise[..., :e]
        return product

    def _past_draws(self, x: Array, e: int) -> Array:
        """Rows times the block-diagonal matrix of C_Delta(s, s), steps not yet known counting zero."""
        outputs = self.c.structure.outputs
        steps = e // outputs
        by_step = x.reshape(*x.shape[:-1], steps, 1, outputs) @ self.CDelta_equal[:, None, :steps]
        return by_step.reshape(x.shape)

    def _signal(self, rows: slice) -> None:
        """C_h^0 = tr(lam) Noise - J Noise - (J Noise)^T + R_Delta [sum_k p_k lam_k^2 <v_k v_k>] R_Delta^T."""
        c, e, R = self.c, rows.stop, self.responses
        second = self.Cv if self._Cv2 is None else self._Cv2
        scale = c.eigenvalues[:, 0] if self._Cv2 is None else 1.0
        if R.RDelta is None:
            Ch = scale * second[:, rows, :e]
        else:
            Ch = scale * rows_times_transpose(R.RDelta[:, rows, :e] @ second[:, :e, :e], R.RDelta, e)
        if self.Noise is not None and R.J is not None:
            noise = self.Noise[:, rows, :e]
            trace = c.moments[1].sum(axis=1)
            Ch = Ch + trace * noise - R.J[:, rows, :e] @ self.Noise[:, :e, :e] - rows_times_transpose(noise, R.J, e)
        if self._own is not None:
            Ch = Ch + self._own_signal(rows)
        write_symmetric(self.Ch, Ch, rows)

    def _own_signal(self, rows: slice) -> Array:
        """Rows of sum_k p_k (<u_k u_k> + lam_k <v_k u_k>) from own noise; lam_k^2 <v_k v_k> has its part of it."""
        c, e, R = self.c, rows.stop, self.responses
        assert self._own is not None
        F = -c.eigenvalues * for_all_modes(R.times_K, R.H[..., rows, :e], e)
        add_identity(F, rows)
        return mode_sum(c, F * self._own[..., :e], 0)


def for_all_modes(operation: Source, x: Array, e: int) -> Array:
    """Apply an operation whose matrix all modes share to the rows of all of them at once."""
    batch, modes, r, _ = x.shape
    return operation(x.reshape(batch, modes * r, e), e).reshape(x.shape)


def mode_sum(c: Coefficients, x: Array, power: int) -> Array:
    """sum_k p_k lam_k^power x_k over the axis of modes."""
    each = c.moments[power] * x
    total: Array = each.sum(axis=1) if c.structure.modes > 1 else each[:, 0]
    return total


def equal_times(block: Array, outputs: int) -> Array:
    """Blocks on the diagonal, (batch, steps * outputs, steps * outputs) to (batch, steps, outputs, outputs)."""
    batch, size = block.shape[:2]
    steps, xp = size // outputs, namespace(block)
    pairs_of_steps = xp.permute_dims(block.reshape(batch, steps, outputs, steps, outputs), (0, 2, 4, 1, 3))
    values: Array = xp.permute_dims(xp.linalg.diagonal(pairs_of_steps), (0, 3, 1, 2))
    return values


def subtract_initial(x: Array, outputs: int) -> None:
    """Apply S = 1 - 1 e_0^T from the right, in place: column 0 gives up the sum over all times."""
    e = x.shape[-1]
    x[..., :outputs] -= x.reshape(*x.shape[:-1], e // outputs, outputs).sum(axis=-2)
