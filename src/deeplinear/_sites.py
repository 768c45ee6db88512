"""Draws of the single-site process: what one neuron of each hidden layer does during training."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from deeplinear import _checks
from deeplinear._coefficients import coefficients
from deeplinear._solution import Solution

Array = NDArray[np.float64]


def sample_sites(solution: Solution, count: int, seed: int) -> xr.Dataset:
    """Draw ``count`` neurons of every hidden layer; see ``Solution.sample_sites``."""
    count = _checks.whole("count", count)
    if solution.status.diverged:
        raise ValueError(f"sites cannot be drawn: training {solution.status}")
    problem = solution.problem
    c = coefficients([problem])
    rng = np.random.default_rng(seed)
    d, dd, gamma0 = c.d[0], np.outer(c.d[0], c.d[0]), problem.network.gamma0
    depth, steps, outputs = problem.network.depth, problem.steps, problem.data.outputs
    Ch, Rhr = solution.feature_correlation, solution.feature_response
    Cg, Rgu = solution.gradient_correlation, solution.gradient_response
    h, g = np.empty((2, count, depth, steps * outputs))
    for layer in range(1, depth + 1):
        # The kernels and sources of layer l (see the closure's hidden layers), here for whole matrices.
        A = dd * Rhr[layer - 1] * (c.feedback.item() if layer == 1 else 1.0) + gamma0 * c.a[0] * Ch[layer - 1]
        u = _draw(rng, dd * Ch[layer - 1], count)
        if layer == depth:
            B = gamma0 * c.a_readout[0]
            r = d * np.tile(rng.standard_normal((count, outputs)), steps)
        else:
            rho = c.rho[layer - 1].item()
            B = rho * (dd * Rgu[layer] + gamma0 * c.a[0] * Cg[layer])
            r = _draw(rng, rho * dd * Cg[layer], count)
        # h = u + A g and g = r + B h.
        h[:, layer - 1] = solve_triangular(np.eye(len(d)) - A @ B, (u + r @ A.T).T, lower=True).T
        g[:, layer - 1] = r + h[:, layer - 1] @ B.T
    dims = ["sample", "gradient_layer", "time"]
    shape: tuple[int, ...] = (count, depth, steps)
    if outputs > 1:
        dims, shape = [*dims, "output"], (*shape, outputs)
    coords = {"gradient_layer": np.arange(1, depth + 1), "time": solution.times}
    return xr.Dataset({"h": (dims, h.reshape(shape)), "g": (dims, g.reshape(shape))}, coords)


def _draw(rng: np.random.Generator, covariance: Array, count: int) -> Array:
    """Gaussian vectors of the given covariance; what rounding makes negative in it counts as zero."""
    values, vectors = np.linalg.eigh(covariance)
    scale = np.sqrt(np.maximum(values, 0.0))
    draws: Array = (rng.standard_normal((count, len(scale))) * scale) @ vectors.T
    return draws
