"""The recursion of ``recursion.c`` in JAX: every row as long as the training, with zeros beyond its own time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

DEPTH = 3


def compiled(steps: int, together: bool) -> Callable[..., Any]:
    """Return losses of a full batch as a function of lr, or of many rates together, and of 1/samples."""
    alone = partial(losses, steps)
    return jax.jit(jax.vmap(alone, in_axes=(0, None)) if together else alone)


def losses(steps: int, lr: Any, reuse: Any, noise: float = 0.3) -> Any:
    """Return the test losses of all steps, at richness 1."""
    at = jnp.arange(steps)
    zero = jnp.zeros((steps, steps))
    layers = range(1, DEPTH + 1)

    def put(matrix: Any, t: Any, row: Any, mirror: bool = False) -> Any:
        row = jnp.where(at <= t, row, 0.0)
        matrix = matrix.at[t].set(row)
        return matrix.at[:, t].set(row) if mirror else matrix

    def sandwich(C: Any, t: Any, Fu: Any, Su: Any, Fr: Any, Sr: Any) -> Any:
        above = jnp.full(steps, Fr[t].sum()) if Sr is None else Fr[t] @ Sr
        return put(C, t, (Fu[t] @ Su) @ Fu.T + above @ Fr.T, mirror=True)

    def step(t: Any, state: Any) -> Any:
        hu, hr, gu, gr, Ch, Cg, data, found = state
        hu, hr, gu, gr, Ch, Cg, data = map(dict, (hu, hr, gu, gr, Ch, Cg, data))
        a, one = jnp.where(at < t, lr, 0.0), at == t
        for layer in reversed(layers):
            top = layer == DEPTH
            kernel = a if top else a * Cg[layer + 1][t] + gu[layer + 1][t]
            gu[layer] = put(gu[layer], t, kernel @ hu[layer])
            gr[layer] = put(gr[layer], t, kernel @ hr[layer] + one)
            Cg[layer] = sandwich(Cg[layer], t, gu[layer], Ch[layer - 1], gr[layer], None if top else Cg[layer + 1])
        K, H, R, Cv, Z, Psi = (data[name] for name in ("K", "H", "R", "Cv", "Z", "Psi"))
        K = put(K, t, gu[1][t] + a * Cg[1][t])
        H = put(H, t, one - (K[t] @ R) @ H)
        learned = one - H[t]
        noisy = learned @ Z
        Cv = put(Cv, t, noisy + (H[t] @ Cg[1] - noisy) @ H.T + H[t].sum() * H.sum(axis=1), mirror=True)
        R = put(R, t, one - reuse * (H[t] @ K) @ R)
        Rhr = put(data["Rhr"], t, -R[t] @ H)
        Z = put(Z, t, reuse * (Cv[t] + noise**2), mirror=True)
        Psi = put(Psi, t, Cv[t] + Z[t] @ H.T - learned @ Z, mirror=True)
        Ch[0] = put(Ch[0], t, (R[t] @ Psi) @ R.T, mirror=True)
        for layer in layers:
            kernel = (Rhr if layer == 1 else hr[layer - 1])[t] + a * Ch[layer - 1][t]
            hu[layer] = put(hu[layer], t, kernel @ gu[layer] + one)
            hr[layer] = put(hr[layer], t, kernel @ gr[layer])
            if layer < DEPTH:
                Ch[layer] = sandwich(Ch[layer], t, hu[layer], Ch[layer - 1], hr[layer], Cg[layer + 1])
        data = {"K": K, "H": H, "R": R, "Cv": Cv, "Z": Z, "Psi": Psi, "Rhr": Rhr}
        return hu, hr, gu, gr, Ch, Cg, data, found.at[t].set(Cv[t, t] + noise**2)

    every = dict.fromkeys(layers, zero)
    data = dict.fromkeys(("K", "H", "R", "Cv", "Z", "Psi", "Rhr"), zero)
    start = (every, every, every, every, {0: zero} | every, every, data, jnp.zeros(steps))
    return jax.lax.fori_loop(0, steps, step, start)[-1]
