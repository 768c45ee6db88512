"""Singular values of a weight matrix in training: the bulk that it began with, and what has left it.

A weight layer, over the root of its fan-in, is W = d W_0 + learned, with W_0 Gaussian. What was learned is of low rank,
sum X(i, j) g(i) h(j)^T, and it is known what W_0 makes of these fields, u = W_0 h and r = W_0^T g, by the products

    <g u> , <u u> , <r r>          from    u = u~ + B g ,   r = r~ + A h

with B and A responses of the layers around it (u~ and r~ are Gaussian, with the correlations of h and g). Outside of
these directions W_0 is a fresh Gaussian matrix. In a basis of g on the left and h on the right, with what the known
parts are outside of them,

    W = ( M' , d R^T )             M' = d <g W_0 h> + learned
        ( d U , d Z  )             Z fresh

s is a singular value beyond the bulk of Z if S(s) has an eigenvalue zero, where

    S(s) = ( -s + d^2 g_right(s) R^T R ,  M'                         )
           ( M'^T                      ,  -s + d^2 g_left(s) U^T U   )

and g_left, g_right are the resolvents of the law of Marchenko and Pastur on either side:
g_left = 1/(s - d^2 v g_right), g_right = 1/(s - d^2 v c g_left) for c rows per column and entries of variance v. For
large s all eigenvalues of S are negative.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_INDEPENDENT = 1e-12
"""Part of the largest eigenvalue of a correlation from which a direction counts as one. Directions that training hardly
takes matter too, and below this correlations are rounding errors: outliers of six problems are within 2e-4 of networks
of D = 10^8 (9e-4 with 1e-10), and of a seventh, whose outlier has just left the bulk, within 2.5e-3. After a
few steps, when no direction is lost, they agree to the scatter of such networks, 1e-5."""

_OUTSIDE = 1e-6
"""How far beyond the bulk, relative to its end, something must be to count."""


class Fields(NamedTuple):
    """What is known of a weight layer at a time. Rows are evaluations and outputs.

    Attributes
    ----------
    C_h, C_g
        Correlations of the fields below and above it, each over its number of neurons.
    B
        Response u = u~ + B g of what the initial weights make of h.
    G
        Response of g to u~, so that r = r~ + A h.
    X
        Coefficients of what was learned, (g0 / sqrt(fan-in)) sum X(i, j) g(i) h(j)^T / sqrt(fan-in).
    d, variance, ratio
        Factor on the initial weights, variance of their entries, and number of rows for each column.
    """

    C_h: Array
    C_g: Array
    B: Array
    G: Array
    X: Array
    d: float
    variance: float
    ratio: float

    @property
    def A(self) -> Array:
        """Response of what the initial weights make of g to h: fields above come back through the same weights."""
        return self.ratio * self.variance * self.G


class Singular(NamedTuple):
    """Spectrum of a weight layer.

    Attributes
    ----------
    edge
        End of the bulk.
    outliers
        Singular values beyond it, largest first.
    left, right
        Of each, coefficients of its singular vectors: of u and g on the left, and of r and h on the right, so that
        vectors of length one are sqrt of the number of neurons times these sums.
    update
        Singular values of what was learned, largest first.
    """

    edge: float
    outliers: Array
    left: list[tuple[Array, Array]]
    right: list[tuple[Array, Array]]
    update: Array


def singular(fields: Fields) -> Singular:
    """Find the singular values of a weight layer beyond its bulk."""
    from scipy.optimize import brentq  # slow to import

    edge = float(abs(fields.d) * np.sqrt(fields.variance) * (1.0 + np.sqrt(fields.ratio)))
    # Weights of any size are looked at in units of their own, of what they were or of what they have learned.
    unit = max(edge, float(np.linalg.norm(_Block(fields).learned, 2)))
    if unit == 0.0:
        return Singular(0.0, np.zeros(0), [], [], np.zeros(0))
    block = _Block(fields._replace(d=fields.d / unit, X=fields.X / unit))
    start = max(edge / unit * (1.0 + _OUTSIDE), 1e-12)
    far = np.linalg.norm(block.inside, 2) + 3.0 * edge / unit + 1.0
    count = int((np.linalg.eigvalsh(block.schur(start)) > 0).sum())
    found, left, right = [], [], []
    for index in range(count):
        value = brentq(lambda s, k=index: np.linalg.eigvalsh(block.schur(s))[-1 - k], start, far)
        found.append(value)
        one, other = block.vectors(value)
        left.append(one)
        right.append(other)
    update = np.linalg.svd(block.learned, compute_uv=False)
    return Singular(edge, unit * np.array(found), left, right, unit * update)


def correlate(fields: Fields) -> tuple[Array, Array, Array]:
    """Return <g u> and <u u> over the rows of a weight layer, and <r r> over its columns."""
    f = fields
    gu_tilde = f.G @ (f.variance * f.C_h)  # <g u~>
    gu = gu_tilde + f.C_g @ f.B.T  # eq-known-images
    uu = f.variance * f.C_h + f.B @ gu_tilde + gu_tilde.T @ f.B.T + f.B @ f.C_g @ f.B.T
    hr_tilde = f.ratio * gu.T - f.C_h @ f.A.T
    rr = f.ratio * f.variance * f.C_g + f.A @ hr_tilde + hr_tilde.T @ f.A.T + f.A @ f.C_h @ f.A.T
    return gu, uu, rr


class _Block:
    """A weight layer in an orthonormal basis of the fields around it."""

    def __init__(self, fields: Fields) -> None:
        f = self._f = fields
        gu, uu, rr = correlate(f)
        self._g, self._h = _basis(f.C_g), _basis(f.C_h)
        root = np.sqrt(f.ratio)
        self._known = root * self._g.T @ gu @ self._h  # of W_0, between the two bases
        self.learned = root * (self._g.T @ f.C_g) @ f.X @ (self._h.T @ f.C_h).T
        self.inside = f.d * self._known + self.learned
        self._U = f.ratio * self._h.T @ uu @ self._h - self._known.T @ self._known
        self._R = self._g.T @ rr @ self._g / f.ratio - self._known @ self._known.T

    def resolvents(self, s: float) -> tuple[float, float]:
        """Return g_left and g_right at a point beyond the bulk."""
        f, d2 = self._f, self._f.d**2 * self._f.variance
        if d2 == 0.0:
            return 1.0 / s, 1.0 / s
        a, b = -s * d2 * f.ratio, s**2 - d2 + d2 * f.ratio
        root = np.sqrt(max(b**2 + 4.0 * a * s, 0.0))
        left = min(((-b + root) / (2.0 * a), (-b - root) / (2.0 * a)), key=abs)
        return float(left), float(1.0 / (s - d2 * f.ratio * left))

    def schur(self, s: float) -> Array:
        """Return S."""
        g_left, g_right = self.resolvents(s)
        d2 = self._f.d**2
        above, below = np.eye(len(self._R)), np.eye(len(self._U))
        return np.block(  # eq-outliers
            [
                [d2 * g_right * self._R - s * above, self.inside],
                [self.inside.T, d2 * g_left * self._U - s * below],
            ]
        )

    def vectors(self, s: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return the coefficients of the left and of the right singular vector, as in ``Singular``."""
        f = self._f
        values, every = np.linalg.eigh(self.schur(s))
        x = every[:, np.abs(values).argmin()]
        step = 1e-6 * s
        slope = -(self.schur(s + step) - self.schur(s - step)) / (2.0 * step)
        x = x * np.sqrt(2.0 / (x @ slope @ x))  # both vectors have length one
        on_g, on_h = x[: len(self._R)], x[len(self._R) :]
        g_left, g_right = self.resolvents(s)
        root = np.sqrt(f.ratio)
        left = (f.d * g_left * root * self._h @ on_h, self._g @ (on_g - f.d * g_left * self._known @ on_h))
        right = (f.d * g_right / root * self._g @ on_g, self._h @ (on_h - f.d * g_right * self._known.T @ on_g))
        return left, right


def _basis(C: Array) -> Array:
    """Return combinations of fields that are orthonormal, as columns, given their correlation."""
    values, vectors = np.linalg.eigh(C)
    kept = values > _INDEPENDENT * max(values[-1], 0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
