"""Weights that take orthogonal steps: what they have learned is a matrix over pairs of rows.

A weight matrix is W = d W(0) + sum X(i, i') g(i) h(i')^T, and its momentum is sum_i m(i) g(i) h(i)^T, diagonal. With
Cg and Ch the correlations of g and h, products of such matrices are products of coefficients, X Ch X'^T Cg X''. So the
iteration of Newton and Schulz,

    Y <- a Y + b (Y Y^T) Y + c (Y Y^T)^2 Y

runs on coefficients. It starts from m over the Frobenius norm, n^2 = sum m(i) Cg(i, i') Ch(i, i') m(i'). With
Y_0 = m / n, Y = Z Y_0 where Z is a polynomial of V_0 = Y_0 Ch Y_0 Cg:

    q = a + b V + c V^2 ,    Z <- Z q ,    V <- V q^2                from Z = 1, V = V_0

All of these commute, so an iteration takes four products, and the last one two. Cg has fewer directions than rows,
often far fewer: Y_0 Cg Y_0 = K K^T with r columns in K. With A = K^T Ch K, which is symmetric,

    V_0^j Y_0 = Y_0 Ch K A^(j-1) K^T ,    so that    Z Y_0 = a^n Y_0 + Y_0 Ch K w(A) K^T    where    Z(x) = a^n + x w(x)

and the iteration runs on the r eigenvalues of A.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf, dsyevd

from deeplinear._core.arrays import Array, identity, namespace
from deeplinear._equations.matrix_averages import MatrixAverage
from deeplinear._rules.averages import Average
from deeplinear._rules.rule import Orthogonal

Real = NDArray[np.float64]

_A, _B, _C = 3.4445, -4.7750, 2.0315
"""The coefficients that are in use."""

_MANY, _MOST = 40, 0.7
"""Rows from which directions are looked for, and part of the rows that they may be: otherwise products of whole
matrices are faster, as measured for 8 to 100 rows."""

_MISSED = 1e-13
"""Squared singular value, of a matrix of norm 1, that may be missed. The iteration takes a singular value s to a^n s,
up to terms of a^(3n) s^3, which is 4e-12 for five iterations."""

_ROUNDING = 4e-16
"""Part of the sum of all directions of Cg that is rounding."""

_FORGOTTEN = 1e-18
"""Momentum, relative to the largest, that counts as forgotten: one iteration amplifies it by a, all of them by 500."""


class MatrixTrack:
    """What has been learned by weights that take orthogonal steps, as a matrix over pairs of rows.

    Parameters
    ----------
    X
        The matrix as the equations read it, still zero, shape (batch, rows, rows); filled in place.
    averages
        Averages over training to be kept.
    """

    def __init__(self, X: Array, averages: Sequence[Average] = ()) -> None:
        xp = namespace(X)
        self._read, self._X, self._velocity, self._mean = X, *(xp.zeros_like(X) for _ in range(3))
        self._momentum = xp.zeros_like(X[..., 0])
        self._end = 0  # of the rows that have been learned from
        self._averages = [MatrixAverage(average, X) for average in averages]

    def begin(self) -> None:
        """Start from the weights that the rule before has come to, without momentum."""
        self._X = self._mean
        self._velocity[...] = 0.0
        self._momentum[...] = 0.0

    def look(self, share: Array | None = None) -> None:
        """Let the weights be read as they are, or with this share (batch, 1) of the way to their mean."""
        X, mean = (each[:, : self._end, : self._end] for each in (self._X, self._mean))
        self._read[:, : self._end, : self._end] = X if share is None else X + share[..., None] * (mean - X)

    def record(self, *, of_mean: bool) -> None:
        """Take the weights of a step, or their mean, into all averages."""
        for average in self._averages:
            average.update(self._mean if of_mean else self._X, self._end)

    def look_at_average(self, number: int) -> None:
        """Let one of the averages be read."""
        self._read[:, : self._end, : self._end] = self._averages[number].mean(self._end)

    def shift(self, rows: slice, by: Array) -> None:
        """Add a multiple (batch, 1) of the gradient of some rows to the weights as they are read."""
        self._diagonal(self._read, rows, by)

    def average(self, part: float) -> None:
        """Take part of the weights into their mean, all of them if it is 1."""
        self._mean = self._X if part == 1 else (1.0 - part) * self._mean + part * self._X

    def step(
        self, rows: slice, rate: Array, momentum: Array, decay: Array, nesterov: bool, scale: Array | float
    ) -> None:
        """Take a plain step along the gradient of some rows; numbers have shape (batch, 1)."""
        self._end = rows.stop
        force = -decay[..., None] * self._X
        self._diagonal(force, rows, scale)
        self._velocity = momentum[..., None] * self._velocity + force
        self._X = self._X + rate[..., None] * (
            momentum[..., None] * self._velocity + force if nesterov else self._velocity
        )

    def orthogonal_step(
        self, rows: slice, rate: Array, momentum: Array, rule: Orthogonal, above: Array, below: Array
    ) -> Array:
        """Take an orthogonal step in place, given the correlations of the fields above and below up to now.

        Returns what is added of the last rows that matter, shape (batch, some of them, some of them).
        """
        self._end = rows.stop
        self._momentum = momentum * self._momentum
        self._momentum[:, rows] += 1.0
        m = self._momentum[:, : rows.stop]
        if rule.nesterov:
            m = momentum * m
            m[:, rows] += 1.0
        start = _first_felt(m)
        felt = slice(start, rows.stop)
        Y = newton_schulz(m[:, felt], above[:, felt, felt], below[:, felt, felt], rule.iterations, rate)
        self._X[:, felt, felt] += Y  # eq-muon-step
        return Y

    def _diagonal(self, X: Array, rows: slice, by: Array | float) -> None:
        """Add a number of each problem to the diagonal of some rows, in place."""
        block = X[:, rows, rows]
        block += (by if isinstance(by, float) else by[..., None]) * identity(rows.stop - rows.start, X)


def newton_schulz(m: Array, above: Array, below: Array, iterations: int, rate: Array) -> Array:
    """Return the coefficients of what the iteration makes of sum m(i) g(i) h(i)^T, times a rate (batch, 1).

    Its shape is (batch, rows, rows).
    """
    # Derivatives lie in other directions.
    if isinstance(m, np.ndarray) and m.shape[-1] >= _MANY and not np.iscomplexobj(above):  # type: ignore[redundant-expr]
        found = [_by_directions(*each, iterations) for each in zip(m, above, below, rate[:, 0], strict=True)]
        if all(each is not None for each in found):
            return found[0][None] if len(found) == 1 else np.stack(found)  # type: ignore[index,arg-type]
    xp = namespace(m)
    square = ((above * below) @ m[..., None] * m[..., None]).sum(axis=-2, keepdims=True)
    none = square == 0  # there is no gradient
    Y0 = m[..., None] / xp.sqrt(xp.where(none, xp.ones_like(square), square))
    Y = _iterated(Y0 * below * Y0.mT @ above, iterations) * (rate[..., None] * Y0.mT)
    coefficients: Array = xp.where(none, xp.zeros_like(Y), Y)
    return coefficients


def _iterated(V: Array, iterations: int) -> Array:
    """Return Z after so many iterations."""
    Z, one = None, identity(V.shape[-1], V)
    for iteration in range(iterations):
        q = _B * V + _C * (V @ V) + _A * one  # eq-muon
        Z = q if Z is None else Z @ q
        if iteration + 1 < iterations:
            V = V @ q @ q
    assert Z is not None
    return Z


def _by_directions(m: Real, above: Real, below: Real, rate: float, iterations: int) -> Real | None:
    """Return rate Z Y_0 of a problem through the directions of Cg; None where these are many, or after a divergence."""
    weighted = above * m
    weighted *= m[:, None]
    square = float(np.vdot(weighted, below))
    if not (square > 0 and math.isfinite(square)):
        return None
    K = _directions(weighted, _MISSED * square / float(below.trace()))
    if K is None:
        return None
    norm = math.sqrt(square)
    HK = below @ K
    values, U, _ = dsyevd(K.T @ HK, overwrite_a=1)
    w, constant = _iterated_part(values / square, iterations)
    left = HK @ (U * (w / square))
    left *= (rate / norm * m)[:, None]
    Y: Real = left @ (K @ U).T
    Y.ravel()[:: len(Y) + 1] += rate * constant / norm * m
    return Y


def _iterated_part(x: Real, iterations: int) -> tuple[Real, float]:
    """Return w with Z = a^n + x w after so many iterations on numbers x, and a^n."""
    w, constant, gain = np.zeros_like(x), 1.0, np.ones_like(x)  # x is gain x by now
    for iteration in range(iterations):
        v = gain * x
        part = _C * v
        part += _B
        q = v * part
        q += _A
        w *= q
        part *= gain
        part *= constant
        w += part
        constant *= _A
        if iteration + 1 < iterations:
            gain *= q
            gain *= q
    return w, constant


def _directions(C: Real, missed: float) -> Real | None:
    """Return K with K K^T = C but for less than ``missed`` of each row, None if it is large; C is overwritten."""
    least = max(missed, _ROUNDING * float(np.trace(C)))
    factor, order, rank, _ = dpstrf(C.T, tol=least, lower=1, overwrite_a=1)
    if not 0 < rank <= _MOST * len(C):
        return None
    factor[:rank, :rank] *= np.tri(rank)
    K = np.empty((len(C), rank))
    K[order - 1] = factor[:, :rank]
    return K


def _first_felt(m: Array) -> int:
    """First row whose momentum still counts for some problem, or whose tiny imaginary part does in a derivative."""
    if bool((abs(m[:, 0]) > _FORGOTTEN * abs(m[:, -1])).all()):
        return 0
    xp = namespace(m)
    parts = [xp.real(m), xp.imag(m)] if xp.isdtype(m.dtype, "complex floating") else [m]
    firsts = []
    for part in parts:
        size = xp.max(abs(part), axis=0)
        felt = size > _FORGOTTEN * xp.max(size)
        firsts += [int(xp.argmax(xp.astype(felt, xp.int64)))] if bool(xp.any(felt)) else []
    return min(firsts)
