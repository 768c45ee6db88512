"""Fixed points of a sweep, accelerated: each problem of a batch on its own."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, finite, namespace, to_numpy, zeros

MEMORY = 8
"""Number of earlier sweeps that Anderson's method combines, unless told otherwise."""

RIDGE = 1e-14
"""Added to the products of residuals of length 1, which may be parallel."""

_ROUNDING = 1e-16
"""Changes that are rounding errors, relative to the largest unknown of this step and of the one before."""

_COMPLEX_STEP = 1e-30
"""Size of the imaginary parts of a complex step beside the real ones: what counts as a rounding error is so much
smaller."""


def fixed_point(
    sweep: Callable[[Array], Array],
    start: Array,
    *,
    tolerance: float,
    most_sweeps: int,
    ignore: NDArray[np.bool_],
    memory: int = MEMORY,
    before: NDArray[np.float64] | None = None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Solve x = sweep(x) by Anderson acceleration.

    The next iterate is the combination of the last ones whose residuals cancel best, which for a
    linear sweep is what GMRES would find. Imaginary parts, the tiny ones of a complex step, are unknowns of
    their own: they must settle too, and combine in their own way.

    Parameters
    ----------
    sweep
        Takes and returns arrays of shape (batch, unknowns).
    start
        First iterate, shape (batch, unknowns).
    tolerance
        A problem has settled once its last change is below this fraction of its largest unknown.
    most_sweeps
        Number of sweeps after which to give up.
    ignore
        Problems that are not waited for, shape (batch,).
    memory
        Number of earlier sweeps that are combined.
    before
        Largest unknown of the step before, shape (batch,), to which all of this step may be a rounding error.

    Returns
    -------
    x, moving
        The last iterate, and which problems had not settled; those that overflow never do.
    """
    xp = namespace(start)
    if xp.isdtype(start.dtype, "complex floating"):
        x, moving = fixed_point(
            lambda parts: _split(sweep(_join(parts))),
            _split(start),
            tolerance=tolerance,
            most_sweeps=most_sweeps,
            ignore=np.tile(ignore, 2),
            memory=memory,
            before=before,
        )
        return _join(x), np.logical_or(*np.split(moving, 2))
    return solve(Accelerated(sweep, start, Past(memory, start)), start, tolerance, most_sweeps, ignore, before)


class AnyPast(Protocol):
    """Earlier sweeps: how much the unknowns moved, and how much the residuals with them."""

    def forget(self) -> None:
        """Begin anew."""
        ...

    def add(self, dx: Array, df: Array, x: Array, residual: Array) -> Array:
        """Remember a sweep in place of the oldest; return the largest unknown and residual, shape (batch, 2)."""
        ...

    def combined(self, residual: Array) -> Array:
        """Sum over earlier sweeps of c_j (dx_j + df_j), with the c that minimise |f - sum_j c_j df_j|."""
        ...


class AnySweeps(Protocol):
    """Accelerated sweeps, which are begun and then go on one by one."""

    @property
    def x(self) -> Array:
        """The last iterate, shape (batch, unknowns)."""
        ...

    def begin(self, start: Array) -> None:
        """Take a first iterate, and sweep it."""
        ...

    def advance(self) -> Array:
        """Sweep once more; return the largest unknown and residual, shape (batch, 2)."""
        ...


def solve(
    sweeps: AnySweeps,
    start: Array,
    tolerance: float,
    most_sweeps: int,
    ignore: NDArray[np.bool_],
    before: NDArray[np.float64] | None = None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Sweep from a first iterate on until nothing moves; arguments and results are those of ``fixed_point``.

    Imaginary parts may follow as problems of their own after the real ones, to which ``before`` belongs.
    """
    sweeps.begin(start)
    for _ in range(most_sweeps):
        largest = to_numpy(sweeps.advance())
        moving = ~(largest[:, 1] <= np.maximum(tolerance * largest[:, 0], _rounding(largest[:, 0], before)))
        if not (moving & ~ignore).any():
            break
    return sweeps.x, moving


def _rounding(largest: NDArray[Any], before: NDArray[np.float64] | None) -> NDArray[Any] | float:
    """Return the changes that are rounding errors of real parts, and of imaginary ones if they follow."""
    if before is None:
        return 0.0
    size = np.maximum(largest[: len(before)], before)
    return np.concatenate([_ROUNDING * size, _ROUNDING * _COMPLEX_STEP * size])[: len(largest)]


class Accelerated:
    """A sweep with what Anderson's method remembers of it, which stays where it is and can be used again.

    Parameters
    ----------
    sweep
        As for ``fixed_point``, of real numbers.
    like
        An array such as the unknowns, shape (batch, unknowns).
    past
        What remembers earlier sweeps.
    """

    def __init__(self, sweep: Callable[[Array], Array], like: Array, past: AnyPast) -> None:
        self._sweep, self._past = sweep, past
        self.x, self._residual = zeros(like.shape, like), zeros(like.shape, like)

    def begin(self, start: Array) -> None:
        """Take a first iterate, and sweep it."""
        self._past.forget()
        self.x[...] = start
        self._residual[...] = self._sweep(self.x) - self.x

    def advance(self) -> Array:
        """Sweep once more; return the largest unknown and residual, shape (batch, 2)."""
        change = self._residual - self._past.combined(self._residual)
        self.x += change
        residual = self._sweep(self.x) - self.x
        largest = self._past.add(change, residual - self._residual, self.x, residual)
        self._residual[...] = residual
        return largest


class Past:
    """Earlier sweeps, of which ``AnyPast`` says what is asked.

    Long vectors stay where they are; their products, a few numbers, are looked at on the processor. A device is waited
    for once a sweep.
    """

    def __init__(self, memory: int, like: Array) -> None:
        batch, unknowns = like.shape
        self._f = zeros((batch, memory, unknowns), like)
        self._moves = zeros((batch, memory, unknowns), like)  # of x + f
        self._gram = np.zeros((batch, memory, memory))
        self._with_residual = np.zeros((batch, memory))
        self._count = 0

    def forget(self) -> None:
        """Begin anew."""
        self._count = 0

    def add(self, dx: Array, df: Array, x: Array, residual: Array) -> Array:
        """Remember a sweep in place of the oldest; return the largest unknown and residual, shape (batch, 2)."""
        xp, memory = namespace(x), self._gram.shape[-1]
        place = self._count % memory
        self._f[:, place], self._moves[:, place] = df, dx + df
        self._count += 1
        vectors = xp.stack([df, x, residual], axis=1)
        products, largest = vectors @ self._f.mT, xp.max(xp.abs(vectors), axis=2, keepdims=True)
        numbers = to_numpy(xp.concat([products, largest], axis=2))
        self._gram[:, place] = self._gram[:, :, place] = numbers[:, 0, :-1]
        self._with_residual = numbers[:, 2, :-1]
        return np.asarray(numbers[:, 1:, -1])

    def combined(self, residual: Array) -> Array:
        """Sum over earlier sweeps of c_j (dx_j + df_j), with the c that minimise |f - sum_j c_j df_j|.

        The products with the residual are known since it was given.
        """
        known = min(self._count, self._gram.shape[-1])
        gram, right = self._gram[:, :known, :known], self._with_residual[:, :known]
        scale = np.sqrt(np.diagonal(gram, axis1=1, axis2=2))
        scale = np.where(scale > 0, scale, 1.0)
        one = np.eye(known)
        gram, right = gram / scale[:, :, None] / scale[:, None] + RIDGE * one, right / scale
        good: Array = np.isfinite(gram.sum(axis=(1, 2)) + right.sum(axis=1))
        gram, right = np.where(good[:, None, None], gram, one), np.where(good[:, None], right, 0.0)
        factors = np.linalg.solve(gram, right[..., None])[..., 0] / scale
        combined: Array = (beside(factors[:, None], self._moves) @ self._moves[:, :known])[:, 0]
        return combined if good.all() else finite(combined)


def _split(x: Array) -> Array:
    """Real and imaginary parts as problems of their own, (batch, unknowns) to (2 batch, unknowns)."""
    parts: Array = namespace(x).concat([x.real, x.imag])
    return parts


def _join(parts: Array) -> Array:
    """Undo ``_split``."""
    half = len(parts) // 2
    joined: Array = parts[:half] + 1j * parts[half:]
    return joined
