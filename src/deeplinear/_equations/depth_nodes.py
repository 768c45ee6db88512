"""A long residual chain through a few nodes in depth: large depth, and the limit of infinite depth.

Along a residual chain with branches beta everything changes slowly, so it is enough to know it at a few
edges e (the weights W_e between layers e and e + 1). What reaches an edge from below is the kernel Y with
source covariance S (layer e), from above Q with D (layer e + 1); see ``layers.py``. Across an edge they
change by beta^2 times

    dY = A + X B Y ,          dS = X B S + (X B S)^T + dd o C_h + X (dd o C_g) X^T + beta^2 (X B) S (X B)^T
    dQ = B + P A Q ,          dD = P A D + (P A D)^T + dd o C_g + P (dd o C_h) P^T + beta^2 (P A) D (P A)^T

    A = dd o R_hr + gamma0 a o C_h  at layer e ,     B = dd o R_gu + gamma0 a o C_g  at layer e + 1
    X = Y + beta^2 Y B X ,    P = Q + beta^2 Q A P

with all else at layer e (below) or e + 1 (above). These are the equations of the layers, no more and no
less; a sum over edges below or above node j becomes a matrix over the nodes. At infinite depth, with
beta = beta_0 / sqrt(L), sums become integrals over layer time tau = e / L, and layers e and e + 1 are one.

A row of the unknowns depends on the same row at the other nodes. The equations are of Volterra type along
the chain, so sweeping them converges fast, and a step is swept until it stands still. The rows of a panel are
swept once at a time, since they depend on all else in the panel as well.

Q, P and B are kept divided by gamma0. In a centered network g stands for g~ of ``increments.py``.
All arrays have an axis of nodes after the axis of batches.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.polynomial import legendre

from deeplinear._core.arrays import Array, beside, computing, finite, identity, zeros
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.fixed_point import fixed_point
from deeplinear._equations.increments import (
    backward_source,
    correlation_rows,
    decayed_on_g,
    times_E,
    times_inverse_of_E,
)
from deeplinear._equations.products import (
    is_panel,
    mean_diagonal,
    rows_times,
    rows_times_symmetric,
    rows_times_transpose,
    write_symmetric,
)
from deeplinear._equations.site import Site
from deeplinear._equations.source import Source, dd

SETTLED = 1e-10
"""Relative change of a step's unknowns at which sweeping them ends."""

_MOST_SWEEPS, _USUAL_SWEEPS = 60, 10


class Nodes:
    """Where the nodes are, and what sums over edges are in terms of values at the nodes.

    Attributes
    ----------
    position
        Layer time of the nodes, from 0 (layer 1) to 1 (last layer), shape (nodes,).
    below, above
        Sum over the edges below, or above, each node: matrices over the nodes. At infinite depth integrals.
    total
        Sum over all edges, shape (nodes,).
    """

    def __init__(self, count: int, edges: int | None) -> None:
        ends = np.sort(legendre.legroots(legendre.legder([0] * (count - 1) + [1])).real)
        x = np.concatenate([[-1.0], ends, [1.0]])
        if edges is not None:  # the nearest edges, numbered 0 .. edges - 1
            numbers = np.unique(np.round((x + 1) / 2 * (edges - 1)))
            x = 2 * numbers / (edges - 1) - 1
        self._to_legendre = np.linalg.inv(legendre.legvander(x, len(x) - 1))
        self._edges = edges
        if edges is None:
            powers = np.eye(len(x))
            below = np.stack([legendre.legval(x, legendre.legint(p, lbnd=-1)) for p in powers], axis=1) / 2
            self.below = below @ self._to_legendre
            self.total = self.below[-1]
            self.above = self.total - self.below
            self.position = (x + 1) / 2
        else:
            self.below, through = (_sums_below(n, edges, len(x)) @ self._to_legendre for n in (numbers, numbers + 1))
            self.total = through[-1]
            self.above = self.total - through
            self.position = numbers / edges

    def to_layers(self) -> Array:
        """Matrix that interpolates from nodes to the lower layer of every edge, or leaves the nodes as they are."""
        if self._edges is None:
            return np.eye(len(self.position))
        x = 2 * np.arange(self._edges) / (self._edges - 1) - 1
        matrix: Array = legendre.legvander(x, len(self._to_legendre) - 1) @ self._to_legendre
        return matrix


