"""Power laws: lam_k = k^-capacity and w_k^2 lam_k = k^(-capacity source - 1) for k = 1, 2, ..."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.data import Modes
from deeplinear._problem.quadrature import HORIZON, compress

Array = NDArray[np.float64]

TOLERANCE = 1e-7
"""Error of the sums over infinitely many modes, relative: see ``compress``."""

_EXPLICIT = 10_000
"""Modes taken one by one before sums become integrals, which then differ by about 1 / (24 k^2)."""

_SLOW = 1e-7
"""Eigenvalues below this, over the horizon, are not told apart."""


def power_law(capacity: float, source: float, k: Array, weight: Array | None = None) -> Modes:
    """Return the modes numbered ``k``, each counted ``weight`` times (once by default)."""
    power = k ** (capacity - capacity * source - 1)
    return Modes(k**-capacity, power[:, None, None], np.ones(len(k)) if weight is None else weight)


@lru_cache(maxsize=64)
def infinite_power_law(capacity: float, source: float, horizon: float = HORIZON, momentum: float = 0.0) -> Modes:
    """Return a few dozen modes whose sums are those over k = 1, 2, ... to infinity, for training up to a horizon.

    The first modes are taken as they are; then sums over k are integrals over log k, by Gauss-Legendre panels;
    what has an eigenvalue next to zero is one mode, with sums from the zeta function. All that is compressed.

    Examples
    --------
    >>> modes = infinite_power_law(1.5, 0.5)
    >>> from scipy.special import zeta
    >>> f"{(modes.weight * modes.eigenvalues).sum():.9f}, {zeta(1.5):.9f}"
    '2.612375349, 2.612375349'
    """
    from scipy.special import zeta  # slow to import

    last = np.floor((_SLOW / horizon) ** (-1 / capacity))
    explicit = np.arange(1.0, min(last, _EXPLICIT) + 1)
    k, weight = _panels(explicit[-1] + 0.5, last + 0.5)
    near = power_law(capacity, source, np.append(explicit, k), np.append(np.ones(len(explicit)), weight))
    signal, target = zeta(capacity, last + 1), zeta(capacity * source + 1, last + 1)
    slow = (last + 1) ** -capacity
    far = Modes(np.array([slow]), np.full((1, 1, 1), target / signal), np.array([signal / slow]))
    lam, power, count = (
        np.concatenate([getattr(near, name), getattr(far, name)]) for name in ("eigenvalues", "target", "weight")
    )
    return compress(Modes(lam, power, count), TOLERANCE, horizon, momentum)


def _panels(first: float, last: float) -> tuple[Array, Array]:
    """Nodes k and weights of an integral over k, from first to last (none if they are equal)."""
    edges = np.linspace(np.log(first), np.log(last), int(np.ceil(np.log(last / first))) + 1)
    node, weight = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    k = np.exp(edges[:-1, None] + half * (1 + node)).ravel()
    return k, k * (half * weight).ravel()
