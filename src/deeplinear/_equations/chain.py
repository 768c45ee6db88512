"""The hidden layers as one object that a solver steps: backward rows, then forward rows."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.deep_chain import DeepChain
from deeplinear._equations.increments import correlation_rows
from deeplinear._equations.layers import HiddenCovariances, HiddenResponses
from deeplinear._equations.products import mean_diagonal, over_outputs, times, within_outputs
from deeplinear._equations.two_time import Causal, Room, Symmetric
from deeplinear._equations.weights import WeightLayers


class Chain(Protocol):
    """What a solver and a solution need of the hidden layers.

    1. ``backward`` fills rows of everything about g, from earlier rows; then layer 0 runs; then
       ``forward`` fills rows of everything about h. With ``respond=False`` responses are left as they
       are and only covariances are filled. Rows that are only looked at are not coupled to each other, and need
       nothing that only h depends on: they have ``coupled=False``.
    2. ``replica`` has the same responses, and covariances of its own that are still empty.
    3. ``Cg_first`` and ``Rgu_hat_first`` are what layer 0 reads of layer 1.
    4. ``Ch``, ``Cg``, ``Rhr`` and ``Rgu_hat`` (R_gu / gamma0) run over layers, or over nodes in layer
       time, first to last; each item has shape (batch, rows, rows), or (batch, r, e) if only some rows that end
       before row e are wanted.
    5. ``unsettled`` says which problems of the batch had a step that could not be solved, shape (batch,).
    6. ``kernel`` is the mean eigenvalue of the tangent kernel over time, shape (batch, steps), and
       ``gradient_products`` the products of the gradients of each weight layer at one time with those up to it, or
       some, over gamma0^2.
       ``fields_around`` are the correlations of the fields that make up the gradients of a weight layer.
    7. The rows of a panel depend on each other, and ``backward`` and ``forward`` sweep them once. ``prepare``
       comes first: it makes rows that were guessed, or swept before, take effect. ``kernels`` are the
       responses and ``sources`` the covariances that a sweep reads before it writes them. Either kind is left
       as it is with ``respond=False`` or ``correlate=False``.
    8. ``correlations`` are C_h and C_g of all layers or nodes, as far as they are kept.
    9. In a centered network ``kernels``, ``sources``, ``correlations`` and ``Cg_first`` are those of g~, as in
       ``increments.py``.
    """

    unsettled: NDArray[np.bool_]

    def backward(self, rows: slice, *, respond: bool = True, correlate: bool = True, coupled: bool = True) -> None: ...

    def forward(self, Rhr_data: Causal, rows: slice, *, respond: bool = True, correlate: bool = True) -> None: ...

    def prepare(self, Rhr_data: Causal, rows: slice) -> None: ...

    def kernels(self) -> list[Causal]: ...

    def sources(self) -> list[Symmetric]: ...

    def correlations(self) -> list[Symmetric]: ...

    def replica(self, Ch_data: Symmetric, room: Room) -> "Chain": ...

    @property
    def Cg_first(self) -> Symmetric: ...

    def Rgu_hat_first(self, rows: slice) -> Array: ...

    def Ch(self, rows: slice | None = None) -> Iterator[Array]: ...

    def Cg(self, rows: slice | None = None) -> Iterator[Array]: ...

    def Rhr(self, rows: slice | None = None) -> Iterator[Array]: ...

    def Rgu_hat(self, rows: slice | None = None) -> Iterator[Array]: ...

    def kernel(self) -> Array: ...

    def gradient_products(self, rows: slice, columns: slice = slice(None)) -> list[Array]: ...

    def fields_around(self, layer: int, rows: slice) -> tuple[Array, Array]: ...


def make_chain(c: Coefficients, weights: WeightLayers, Ch_data: Symmetric, room: Room) -> Chain:
    """Return the hidden layers of a batch of problems, before the first step."""
    if c.structure.depth_nodes:
        return DeepChain(c, weights, Ch_data, room)
    return Layers(HiddenResponses(c, weights, room), Ch_data, room)


class Layers:
    """A chain of finitely many layers, one after the other."""

    def __init__(self, responses: HiddenResponses, Ch_data: Symmetric, room: Room) -> None:
        self.c, self.responses = responses.c, responses
        self.covariances = HiddenCovariances(responses, Ch_data, room)
        self.unsettled = np.zeros(self.c.batch, bool)
        self._all = slice(0, room.size)

    def backward(self, rows: slice, *, respond: bool = True, correlate: bool = True, coupled: bool = True) -> None:
        """Fill rows of g, last layer first."""
        for layer in reversed(self.responses.layers):
            if respond:
                self.responses.backward(layer, self.covariances.Cg, rows, coupled=coupled)
            if correlate:
                self.covariances.backward(layer, rows)

    def forward(self, Rhr_data: Causal, rows: slice, *, respond: bool = True, correlate: bool = True) -> None:
        """Fill rows of h, first layer first."""
        for layer in self.responses.layers:
            if respond:
                self.responses.forward(layer, Rhr_data, self.covariances.Ch, rows)
            if correlate:
                self.covariances.forward(layer, rows)

    def replica(self, Ch_data: Symmetric, room: Room) -> "Layers":
        """Return a chain with the same responses and empty covariances."""
        return Layers(self.responses, Ch_data, room)

    def kernel(self) -> Array:
        """Sum over weight layers of the squared gain above times the mean squared gain below, times its rate factor.

        The gain above weight layer l - 1 is C_g^l(t, t), 1 for the readout. Below, what has been learned is
        of low rank, so the mean over directions is that of the initial weights.
        """
        c, skip, weights = self.c, self.c.structure.skip, self.responses.weights
        total: Array = c.xp.ones_like(weights.input.d[:, :: c.structure.outputs])
        if weights.readout.rate is not None:
            total = weights.readout.rate[..., 0] * total
        for layer in reversed(self.responses.layers):
            below = weights.below(layer)
            decay = below.mean_gain(c.structure.outputs)
            # eq-kernel
            gain = mean_diagonal(correlation_rows(c, self.covariances.Cg[layer], self._all), c.structure.outputs)
            gain = gain if below.rate is None else below.rate[..., 0] * gain
            if layer == 1:
                total = c.first_to_last[..., 0] * (gain + decay * total)
            else:
                f_bar = c.f_bar[layer - 2]
                total = times(f_bar, f_bar, c.rho[layer - 2], (gain + decay * total)[..., None])[..., 0] + skip * total
        return total

    def gradient_products(self, rows: slice, columns: slice = slice(None)) -> list[Array]:
        """f^2 (nu_{l+1} / nu_L) C_g^{l+1} C_h^l of each weight layer, summed over outputs, each (batch, times)."""
        c, C = self.c, self.covariances
        products, ratio = [], c.xp.ones_like(c.gamma0)
        for layer in reversed(range(c.structure.depth + 1)):
            Ch = C.Ch[layer][rows][..., columns]
            if layer == c.structure.depth:
                both = within_outputs(Ch)
            else:
                ratio = ratio if layer + 1 == c.structure.depth else _over(ratio, c.rho[layer])
                Cg = correlation_rows(c, C.Cg[layer + 1], rows)[..., columns]
                both = times(c.f[layer], c.f[layer], ratio, Cg * Ch)
            products.append(over_outputs(both))  # eq-gradient-size
        return products[::-1]

    def fields_around(self, layer: int, rows: slice) -> tuple[Array, Array]:
        """C_g above and C_h below a weight layer, at all pairs of these rows."""
        above, below = self.covariances.Cg[layer + 1], self.covariances.Ch[layer]
        return correlation_rows(self.c, above, rows), below[rows]

    def prepare(self, Rhr_data: Causal, rows: slice) -> None:
        """Let rows of a panel that were guessed, or swept before, take effect in ``backward``."""
        for layer in self.responses.layers:
            self.responses.prepare(layer, Rhr_data, self.covariances.Ch, rows)

    def kernels(self) -> list[Causal]:
        """Responses that ``prepare`` reads before ``forward`` writes them."""
        R = self.responses
        return [R.sites[layer].dh_dr for layer in R.layers[:-1]] + [site.dh_dr for site in R.left.values()]

    def sources(self) -> list[Symmetric]:
        """Covariances that ``backward`` reads before ``forward`` writes them."""
        return self.covariances.sources()

    def correlations(self) -> list[Symmetric]:
        """C_h of each layer but the last, C_g of each layer."""
        return [*(self.covariances.Ch[layer] for layer in self.responses.layers[:-1]), *self.covariances.Cg.values()]

    @property
    def Cg_first(self) -> Symmetric:
        """C_g of layer 1."""
        return self.covariances.Cg[1]

    def Rgu_hat_first(self, rows: slice) -> Array:
        """Rows of R_gu / gamma0 of layer 1."""
        return self.responses.Rgu_hat(1, rows)

    def Ch(self, rows: slice | None = None) -> Iterator[Array]:
        """C_h of each layer."""
        yield from (self.covariances.Ch[layer][rows or self._all] for layer in self.responses.layers[:-1])
        yield self.covariances.last_Ch if rows is None else self.covariances.last_Ch_rows(rows)

    def Cg(self, rows: slice | None = None) -> Iterator[Array]:
        """C_g of each layer."""
        every = (self.covariances.Cg[layer] for layer in self.responses.layers)
        return (correlation_rows(self.c, each, rows or self._all) for each in every)

    def Rhr(self, rows: slice | None = None) -> Iterator[Array]:
        """R_hr of each layer."""
        return (self.responses.Rhr(layer, rows or self._all) for layer in self.responses.layers)

    def Rgu_hat(self, rows: slice | None = None) -> Iterator[Array]:
        """R_gu / gamma0 of each layer."""
        return (self.responses.Rgu_hat(layer, rows or self._all) for layer in self.responses.layers)


def _over(x: Array, divisor: Array | None) -> Array:
    return x if divisor is None else x / divisor
