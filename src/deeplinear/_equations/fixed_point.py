"""Fixed points of a sweep, accelerated: each problem of a batch on its own."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, finite, identity, namespace, to_numpy

_MEMORY = 8
"""Number of earlier sweeps that Anderson's method combines, unless told otherwise."""


def fixed_point(
    sweep: Callable[[Array], Array],
    start: Array,
    *,
    tolerance: float,
    most_sweeps: int,
    ignore: NDArray[np.bool_],
    memory: int = _MEMORY,
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
        )
        return _join(x), np.logical_or(*np.split(moving, 2))
    x = start
    steps: list[Array] = []
    residual_steps: list[Array] = []
    residual = sweep(x) - x
    for _ in range(most_sweeps):
        change = residual - _combine(steps, residual_steps, residual)
        new = x + change
        new_residual = sweep(new) - new
        settled = xp.max(xp.abs(new_residual), axis=1) <= tolerance * xp.max(xp.abs(new), axis=1)
        moving = ~to_numpy(settled)
        steps = [*steps[1 - memory :], change]
        residual_steps = [*residual_steps[1 - memory :], new_residual - residual]
        x, residual = new, new_residual
        if not (moving & ~ignore).any():
            break
    return x, moving


def _split(x: Array) -> Array:
    """Real and imaginary parts as problems of their own, (batch, unknowns) to (2 batch, unknowns)."""
    parts: Array = namespace(x).concat([x.real, x.imag])
    return parts


def _join(parts: Array) -> Array:
    """Undo ``_split``."""
    half = len(parts) // 2
    joined: Array = parts[:half] + 1j * parts[half:]
    return joined


def _combine(steps: list[Array], residual_steps: list[Array], residual: Array) -> Array:
    """Sum over earlier sweeps of c_j (dx_j + df_j), with the c that minimise |f - sum_j c_j df_j|."""
    xp, one = namespace(residual), identity(len(steps), residual)
    if not steps:
        nothing: Array = xp.zeros_like(residual)
        return nothing
    F = xp.stack(residual_steps, axis=1)  # (batch, memory, unknowns)
    scale = xp.linalg.vector_norm(F, axis=-1, keepdims=True)
    scale = xp.where(scale > 0, scale, 1.0)
    F = F / scale
    gram, right = F @ F.mT + 1e-14 * one, F @ residual[..., None]
    good = xp.all(xp.isfinite(gram), axis=(1, 2), keepdims=True)
    coefficients = xp.linalg.solve(xp.where(good, gram, one), xp.where(good, right, 0.0)) / scale
    moves = xp.stack([step + change for step, change in zip(steps, residual_steps, strict=True)], axis=1)
    combined = (coefficients * moves).sum(axis=1)
    return finite(combined)
