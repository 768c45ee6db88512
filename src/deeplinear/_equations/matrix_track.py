"""Weights that take orthogonal steps: what they have learned is a matrix over pairs of rows.

A weight matrix is W = d W(0) + sum X(i, i') g(i) h(i')^T, and its momentum is sum_i m(i) g(i) h(i)^T, diagonal. With
G and H the correlations of g and h, products of such matrices are products of coefficients, X H X'^T G X''. So the
iteration of Newton and Schulz,

    Y <- a Y + b (Y Y^T) Y + c (Y Y^T)^2 Y

runs on coefficients. It starts from m over the Frobenius norm, n^2 = sum m(i) G(i, i') H(i, i') m(i'). Then
Y = D^(1/2) Z D^(1/2), with D = m / n, where Z is a polynomial of V_0 = (D^(1/2) H D^(1/2)) (D^(1/2) G D^(1/2)):

    q = a + b V + c V^2 ,    Z <- Z q ,    V <- V q^2                from Z = 1, V = V_0

All of these commute, so an iteration takes four products, and the last one two. Where training is smooth, V_0 has
few directions: V_0 = Q B, with r columns in Q. Then every polynomial of it is alpha + Q S B with an r x r matrix S,

    (alpha + Q S B) (beta + Q T B) = alpha beta + Q (alpha T + beta S + S B Q T) B

so that the iteration takes products of r x r matrices only.
"""

import numpy as np

from deeplinear._core.arrays import Array, identity, namespace
from deeplinear._equations.products import add_identity
from deeplinear._problem.optimizer import Orthogonal

_A, _B, _C = 3.4445, -4.7750, 2.0315
"""The coefficients that are in use."""

_MANY, _FEWER, _CHECKS, _MISSED = 48, 4, 4, 1e-15
"""Rows from which few directions are looked for, what part of the rows they may be, vectors that check them, and what
of these may be missed, which is rounding."""

_FORGOTTEN = 1e-18
"""Momentum, relative to the largest, that counts as forgotten: one iteration amplifies it by a, all of them by 500."""


class MatrixTrack:
    """What has been learned by weights that take orthogonal steps, as a matrix over pairs of rows.

    Parameters
    ----------
    X
        The matrix as the equations read it, still zero, shape (batch, rows, rows); filled in place.
    """

    def __init__(self, X: Array) -> None:
        xp = namespace(X)
        self._read, self._X, self._velocity, self._mean = X, *(xp.zeros_like(X) for _ in range(3))
        self._momentum = xp.zeros_like(X[..., 0])

    def begin(self) -> None:
        """Start from the weights that the rule before has come to, without momentum."""
        self._X = self._mean
        self._velocity[...] = 0.0
        self._momentum[...] = 0.0

    def look(self, share: Array | None = None) -> None:
        """Let the weights be read as they are, or with this share (batch, 1) of the way to their mean."""
        self._read[...] = self._X if share is None else self._X + share[..., None] * (self._mean - self._X)

    def shift(self, rows: slice, by: Array) -> None:
        """Add a multiple (batch, 1) of the gradient of some rows to the weights as they are read."""
        self._diagonal(self._read, rows, by)

    def average(self, part: float) -> None:
        """Take part of the weights into their mean, all of them if it is 1."""
        self._mean = (1.0 - part) * self._mean + part * self._X

    def step(
        self, rows: slice, rate: Array, momentum: Array, decay: Array, nesterov: bool, scale: Array | float
    ) -> None:
        """Take a plain step along the gradient of some rows; numbers have shape (batch, 1)."""
        force = -decay[..., None] * self._X
        self._diagonal(force, rows, scale)
        self._velocity = momentum[..., None] * self._velocity + force
        self._X = self._X + rate[..., None] * (
            momentum[..., None] * self._velocity + force if nesterov else self._velocity
        )

    def orthogonal_step(
        self, rows: slice, rate: Array, momentum: Array, rule: Orthogonal, above: Array, below: Array
    ) -> None:
        """Take an orthogonal step, given the correlations of the fields above and below up to now."""
        self._momentum = momentum * self._momentum
        self._momentum[:, rows] += 1.0
        m = self._momentum[:, : rows.stop]
        if rule.nesterov:
            m = momentum * m
            m[:, rows] += 1.0
        start = _first_felt(m)
        felt = slice(start, rows.stop)
        Y = newton_schulz(m[:, felt], above[:, felt, felt], below[:, felt, felt], rule.iterations)
        self._X = namespace(Y).asarray(self._X, copy=True)
        self._X[:, felt, felt] += rate[..., None] * Y  # eq-muon-step

    def _diagonal(self, X: Array, rows: slice, by: Array | float) -> None:
        """Add a number of each problem to the diagonal of some rows, in place."""
        block = X[:, rows, rows]
        block += (by if isinstance(by, float) else by[..., None]) * identity(rows.stop - rows.start, X)


