"""Draws of the single-site process: what one neuron of each hidden layer does during training."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import beside, to_numpy
from deeplinear._equations.chain import Layers
from deeplinear._equations.source import Source
from deeplinear._equations.system import Equations

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]


def sample_sites(dense: Equations, index: int, count: int, seed: int) -> "xr.Dataset":
    """Draw ``count`` neurons of every hidden layer, by running the process with random sources.

    The process is causal, so it is run as training is: at each step g from the last layer down, then h
    from the first layer up. See ``Solution.sample_sites``.
    """
    import xarray as xr  # slow to import

    if not isinstance(dense.chain, Layers):
        raise ValueError("neurons can be drawn at finite depth only, got depth inf; take a large depth")
    c, hidden, C = dense.c, dense.chain.responses, dense.chain.covariances
    s, rng, rows = c.structure, np.random.default_rng(seed), slice(0, c.structure.size)
    A, B, u, r = {}, {}, {}, {}
    for layer in hidden.layers:
        A[layer] = to_numpy(hidden.kernel_from_below(layer, dense.data.Rhr, C.Ch, rows)[index])
        B[layer] = to_numpy((c.gamma0 * hidden.kernel_from_above(layer, C.Cg, rows))[index])
        u[layer] = _draw(rng, _matrix(C.u[layer], dense, index), count)
        r[layer] = _draw(rng, _matrix(C.r[layer], dense, index), count)
    h, g = np.zeros((2, s.depth + 2, count, s.size))  # with a silent layer beyond either end of the chain
    for step in range(s.steps):
        now = slice(step * s.outputs, (step + 1) * s.outputs)
        for layer in reversed(hidden.layers):
            g[layer, :, now] = s.skip * g[layer + 1, :, now] + h[layer] @ B[layer][now].T + r[layer][:, now]
        for layer in hidden.layers:
            h[layer, :, now] = s.skip * h[layer - 1, :, now] + g[layer] @ A[layer][now].T + u[layer][:, now]
    if c.scale is not None:  # then these are g~
        initial = np.tile(g[..., : s.outputs], (s.steps,))
        g = initial + to_numpy(c.scale[index]) * g
        g[..., : s.outputs] = initial[..., : s.outputs]
    dims = ["sample", "gradient_layer", "time", "output"]
    shape = (count, s.depth, s.steps, s.outputs)
    fields = {"h": h, "g": g}
    dataset = xr.Dataset(
        {name: (dims, field[1:-1].transpose(1, 0, 2).reshape(shape)) for name, field in fields.items()},
        {"gradient_layer": list(hidden.layers), "time": np.arange(s.steps)},
    )
    return dataset.squeeze("output") if s.outputs == 1 else dataset


def _matrix(source: Source, dense: Equations, index: int) -> Array:
    size = dense.c.structure.size
    identity = beside(np.broadcast_to(np.eye(size), (dense.c.batch, size, size)), dense.c.gamma0)
    return to_numpy(source.times(identity)[index])


def _draw(rng: np.random.Generator, covariance: Array, count: int) -> Array:
    """Gaussian vectors of the given covariance; what rounding makes negative in it counts as zero."""
    values, vectors = np.linalg.eigh(covariance)
    scale = np.sqrt(np.maximum(values, 0.0))
    draws: Array = (rng.standard_normal((count, len(scale))) * scale) @ vectors.T
    return draws
