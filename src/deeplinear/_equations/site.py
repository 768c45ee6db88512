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

from deeplinear._core.arrays import Array
from deeplinear._equations.products import SETS, add_identity, compiled, is_panel, rows_times, solve_block
from deeplinear._equations.source import Sandwich, Source
from deeplinear._equations.two_time import Causal, Room, Symmetric


class Site:
    """Responses of one site; ``dh`` and ``dg`` have leading axes (2, *batch), sources (u, r) first.

    ``A`` and ``Bhat`` are the rows of the kernels, B divided by gamma0, that were given last. ``dh_dr`` is the response
    of h to r, and ``dg_du`` that of g to u, over gamma0.
    """

    def __init__(self, room: Room, batch: tuple[int, ...], gamma0: Array, outputs: int = 1) -> None:
        self.dh, self.dg = room.causal(2, *batch), room.causal(2, *batch)
        self.dh_dr, self.dg_du = self.dh.part(1), self.dg.part(0)
        self.A = self.Bhat = self.dh.matrix[0, ..., :0, :0]
        self.gamma0, self._gamma0_squared, self._outputs = gamma0, gamma0**2, outputs

    def backward(self, Bhat: Array, rows: slice, *, coupled: bool = True) -> None:
        """Fill rows of dg/du / gamma0 and dg/dr, given the same rows of B / gamma0; those of a panel may be coupled."""
        self.Bhat = Bhat
        if coupled and is_panel(rows, self._outputs):
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
        self._respond(self.Bhat, self.dh, self.dg, 1, rows)

    def _fill_dh(self, rows: slice) -> None:
        self._respond(self.A, self.dg, self.dh, 0, rows)

    def _respond(self, kernel: Array, other: Causal, own: Causal, source: int, rows: slice) -> None:  # eq-site
        """Fill rows of a field's responses, of which that to its own source goes through B and has the identity."""
        if (fast := compiled(own, kernel.shape[-2])) is not None:
            fast.fill_pair(kernel, other.matrix, own.matrix, self.gamma0, source, SETS)
            return
        through = rows_times(kernel, other)  # eq-responses
        own_source = through[source]
        own_source *= self.gamma0
        add_identity(own_source, rows)
        own[rows] = through

    def _solve(self, rows: slice) -> None:
        """Fill rows of dg and dh that are coupled: first what earlier rows give, then the block's own feedback."""
        A, Bhat = self.A[..., rows], self.Bhat[..., rows]
        self.dh.matrix[..., rows, : rows.stop] = 0.0
        self._fill_dg(rows)
        self._fill_dh(rows)
        self.dh[rows] = solve_block(self.gamma0 * (A @ Bhat), self.dh[rows])
        feedback = Bhat @ self.dh[rows]
        feedback[1] *= self.gamma0
        self.dg[rows] = self.dg[rows] + feedback

    def correlation_of_g(self, u: Source, r: Source, filled: Symmetric) -> Sandwich:
        """Return what fills <g g> = dg/du <u u> dg/du^T + dg/dr <r r> dg/dr^T."""
        return Sandwich(filled, self.dg, u.scaled(self._gamma0_squared), r)  # as dg/du is divided by gamma0

    def correlation_of_h(self, u: Source, r: Source, filled: Symmetric) -> Sandwich:
        """Return what fills <h h> = dh/du <u u> dh/du^T + dh/dr <r r> dh/dr^T."""
        return Sandwich(filled, self.dh, u, r)
