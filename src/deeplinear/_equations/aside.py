"""Weights that are only looked at: averages, and what a rule reports where it takes gradients elsewhere.

Nothing depends on a row at such weights. So these wait until some of them can be evaluated at once, as one product of
matrices in place of many with a row, in the place of rows that training fills next. They must be of the same phase as
these, whose target they share, and see none of the rows that have followed them in training, as their weights have
learned nothing there. Those of a step wait for training to bear them too: what overflows in one row would meet the
zeros of others.
"""

from collections.abc import Iterator, Sequence

from deeplinear._core.arrays import Array, beside, namespace, zeros
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.forms import Form
from deeplinear._equations.matrix_averages import MatrixAverage
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
    c, weights
        Constants of the equations, and where weights are read from.
    matrices
        Layers that take orthogonal steps.

    Attributes
    ----------
    steps
        Steps whose weights wait, each with its row.
    is_needed
        Whether there is something to be looked at.
    """

    def __init__(
        self,
        averages: Sequence[Average],
        steps: int,
        c: Coefficients,
        weights: GrowingWeights,
        matrices: Sequence[int],
    ) -> None:
        self._c, self._weights = c, weights
        self._shares = [c.xp.astype(beside(each.weights(steps), c.gamma0), c.gamma0.dtype) for each in averages]
        self.is_needed: bool = bool(averages) or any(rule.traits.elsewhere for rule in c.structure.rules)
        # Weights of all steps so far, which averages are made of.
        self._history: Array | None = None
        self._room = steps if averages else 0
        self._matrices = [{layer: MatrixAverage(each, weights.X(layer)) for layer in matrices} for each in averages]
        self._end = 0  # of the rows that these have entries for
        self._reported: list[Form] = []
        self.steps: list[tuple[int, int]] = []
        # Nodes in depth settle row by row, and a matrix over pairs of rows is that of one row.
        self.together = 1 if c.structure.depth_nodes or matrices else _TOGETHER

    def add(self, evaluation: Evaluation, weights: Form) -> None:
        """Let the weights of a step wait."""
        if not self._shares and not evaluation.rule.traits.elsewhere:
            return
        step = evaluation.step
        self.steps.append((step, evaluation.row))
        if evaluation.rule.traits.elsewhere:
            self._reported.append(weights)
        if self._shares:
            if self._history is None:
                self._history = zeros((self._room, *weights.numbers.shape), self._c.gamma0)
            self._history[step] = weights.numbers
            for each in self._matrices:
                for layer, average in each.items():
                    matrix = weights.X.get(layer, self._weights.X(layer)[:, :0, :0])
                    average.update(matrix, matrix.shape[-1])
                    self._end = max(self._end, matrix.shape[-1])

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
            if reported := self._reported[now]:
                every = namespace(reported[0].numbers).stack([each.numbers for each in reported])
                self._weights.append(row, every, reported[0].X)  # eq-rows
                yield REPORTED, own
            for number, shares in enumerate(self._shares):
                assert self._history is not None
                end = steps[-1] + 1
                means = shares[steps[0] : end, :end] @ self._history[:end].reshape(end, -1)  # eq-average
                X = {layer: each.mean(self._end) for layer, each in self._matrices[number].items()}
                self._weights.append(row, means.reshape(len(own), *self._history.shape[1:]), X)
                yield number, own
        self.steps, self._reported = [], []
