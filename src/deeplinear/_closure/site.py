"""A site: two fields that drive each other,

    h = u + A g        A lower triangular
    g = r + B h        B strictly lower triangular, B = gamma0 Bhat

with independent Gaussian sources u and r. The responses are
``dh/du = (1 - AB)^-1``, ``dh/dr = dh/du A``, ``dg/dr = (1 - BA)^-1``, ``dg/du = dg/dr B``, and each
row follows from earlier ones:

    dg = B dh + (0, 1),    dh = A dg + (1, 0)        over the pair of sources (u, r)

dg/du is kept divided by gamma0, which stays finite in the lazy limit gamma0 = 0.

The rows of a panel are coupled, as B has a diagonal block there: dg and dh are then solved together, each
time, with the rows of both kernels as they were given last.
"""

from collections.abc import Callable

from deeplinear._arrays import Array, namespace, zeros
from deeplinear._closure.causal import add_identity, is_panel, rows_times, rows_times_transpose, solve_block

Source = Callable[[Array, int], Array]
"""A covariance as an operation: rows (batch, r, e) times its leading e x e block."""


class Site:
    """Responses of one site; ``dh`` and ``dg`` have shape (2, *batch, rows, rows), sources (u, r) first.

    ``A`` and ``Bhat`` are the rows of the kernels, B divided by gamma0, that were given last.
    """

    def __init__(self, batch: tuple[int, ...], size: int, gamma0: Array, outputs: int = 1) -> None:
        self.dh = zeros((2, *batch, size, size), gamma0)
        self.dg = zeros((2, *batch, size, size), gamma0)
        self.A = self.Bhat = zeros((*batch, 0, 0), gamma0)
        self.gamma0, self._gamma0_squared, self._outputs = gamma0, gamma0**2, outputs

    def backward(self, Bhat: Array, rows: slice) -> None:
        """Fill rows of dg/du / gamma0 and dg/dr, given the same rows of B / gamma0."""
        self.Bhat = Bhat
        if is_panel(rows, self._outputs):
            self._solve(rows)
        else:
            self._fill_dg(rows)

    def forward(self, rows: slice) -> None:
        """Fill rows of dh/du and dh/dr, given the same rows of ``A``."""
        if is_panel(rows, self._outputs):
            self._solve(rows)
        else:
            self._fill_dh(rows)

    def _fill_dg(self, rows: slice) -> None:
        dg = rows_times(self.Bhat, self.dh, rows.stop)
        to_r = dg[1]
        to_r *= self.gamma0
        add_identity(to_r, rows)
        self.dg[..., rows, : rows.stop] = dg

    def _fill_dh(self, rows: slice) -> None:
        dh = rows_times(self.A, self.dg, rows.stop)
        to_u = dh[0]
        to_u *= self.gamma0
        add_identity(to_u, rows)
        self.dh[..., rows, : rows.stop] = dh

    def _solve(self, rows: slice) -> None:
        """Fill rows of dg and dh that are coupled: first what earlier rows give, then the block's own feedback."""
        e, A, Bhat = rows.stop, self.A[..., rows], self.Bhat[..., rows]
        self.dh[..., rows, :e] = 0.0
        self._fill_dg(rows)
        self._fill_dh(rows)
        dh = solve_block(self.gamma0 * (A @ Bhat), self.dh[..., rows, :e])
        self.dh[..., rows, :e] = dh
        feedback = Bhat @ dh
        feedback[1] *= self.gamma0
        self.dg[..., rows, :e] += feedback

    def covariance_g(self, u: Source, r: Source, rows: slice) -> Array:
        """Rows of <g g> = dg/du <u u> dg/du^T + dg/dr <r r> dg/dr^T, shape (batch, r, e)."""
        return sandwich(self.dg, (lambda x, e: self._gamma0_squared * u(x, e), r), rows)

    def covariance_h(self, u: Source, r: Source, rows: slice) -> Array:
        """Rows of <h h> = dh/du <u u> dh/du^T + dh/dr <r r> dh/dr^T, shape (batch, r, e)."""
        return sandwich(self.dh, (u, r), rows)


def sandwich(response: Array, sources: tuple[Source, Source], rows: slice) -> Array:
    """Rows of sum_i F_i S_i F_i^T, for two responses F_i and the covariances S_i of their sources."""
    e = rows.stop
    weighted = [source(response[i, ..., rows, :e], e)[None] for i, source in enumerate(sources)]
    first, second = rows_times_transpose(namespace(response).concat(weighted), response, e)
    total: Array = first + second
    return total
