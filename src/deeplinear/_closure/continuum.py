"""Infinite depth: a residual chain with branches beta_0 / sqrt(L) as a continuum in layer time tau = l / L.

Every point of the chain is a site: what reaches it from below is the kernel X with source covariance
Sigma, from above the kernel P with Gamma,

    h = X g + source(Sigma) ,   g = P h + source(Gamma)            R_hr = dh/dr, R_gu = dg/du, C_h, C_g

and these change along the chain, with b = beta_0, as

    A = dd o R_hr + gamma0 a o C_h ,              B = dd o R_gu + gamma0 a o C_g
    X' = b^2 (A + X B X) ,                        X(0) = A_1       (layer 1, driven by the data)
    Sigma' = b^2 (X B Sigma + (X B Sigma)^T + dd o C_h + X (dd o C_g) X^T) ,    Sigma(0) = dd o C_h^0
    -P' = b^2 (B + P A P) ,                       P(1) = gamma0 a  (the readout)
    -Gamma' = b^2 (P A Gamma + (P A Gamma)^T + dd o C_g + P (dd o C_h) P^T) ,   Gamma(1) = <r_L r_L>

They are solved by collocation on Gauss-Lobatto nodes: integrals along the chain become matrices over the
nodes. A row of the unknowns then depends on the same row at the other nodes; the equations are of Volterra
type in tau, so sweeping them converges fast, and a step is swept until it stands still.

P and B are kept divided by gamma0. All arrays have an axis of nodes after the axis of batches.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.polynomial import legendre

from deeplinear._closure.causal import Array, mean_diagonal, rows_times, rows_times_transpose, write_symmetric
from deeplinear._closure.fixed_point import fixed_point
from deeplinear._closure.hidden import dd, plain, readout_rows
from deeplinear._closure.site import Site
from deeplinear._coefficients import Coefficients

SETTLED = 1e-10
"""Relative change of a step's unknowns at which sweeping them ends."""

_MOST_SWEEPS = 60


def lobatto(count: int) -> tuple[Array, Array]:
    """Gauss-Lobatto nodes on [0, 1], both ends included, and their integration matrix.

    Row i of the matrix integrates the interpolant through values at the nodes from 0 to node i; its last
    row has the weights of the quadrature over [0, 1].
    """
    interior = legendre.legroots(legendre.legder([0] * (count - 1) + [1]))
    x = np.concatenate([[-1.0], interior, [1.0]])
    # Integrate each Legendre polynomial from -1 and express the interpolant in Legendre polynomials.
    coefficients = np.linalg.inv(legendre.legvander(x, count - 1))
    integrals = np.stack([legendre.legval(x, legendre.legint(row, lbnd=-1)) for row in np.eye(count)], axis=1)
    return (x + 1) / 2, integrals @ coefficients / 2


