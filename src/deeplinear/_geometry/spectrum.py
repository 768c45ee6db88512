"""What the iteration of Lanczos says of a spectrum: points that stand alone, and the ends of what is continuous.

The eigenvalues of the m x m matrix, the Ritz values, approach the ends of the spectrum from inside. One that stands
alone is found to rounding after some steps. At the end b of a continuous part, where the density falls as a root, the
largest Ritz value is

    theta(m) = b - c / (m + delta)^2

with any c and delta, and three sizes of the matrix give b. One size has two more laws for what is left beyond its
largest Ritz value: a third of the distance to the next one, and pi / sqrt(2 m) of its residual.

The upper end is seen well from a gradient, and extrapolates well. The lower one often does not: eigenvalues below zero
have little weight, and a point of large weight at zero may hide them until there are many directions. There the laws
are asked to agree, and where they do not, the residual says how much may be left.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._geometry.operators import Tridiagonal

Array = NDArray[np.float64]

_ALONE = 0.02
"""A Ritz value stands alone if its residual is less than this part of the distance to the next one."""

_FEW = 8
"""Steps below which nothing is extrapolated, and nothing is known of what lies beyond the Ritz values."""

_TIMES, _PART = 2.0, 0.05
"""Error of an end that is extrapolated: so many times what several extrapolations scatter, or differ by from the laws
for one size, and no less than this part of what they add to the largest Ritz value. Set on 200 spectra of random
problems, a third of them with two outputs and a third trained by SAM, and tested on others."""

_SETTLED = 0.1
"""A lower end is extrapolated if it is a third of a distance beyond the Ritz values, to this part of the distance."""

_FIRST, _FEWEST, _TWICE, _MOST = 6.0, 8.0, 2.0, 2.0
"""Error of a lower end that is not: the first over the steps in residuals, or the square of the second over the steps,
and so many times what the laws for one size differ by, but at most so many residuals. They were set on the same
spectra."""


class Ritz(NamedTuple):
    """Ritz values in falling order, their weights as seen from the gradient, and their residuals, each (m,).

    A residual is how far the nearest eigenvalue can be.
    """

    values: Array
    weights: Array
    residuals: Array


class End(NamedTuple):
    """The upper end of a spectrum.

    Attributes
    ----------
    value, error
        The largest eigenvalue, and how much it may be off.
    edge, edge_error
        The end of the continuous part, likewise; nan if all that is known stands alone.
    outliers
        Eigenvalues beyond it that stand alone, from the end inwards.
    """

    value: float
    error: float
    edge: float
    edge_error: float
    outliers: tuple[float, ...]


def ritz(matrix: Tridiagonal) -> Ritz:
    """Return Ritz values, weights and residuals.

    Examples
    --------
    >>> found = ritz(Tridiagonal(np.array([1.0, 1.0]), np.array([1.0, 0.5])))
    >>> print(found.values, found.weights.round(2), found.residuals.round(3))
    [2. 0.] [0.5 0.5] [0.354 0.354]
    """
    from scipy.linalg import eigh_tridiagonal  # slow to import

    values, vectors = eigh_tridiagonal(matrix.diagonal, matrix.beside[:-1])
    down = slice(None, None, -1)
    return Ritz(values[down], (vectors[0] ** 2)[down], np.abs(matrix.beside[-1] * vectors[-1])[down])


def end(matrix: Tridiagonal) -> End:
    """Return the upper end of the spectrum.

    Examples
    --------
    The matrix of the semicircle, which goes from -2 to 2:

    >>> found = end(Tridiagonal(np.zeros(16), np.ones(16)))
    >>> print(found.outliers, abs(found.edge - 2) < 1e-3)
    () True
    """
    values, _, residuals = ritz(matrix)
    alone, count = [], len(values)
    for j in range(count):
        gap = values[j] - values[j + 1] if j + 1 < count else np.inf
        if residuals[j] > _ALONE * gap:
            break
        alone.append((float(values[j]), float(residuals[j] ** 2 / gap)))
    edge, error = (np.nan, np.nan) if len(alone) == count else _edge(matrix, len(alone))
    value, off = alone[0] if alone else (edge, error)
    return End(value, off, edge, error, tuple(value for value, _ in alone))


def lowest(matrix: Tridiagonal) -> tuple[float, float]:
    """Return the lowest eigenvalue, and how much it may be off.

    Examples
    --------
    The semicircle again:

    >>> value, error = lowest(Tridiagonal(np.zeros(16), np.ones(16)))
    >>> print(abs(value + 2) < error < 0.002)
    True
    """
    from_above = Tridiagonal(-matrix.diagonal, matrix.beside)
    values, _, residuals = ritz(from_above)
    count, last, residual = len(values), float(values[0]), float(residuals[0])
    if count < _FEW and residual > 0.0:
        return -last, np.inf  # a bound from above
    by_residual = np.pi / np.sqrt(2.0 * count) * residual
    found = end(from_above)
    if found.outliers:
        return -last, by_residual + _MOST * residual
    gap = float(values[0] - values[1])
    error = max(found.error, abs(found.value - (last + gap / 3.0)))
    if error <= _SETTLED * gap:
        return -found.value, error
    part = max(_FIRST / count, (_FEWEST / count) ** 2)
    error = part * residual + _TWICE * abs(by_residual - gap / 3.0)  # eq-lowest-error
    return -(last + by_residual), min(error, _MOST * residual)


def _edge(matrix: Tridiagonal, skipped: int) -> tuple[float, float]:
    """Return the end of the continuous part inside of some points that stand alone, and its error."""
    from scipy.linalg import eigvalsh_tridiagonal  # slow to import

    count = len(matrix.diagonal)

    def largest(size: int, number: int = skipped) -> float:
        inside = eigvalsh_tridiagonal(
            matrix.diagonal[:size], matrix.beside[: size - 1], select="i", select_range=(size - 1 - number,) * 2
        )
        return float(inside[0])

    last = largest(count)
    if count < _FEW + 2 * skipped:
        return last, np.inf  # a bound from below
    # What is left beyond the last value is a guess; several of them tell how good it is.
    found = np.array(
        [
            _extrapolated([(size, largest(size)) for size in (n // 2, 3 * n // 4, n)])
            for n in range(count, count - 5, -1)
        ]
    )
    if not np.isfinite(found).all():
        return last, _TIMES * float(ritz(matrix).residuals[skipped])
    added = found[0] - last
    # Ritz values of one size lie as b - theta_j = c j^2.
    laws = [(last - largest(count, skipped + other)) / ((other + 1) ** 2 - 1) for other in (1, 2)]
    scatter = max(np.ptp(found), *(abs(added - law) for law in laws))
    return float(found[0]), float(max(_TIMES * scatter, _PART * added))


def _extrapolated(points: list[tuple[int, float]]) -> float:
    """Return b of b - c / (m + delta)^2 through three points; nan if they do not lie so."""
    from scipy.optimize import brentq  # slow to import

    (k1, t1), (k2, t2), (k3, t3) = points

    def bent(delta: float) -> float:
        one, two, three = ((k + delta) ** -2 for k in (k1, k2, k3))
        return (t3 - t2) * (one - two) - (t2 - t1) * (two - three)

    low, high = 0.5 - k1, 20.0 * k3
    if not (t1 < t2 < t3) or bent(low) * bent(high) > 0:
        return np.nan
    delta = brentq(bent, low, high)
    rest = (t3 - t2) / ((k2 + delta) ** -2 - (k3 + delta) ** -2) / (k3 + delta) ** 2
    return float(t3 + rest)
