"""Decays of a power-law spectrum, and what a source leaves behind that decays so.

Modes of rate l in (0, 1] that carry b l^(b-1) dl of the loss decay together as

    M(b, x) = int_0^1 b l^(b-1) e^(-l x) dl = b x^-b gamma(b, x) ,      M(b, 0) = 1 ,

with the lower incomplete gamma function: 1 - b x / (b + 1) at first, Gamma(b + 1) x^-b in the end. A source h(x')
leaves

    R(q, x) = int_0^x M(q, x - x') h(x') dx' ,

the noise term of a lazy network, which is a Volterra equation if h is the loss itself. Both are sums over modes, whose
rates e^-u lie on Gauss-Legendre panels of u, the same for every exponent: to 1e-6 for x up to 1e6 and exponents of 0.1
and more. In a stretch in which h is constant each mode is followed exactly.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_END, _WIDTH, _POINTS = 26.0, 2.0, 8
"""Range of u, width of its panels, and points in each."""


def _panels() -> tuple[Array, Array]:
    """Nodes and weights on 0 to _END."""
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    starts = np.arange(0.0, _END, _WIDTH)
    return (starts[:, None] + 0.5 * _WIDTH * (1.0 + nodes)).ravel(), np.tile(0.5 * _WIDTH * weights, len(starts))


_NODES, _MEASURE = _panels()

RATES: Array = np.append(np.exp(-_NODES), np.exp(-_END))
"""Rates of the modes, shape (modes,); the last one stands for all that are slower."""


def power_decay(exponent: float, x: Array) -> Array:
    """Return M(b, x) in closed form.

    Examples
    --------
    >>> power_decay(1.0, np.array([0.0, 1.0, 1e3])).round(4)
    array([1.    , 0.6321, 0.001 ])
    """
    from scipy.special import gamma, gammainc  # slow to import

    x = np.asarray(x, float)
    safe = np.where(x > 0, x, 1.0)
    return np.where(x > 0, gamma(exponent + 1.0) * safe**-exponent * gammainc(exponent, safe), 1.0)


def mode_weights(exponent: float) -> tuple[Array, Array]:
    """Return what each mode carries, M(b, x) = sum_i w_i e^(-RATES_i x), and its derivative with respect to b."""
    carried = np.exp(-exponent * _NODES) * _MEASURE
    slower = np.exp(-exponent * _END)
    weights = np.append(exponent * carried, slower)
    slopes = np.append((1.0 - exponent * _NODES) * carried, -_END * slower)
    return weights, slopes


def left_behind(widths: Array, sources: Array, *tangents: tuple[Array, Array]) -> list[Array]:
    """Return int_0^x e^(-l (x - x')) h(x') dx' of every mode at the end of each stretch, and its derivatives.

    Parameters
    ----------
    widths, sources
        Length of each stretch in x, and h in it, shape (stretches, ...).
    tangents
        Pairs of derivatives of these with respect to something.

    Returns
    -------
    list of numpy.ndarray
        The integral, and its derivative for each pair, shape (stretches, ..., modes); times ``mode_weights(q)[0]`` it
        is R(q, x).

    Examples
    --------
    >>> (left_behind(np.array([1.0, 2.0]), np.array([1.0, 1.0]))[0] @ mode_weights(1.5)[0]).round(4)
    array([0.7595, 1.487 ])
    """
    x = widths[..., None] * RATES
    kept, reached = np.exp(-x), -np.expm1(-x) / RATES
    states = [sources[..., None] * reached]
    states += [change[..., None] * reached + (sources * wider)[..., None] * kept for wider, change in tangents]
    decays = [-wider[..., None] * RATES * kept for wider, _ in tangents]
    for index in range(1, len(x)):
        for state in states:
            state[index] += kept[index] * state[index - 1]
        for state, decay in zip(states[1:], decays, strict=True):
            state[index] += decay[index] * states[0][index - 1]
    return states