def _sums_below(numbers: Array, edges: int, count: int) -> Array:
    """Sum of the first Legendre polynomials over the edges 0 .. n - 1, for each number n, shape (numbers, count).

    By the formula of Euler and Maclaurin, which for polynomials ends: the sum is the integral from -1/2 to n - 1/2 of
    sum_k c_k f^(2k), with (t/2) / sinh(t/2) = sum_k c_k t^(2k). So it takes the same time at any depth.
    """
    spacing = 2 / (edges - 1)
    ends = [(end - 0.5) * spacing - 1 for end in (numbers, np.zeros_like(numbers))]
    total = np.zeros((len(numbers), count))
    for k, c in enumerate(_midpoint_coefficients((count + 1) // 2)):
        for j, polynomial in enumerate(np.eye(count)):
            integral = legendre.legint(legendre.legder(polynomial, 2 * k))
            upper, lower = (legendre.legval(end, integral) for end in ends)
            total[:, j] += c * spacing ** (2 * k - 1) * (upper - lower)
    return total


def _midpoint_coefficients(count: int) -> list[float]:
    """First coefficients of (t/2) / sinh(t/2) in powers of t^2."""
    inverse = [1 / (4.0**k * math.factorial(2 * k + 1)) for k in range(count)]  # of sinh(t/2) / (t/2)
    coefficients = [1.0]
    for n in range(1, count):
        coefficients.append(-sum(inverse[k] * coefficients[n - k] for k in range(1, n + 1)))
    return coefficients


class DeepChain:
    """Responses and covariances along the chain; see the module for the equations.

    Attributes
    ----------
    nodes
        Where the nodes are.
    unsettled
        Which problems of the batch had a step that did not come to a standstill, shape (batch,).
    """

    def __init__(self, c: Coefficients, Ch_data: Array, like: "DeepChain | None" = None) -> None:
        self.c, self._Ch_data = c, Ch_data
        self.nodes: Nodes = like.nodes if like else Nodes(c.structure.nodes, c.structure.edges)
        (batch, size), count = c.d.shape, len(self.nodes.position)
        self.unsettled = np.zeros(batch, bool)
        self._beta2 = c.beta2[:, None]
        self._gamma0 = c.gamma0[:, None]
        self._all = slice(0, size)
        # A single edge's own change, which tells its two layers apart; none at infinite depth.
        self._edge = None if c.structure.edges is None else self._beta2

        def matrix() -> Array:
            return zeros((batch, count, size, size), Ch_data)

        def site() -> Site:
            return Site(zeros((2, 2, batch, count, size, size), Ch_data), self._gamma0, c.structure.outputs)

        if like is None:
            self.lower = site()
            self.upper = self.lower if self._edge is None else site()
            self.Y, self.Q, self.A, self.B, self._XB, self._PA = (matrix() for _ in range(6))
            self.X = self.Y if self._edge is None else matrix()
            self.P = self.Q if self._edge is None else matrix()
        else:
            self.lower, self.upper, self.Y, self.Q, self.A, self.B = (
                like.lower,
                like.upper,
                like.Y,
                like.Q,
                like.A,
                like.B,
            )
            self._XB, self._PA, self.X, self.P = like._XB, like._PA, like.X, like.P
        # Sources and correlations; names as in the module, "low" and "up" for the layers of an edge.
        self.Ch_low, self.Cg_up, self.S_low, self.D_up = (matrix() for _ in range(4))
        self.Cg_low = self.Cg_up if self._edge is None else matrix()
        self.D_low = self.D_up if self._edge is None else matrix()
        self.S_up = self.S_low if self._edge is None else matrix()
        # What initial weights make of h and g, per unit of branch, and the initial readout.
        self._from_above, readout = (backward_source(c, C, nodes=True) for C in (self.Cg_up, None))
        self._from_below = Source(self.Ch_low, None, self._from_above.d)
        self._readout = readout._replace(d=c.d[:, None])

    def replica(self, Ch_data: Array) -> "DeepChain":
        """Return a chain with the same responses and empty covariances."""
        return DeepChain(self.c, Ch_data, like=self)

    def backward(self, rows: slice, *, respond: bool = True, correlate: bool = True) -> None:
        """Fill rows of everything about g."""
        c, e = self.c, rows.stop
        a, dds = c.a[:, None, rows, :e], dd(c.d, rows)[:, None]
        top_Q, top_D = c.a_readout[:, None, rows, :e], self._readout.rows(rows)
        above = beside(self.nodes.above, c.d)

        def sweep(Q: Array, D: Array) -> tuple[Array, Array]:
            dQ = dD = None
            if respond:
                self.Q[..., rows, :e] = Q
                self.upper.backward(Q, rows)
            if correlate:
                write_symmetric(self.D_up, D, rows)
                self.upper.correlate_g(Source(self.S_up), Source(self.D_up), self.Cg_up, rows)
            if respond:
                self.B[..., rows, :e] = dds * self.upper.dg[0][..., rows, :e] + a * correlation_rows(
                    c, self.Cg_up, rows
                )
                P = self._through_edge(Q, self.A, self.P, rows)
                self._PA[..., rows, :e] = self._gamma0 * rows_times(P, self.A, e)
                dQ = self.B[..., rows, :e] + rows_times(self._PA[..., rows, :e], self.Q, e)
                Q = top_Q + self._sum(above, dQ)
            if correlate:
                through = self._gamma0**2 * self._sandwich(self.P, self._from_below, rows)
                dD = self._mixed(self._PA, self.D_up, rows) + self._from_above.rows(rows) + through
                D = top_D + self._sum(above, dD)
            if self._edge is not None:
                if dQ is not None:
                    self.lower.backward(self.Q[..., rows, :e] + self._edge * dQ, rows)
                if dD is not None:
                    write_symmetric(self.D_low, self.D_up[..., rows, :e] + self._edge * dD, rows)
                    self.lower.correlate_g(Source(self.S_low), Source(self.D_low), self.Cg_low, rows)
            return Q, D

        self._settle(sweep, above, self.Q, self.D_up, rows)

    def forward(self, Rhr_data: Array, rows: slice, *, respond: bool = True, correlate: bool = True) -> None:
        """Fill rows of everything about h."""
        c, e = self.c, rows.stop
        dds = dd(c.d, rows)[:, None]
        Ch_data = self._Ch_data[:, None, rows, :e]
        bottom_Y = self._on_g(c.feedback[:, None] * Rhr_data[:, None, rows, :e], Ch_data, rows)
        bottom_S = dds * Ch_data
        below = beside(self.nodes.below, c.d)

        def sweep(Y: Array, S: Array) -> tuple[Array, Array]:
            dY = dS = None
            if respond:
                self.Y[..., rows, :e] = Y
                self.lower.A = Y
                self.lower.forward(rows)
            if correlate:
                write_symmetric(self.S_low, S, rows)
                self.lower.correlate_h(Source(self.S_low), Source(self.D_low), self.Ch_low, rows)
            Ch = self.Ch_low[..., rows, :e]
            if respond:
                self.A[..., rows, :e] = self._on_g(self.lower.dh[1][..., rows, :e], Ch, rows)
                X = self._through_edge(Y, self.B, self.X, rows)
                self._XB[..., rows, :e] = self._gamma0 * rows_times(X, self.B, e)
                dY = self.A[..., rows, :e] + rows_times(self._XB[..., rows, :e], self.Y, e)
                Y = bottom_Y + self._sum(below, dY)
            if correlate:
                dS = self._mixed(self._XB, self.S_low, rows) + dds * Ch + self._sandwich(self.X, self._from_above, rows)
                S = bottom_S + self._sum(below, dS)
            if self._edge is not None:
                if dY is not None:
                    self.upper.A = self.Y[..., rows, :e] + self._edge * dY
                    self.upper.forward(rows)
                if dS is not None:
                    write_symmetric(self.S_up, self.S_low[..., rows, :e] + self._edge * dS, rows)
            return Y, S

        self._settle(sweep, below, self.Y, self.S_low, rows)

    def prepare(self, Rhr_data: Array, rows: slice) -> None:
        """Let rows of a panel that were guessed, or swept before, take effect in ``backward``."""
        e = rows.stop
        Y = self.Y[..., rows, :e]
        self.lower.A = Y
        if self._edge is not None:
            dY = self.A[..., rows, :e] + rows_times(self._XB[..., rows, :e], self.Y, e)
            self.upper.A = Y + self._edge * dY

    def kernels(self) -> list[Array]:
        """Responses that a sweep reads before it writes them."""
        return [self.Y, self.Q, self.A, *([] if self._edge is None else [self.X, self.P])]

    def sources(self) -> list[Array]:
        """Covariances that a sweep reads before it writes them."""
        return [self.S_low, self.D_up, self.Ch_low, *([] if self._edge is None else [self.S_up])]

    def correlations(self) -> list[Array]:
        """C_h and C_g at each node."""
        return [C[:, node] for C in (self.Ch_low, self.Cg_up) for node in range(C.shape[1])]

    def _through_edge(self, incoming: Array, across: Array, result: Array, rows: slice) -> Array:
        """Rows of X = Y + beta^2 Y B X, or of P = Q + beta^2 Q A P."""
        if self._edge is not None:
            e = rows.stop
            step = self._gamma0 * rows_times(incoming, across, e)
            result[..., rows, :e] = incoming + self._edge * rows_times(step, result, e)
        return result[..., rows, : rows.stop]

    def _sum(self, over: Array, rows: Array) -> Array:
        """beta^2 times a sum over edges, or the integral over layer time times beta_0^2."""
        total: Array = self._beta2 * _along(over, rows)
        return total

    def _mixed(self, kernel: Array, covariance: Array, rows: slice) -> Array:
        """Rows of F S + (F S)^T + beta^2 F S F^T for a kernel F and a covariance S."""
        e = rows.stop
        direct = rows_times_symmetric(kernel[..., rows, :e], covariance, e)
        mixed: Array = direct + rows_times_transpose(covariance[..., rows, :e], kernel, e)
        if self._edge is not None:
            mixed = mixed + self._edge * rows_times_transpose(direct, kernel, e)
        return mixed

    def _on_g(self, R: Array, Ch: Array, rows: slice) -> Array:
        """Rows of dd o R + gamma0 a o C_h, as they act on g."""
        learned = self.c.whole_gamma0[:, None] * self.c.a[:, None, rows, : rows.stop] * Ch
        kernel: Array = decayed_on_g(self.c, R, rows) + times_E(self.c, learned)
        return kernel

    def _sandwich(self, kernel: Array, source: Source, rows: slice) -> Array:
        """Rows of kernel (covariance of a source) kernel^T."""
        return rows_times_transpose(source.times(kernel[..., rows, : rows.stop], rows.stop), kernel, rows.stop)

    def _settle(
        self,
        sweep: Callable[[Array, Array], tuple[Array, Array]],
        over: Array,
        kernel: Array,
        covariance: Array,
        rows: slice,
    ) -> None:
        """Sweep a step's rows until they stand still, starting from those of the step before; a panel's rows once.

        A row passes from node to node first of all unchanged, R_hr = Y + ... and C_h = S + ..., so the
        correction of each sweep is carried along the chain with (1 - beta^2 sum)^-1.
        """
        e, count, xp = rows.stop, rows.stop - rows.start, self.c.xp
        carry = xp.linalg.inv(identity(len(over), over) - self._beta2[:, 0] * over)

        def carried(unknowns: Array) -> Array:
            change = xp.stack(sweep(unknowns[:, 0], unknowns[:, 1]), axis=1) - unknowns
            swept = [unknowns[:, i] + _along(carry, change[:, i]) for i in range(2)]
            result: Array = xp.stack(swept, axis=1)
            return result

        if is_panel(rows, self.c.structure.outputs):
            swept = carried(xp.stack([kernel[..., rows, :e], covariance[..., rows, :e]], axis=1))
            kernel[..., rows, :e] = swept[:, 0]
            write_symmetric(covariance, swept[:, 1], rows)
            return
        before = slice(max(rows.start - count, 0), max(rows.start, count))
        start = xp.stack([kernel[..., before, :e], covariance[..., before, :e]], axis=1)
        _, moving = fixed_point(
            lambda flat: carried(flat.reshape(start.shape)).reshape(flat.shape),
            start.reshape(len(start), -1),
            tolerance=SETTLED,
            most_sweeps=_MOST_SWEEPS,
            ignore=self.unsettled,
        )
        self.unsettled |= moving

    def kernel(self) -> Array:
        """Mean eigenvalue of the tangent kernel over time, averaged over outputs, shape (batch, steps).

        The mean squared gain of the initial weights below edge e is d^2 (1 + beta^2 d^2)^(e - 1), at infinite
        depth d^2 exp(beta_0^2 d^2 tau).
        """
        c, xp, beta2, outputs = self.c, self.c.xp, self._beta2[:, 0, 0], self.c.structure.outputs
        decay = c.d[:, ::outputs] ** 2
        rate = beta2 * decay if self._edge is None else self.c.structure.edges * xp.log1p(beta2 * decay)
        above = [mean_diagonal(C, outputs) for C in xp.moveaxis(correlation_rows(c, self.Cg_up, self._all), 1, 0)]
        parts = zip(self.nodes.total.tolist(), self.nodes.position.tolist(), above, strict=True)
        branches = sum(weight * xp.exp(rate * position) * gain for weight, position, gain in parts)
        first = mean_diagonal(correlation_rows(c, self.Cg_low[:, 0], self._all), outputs)
        total: Array = first + decay * (beta2 * branches + xp.exp(rate))
        return total

    @property
    def Cg_first(self) -> Array:
        """C_g of layer 1."""
        return self.Cg_low[:, 0]

    def Rgu_hat_first(self, rows: slice) -> Array:
        """Rows of R_gu / gamma0 of layer 1, where the source u has no branch in front."""
        response: Array = self.lower.dg[0][:, 0, rows, : rows.stop]
        return response

    def Ch(self) -> Iterator[Array]:
        """C_h of each layer, or at each node."""
        F = finite(self.upper.dh[..., -1, :, :])
        sources = finite(self.c.xp.stack([self.S_up[:, -1], self.D_up[:, -1]]))
        with computing(F):
            last = (finite(F @ sources) @ F.mT).sum(axis=0)
        return self._layers(self.Ch_low, last)

    def Cg(self) -> Iterator[Array]:
        """C_g of each layer, or at each node."""
        low, last = (correlation_rows(self.c, C, self._all) for C in (self.Cg_low, self.Cg_up[:, -1]))
        return self._layers(low, last)

    def Rhr(self) -> Iterator[Array]:
        """R_hr of each layer, or at each node per unit of branch; the source of the last layer has none."""
        low, last = self._branch * self.lower.dh[1], self.upper.dh[1][:, -1]
        return self._layers(times_inverse_of_E(self.c, low), times_inverse_of_E(self.c, last))

    def Rgu_hat(self) -> Iterator[Array]:
        """R_gu / gamma0 of each layer, or at each node per unit of branch; the source of layer 1 has none."""
        layers = self._layers(self._branch * self.lower.dg[0], (self._branch * self.upper.dg[0])[:, -1])
        yield self.lower.dg[0][:, 0]
        yield from itertools.islice(layers, 1, None)

    @property
    def _branch(self) -> Array | float:
        return 1.0 if self._edge is None else self.c.xp.sqrt(self._beta2)

    def _layers(self, lower: Array, last: Array) -> Iterator[Array]:
        """Values at all layers, from those at the lower layers of the nodes and at the last layer."""
        for weights in beside(self.nodes.to_layers(), lower):
            yield self.c.xp.tensordot(weights, lower, axes=((0,), (1,)))
        if self._edge is not None:
            yield last


def kept(shape: Structure) -> int:
    """Count the matrices that the nodes keep: sites, kernels, sources and correlations of ``DeepChain``."""
    return (14 if shape.edges is None else 23) * shape.nodes


def products(shape: Structure) -> tuple[int, int]:
    """Count the products with causal, and with symmetric, matrices in one step, swept as often as is usual."""
    return 14 * _USUAL_SWEEPS * shape.nodes, 8 * _USUAL_SWEEPS * shape.nodes


def _along(matrix: Array, rows: Array) -> Array:
    """Apply a matrix over the nodes to rows of shape (batch, nodes, r, e)."""
    product: Array = (matrix @ rows.reshape(*rows.shape[:2], -1)).reshape(rows.shape)
    return product
