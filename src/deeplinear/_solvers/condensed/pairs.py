"""Functions of two times at pairs of some steps, taken down as a run comes to these.

The row of a step, up to its own time, is known at the nodes of the past and at the last steps. As a function of an
earlier step s of a block it is a polynomial, so that the Lagrange polynomials L(s, k) of the block's nodes give it at
any step: a correlation, of which nodes have values, by L, and a response, of which they have sums, by L / w.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._core.dataset import FIELDS
from deeplinear._equations.observables import TWO_TIME
from deeplinear._equations.system import Equations
from deeplinear._time.history import Block


class Pairs:
    """Functions of two times of one problem.

    Attributes
    ----------
    times
        Steps at whose pairs they are wanted, increasing, shape (p,).
    matrices
        By the names of ``TWO_TIME``, each of shape (..., n, n), n = p * outputs; zero until their time has come.
    """

    def __init__(self, times: NDArray[np.int64], outputs: int) -> None:
        self.times, self._outputs = times, outputs
        self.matrices: dict[str, Array] = {}
        self._done = 0

    @property
    def next(self) -> float:
        """Next step whose rows are wanted; inf if there is none."""
        return self.times[self._done] if self._done < len(self.times) else math.inf

    def take(self, equations: Equations, blocks: Sequence[Block], count: int) -> None:
        """Take down the rows of the next step, which is the last of ``count`` times that are filled."""
        outputs, place = self._outputs, self._done
        values, moments = (np.kron(each.T, np.eye(outputs)) for each in self._expansions(blocks, count))
        rows, own = (slice(end * outputs - outputs, end * outputs) for end in (count, place + 1))
        self._done += 1
        for name, function in TWO_TIME.items():
            is_symmetric = FIELDS[name].is_symmetric
            row = function(equations, 0, rows) @ (values if is_symmetric else moments)  # eq-pairs
            if name not in self.matrices:
                size = len(self.times) * outputs
                self.matrices[name] = np.zeros((*row.shape[:-2], size, size))
            matrix = self.matrices[name]
            matrix[..., own, : own.stop] = row
            if is_symmetric:
                matrix[..., : own.stop, own] = row.mT

    def _expansions(self, blocks: Sequence[Block], count: int) -> tuple[Array, Array]:
        """What gives values, and responses, at all times up to the next from those at nodes, shape (times, count)."""
        known = self.times[: self._done + 1]
        values, moments = np.zeros((2, len(known), count))
        place, start = 0, 0
        for block in blocks:
            start = block.start + block.length
            mine = (known >= block.start) & (known < start)
            nodes = slice(place, place + len(block.weights))
            if mine.any():
                values[mine, nodes] = basis = block.at(known[mine])
                moments[mine, nodes] = basis / block.weights
            place = nodes.stop
        late = np.flatnonzero(known >= start)
        values[late, place + known[late] - start] = moments[late, place + known[late] - start] = 1.0
        return values, moments
