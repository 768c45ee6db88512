"""A long residual chain through a few nodes in depth: large depth, and the limit of infinite depth.

Along a residual chain with branches beta everything changes slowly, so it is enough to know it at a few
edges e (the weights W_e between layers e and e + 1). What reaches an edge from below is the kernel Y with
source covariance S (layer e), from above Q with Theta (layer e + 1); see ``layers.py``. Across an edge they
change by beta^2 times

    dY = A + X B Y ,          dS = X B S + (X B S)^T + dd o C_h + X (dd o C_g) X^T + beta^2 (X B) S (X B)^T
    dQ = B + P A Q ,          dTheta = P A Theta + (P A Theta)^T + dd o C_g + P (dd o C_h) P^T
                                       + beta^2 (P A) Theta (P A)^T

    A = dd o R_hr + gamma0 a o C_h  at layer e ,     B = dd o R_gu + gamma0 a o C_g  at layer e + 1
    X = Y + beta^2 Y B X ,    P = Q + beta^2 Q A P

with all else at layer e (below) or e + 1 (above). These are the equations of the layers, no more and no
less; a sum over edges below or above node j becomes a matrix over the nodes. At infinite depth, with
beta = beta_0 / sqrt(L), sums become integrals over layer time tau = e / L, and layers e and e + 1 are one.

A row of the unknowns depends on the same row at the other nodes, so a step is swept until it stands still
(``depth_sweeps.py``). The rows of a panel are swept once at a time, since they depend on all else in the panel as well.

Q, P and B are kept divided by gamma0. In a centered network g stands for g~ of ``increments.py``.
All arrays have an axis of nodes after the axis of batches.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, alike, beside, computing, finite
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.depth_nodes import Nodes
from deeplinear._equations.depth_sweeps import USUAL_SWEEPS, DepthSweeps, along
from deeplinear._equations.increments import backward_source, correlation_rows, times_inverse_of_E
from deeplinear._equations.layers import kernel_on_g, kernel_on_h
from deeplinear._equations.products import (
    mean_diagonal,
    over_outputs,
    rows_times,
    rows_times_symmetric,
    rows_times_transpose,
    within_outputs,
)
from deeplinear._equations.site import Site
from deeplinear._equations.source import Source
from deeplinear._equations.two_time import Causal, Room, Symmetric
from deeplinear._equations.weights import WeightLayers, Weights


class DeepChain:
    """Responses and covariances along the chain; see the module for the equations.

    Attributes
    ----------
    nodes
        Where the nodes are.
    unsettled
        Which problems of the batch had a step that did not come to a standstill, shape (batch,).
    """

    lower: Site
    upper: Site
    Y: Causal
    Q: Causal
    A: Causal
    B: Causal
    X: Causal
    P: Causal
    _XB: Causal
    _PA: Causal

    def __init__(
        self, c: Coefficients, weights: WeightLayers, Ch_data: Symmetric, room: Room, like: "DeepChain | None" = None
    ) -> None:
        self.c, self.weights, self._Ch_data = c, weights, Ch_data
        self.nodes: Nodes = like.nodes if like else Nodes(c.structure.depth_nodes, c.structure.edges)
        lead = (c.batch, len(self.nodes.position))
        self._sweeps = DepthSweeps(c)
        self.unsettled: NDArray[np.bool_] = self._sweeps.unsettled
        self._beta2, self._gamma0 = c.beta2[:, None], c.gamma0[:, None]
        self._all = slice(0, room.size)
        # A single edge's own change, which tells its two layers apart; none at infinite depth.
        self._edge = None if c.structure.edges is None else self._beta2
        if like is None:
            self._make_responses(room, lead)
        else:
            for name in ("lower", "upper", "Y", "Q", "A", "B", "X", "P", "_XB", "_PA"):
                setattr(self, name, getattr(like, name))
        # Sources and correlations; names as in the module, "low" and "up" for the layers of an edge.
        self.Ch_low, self.Cg_up, self.S_low, self.Theta_up = (room.symmetric(*lead) for _ in range(4))
        self.Cg_low = self.Cg_up if self._edge is None else room.symmetric(*lead)
        self.Theta_low = self.Theta_up if self._edge is None else room.symmetric(*lead)
        self.S_up = self.S_low if self._edge is None else room.symmetric(*lead)
        # What initial weights make of h and g, per unit of branch, and the initial readout.
        self._from_above = backward_source(c, self._hidden, self.Cg_up, nodes=True)
        self._from_below = Source(self.Ch_low, self._from_above.factor, self._from_above.d)
        self._readout = backward_source(c, weights.readout, None, nodes=True)._replace(d=weights.readout.d[:, None])
        self._fill_Cg_up = self.upper.correlation_of_g(Source(self.S_up), Source(self.Theta_up), self.Cg_up)
        self._fill_Cg_low = self.lower.correlation_of_g(Source(self.S_low), Source(self.Theta_low), self.Cg_low)
        self._fill_Ch_low = self.lower.correlation_of_h(Source(self.S_low), Source(self.Theta_low), self.Ch_low)

    def _make_responses(self, room: Room, lead: tuple[int, int]) -> None:
        def site() -> Site:
            return Site(room, lead, self._gamma0, self.c.structure.outputs)

        self.lower = site()
        self.upper = self.lower if self._edge is None else site()
        self.Y, self.Q, self.A, self.B, self._XB, self._PA = (room.causal(*lead) for _ in range(6))
        self.X = self.Y if self._edge is None else room.causal(*lead)
        self.P = self.Q if self._edge is None else room.causal(*lead)

    @property
    def _hidden(self) -> Weights:
        """The weights of every edge."""
        return self.weights.hidden[0]

    def replica(self, Ch_data: Symmetric, room: Room) -> "DeepChain":
        """Return a chain with the same responses and empty covariances."""
        return DeepChain(self.c, self.weights, Ch_data, room, like=self)

    def backward(self, rows: slice, *, respond: bool = True, correlate: bool = True, coupled: bool = True) -> None:
        """Fill rows of everything about g; of rows that are only looked at there may be one."""
        c = self.c
        above = beside(self.nodes.above, c.gamma0)
        top = at_an_end(rows, lambda: (self.weights.readout.a[rows][:, None], self._readout.rows(rows)))

        def sweep(Q: Array, Theta: Array) -> tuple[Array, Array]:
            (top_Q, top_Theta), dQ, dTheta = top(), None, None
            if respond:
                self.Q[rows] = Q
                self.upper.backward(Q, rows)
            if correlate:
                self.Theta_up[rows] = Theta
                self._fill_Cg_up.fill(rows)
            if respond:
                self.B[rows] = kernel_on_h(c, self._hidden, self.upper.dg_du, self.Cg_up, rows, None, None)
                P = self._through_edge(Q, self.A, self.P, rows)
                self._PA[rows] = self._gamma0 * rows_times(P, self.A)
                dQ = self.B[rows] + rows_times(self._PA[rows], self.Q)
                Q = top_Q + self._sum(above, dQ)
            if correlate:
                through = self._gamma0**2 * self._sandwich(self.P, self._from_below, rows)
                dTheta = self._mixed(self._PA, self.Theta_up, rows) + self._from_above.rows(rows) + through
                Theta = top_Theta + self._sum(above, dTheta)
            if self._edge is not None:
                if dQ is not None:
                    self.lower.backward(self.Q[rows] + self._edge * dQ, rows)
                if dTheta is not None:
                    self.Theta_low[rows] = self.Theta_up[rows] + self._edge * dTheta
                    self._fill_Cg_low.fill(rows)
            return Q, Theta

        self._sweeps.settle("backward", sweep, above, self.Q, self.Theta_up, rows)

    def forward(self, Rhr_data: Causal, rows: slice, *, respond: bool = True, correlate: bool = True) -> None:
        """Fill rows of everything about h."""
        c, first = self.c, self.weights.input
        learned = c.whole_gamma0[:, None]
        below = beside(self.nodes.below, c.gamma0)

        def first_layer() -> tuple[Array, Array]:
            R, C = (each.part(slice(None), None) for each in (Rhr_data, self._Ch_data))
            Y = kernel_on_g(c, first, R, C, rows, c.feedback[:, None], learned)
            return Y, first.initial(C[rows], rows)  # eq-depth-start

        bottom = at_an_end(rows, first_layer)

        def sweep(Y: Array, S: Array) -> tuple[Array, Array]:
            (bottom_Y, bottom_S), dY, dS = bottom(), None, None
            if respond:
                self.Y[rows] = Y
                self.lower.A = Y
                self.lower.forward(rows)
            if correlate:
                self.S_low[rows] = S
                self._fill_Ch_low.fill(rows)
            Ch = self.Ch_low[rows]
            if respond:
                self.A[rows] = kernel_on_g(c, self._hidden, self.lower.dh_dr, self.Ch_low, rows, None, learned)
                X = self._through_edge(Y, self.B, self.X, rows)
                self._XB[rows] = self._gamma0 * rows_times(X, self.B)
                dY = self.A[rows] + rows_times(self._XB[rows], self.Y)  # eq-edges
                Y = bottom_Y + self._sum(below, dY)
            if correlate:
                through = self._sandwich(self.X, self._from_above, rows)
                dS = self._mixed(self._XB, self.S_low, rows) + self._hidden.initial(Ch, rows) + through
                S = bottom_S + self._sum(below, dS)
            if self._edge is not None:
                if dY is not None:
                    self.upper.A = self.Y[rows] + self._edge * dY
                    self.upper.forward(rows)
                if dS is not None:
                    self.S_up[rows] = self.S_low[rows] + self._edge * dS
            return Y, S

        self._sweeps.settle("forward", sweep, below, self.Y, self.S_low, rows)

    def prepare(self, Rhr_data: Causal, rows: slice) -> None:
        """Let rows of a panel that were guessed, or swept before, take effect in ``backward``."""
        Y = self.Y[rows]
        self.lower.A = Y
        if self._edge is not None:
            dY = self.A[rows] + rows_times(self._XB[rows], self.Y)
            self.upper.A = Y + self._edge * dY

    def kernels(self) -> list[Causal]:
        """Responses that a sweep reads before it writes them."""
        return [self.Y, self.Q, self.A, *([] if self._edge is None else [self.X, self.P])]

    def sources(self) -> list[Symmetric]:
        """Covariances that a sweep reads before it writes them."""
        return [self.S_low, self.Theta_up, self.Ch_low, *([] if self._edge is None else [self.S_up])]

    def correlations(self) -> list[Symmetric]:
        """C_h and C_g at each node."""
        nodes = range(len(self.nodes.position))
        return [C.part(slice(None), node) for C in (self.Ch_low, self.Cg_up) for node in nodes]

    def _through_edge(self, incoming: Array, across: Causal, result: Causal, rows: slice) -> Array:
        """Rows of X = Y + beta^2 Y B X, or of P = Q + beta^2 Q A P."""
        if self._edge is not None:
            step = self._gamma0 * rows_times(incoming, across)
            result[rows] = incoming + self._edge * rows_times(step, result)  # eq-edge-kernels
        return result[rows]

    def _sum(self, over: Array, rows: Array) -> Array:
        """beta^2 times a sum over edges, or the integral over layer time times beta_0^2."""
        total: Array = self._beta2 * along(over, rows)
        return total

    def _mixed(self, kernel: Causal, covariance: Symmetric, rows: slice) -> Array:
        """Rows of F S + (F S)^T + beta^2 F S F^T for a kernel F and a covariance S."""
        direct = rows_times_symmetric(kernel[rows], covariance)
        mixed: Array = direct + rows_times_transpose(covariance[rows], kernel)
        if self._edge is not None:
            mixed = mixed + self._edge * rows_times_transpose(direct, kernel)
        return mixed

    def _sandwich(self, kernel: Causal, source: Source, rows: slice) -> Array:
        """Rows of kernel (covariance of a source) kernel^T."""
        return rows_times_transpose(source.times(kernel[rows]), kernel)

    def kernel(self) -> Array:
        """Mean eigenvalue of the tangent kernel over time, averaged over outputs, shape (batch, steps).

        The mean squared gain of the initial weights below edge e is d^2 (1 + beta^2 d^2)^(e - 1), at infinite
        depth d^2 exp(beta_0^2 d^2 tau).
        """
        c, xp, beta2, outputs = self.c, self.c.xp, self._beta2[:, 0, 0], self.c.structure.outputs
        decay, first_decay = (w.mean_gain(outputs) for w in (self._hidden, self.weights.input))
        of_input, of_hidden, of_readout = (
            1.0 if w.rate is None else w.rate[..., 0] for w in (self.weights.input, self._hidden, self.weights.readout)
        )
        rate: Array = beta2 * decay if self._edge is None else self.c.structure.edges * xp.log1p(beta2 * decay)
        above = [mean_diagonal(C, outputs) for C in xp.moveaxis(correlation_rows(c, self.Cg_up, self._all), 1, 0)]
        parts = zip(self.nodes.total.tolist(), self.nodes.position.tolist(), above, strict=True)
        branches = sum(weight * xp.exp(rate * position) * gain for weight, position, gain in parts)
        first = mean_diagonal(correlation_rows(c, self.Cg_first, self._all), outputs)
        learning = of_hidden * beta2 * branches + of_readout * xp.exp(rate)
        total: Array = of_input * first + first_decay * learning
        return total

    def gradient_products(self, rows: slice, columns: slice = slice(None)) -> list[Array]:
        """Products of the gradients of the input weights, of all edges together, and of the readout."""
        beta2, e = self._beta2[:, 0, 0], rows.stop
        first, up = (correlation_rows(self.c, C, rows) for C in (self.Cg_first, self.Cg_up))
        each = up * self.Ch_low[rows]
        edges = beta2[..., None] * (each * beside(self.nodes.total, beta2)[:, None, None]).sum(axis=1)
        F, sources = self.upper.dh.matrix[:, :, -1, :e, :e], (self.S_up, self.Theta_up)
        last = sum(f[:, rows] @ C.matrix[:, -1, :e, :e] @ f.mT for f, C in zip(F, sources, strict=True))
        inputs = first * self._Ch_data[rows]
        return [
            over_outputs(x) for x in (inputs[..., columns], edges[..., columns], within_outputs(last[..., columns]))
        ]

    def fields_around(self, layer: int, rows: slice) -> tuple[Array, Array]:
        """Nodes stand for layers that are trained by one rule."""
        raise NotImplementedError

    @property
    def Cg_first(self) -> Symmetric:
        """C_g of layer 1."""
        return self.Cg_low.part(slice(None), 0)

    def Rgu_hat_first(self, rows: slice) -> Array:
        """Rows of R_gu / gamma0 of layer 1, where the source u has no branch in front."""
        return self.lower.dg_du.part(slice(None), 0)[rows]

    def Ch(self, rows: slice | None = None) -> Iterator[Array]:
        """C_h of each layer, or at each node."""
        rows = rows or self._all
        F = finite(self.upper.dh.matrix[..., -1, : rows.stop, : rows.stop])
        sources = self.c.xp.stack([self.S_up.matrix[:, -1], self.Theta_up.matrix[:, -1]])
        with computing(F):
            through = F[..., rows, :] @ finite(sources[..., : rows.stop, : rows.stop])
            last = (finite(through) @ F.mT).sum(axis=0)
        return self._layers(self.Ch_low[rows], last)

    def Cg(self, rows: slice | None = None) -> Iterator[Array]:
        """C_g of each layer, or at each node."""
        every = (self.Cg_low, self.Cg_up.part(slice(None), -1))
        return self._layers(*(correlation_rows(self.c, C, rows or self._all) for C in every))

    def Rhr(self, rows: slice | None = None) -> Iterator[Array]:
        """R_hr of each layer, or at each node per unit of branch; the source of the last layer has none."""
        rows = rows or self._all
        low, last = self._branch * self.lower.dh_dr[rows], self.upper.dh_dr.part(slice(None), -1)[rows]
        return self._layers(times_inverse_of_E(self.c, low), times_inverse_of_E(self.c, last))

    def Rgu_hat(self, rows: slice | None = None) -> Iterator[Array]:
        """R_gu / gamma0 of each layer, or at each node per unit of branch; the source of layer 1 has none."""
        rows = rows or self._all
        low, up = self.lower.dg_du[rows], self.upper.dg_du[rows]
        layers = self._layers(self._branch * low, (self._branch * up)[:, -1])
        yield low[:, 0]
        yield from itertools.islice(layers, 1, None)

    @property
    def _branch(self) -> Array | float:
        return 1.0 if self._edge is None else self.c.xp.sqrt(self._beta2)

    def _layers(self, lower: Array, last: Array) -> Iterator[Array]:
        """Values at all layers, from those at the lower layers of the nodes and at the last layer."""
        for weights in beside(self.nodes.to_layers(), lower):
            yield self.c.xp.tensordot(alike(weights, lower), lower, axes=((0,), (1,)))
        if self._edge is not None:
            yield last


def kept(shape: Structure) -> int:
    """Count the matrices that the nodes keep: sites, kernels, sources and correlations of ``DeepChain``."""
    return (14 if shape.edges is None else 23) * shape.depth_nodes


def products(shape: Structure) -> tuple[int, int]:
    """Count the products with causal, and with symmetric, matrices in one step, swept as often as is usual."""
    return 14 * USUAL_SWEEPS * shape.depth_nodes, 8 * USUAL_SWEEPS * shape.depth_nodes


def at_an_end(rows: slice, ends: Callable[[], tuple[Array, Array]]) -> Callable[[], tuple[Array, Array]]:
    """Return what enters a sweep at one end of the chain: once for all sweeps, but anew in one that is recorded."""
    if getattr(rows, "calls", None) is not None:
        return ends
    once = ends()
    return lambda: once
