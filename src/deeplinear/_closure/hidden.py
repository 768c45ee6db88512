"""Hidden layers l = 1 .. L of an MLP: each is a site whose kernels come from its neighbours.

    A_l = dd o R_hr^{l-1} + gamma0 a o C_h^{l-1}               (l = 1: R_hr^0 / (nu_L gamma0))
    B_l = rho_l (dd o R_gu^{l+1} + gamma0 a o C_g^{l+1})       (l = L: gamma0 a)
    <u_l u_l> = dd o C_h^{l-1},   <r_l r_l> = rho_l dd o C_g^{l+1}   (l = L: d d^T, the initial readout)

with o the elementwise product, dd(t, s) = d(t) d(s) and (d, a) the optimiser's propagator; R_hr^l and
R_gu^l are the site's dh/dr and dg/du. rho_l = nu_{l+1} / nu_l is 1 for equal widths.
"""

import numpy as np

from deeplinear._closure.causal import Array, write_symmetric
from deeplinear._closure.site import Site, Source
from deeplinear._coefficients import Coefficients


class HiddenResponses:
    """Responses of the hidden layers; ``sites[l]`` is layer l."""

    def __init__(self, c: Coefficients) -> None:
        self.c = c
        batch, size = c.d.shape
        self.layers = range(1, c.structure.depth + 1)
        self.sites = {layer: Site(batch, size, c.gamma0) for layer in self.layers}

    def backward(self, layer: int, Cg: dict[int, Array], rows: slice) -> None:
        """Rows of layer l's g responses, from response and correlation of g in the layer above."""
        c, e = self.c, rows.stop
        if layer == c.structure.depth:
            Bhat = c.a_readout[:, rows, :e]
        else:
            Rgu_hat, Cg_above = self.sites[layer + 1].dg[0], Cg[layer + 1]
            Bhat = dd(c, rows) * Rgu_hat[:, rows, :e] + c.a[:, rows, :e] * Cg_above[:, rows, :e]
            Bhat *= c.rho[layer - 1]
        self.sites[layer].backward(Bhat, rows)

    def forward(self, layer: int, Rhr_data: Array, Ch: dict[int, Array], rows: slice) -> None:
        """Rows of layer l's h responses, from response and correlation of h in the layer below."""
        c, e = self.c, rows.stop
        Rhr_below = Rhr_data if layer == 1 else self.sites[layer - 1].dh[1]
        memory = dd(c, rows) * Rhr_below[:, rows, :e]
        if layer == 1:
            memory *= c.feedback
        A = memory + c.gamma0 * c.a[:, rows, :e] * Ch[layer - 1][:, rows, :e]
        self.sites[layer].forward(A, rows)


class HiddenCovariances:
    """Correlations of the hidden fields: ``Ch[l]`` for l = 0 .. L, ``Cg[l]`` for l = 1 .. L.

    ``Ch[0]`` belongs to the data, which fill it; it is the source of layer 1.
    """

    def __init__(self, responses: HiddenResponses, Ch_data: Array) -> None:
        self.c, self.sites = responses.c, responses.sites
        self.Cg = {layer: np.zeros_like(Ch_data) for layer in responses.layers}
        self.Ch = {0: Ch_data} | {layer: np.zeros_like(Ch_data) for layer in responses.layers}

    def backward(self, layer: int, rows: slice) -> None:
        """Rows of C_g^l."""
        write_symmetric(self.Cg[layer], self.sites[layer].covariance_g(*self._sources(layer), rows), rows)

    def forward(self, layer: int, rows: slice) -> None:
        """Rows of C_h^l."""
        write_symmetric(self.Ch[layer], self.sites[layer].covariance_h(*self._sources(layer), rows), rows)

    def _sources(self, layer: int) -> tuple[Source, Source]:
        c = self.c
        u = weighted(self.Ch[layer - 1], c.d)
        if layer == c.structure.depth:
            return u, readout(c.d, c.structure.outputs)
        return u, weighted(self.Cg[layer + 1], c.d * np.sqrt(c.rho[layer - 1][..., 0]))


def dd(c: Coefficients, rows: slice) -> Array:
    """Rows of d(t) d(s)."""
    outer: Array = c.d[:, rows, None] * c.d[:, None, : rows.stop]
    return outer


def weighted(matrix: Array, weight: Array) -> Source:
    """The covariance weight(t) matrix(t, s) weight(s)."""

    def apply(x: Array, e: int) -> Array:
        w = weight[:, None, :e]
        product: Array = ((x * w) @ matrix[:, :e, :e]) * w
        return product

    return apply


def readout(d: Array, outputs: int) -> Source:
    """The covariance d(t) d(s) of the initial readout, one value for all times, independent over outputs."""

    def apply(x: Array, e: int) -> Array:
        w = d[:, None, :e]
        over_time = (x * w).reshape(*x.shape[:-1], e // outputs, outputs).sum(axis=-2)
        product: Array = np.tile(over_time, e // outputs) * w
        return product

    return apply
