"""Weights that are only looked at: averages, and what a rule reports where it takes gradients elsewhere.

Nothing depends on a row at such weights. So these wait until some of them can be evaluated at once, as one product of
matrices in place of many with a row, in the place of rows that training fills next. They must be of the same phase as
these, whose target they share, and see none of the rows that have followed them in training, as their weights have
learned nothing there. Those of a step wait for training to bear them too: what overflows in one row would meet the
zeros of others.
"""

from collections.abc import Iterator, Mapping, Sequence

from deeplinear._core.arrays import Array, beside, namespace, zeros
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.matrix_track import MatrixTrack
from deeplinear._equations.rules import Evaluation
from deeplinear._equations.weights import GrowingWeights
from deeplinear._rules.averages import Average

_TOGETHER = 32
"""Rows that are evaluated at once: each then takes a third of the time that it takes alone, as measured for 50 to 400
steps; with 16 or 64 it takes up to a quarter longer."""

REPORTED = -1
"""Number of the weights that a rule reports; averages count from 0."""


class Aside:
    """Weights of a batch of problems that wait for being looked at.

    Parameters
    ----------
    averages, steps
        Averages over training that are wanted, and steps of training.
    c, weights, matrices
        Constants of the equations, where weights are read from, and those that take orthogonal steps.

    Attributes
    ----------
    steps
        Steps whose weights wait, each with its row.
    """

    def __init__(
        self,
        averages: Sequence[Average],
        steps: int,
        c: Coefficients,
        weights: GrowingWeights,
        matrices: Mapping[int, MatrixTrack],
    ) -> None:
        self._c, self._weights, self._matrices = c, weights, matrices
        self._shares = [c.xp.astype(beside(each.weights(steps), c.gamma0), c.gamma0.dtype) for each in averages]
        # Weights of all steps so far, which averages are made of.
        self._history: dict[int, Array] = {}
        self._room = (steps, c.batch * (2 + c.structure.steps)) if averages else (0, 0)
        self._reported: list[dict[int, Array]] = []
        self.steps: list[tuple[int, int]] = []
        # Nodes in depth settle row by row, and a matrix over pairs of rows is that of one row.
        self.together = 1 if c.structure.depth_nodes or matrices else _TOGETHER

    @property
    def is_needed(self) -> bool:
        """Whether there is something to be looked at."""
        return bool(self._shares) or any(rule.averages for rule in self._c.structure.rules)

    def add(self, evaluation: Evaluation, weights: Mapping[int, Array]) -> None:
        """Let the weights of a step wait, given as a ``Track`` has those of each group."""
        if not self._shares and not evaluation.rule.averages:
            return
        step = evaluation.step
        self.steps.append((step, evaluation.row))
        if evaluation.rule.averages:
            self._reported.append(dict(weights))
        if self._shares:
            for group, values in weights.items():
                if group not in self._history:
                    self._history[group] = zeros(self._room, self._c.gamma0)
                self._history[group][step] = values.reshape(-1)
            for matrix in self._matrices.values():
                matrix.record(of_mean=evaluation.rule.averages)

    def is_due(self, evaluation: Evaluation) -> bool:
        """Whether to look now, before a step joins those that wait: as many do as are worth it, or as have room.

        Later there is less room, and more would wait.
        """
        left = evaluation.rule.stop - evaluation.step - 1
        return not evaluation.number and len(self.steps) >= min(self.together, left) and bool(self.steps)

    def cannot_wait(self, evaluation: Evaluation) -> bool:
        """Whether to look at a step that has just joined: it has no room later in its phase, or none may wait."""
        is_last = evaluation.step + 1 == evaluation.rule.stop
        return not evaluation.number and (is_last or self.together == 1) and bool(self.steps)

    def places(self, row: int) -> Iterator[tuple[int, list[int]]]:
        """Let the rows from one on have in turn the weights of each number, of all steps that wait; then none do.

        Yields the number, and the steps' own rows; with each only as many steps as may be looked at together.
        """
        for start in range(0, len(self.steps), self.together):
            now = slice(start, start + self.together)
            steps, own = (list(each) for each in zip(*self.steps[now], strict=True))
            if self._reported:
                self._place_reported(row, self._reported[now])
                yield REPORTED, own
            for number, shares in enumerate(self._shares):
                mine = shares[steps[0] : steps[-1] + 1, : steps[-1] + 1]
                for matrix in self._matrices.values():
                    matrix.look_at_average(number)
                self._fill(row, {group: self._mean(mine, history) for group, history in self._history.items()})
                yield number, own
        self.steps, self._reported = [], []

    def _place_reported(self, row: int, reported: Sequence[Mapping[int, Array]]) -> None:
        """Let the rows from one on have weights that a rule reports."""
        for matrix in self._matrices.values():
            matrix.look(namespace(self._c.gamma0).ones_like(self._c.gamma0[..., 0]))
        every = {
            group: namespace(first).stack([each[group] for each in reported], axis=1)
            for group, first in reported[0].items()
        }
        self._fill(row, every)

    def _mean(self, shares: Array, history: Array) -> Array:
        """Averages of weights, shape (batch, averages, 2 + times)."""
        count, past = shares.shape
        means = (shares @ history[:past]).reshape(count, self._c.batch, -1)  # eq-average
        by_problem: Array = namespace(means).moveaxis(means, 0, 1)
        return by_problem

    def _fill(self, row: int, where: Mapping[int, Array]) -> None:
        """Fill the rows from one on with weights of each group (batch, rows, 2 + times)."""
        outputs = self._c.structure.outputs
        for group, weights in where.items():
            end = row + weights.shape[1]
            rows = slice(row * outputs, end * outputs)
            self._weights.append(group, rows, weights[..., 0], weights[..., 1 : 1 + end], weights[..., -1])  # eq-rows
