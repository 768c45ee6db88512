"""Correlations with other networks, which share only part of the randomness, filled along with a run."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import to_numpy
from deeplinear._equations.chain import Chain
from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.system import Equations


class Replicas:
    """Two networks: one that shares the data with that of a run, and one that shares its initial weights.

    Their responses are those of the run, so that they have to be filled before its past is condensed. They stand in its
    room, and are condensed with it.
    """

    def __init__(self) -> None:
        self._of_steps: tuple[list[NDArray[Any]], list[NDArray[Any]]] = ([], [])

    def begin(self, equations: Equations) -> None:
        """Make room for them."""
        self._same_data, _ = equations.replica(same_data=True, room=equations.room)
        self._same_init, chain = equations.replica(same_data=False, room=equations.room)
        assert chain is not None
        self._chain: Chain = chain

    def fill(self, equations: Equations, rows: slice) -> None:
        """Fill rows, and keep their values at equal times."""
        equations.fill_covariances(rows, self._chain, self._same_init)
        self._same_data.step(None, rows)
        for kept, covariances in zip(self._of_steps, (self._same_data, self._same_init), strict=True):
            kept.append(_equal_times(covariances, rows))

    def overlaps(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """C_v(t, t) with each of them over all steps, shape (1, rows)."""
        same_data, same_init = (np.concatenate(each, axis=1) for each in self._of_steps)
        return same_data, same_init


def _equal_times(covariances: DataCovariances, rows: slice) -> NDArray[Any]:
    block = to_numpy(covariances.Cv.block(rows))
    return np.diagonal(block, axis1=-2, axis2=-1).copy()
