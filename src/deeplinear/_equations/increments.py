"""How the backward fields of a centered network are held: by their initial value and what has been added since.

Of the initial function a centered network feels r0(t) - r0(0) only, which is made of g(t) - g(0). That is of the order
of the richness, and is divided by it, so that it must not be formed as a difference. In place of g stands

    g~ = (g(0), (g(1) - g(0)) / scale, (g(2) - g(0)) / scale, ...) ,     g = E g~ ,   E = 1 e_0^T + scale P

with scale the richness and P the projector onto all times but the first. Sources r become r~ likewise. As B is strictly
lower triangular and of the order of gamma0, all equations keep their form:

    h = u + (A E) g~ ,      g~ = r~ + (gamma0 / scale) Bhat h              a site with gamma0 / scale for gamma0
    C_g = E C_g~ E^T ,      R_hr = R_hr~ E^-1 ,      R_gu~ = R_gu / scale

and every number in them has a limit of zero richness. An initial weight that has decayed to d(t) W acts on g~ by
E^-1 diag(d) E = F = diag(d) + (d - 1) / scale e_0^T (1 if weights do not decay), so that

    A_l E = diag(d) R_hr~ F + gamma0 (a o C_h) E ,        <r~_l r~_l> = rho_l F C_g~ F^T ,     r~_L = F e_0 r_L(0)
    (r0(t) - r0(0)) / scale = P F g~                      what layer 0 feels, with R_hr^0 P F for R_hr^0 S E / scale

With several outputs, time 0 is the first row of each of them. Without centering everything is left as it is.
"""

from deeplinear._core.arrays import Array
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.products import over_time, times, times_or_one
from deeplinear._equations.source import Source
from deeplinear._equations.two_time import Symmetric
from deeplinear._equations.weights import Weights


def times_E(c: Coefficients, x: Array) -> Array:
    """Rows (batch, ..., e) that act on g, as they act on g~."""
    if c.scale is None:
        return x
    outputs = c.structure.outputs
    y: Array = _spread(c.scale, x) * x
    y[..., :outputs] = over_time(x, outputs)
    return y


def times_inverse_of_E(c: Coefficients, x: Array) -> Array:
    """Rows (batch, ..., e) that act on g~, as they act on g; too small a scale makes them infinite."""
    if c.scale is None:
        return x
    outputs, scale = c.structure.outputs, _spread(c.scale, x)
    y: Array = x / scale
    y[..., :outputs] = x[..., :outputs] - over_time(x[..., outputs:], outputs) / scale
    return y


def correlation_rows(c: Coefficients, C: Symmetric, rows: slice) -> Array:
    """Rows of C_g = E C_g~ E^T up to their own time, given C_g~."""
    e, outputs = rows.stop, c.structure.outputs
    own: Array = C[rows]
    if c.scale is None:
        return own
    scale, initial = _spread(c.scale, own), C.matrix[..., :outputs, :e]
    if rows.start > 0:
        own = scale * own + _over_rows(initial, own.shape[-2], c)
    else:  # the initial rows, which come first, are what they are
        own = c.xp.asarray(own, copy=True)
        own[..., outputs:, :] = scale * own[..., outputs:, :] + _over_rows(initial, e - outputs, c)
    restored = scale * own
    restored += c.xp.tile(own[..., :outputs], (e // outputs,)) if outputs > 1 else own[..., :1]
    restored[..., :outputs] = own[..., :outputs]
    return restored


def backward_source(
    c: Coefficients, w: Weights, correlation: Symmetric | None, factor: Array | None = None, nodes: bool = False
) -> Source:
    """What initial weights make of g, or the initial readout; with ``nodes`` there is an axis of them."""
    d, factor = w.d_or_none, times_or_one(factor, w.variance)
    if nodes:
        d, factor = (None if x is None else x[:, None] for x in (d, factor))
    return Source(correlation, factor, d, c.structure.outputs, c.scale, w.lost)


def decayed_on_g(c: Coefficients, w: Weights, x: Array, rows: slice) -> Array:
    """Rows of variance diag(d) x F, given those of x, which act on g~; diag(d) stands for F if not centered."""
    variance = None if w.variance is None else _spread(w.variance, x)
    if not w.decays:
        return times(variance, x)
    d = w.d[:, rows].reshape(len(x), *[1] * (x.ndim - 3), -1, 1)
    return times(variance, d * backward_source(c, w, None, nodes=x.ndim > 3).on(x))


def without_initial(c: Coefficients, x: Array) -> Array:
    """Rows x P: nothing at the initial time."""
    y: Array = c.xp.asarray(x, copy=True)
    y[..., : c.structure.outputs] = 0.0
    return y


def _spread(factor: Array, x: Array) -> Array:
    """Return a number of each problem (batch, 1, 1) with as many axes as another array."""
    spread: Array = factor.reshape(-1, *[1] * (x.ndim - 1))
    return spread


def _over_rows(initial: Array, count: int, c: Coefficients) -> Array:
    """Repeat the initial rows, one for each output, so as to have ``count`` rows."""
    outputs = c.structure.outputs
    repeated: Array = initial if outputs == 1 else c.xp.tile(initial, (count // outputs, 1))
    return repeated
