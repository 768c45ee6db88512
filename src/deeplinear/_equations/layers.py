"""Hidden layers l = 1 .. L: a chain of sites whose kernels come from their neighbours.

    h_l = s h_{l-1} + A_l g_l + f_l u_l         A_l = f_l (dd o R_hr^{l-1} + f_l gamma0 a o C_h^{l-1})
    g_l = s g_{l+1} + B_l h_l + fbar_l r_l      B_l = fbar_l rho_l (dd o R_gu^{l+1} + fbar_l gamma0 a o C_g^{l+1})
    <u_l u_l> = dd o C_h^{l-1},                 <r_l r_l> = rho_l dd o C_g^{l+1}

At the ends, A_1 has R_hr^0 / (nu_L gamma0) for R_hr^0, B_L = gamma0 a, and <r_L r_L> = d d^T is the
initial readout. Here o is the elementwise product, dd(t, s) = d(t) d(s), (d, a) the optimiser's
propagator and rho_l = nu_{l+1} / nu_l. In a centered network g stands for g~ of ``increments.py``.

Without skip connections (an MLP) s = 0 and f = fbar = 1: each layer is a site of its own. In a residual
network s = 1 (there is no skip into h_1) and the branch multiplies: f_l = beta but f_1 = 1, fbar_l = beta
but fbar_L = 1. Then the whole chain shares its neurons, and layer l feels all layers below it as

    Y_l = X_{l-1} + A_l ,  S_l = cov a_{l-1} + f_l^2 <u_l u_l>                (kernel and source from below)
    Q_l = P_{l+1} + B_l ,  Theta_l = Gamma_{l+1} + fbar_l^2 <r_l r_l>         (kernel and source from above)

where X_l and cov a_l belong to h_l in a chain cut above layer l, P_l and Gamma_l to g_l in a chain cut
below it. Each is a site as well, so a layer of a residual network has three:

    middle (Y_l, S_l; Q_l, Theta_l)                    R_hr^l = fbar_l dh/dr,  R_gu^l = f_l dg/du,  C_h^l,  C_g^l
    left   (Y_l, S_l; B_l, fbar_l^2 <r_l r_l>)         X_l = dh/dr,  cov a_l = <h h>
    right  (A_l, f_l^2 <u_l u_l>; Q_l, Theta_l)        P_l = dg/du,  Gamma_l = <g g>
"""

from deeplinear._core.arrays import Array, computing, finite
from deeplinear._core.cached import cached_property
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.increments import (
    backward_source,
    correlation_rows,
    decayed_on_g,
    times_E,
    times_inverse_of_E,
)
from deeplinear._equations.products import compiled, rows_times_transpose, times, times_or_one
from deeplinear._equations.site import Site
from deeplinear._equations.source import Source, fill_sum
from deeplinear._equations.two_time import Causal, Room, Symmetric, TwoTime
from deeplinear._equations.weights import WeightLayers, Weights

_LAYER = 3000
"""Bytes of the objects that stand for a layer, measured; three times as much where it has cut chains."""