def newton_schulz(m: Array, above: Array, below: Array, iterations: int) -> Array:
    """Return the coefficients of what the iteration makes of sum m(i) g(i) h(i)^T, shape (batch, rows, rows)."""
    xp = namespace(m)
    square = ((above * below) @ m[..., None] * m[..., None]).sum(axis=-2, keepdims=True)
    none = square == 0  # there is no gradient
    D = m[..., None] / xp.sqrt(xp.where(none, xp.ones_like(square), square))
    root = xp.sqrt(D)
    above, below = root * above * root.mT, root * below * root.mT
    found = _few_directions(above, below) if isinstance(m, np.ndarray) else None
    if found is None:
        Z = _iterated(below @ above, identity(m.shape[-1], m), iterations)
    else:
        Q, B = found
        M = B @ Q
        # Polynomials of V without their value at 0, as matrices S of Q S B: V is 1, and V^2 is B Q.
        S = _iterated_part(M, iterations)
        Z = Q @ S @ B
        add_identity(Z, slice(0, Z.shape[-1]), _A**iterations)
    Y = root * Z * root.mT
    coefficients: Array = xp.where(none, xp.zeros_like(Y), Y)
    return coefficients


def _iterated(V: Array, one: Array, iterations: int) -> Array:
    """Return Z after so many iterations."""
    Z = None
    for iteration in range(iterations):
        q = _B * V + _C * (V @ V) + _A * one  # eq-muon
        Z = q if Z is None else Z @ q
        if iteration + 1 < iterations:
            V = V @ q @ q
    assert Z is not None
    return Z


def _iterated_part(M: Array, iterations: int) -> Array:
    """Return S of Z = a^n + Q S B after so many iterations, given M = B Q."""

    def times(alpha: float, S: Array, beta: float, T: Array) -> Array:
        product: Array = alpha * T + beta * S + S @ M @ T
        return product

    one = identity(M.shape[-1], M)
    V, constant = one, 1.0
    Z: Array = namespace(M).zeros_like(M)
    for iteration in range(iterations):
        q = _B * V + _C * times(0.0, V, 0.0, V)
        Z, constant = times(constant, Z, _A, q), constant * _A
        if iteration + 1 < iterations:
            V = times(0.0, times(0.0, V, _A, q), _A, q)
    return Z


def _few_directions(above: Array, below: Array) -> tuple[Array, Array] | None:
    """Return Q and B with Q B = below above to rounding, if there are few enough directions for it to pay."""
    size = above.shape[-1]
    if size < _MANY or np.iscomplexobj(above):  # derivatives lie in other directions
        return None
    count = size // _FEWER
    probes = np.random.default_rng(0).standard_normal((size, count + _CHECKS))
    images = below @ (above @ probes)
    Q = np.linalg.qr(images[..., :count])[0]
    B = (Q.mT @ below) @ above
    checked = images[..., count:]
    missed = np.linalg.norm(checked - Q @ (B @ probes[:, count:]), axis=(-2, -1))
    return (Q, B) if (missed <= _MISSED * np.linalg.norm(checked, axis=(-2, -1))).all() else None


def _first_felt(m: Array) -> int:
    """First row whose momentum still counts for some problem, or whose tiny imaginary part does in a derivative."""
    xp = namespace(m)
    parts = [xp.real(m), xp.imag(m)] if xp.isdtype(m.dtype, "complex floating") else [m]
    firsts = []
    for part in parts:
        size = xp.max(abs(part), axis=0)
        felt = size > _FORGOTTEN * xp.max(size)
        firsts += [int(xp.argmax(xp.astype(felt, xp.int64)))] if bool(xp.any(felt)) else []
    return min(firsts)
