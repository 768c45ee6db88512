"""A site: two fields that drive each other,

    h = u + A g        A lower triangular
    g = r + B h        B strictly lower triangular, B = gamma0 Bhat

with independent Gaussian sources u and r. The responses are
``dh/du = (1 - AB)^-1``, ``dh/dr = dh/du A``, ``dg/dr = (1 - BA)^-1``, ``dg/du = dg/dr B``, and each
row follows from earlier ones:

    dg = B dh + (0, 1),    dh = A dg + (1, 0)        over the pair of sources (u, r)

dg/du is kept divided by gamma0, which stays finite in the lazy limit gamma0 = 0.
"""

from collections.abc import Callable

import numpy as np

from deeplinear._closure.causal import Array, add_identity, rows_times, rows_times_transpose

Source = Callable[[Array, int], Array]
"""A covariance as an operation: rows (batch, r, e) times its leading e x e block."""


class Site:
    """Responses of one site; ``dh`` and ``dg`` have shape (2, *batch, rows, rows), sources (u, r) first."""

    def __init__(self, batch: tuple[int, ...], size: int, gamma0: Array) -> None:
        self.dh = np.zeros((2, *batch, size, size), gamma0.dtype)
        self.dg = np.zeros((2, *batch, size, size), gamma0.dtype)
        self.gamma0 = gamma0

    def backward(self, Bhat: Array, rows: slice) -> None:
        """Fill rows of dg/du / gamma0 and dg/dr, given the same rows of B / gamma0."""
        dg = rows_times(Bhat, self.dh, rows.stop)
        dg[1] *= self.gamma0
        add_identity(dg[1], rows)
        self.dg[..., rows, : rows.stop] = dg

    def forward(self, A: Array, rows: slice) -> None:
        """Fill rows of dh/du and dh/dr, given the same rows of A."""
        dh = rows_times(A, self.dg, rows.stop)
        dh[0] *= self.gamma0
        add_identity(dh[0], rows)
        self.dh[..., rows, : rows.stop] = dh

    def covariance_g(self, u: Source, r: Source, rows: slice) -> Array:
        """Rows of <g g> = dg/du <u u> dg/du^T + dg/dr <r r> dg/dr^T, shape (batch, r, e)."""
        return sandwich(self.dg, (lambda x, e: self.gamma0**2 * u(x, e), r), rows)

    def covariance_h(self, u: Source, r: Source, rows: slice) -> Array:
        """Rows of <h h> = dh/du <u u> dh/du^T + dh/dr <r r> dh/dr^T, shape (batch, r, e)."""
        return sandwich(self.dh, (u, r), rows)


def sandwich(response: Array, sources: tuple[Source, Source], rows: slice) -> Array:
    """Rows of sum_i F_i S_i F_i^T, for two responses F_i and the covariances S_i of their sources."""
    e = rows.stop
    weighted = np.stack([source(F[..., rows, :e], e) for F, source in zip(response, sources, strict=True)])
    total: Array = rows_times_transpose(weighted, response, e).sum(axis=0)
    return total