class HiddenResponses:
    """Responses of the hidden layers: ``sites[l]`` is layer l, ``left`` and ``right`` its cut chains."""

    def __init__(self, c: Coefficients, weights: WeightLayers, room: Room) -> None:
        self.c, self.weights = c, weights

        def make(layers: range) -> dict[int, Site]:
            return {layer: Site(room, (c.batch,), c.gamma0, c.structure.outputs) for layer in layers}

        self.layers = range(1, c.structure.depth + 1)
        self.sites = make(self.layers)
        # The chain cut above the last layer, or below the first, is the whole chain.
        self.left = make(self.layers[:-1] if c.structure.skip else range(0))  # eq-chain
        self.right = make(self.layers[1:] if c.structure.skip else range(0))
        # Factors of the initial and of the learned part of A_l and B_l; see ``kernel_on_g``.
        self._below = {
            layer: (times_or_one(f, f_bar), times(f, f, c.whole_gamma0))
            for layer, f, f_bar in zip(self.layers, c.f, (c.feedback, *c.f_bar), strict=False)
        }
        self._above = {
            layer: (times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar, rho))
            for layer, f_bar, rho, f in zip(self.layers, c.f_bar, c.rho, c.f[1:], strict=False)
        }

    def backward(self, layer: int, Cg: dict[int, Symmetric], rows: slice, *, coupled: bool = True) -> None:
        """Rows of layer l's g responses."""
        B = self.kernel_from_above(layer, Cg, rows)
        Q = B
        if layer + 1 in self.right:
            Q = B + self.right[layer + 1].dg_du[rows]  # eq-sweeps
        for sites, kernel in ((self.sites, Q), (self.right, Q), (self.left, B)):
            if layer in sites and (coupled or sites is not self.left):
                sites[layer].backward(kernel, rows, coupled=coupled)

    def forward(self, layer: int, Rhr_data: Causal, Ch: dict[int, Symmetric], rows: slice) -> None:
        """Rows of layer l's h responses."""
        self.prepare(layer, Rhr_data, Ch, rows)
        for sites in (self.sites, self.left, self.right):
            if layer in sites:
                sites[layer].forward(rows)

    def prepare(self, layer: int, Rhr_data: Causal, Ch: dict[int, Symmetric], rows: slice) -> None:
        """Tell the sites of layer l their kernel from below, which the rows of a panel need in ``backward``."""
        A = self.kernel_from_below(layer, Rhr_data, Ch, rows)
        Y = A
        if layer - 1 in self.left:
            Y = A + self.left[layer - 1].dh_dr[rows]  # eq-sweeps
        self.sites[layer].A = Y
        if layer in self.left:
            self.left[layer].A = Y
        if layer in self.right:
            self.right[layer].A = A

    def kernel_from_above(self, layer: int, Cg: dict[int, Symmetric], rows: slice) -> Array:
        """Rows of B_l / gamma0."""
        if layer == self.c.structure.depth:
            return self.weights.readout.a[rows]
        w, Rgu_hat = self.weights.below(layer + 1), self.sites[layer + 1].dg_du
        return kernel_on_h(self.c, w, Rgu_hat, Cg[layer + 1], rows, *self._above[layer])

    def kernel_from_below(self, layer: int, Rhr_data: Causal, Ch: dict[int, Symmetric], rows: slice) -> Array:
        """Rows of A_l."""
        Rhr = Rhr_data if layer == 1 else self.sites[layer - 1].dh_dr
        return kernel_on_g(self.c, self.weights.below(layer), Rhr, Ch[layer - 1], rows, *self._below[layer])

    def Rhr(self, layer: int, rows: slice) -> Array:
        """Rows of R_hr^l, the response of h_l to r_l."""
        return times_inverse_of_E(self.c, times(self.c.f_bar[layer - 1], self.sites[layer].dh_dr[rows]))

    def Rgu_hat(self, layer: int, rows: slice) -> Array:
        """Rows of R_gu^l / gamma0, the response of g_l to u_l."""
        return times(self.c.f[layer - 1], self.sites[layer].dg_du[rows])


class HiddenCovariances:
    """Correlations of the hidden fields: ``Ch[l]`` for l = 0 .. L - 1, ``Cg[l]`` for l = 1 .. L.

    ``u[l]`` and ``r[l]`` are the sources f_l u_l and fbar_l r_l of layer l.
    ``Ch[0]`` belongs to the data, which fill it; it is the source of layer 1. Nothing depends on the correlation of
    h_L, so that is made when it is asked for.
    """

    def __init__(self, responses: HiddenResponses, Ch_data: Symmetric, room: Room) -> None:
        self.responses, self.c = responses, responses.c

        def make(layers: range | dict[int, Site]) -> dict[int, Symmetric]:
            return {layer: room.symmetric(self.c.batch) for layer in layers}

        self.Cg = make(responses.layers)
        # Nothing but the size of the readout's gradient depends on that of the last layer.
        needed = responses.layers if self.c.structure.measures_gradients else responses.layers[:-1]
        self.Ch = {0: Ch_data} | make(needed)
        self._cov_a, self._Gamma = make(responses.left), make(responses.right)
        self._S = make(responses.right)  # layers that have a chain below them
        self._Theta = make(responses.left)  # layers that have a chain above them
        self.u = {layer: self._source_from_below(layer) for layer in responses.layers}
        self.r = {layer: self._source_from_above(layer) for layer in responses.layers}
        # All that reaches h_l from below, and g_l from above.
        self._below = self.u | {layer: Source(S) for layer, S in self._S.items()}
        self._above = self.r | {layer: Source(Theta) for layer, Theta in self._Theta.items()}
        sites, below, above = responses.sites, self._below, self._above
        self._fill_Cg = {n: sites[n].correlation_of_g(below[n], above[n], C) for n, C in self.Cg.items()}
        self._fill_Ch = {n: sites[n].correlation_of_h(below[n], above[n], self.Ch[n]) for n in needed}
        self._fill_Gamma = {
            n: responses.right[n].correlation_of_g(self.u[n], above[n], C) for n, C in self._Gamma.items()
        }
        self._fill_cov_a = {
            n: responses.left[n].correlation_of_h(below[n], self.r[n], C) for n, C in self._cov_a.items()
        }

    def backward(self, layer: int, rows: slice) -> None:
        """Rows of C_g^l."""
        if layer in self._Theta:
            fill_sum(self._Theta[layer], self._Gamma[layer + 1], self.r[layer], rows)
        self._fill_Cg[layer].fill(rows)
        if layer in self._fill_Gamma:
            self._fill_Gamma[layer].fill(rows)

    def forward(self, layer: int, rows: slice) -> None:
        """Rows of C_h^l, and of what reaches h_{l+1} from below; of the last layer there is nothing to fill."""
        if layer in self._S:
            fill_sum(self._S[layer], self._cov_a[layer - 1], self.u[layer], rows)
        if layer in self._fill_Ch:
            self._fill_Ch[layer].fill(rows)
        if layer in self._fill_cov_a:
            self._fill_cov_a[layer].fill(rows)

    @cached_property
    def last_Ch(self) -> Array:
        """C_h^L; what has overflowed counts zero."""
        return self.last_Ch_rows(slice(0, self.Ch[0].matrix.shape[-1]))

    def last_Ch_rows(self, rows: slice) -> Array:
        """Rows of C_h^L."""
        layer, e = self.responses.layers[-1], rows.stop
        responses = finite(self.responses.sites[layer].dh.matrix[..., :e, :e])
        C: Array = self.c.xp.zeros_like(responses[0][..., rows, :])
        with computing(responses):
            for F, source in zip(responses, (self._below[layer], self._above[layer]), strict=True):
                if (known := source.correlation) is not None:
                    source = source._replace(correlation=Symmetric(finite(known.matrix[..., :e, :e])))
                # What overflows at a late time must not meet the causal zeros of an early one.
                C = C + rows_times_transpose(finite(source.times(F[..., rows, :])), Causal(F))
        return C

    def sources(self) -> list[Symmetric]:
        """Covariances of what reaches each layer from below."""
        return [self.Ch[layer - 1] for layer in self.responses.layers] + list(self._S.values())

    def _source_from_below(self, layer: int) -> Source:
        """f_l u_l."""
        f, w = self.c.f[layer - 1], self.responses.weights.below(layer)
        return Source(self.Ch[layer - 1], times_or_one(f, f, w.variance), w.d_or_none)  # eq-sources

    def _source_from_above(self, layer: int) -> Source:
        """fbar_l r_l; for the last layer the initial readout, constant in time and independent over outputs."""
        c, weights = self.c, self.responses.weights
        if layer == c.structure.depth:
            return backward_source(c, weights.readout, None)  # eq-sources
        f_bar, rho = c.f_bar[layer - 1], c.rho[layer - 1]
        return backward_source(c, weights.below(layer + 1), self.Cg[layer + 1], times_or_one(f_bar, f_bar, rho))


