"""Orthogonal steps: what weights have learned that take them is a matrix over pairs of rows.

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

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, identity, namespace

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
    from scipy.linalg.lapack import dsyevd  # slow to import

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
    from scipy.linalg.lapack import dpstrf  # slow to import

    least = max(missed, _ROUNDING * float(np.trace(C)))
    factor, order, rank, _ = dpstrf(C.T, tol=least, lower=1, overwrite_a=1)
    if not 0 < rank <= _MOST * len(C):
        return None
    factor[:rank, :rank] *= np.tri(rank)
    K = np.empty((len(C), rank))
    K[order - 1] = factor[:, :rank]
    return K


def first_felt(m: Array) -> int:
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
