"""Dense causal stepping: every step is a row of every matrix, one pass, exact.

Time O(L T^3), memory O(L T^2) in the number of steps T (times outputs) and layers L.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deeplinear._core.arrays import Array, computing, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._equations.coefficients import Coefficients, Structure
from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.system import Equations, row_set

_WATCH = 8
"""Steps after which losses are looked at for divergence: a device must then be waited for."""

_LAYER = 3000
"""Bytes of the objects that stand for a layer, measured; three times as much where it has cut chains."""


@dataclass(frozen=True)
class Overlaps:
    """C_v(t, t) between two networks that share less than everything, in NumPy, shape (batch, rows)."""

    same_data: Array  # they share the data and batches, but not the initial weights
    same_init: Array  # the other way round
    independent: Array  # neither


class Dense(Equations):
    """Solution of a batch of equally shaped problems on every step."""

    def __init__(self, c: Coefficients) -> None:
        with computing(c.d):
            super().__init__(c)
        self.diverged_at = np.full(len(c.d), -1)

    def run(self, progress: Callable[[int, int], object] | None = None) -> None:
        """Fill all rows; stop early once every problem of the batch has diverged."""
        steps, watched = self.c.structure.steps, 0
        # Whether a step along the depth can be solved is known right after it.
        every = 1 if self.c.structure.nodes else _WATCH
        with computing(self.c.d):
            for step in range(1, steps + 1):
                self.fill(row_set(self.c, step - 1))
                if progress is not None:
                    progress(step, steps)
                if step % every == 0 or step == steps:
                    self._watch(slice(watched, step))
                    watched = step
                if (self.diverged_at >= 0).all():
                    return

    @cached_property
    def overlaps(self) -> Overlaps:
        """Overlaps of replicas: their responses are those of one network, only the sources differ."""
        with computing(self.c.d):
            same_data = DataCovariances(self.data)
            same_init = DataCovariances(self.data, same_data=False)
            chain = self.chain.replica(same_init.Ch)
            for step in range(self.c.structure.steps):
                rows = row_set(self.c, step)
                self.fill_covariances(rows, chain, same_init)
                same_data.step(None, rows)
        return Overlaps(
            same_data=to_numpy(self.c.xp.linalg.diagonal(same_data.Cv)),
            same_init=to_numpy(self.c.xp.linalg.diagonal(same_init.Cv)),
            independent=self.curves.bias,
        )

    def test_losses(self, steps: Array) -> Array:
        """Test losses at several steps, shape (steps, batch)."""
        return to_numpy(self.loss_curve(slice(0, self.c.structure.steps))).T[steps]

    def _watch(self, steps: slice) -> None:
        diverges = self.diverges(steps)
        new = diverges.any(axis=1) & (self.diverged_at < 0)
        self.diverged_at[new] = steps.start + diverges[new].argmax(axis=1)


def dense_memory(shape: Structure, batch: int) -> int:
    """Bytes of the matrices that a dense solution keeps."""
    hidden = 6 * shape.depth - 1  # two responses of h and of g, C_h but for the last layer, C_g
    if shape.nodes:
        hidden = (14 if shape.edges is None else 23) * shape.nodes  # see ``DeepChain``
    elif shape.skip:
        hidden += 12 * (shape.depth - 1)  # the same but one correlation for either cut chain; S and D
    data = 4 + shape.modes  # K, R_hr, C_v, C_h and H for each mode
    data += 2 if shape.reuses_data else 0  # R_Delta, Psi
    data += 2 if shape.modes > 1 else 0  # mean of H, second moment of C_v
    propagators = 1 if shape.outputs == 1 else 2
    return 8 * batch * (hidden + data + propagators) * shape.size**2


def layers_memory(shape: Structure) -> int:
    """Bytes of the objects that stand for the layers, which count where these are many and steps few."""
    return 0 if shape.nodes else shape.depth * _LAYER * (1 + 2 * shape.skip)