def kept(shape: Structure) -> int:
    """Count the matrices that the layers keep."""
    hidden = 6 * shape.depth  # two responses of h and of g, C_h, C_g
    hidden -= not shape.measures_gradients  # C_h of the last layer
    # The same but one correlation for either cut chain; S and Theta.
    return hidden + 12 * (shape.depth - 1) if shape.skip else hidden


def products(shape: Structure) -> tuple[int, int]:
    """Count the products with causal, and with symmetric, matrices in one step.

    A layer takes 8 causal products (rows of two responses of h and of g, and their transposes in C_h and C_g) and 4
    with correlations; the last layer, whose C_h is not needed, takes 6 and 1. The two cut chains add 12 and 4.
    """
    causal, symmetric = 8 * shape.depth - 2, 4 * shape.depth - 3
    return (causal + 12 * (shape.depth - 1), symmetric + 4 * (shape.depth - 1)) if shape.skip else (causal, symmetric)


def object_bytes(shape: Structure) -> int:
    """Bytes of the objects that stand for the layers, which count where these are many and steps few."""
    return shape.depth * _LAYER * (1 + 2 * shape.skip)


def kernel_on_g(
    c: Coefficients, w: Weights, R: TwoTime, Ch: TwoTime, rows: slice, initial: Array | None, learned: Array | None
) -> Array:
    """Rows of initial dd o R + learned a o C_h, for a centered network as they act on g~."""
    if c.scale is None:
        return _weight_kernel(w, R, Ch, rows, initial, learned)
    kernel = times_E(c, times(learned, w.learned(Ch[rows], rows)))
    kernel += times(initial, decayed_on_g(c, w, R[rows], rows))
    return kernel


def kernel_on_h(
    c: Coefficients, w: Weights, R: TwoTime, Cg: Symmetric, rows: slice, initial: Array | None, learned: Array | None
) -> Array:
    """Rows of initial dd o R + learned a o C_g."""
    C: TwoTime = Cg if c.scale is None else Cg.given(correlation_rows(c, Cg, rows))
    return _weight_kernel(w, R, C, rows, initial, learned, transposed=True)


def _weight_kernel(
    w: Weights,
    R: TwoTime,
    C: TwoTime,
    rows: slice,
    initial: Array | None,
    learned: Array | None,
    *,
    transposed: bool = False,
) -> Array:
    """Rows of initial dd o R + learned a o C; None stands for 1."""
    fast, e = compiled(R, rows.stop - rows.start), rows.stop
    if fast is not None and compiled(C, 1) is not None and w.X is None and R.matrix.ndim == 3:
        own = times_or_one(initial, w.variance)
        added: Array = fast.sum_of_rows(w.a.matrix, C.matrix, learned, R.matrix, own, w.d_or_none, e)
        return added
    kernel: Array = times(learned, w.learned(C[rows], rows, transposed=transposed))  # eq-kernels
    kernel += times(initial, w.initial(R[rows], rows))
    return kernel
