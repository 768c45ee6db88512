"""More rows after those of training: evaluations of the network at any weights that training could have made.

A row of the equations is an evaluation. After the rows of training up to some time, others can stand at the weights

    W_l = d_l W_l(0) + sum_i c_l(i) G_l(i)

with any numbers d and c, over all rows before: on a straight line between two times, a little away from the path, or
on the path of another network that began with the same weights. They see the whole training set, or all of the
distribution where every batch is fresh, without a draw of their own.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from deeplinear._core.arrays import Array, beside, computing, to_numpy, zeros
from deeplinear._equations import system
from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.rules import orthogonal_layers
from deeplinear._equations.system import Equations
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Room


class Extension:
    """Equations of one batch of problems, filled by training up to a row, with room for more rows.

    Parameters
    ----------
    equations
        Filled up to and with ``row``.
    row
        Last row of training that is kept, counted in evaluations.
    extra
        Number of rows that may be added.
    fresh
        Whether training sees new examples at every step, so that further rows see all of the distribution.
    twin
        Whether the first of the added rows are the training of another network, with batches of its own.

    Attributes
    ----------
    count
        Number of rows so far.
    """

    def __init__(self, equations: Equations, row: int, extra: int, *, fresh: bool, twin: bool = False) -> None:
        self.count = row + 1
        c = _longer(equations.c, row, extra, fresh, twin)
        with computing(c.gamma0):
            room = Room(c.structure.size, c.gamma0, c.batch * system.kept(c.structure))
            self._weights = growing_weights(c, room)
            self.equations = Equations(c, self._weights.layers, room)
            equations.room.copy_to(room)
        self._groups = tuple(dict.fromkeys(c.structure.groups))
        # Weights that take orthogonal steps have what they have learned as a matrix, to which the numbers are added.
        orthogonal = orthogonal_layers(c.structure.rules, len(c.structure.groups))
        self._matrices = {group: c.xp.asarray(self._weights.X(group), copy=True) for group in orthogonal}

    def weights_at(self, row: int) -> dict[int, Array]:
        """Return d - 1 and then the numbers c of each group at a row, arrays of NumPy of shape (batch, 1 + rows).

        Of weights that take orthogonal steps only those at the last row of training are known, where c is zero.
        """
        found = {group: to_numpy(self._weights.numbers(group, row)) for group in self._groups}
        for group in self._matrices:
            found[group][:, 1:] = 0.0
        return found

    def evaluate(self, weights: Mapping[int, Array], signal: Mapping[int, float] | None = None) -> int:
        """Add a row at these weights, given as in ``weights_at``, and return its number.

        With ``signal`` its data signal h_0 is not that of its own residuals, but the sum over those of earlier rows
        with these factors.
        """
        rows = row_set(self.equations.c, self.count)
        with computing(self.equations.c.gamma0):
            self._place(weights)
            if signal is None:
                self.equations.fill(rows)
            else:
                outputs = rows.stop - rows.start
                factors = np.zeros((outputs, self.count, outputs))
                for row, factor in signal.items():
                    factors[:, row, :] = factor * np.eye(outputs)
                self.equations.fill_mixed(rows, beside(factors.reshape(outputs, -1), self.equations.c.gamma0))
        self.count += 1
        return self.count - 1

    def losses(self, weights: Mapping[int, Array], learned: float = 1.0) -> tuple[Array, Array]:
        """Return the train and test loss at these weights, each of shape (batch,), without adding a row.

        Of weights that take orthogonal steps a part ``learned`` is taken of what they have learned.
        """
        eq = self.equations
        with computing(eq.c.gamma0):
            self._place(weights, learned)
            rows = row_set(eq.c, self.count)
            values = eq.passive(rows)
            test = eq.loss_of(values.error, self.count)[:, 0]
        noisy = eq.data_covariances.noisy
        train = np.trace(values.residual[:, 0], axis1=-2, axis2=-1) if noisy else test
        return np.asarray(train), test

    def products(self, row: int) -> Array:
        """Products of the gradient of each weight layer at a row with those up to it, over the last width and gamma0^2.

        Shape (weight layers, batch, times).
        """
        return np.stack([to_numpy(each) for each in self.equations.gradient_products(row)])

    def _place(self, weights: Mapping[int, Array], learned: float = 1.0) -> None:
        like = self.equations.c.gamma0
        rows = zeros((1, len(weights), self.equations.c.batch, 2 + self.equations.c.structure.steps), like)
        for index, values in enumerate(weights.values()):
            placed = beside(values, like)
            rows[0, index, :, 0] = placed[:, 0]
            rows[0, index, :, 1] = 1.0 + placed[:, 0]
            rows[0, index, :, 2 : 1 + placed.shape[-1]] = placed[:, 1:]
        # eq-extension
        self._weights.append(self.count, rows, {group: learned * matrix for group, matrix in self._matrices.items()})


def _longer(c: Coefficients, row: int, extra: int, fresh: bool, twin: bool) -> Coefficients:
    """Return the constants of the rows up to one, and of more rows that see the data of the last."""
    s = c.structure
    steps = row + 1 + extra

    def extended(values: Array, more: float | None) -> Array:
        """Constants of the rows (batch, times); those of a twin are the same again, and further ones the last."""
        if values.shape[1] == 1 and more is None:
            return values
        every = c.xp.broadcast_to(values, (c.batch, max(s.steps, values.shape[1])))[:, : row + 1]
        last = every[:, -1:] if more is None else zeros((c.batch, 1), values) + more
        trained = [every, every] if twin else [every]
        rest = c.xp.repeat(last, steps - len(trained) * (row + 1), axis=1)
        longer: Array = c.xp.concat([*trained, rest], axis=1)
        return longer

    own = s.sets.sets and (*s.sets.sets[: row + 1], *(s.sets.sets[row],) * extra)
    twice = s.sets.twice and (*s.sets.twice[: row + 1], *(False,) * extra)
    sets = replace(s.sets, sets=own, tasks=_longer_tasks(s.sets.tasks, row, extra), twice=twice)
    return replace(
        c,
        structure=replace(s, steps=steps, sets=sets),
        sigma=extended(c.sigma, None),
        reuse=extended(c.reuse, 0.0 if fresh and s.reuses_data else None),
        subsampling=extended(c.subsampling, 0.0 if s.subsamples else None),
    )


def _longer_tasks(tasks: tuple[int, ...], row: int, extra: int) -> tuple[int, ...]:
    """Return how many rows see each target: those up to one, and further rows that see its target."""
    seen, start = [], 0
    for length in tasks:
        mine = min(max(row + 1 - start, 0), length)
        last = start <= row < start + length
        seen.append(mine + extra * last)
        start += length
    return tuple(seen)
