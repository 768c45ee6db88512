"""The peer: the same equations for an MLP and a full batch, by damped fixed-point iteration of whole matrices.

This is how code that accompanies papers of the field usually solves such equations: all T x T matrices start from a
guess and are updated together from the previous ones, until they stand still. Causality is not used to order the work,
only to make every inverse a triangular one. Written to be fast as such: one inverse and no more products than needed in
each layer, and layers as one stack.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import deeplinear as dl

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FixedPoint:
    """Where the iteration ended: ``test_loss`` is None if it did not converge."""

    iterations: int
    test_loss: Array | None
    reason: str = ""


def fixed_point(problem: dl.Problem, damping: float, tolerance: float = 1e-9, most: int = 300) -> FixedPoint:
    """Iterate until no matrix changes by more than ``tolerance`` of its largest entry.

    Parameters
    ----------
    problem
        An MLP of one finite width, isotropic data with one output, full batch, a constant learning rate.
    damping
        Share of the previous iterate that is kept, from 0 up to but not including 1.
    tolerance, most
        When to stop, and when to give up.
    """
    state = _guess(problem)
    with np.errstate(over="ignore", invalid="ignore"):
        for iteration in range(1, most + 1):
            update = _update(problem, state)
            change = max(
                float(np.abs(new - old).max() / np.abs(new).max()) for new, old in zip(update, state, strict=True)
            )
            if not np.isfinite(change):
                return FixedPoint(iteration, None, "overflow")
            state = [damping * old + (1 - damping) * new for new, old in zip(update, state, strict=True)]
            if change < tolerance:
                return FixedPoint(iteration, np.diagonal(state[4]) + problem.data.noise**2)
    return FixedPoint(most, None, f"not settled in {most}")


def _guess(problem: dl.Problem) -> list[Array]:
    """Every time correlated with itself alone, no responses.

    The other usual start, correlations as at initialisation for all pairs of times, overflows far more often.
    """
    L, T = problem.network.layers, problem.steps
    one, none = np.eye(T), np.zeros((T, T))
    return [*(np.stack([each] * count) for each, count in ((one, L + 1), (one, L), (none, L + 1), (none, L))), one, one]


def _update(problem: dl.Problem, state: list[Array]) -> list[Array]:
    """Evaluate every equation once with the previous matrices."""
    Ch, Cg, Rhr, Rgu, Cv, RDelta = state  # Ch, Rhr: layers 0..L; Cg, Rgu: layers 1..L
    nu, gamma0, alpha = problem.network.width, problem.network.gamma0, problem.sampling.samples
    T = problem.steps
    one, every_pair = np.eye(T), np.ones((T, T))
    a = problem.optimizer.lr * np.tri(T, k=-1)

    # Hidden layers 1..L: h = u + A g and g = r + B h.
    A = Rhr[:-1] + gamma0 * a * Ch[:-1]
    A[0] += (1 / (nu * gamma0) - 1) * Rhr[0]
    B = np.concatenate([Rgu[1:] + gamma0 * a * Cg[1:], [gamma0 * a]])
    cov_u, cov_r = Ch[:-1], np.concatenate([Cg[1:], [every_pair]])
    Hu = np.stack([_inverse(each) for each in one - A @ B])
    Hr, Gu = Hu @ A, B @ Hu
    Gr = one + B @ Hr
    new_Ch = _sandwich(Hu, cov_u) + _sandwich(Hr, cov_r)
    new_Cg = _sandwich(Gr, cov_r) + _sandwich(Gu, cov_u)

    # Layer 0: v = w - r0 - K h_0 and h_0 = u_0 + RDelta v.
    K = Rgu[0] / gamma0 + a * Cg[0]
    H = _inverse(one + K @ RDelta)
    Noise = _sandwich(RDelta, Cv + problem.data.noise**2) / alpha
    initial = every_pair + Cg[0] / (nu * gamma0**2)
    HK, RH = H @ K, RDelta @ H
    new_Cv = _sandwich(H, initial) + _sandwich(HK, Noise)
    new_Ch0 = _sandwich(RH, initial) + _sandwich(one - RH @ K, Noise)
    new_RDelta = _inverse(one + HK / alpha)
    return [np.concatenate([[new_Ch0], new_Ch]), new_Cg, np.concatenate([[-RH], Hr]), Gu, new_Cv, new_RDelta]


def _inverse(matrix: Array) -> Array:
    """Inverse of a lower triangular matrix with ones on its diagonal."""
    inverse: Array = solve_triangular(
        matrix, np.eye(len(matrix)), lower=True, unit_diagonal=True, overwrite_b=True, check_finite=False
    )
    return inverse


def _sandwich(factor: Array, covariance: Array) -> Array:
    return factor @ covariance @ factor.swapaxes(-1, -2)