class Continuum:
    """Responses and covariances along the chain; see the module for the equations.

    Attributes
    ----------
    tau
        Layer time of the nodes, from 0 to 1, shape (nodes,).
    unsettled
        Which problems of the batch had a step that did not come to a standstill, shape (batch,).
    """

    def __init__(self, c: Coefficients, Ch_data: Array, like: "Continuum | None" = None) -> None:
        self.c = c
        (batch, size), nodes = c.d.shape, c.structure.depth
        self.tau, self._below = lobatto(nodes)
        self._above = self._below[-1] - self._below
        self._b2 = c.branch[:, None] ** 2
        self._gamma0 = c.gamma0[:, None]
        self.unsettled = np.zeros(batch, bool)

        def matrix() -> Array:
            return np.zeros((batch, nodes, size, size), Ch_data.dtype)

        if like is None:
            self.site = Site((batch, nodes), size, self._gamma0)
            self.X, self.P, self.A, self.B, self._XB, self._PA = (matrix() for _ in range(6))
        else:
            self.site, self.X, self.P, self.A, self.B = like.site, like.X, like.P, like.A, like.B
            self._XB, self._PA = like._XB, like._PA
        self._Ch, self._Cg, self._Sigma, self._Gamma = (matrix() for _ in range(4))
        self._Ch_data = Ch_data

    def replica(self, Ch_data: Array) -> "Continuum":
        """Return a chain with the same responses and empty covariances."""
        return Continuum(self.c, Ch_data, like=self)

    def backward(self, rows: slice, *, respond: bool = True) -> None:
        """Fill rows of P, Gamma, B, C_g and of the responses of g."""
        c, e = self.c, rows.stop
        a, dds = c.a[:, None, rows, :e], dd(c, rows)[:, None]
        top_P = np.broadcast_to(c.a_readout[:, None, rows, :e], self.P[..., rows, :e].shape)
        top_Gamma = readout_rows(c, rows)[:, None]

        def sweep(P: Array, Gamma: Array) -> tuple[Array, Array]:
            if respond:
                self.P[..., rows, :e] = P
                self.site.backward(P, rows)
                self._PA[..., rows, :e] = self._gamma0 * rows_times(P, self.A, e)
            write_symmetric(self._Gamma, Gamma, rows)
            Cg = self.site.covariance_g(plain(self._Sigma), plain(self._Gamma), rows)
            write_symmetric(self._Cg, Cg, rows)
            if respond:
                self.B[..., rows, :e] = dds * self.site.dg[0][..., rows, :e] + a * Cg
                P = top_P + self._along(
                    self._above, self.B[..., rows, :e] + rows_times(self._PA[..., rows, :e], self.P, e)
                )
            mixed = self._mixed(self._PA, self._Gamma, rows)
            through = self._gamma0**2 * self._through(self.P, self._Ch, rows)
            Gamma = top_Gamma + self._along(self._above, mixed + dds * Cg + through)
            return P, Gamma

        self._settle(sweep, self._above, self.P, self._Gamma, rows)

    def forward(self, Rhr_data: Array, rows: slice, *, respond: bool = True) -> None:
        """Fill rows of X, Sigma, A, C_h and of the responses of h."""
        c, e = self.c, rows.stop
        a, dds = c.a[:, None, rows, :e], dd(c, rows)[:, None]
        Ch_data = self._Ch_data[:, None, rows, :e]
        bottom_X = dds * c.feedback[:, None] * Rhr_data[:, None, rows, :e] + self._gamma0 * a * Ch_data
        bottom_Sigma = dds * Ch_data

        def sweep(X: Array, Sigma: Array) -> tuple[Array, Array]:
            if respond:
                self.X[..., rows, :e] = X
                self.site.forward(X, rows)
                self._XB[..., rows, :e] = self._gamma0 * rows_times(X, self.B, e)
            write_symmetric(self._Sigma, Sigma, rows)
            Ch = self.site.covariance_h(plain(self._Sigma), plain(self._Gamma), rows)
            write_symmetric(self._Ch, Ch, rows)
            if respond:
                self.A[..., rows, :e] = dds * self.site.dh[1][..., rows, :e] + self._gamma0 * a * Ch
                X = bottom_X + self._along(
                    self._below, self.A[..., rows, :e] + rows_times(self._XB[..., rows, :e], self.X, e)
                )
            mixed = self._mixed(self._XB, self._Sigma, rows)
            Sigma = bottom_Sigma + self._along(self._below, mixed + dds * Ch + self._through(self.X, self._Cg, rows))
            return X, Sigma

        self._settle(sweep, self._below, self.X, self._Sigma, rows)

    def _along(self, integral: Array, rows: Array) -> Array:
        """b^2 times the integral along the chain of rows given at the nodes."""
        along: Array = self._b2 * _carry(integral, rows)
        return along

    def _mixed(self, kernel: Array, covariance: Array, rows: slice) -> Array:
        """Rows of kernel covariance + (kernel covariance)^T."""
        e = rows.stop
        direct = kernel[..., rows, :e] @ covariance[..., :e, :e]
        mixed: Array = direct + rows_times_transpose(covariance[..., rows, :e], kernel, e)
        return mixed

    def _through(self, kernel: Array, correlation: Array, rows: slice) -> Array:
        """Rows of kernel (dd o correlation) kernel^T."""
        e, d = rows.stop, self.c.d[:, None, None, : rows.stop]
        inner = ((kernel[..., rows, :e] * d) @ correlation[..., :e, :e]) * d
        return rows_times_transpose(inner, kernel, e)

    def _settle(
        self,
        sweep: Callable[[Array, Array], tuple[Array, Array]],
        integral: Array,
        kernel: Array,
        covariance: Array,
        rows: slice,
    ) -> None:
        """Sweep a step's rows until they stand still, starting from those of the step before.

        A row passes from node to node first of all unchanged, R_hr = X + ... and C_h = Sigma + ..., so the
        correction of each sweep is carried along the chain with (1 - b^2 integral)^-1.
        """
        e, count = rows.stop, rows.stop - rows.start
        before = slice(max(rows.start - count, 0), max(rows.start, count))
        carry = np.linalg.inv(np.eye(len(integral)) - self._b2[:, 0] * integral)
        start = np.stack([kernel[..., before, :e], covariance[..., before, :e]], axis=1)

        def carried(flat: Array) -> Array:
            unknowns = flat.reshape(start.shape)
            change = np.stack(sweep(unknowns[:, 0], unknowns[:, 1]), axis=1) - unknowns
            swept = [unknowns[:, i] + _carry(carry, change[:, i]) for i in range(2)]
            return np.stack(swept, axis=1).reshape(flat.shape)

        _, moving = fixed_point(
            carried,
            start.reshape(len(start), -1),
            tolerance=SETTLED,
            most_sweeps=_MOST_SWEEPS,
            ignore=self.unsettled,
        )
        self.unsettled |= moving

    def kernel(self) -> Array:
        """Mean eigenvalue of the tangent kernel over time, averaged over outputs, shape (batch, steps).

        The mean squared gain of the initial weights between layer 1 and tau is exp(b^2 d^2 tau).
        """
        c, weights, b2 = self.c, self._below[-1], self._b2[:, 0, 0]
        decay = c.d[:, :: c.structure.outputs] ** 2
        gains = [mean_diagonal(C, c.structure.outputs) for C in self.Cg()]
        inside = sum(w * np.exp(b2 * decay * t) * gain for w, t, gain in zip(weights, self.tau, gains, strict=True))
        total: Array = gains[0] + decay * (b2 * inside + np.exp(b2 * decay))
        return total

    @property
    def Cg_first(self) -> Array:
        """C_g of layer 1."""
        return self._Cg[:, 0]

    def Rgu_hat_first(self, rows: slice) -> Array:
        """Rows of R_gu / gamma0 of layer 1."""
        response: Array = self.site.dg[0][:, 0, rows, : rows.stop]
        return response

    def Ch(self) -> Iterator[Array]:
        """C_h at each node."""
        return iter(np.moveaxis(self._Ch, 1, 0))

    def Cg(self) -> Iterator[Array]:
        """C_g at each node."""
        return iter(np.moveaxis(self._Cg, 1, 0))

    def Rhr(self) -> Iterator[Array]:
        """R_hr at each node."""
        return iter(np.moveaxis(self.site.dh[1], 1, 0))

    def Rgu_hat(self) -> Iterator[Array]:
        """R_gu / gamma0 at each node."""
        return iter(np.moveaxis(self.site.dg[0], 1, 0))


def _carry(matrix: Array, rows: Array) -> Array:
    """Apply a matrix over the nodes to rows of shape (batch, nodes, r, e)."""
    product: Array = (matrix @ rows.reshape(*rows.shape[:2], -1)).reshape(rows.shape)
    return product
