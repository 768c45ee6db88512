"""Fewer modes for the same answer: Gauss quadrature over a spectrum.

The equations meet the modes only in the sums

    sum_k p_k lam_k^j F(lam_k) ,     sum_k p_k lam_k^j w_k^2 F(lam_k) ,      j = 1, 2

where F is what training makes of a mode: a smooth function of its eigenvalue such as exp(-s lam) or
(1 - c lam)^t, or one that oscillates for a while where there is momentum. In each decade of eigenvalues the modes are
replaced by the nodes of a Gauss rule, which keeps these sums for all polynomials of some degree in
x = log(1 + lam / floor). Far above the floor that is a polynomial in log lam, as suits a spectrum over many decades;
below it in lam, so that eigenvalues may go to zero.

Both sums share their nodes. Take the vectors sqrt(p lam) and sqrt(p lam) w over the modes of a decade, and
the space V that they and their products with powers of x span. The eigenvalues of x restricted to V are
the nodes, and the squared overlaps of its eigenvectors with the two vectors their weights (block Gauss
quadrature). So weights are never negative, however rough the target is, and with several outputs, where
w is a vector, target powers are positive semidefinite.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import usual_arithmetic
from deeplinear._core.threads import one_blas_thread
from deeplinear._problem.data import Modes

Array = NDArray[np.float64]

HORIZON = 1e12
"""Smoothness assumed of F: s lam_max up to this. Eigenvalues further below lam_max count as hardly learned. Shorter
training tells fewer modes apart."""

MOST_OF_A_STEP = 100.0
"""What a step adds to the time of the fastest mode at most, without momentum: 2 where training is stable for good."""

_DECAYED = 1e-3
"""Errors are relative to a sum until it has decayed by this factor, then to this fraction of its first value."""

_TINY = 1e-18
"""Nodes whose weights are this small beside the largest are left out."""

_FADED = 46.0
"""Time constants of momentum after which oscillations are as good as gone: their amplitude is exp(-23), 1e-10."""

_PARTS_OF_EDGE = (0.1, 0.3, 0.6, 0.97)
"""Rates with momentum, in units of the largest stable one of the fastest mode."""

_CHUNK = 20_000


class Uncountable(ValueError):
    """Modes whose sums are larger than any number."""


class _Part(NamedTuple):
    """Some of the modes, scaled to a largest eigenvalue of 1; ``signal`` is p lam, ``target`` p lam times the Gram."""

    lam: Array
    signal: Array
    target: Array


class _Training(NamedTuple):
    """How far training gets, in units of the slowness of the fastest mode, and its momentum."""

    horizon: float
    momentum: float


@usual_arithmetic
def compress(modes: Modes, tolerance: float, horizon: float = HORIZON, momentum: float = 0.0) -> Modes:
    """Return fewer modes that give the same sums, up to ``tolerance``; modes of eigenvalue zero are dropped.

    The error is measured, not estimated: the sums are compared for F = exp(-s lam) with s lam_max up to
    ``horizon`` and F = (1 - c lam)^t with c lam_max up to 1.9, and for the oscillations that momentum makes, decade by
    decade. The order of each rule is the lowest at which the differences, added up over the decades, stay within the
    tolerance.

    Examples
    --------
    >>> k = np.arange(1.0, 2001.0)
    >>> modes = Modes(k**-1.5, (k**-0.25)[:, None, None], np.ones(2000))
    >>> fewer = compress(modes, 1e-6)
    >>> len(fewer.eigenvalues) < 60
    True
    >>> for each in (modes, fewer):
    ...     signal = each.weight * each.eigenvalues * each.target[:, 0, 0]
    ...     print(f"{(signal * np.exp(-1000 * each.eigenvalues)).sum():.6f}")
    0.032926
    0.032926
    """
    top = modes.eigenvalues.max()
    if not top > 0:
        return modes
    with np.errstate(over="ignore", invalid="ignore"):
        return _compressed(modes, float(top), tolerance, _Training(horizon, momentum))


def _compressed(modes: Modes, top: float, tolerance: float, training: _Training) -> Modes:
    whole, horizon = _merged(modes, top), training.horizon
    decades = math.ceil(math.log10(horizon))
    x = _coordinate(whole.lam, horizon)
    index = np.minimum((decades * (1 - x / x.max())).astype(int), decades - 1)
    parts = [_Part(*(values[index == i] for values in whole)) for i in np.unique(index)]
    sums = [_sums(part, training) for part in parts]
    total = np.abs(sum(sums))
    if not np.isfinite(total).all():
        raise Uncountable("the spectrum cannot be compressed: a sum over its modes overflows")
    allowed = tolerance / len(parts) * np.maximum(total, _DECAYED * total[0])
    with one_blas_thread():  # products this thin gain nothing from more
        rules = [_rule(part, exact, allowed, training) for part, exact in zip(parts, sums, strict=True)]
    lam, signal, target = (np.concatenate(values) for values in zip(*rules, strict=True))
    return Modes(top * lam, target / signal[:, None, None], signal / lam, reach=horizon / top)


def _merged(modes: Modes, top: float) -> _Part:
    """Join modes of equal eigenvalue and leave out those of eigenvalue zero."""
    lam, index = np.unique(modes.eigenvalues / top, return_inverse=True)
    signal = modes.weight * modes.eigenvalues / top
    summed = np.zeros(len(lam))
    np.add.at(summed, index, signal)
    target = np.zeros((len(lam), *modes.target.shape[1:]))
    np.add.at(target, index, signal[:, None, None] * modes.target)
    learned = summed > 0
    return _Part(lam[learned], summed[learned], target[learned])


def _coordinate(lam: Array, horizon: float) -> Array:
    coordinate: Array = np.log1p(horizon * lam)
    return coordinate


def _rule(part: _Part, exact: Array, allowed: Array, training: _Training) -> _Part:
    """Return the Gauss rule of lowest order within the allowed error, or the part itself if that has no more nodes.

    High orders, which oscillations need, are tried in steps of a sixteenth.
    """
    start, horizon = _start(part), training.horizon
    x = np.repeat(_coordinate(part.lam, horizon), len(start) // len(part.lam))
    size, order = 16, 1
    while True:
        basis = _krylov(x, start, min(size, len(part.lam)))
        restricted, overlap = (basis * x) @ basis.T, basis @ start
        while order < min(len(basis) + 1, len(part.lam)):
            values, signal, target = _nodes(restricted[:order, :order], overlap[:order])
            rule = _Part(np.expm1(np.clip(values, x.min(), x.max())) / horizon, signal, target)
            if (np.abs(_sums(rule, training) - exact) <= allowed).all():
                return rule
            order += 1 + order // 16
        if len(basis) < size:
            return part
        size *= 2


def _start(part: _Part) -> Array:
    """Columns sqrt(p lam) and sqrt(p lam) w; a Gram matrix of several outputs takes as many rows as outputs.

    The rows r of a mode satisfy sum r r^T = p lam [[1, .], [., Gram]].
    """
    outputs = part.target.shape[1]
    values, vectors = np.linalg.eigh(part.target)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # (modes, outputs, roots)
    ones = np.repeat(np.sqrt(part.signal / outputs), outputs)
    return np.column_stack([ones, np.swapaxes(roots, 1, 2).reshape(-1, outputs)])


def _krylov(x: Array, start: Array, size: int) -> Array:
    """Orthonormal rows that span the columns of ``start`` and their products with powers of x, lowest powers first."""
    centre, half = (x.max() + x.min()) / 2, (np.ptp(x) or 1.0) / 2
    candidates = [column / norm for column in start.T if (norm := np.linalg.norm(column)) > 0]
    basis = np.empty((size, len(x)))
    count = 0
    while candidates and count < size:
        vector = candidates.pop(0)
        for _ in range(2):  # once more, for what rounding left
            vector = vector - basis[:count].T @ (basis[:count] @ vector)
        norm = np.linalg.norm(vector)
        if norm > 1e-12:
            basis[count] = vector / norm
            candidates.append((x - centre) / half * basis[count])
            count += 1
    return basis[:count]


def _nodes(x: Array, overlap: Array) -> tuple[Array, Array, Array]:
    """Nodes and weights from the matrix of x on a Krylov space, and from the overlaps of its basis with the start."""
    values, vectors = np.linalg.eigh(x)
    root = vectors.T @ overlap
    signal, target = root[:, 0] ** 2, root[:, 1:, None] * root[:, None, 1:]
    power = np.trace(target, axis1=1, axis2=2)
    kept = (signal > _TINY * signal.max()) | (power > _TINY * power.max())
    return values[kept], np.maximum(signal, _TINY * signal.max())[kept], target[kept]


def _sums(part: _Part, training: _Training) -> Array:
    """The sums over modes for every trial function F, j = 1 and 2, signal and target: shape (functions, 4)."""
    power = np.trace(part.target, axis1=1, axis2=2)
    measures = np.stack([part.signal, part.signal * part.lam, power, power * part.lam], axis=1)
    chunks = range(0, len(part.lam), _CHUNK)
    sums: Array = sum(_trial_functions(part.lam[i : i + _CHUNK], training) @ measures[i : i + _CHUNK] for i in chunks)
    return sums


def _trial_functions(lam: Array, training: _Training) -> Array:
    """What training may make of a mode, the first being 1: shape (functions, modes)."""
    decay = np.concatenate([[0.0], np.logspace(-2, math.log10(training.horizon), 81)])
    steps = np.unique(np.round(np.logspace(0, 3, 25)))
    with np.errstate(under="ignore"):
        powers = [(1 - rate * lam) ** steps[:, None] for rate in (1.0, 1.5, 1.9)]
        return np.concatenate([np.exp(-np.outer(decay, lam)), *powers, *_oscillations(lam, training)])


def _oscillations(lam: Array, training: _Training) -> list[Array]:
    """What momentum mu adds at some rates, each of shape (powers, modes).

    An error is a sum of powers of the roots of z^2 - (1 + mu - c lam) z + mu, whose size is sqrt(mu) where they are
    complex. Losses are squares of errors, so powers go up to twice the number of steps.
    """
    mu = training.momentum
    if mu == 0.0:
        return []
    last = min(_FADED / (1.0 - mu), 2.0 * training.horizon * (1.0 - mu) / MOST_OF_A_STEP)
    powers = np.unique(np.round(np.geomspace(1.0, max(last, 1.0), 50)))[:, None]
    found = []
    for part in _PARTS_OF_EDGE:
        mean = (1.0 + mu) * (0.5 - part * lam)
        root = np.sqrt(mean**2 - mu + 0j)
        found.append((((mean + root) ** powers + (mean - root) ** powers) / 2.0).real)
    return found
