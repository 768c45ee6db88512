"""Averages of the weights of a network over training, kept up to date step after step."""

from collections import deque
from collections.abc import Sequence

from deeplinear._core.arrays import Array
from deeplinear._experiment.in_place import add, copied
from deeplinear._rules.averages import Average


class Running:
    """An average to be kept up to date; earlier weights in a mean of the last ones are kept until they leave it.

    Parameters
    ----------
    average
        The rule.
    """

    def __init__(self, average: Average) -> None:
        self._average, self._t = average, 0
        self._sum: list[Array] = []
        self._inside: deque[list[Array]] = deque()

    def update(self, weights: Sequence[Array]) -> list[Array]:
        """Add the weights of the next step, and return the average."""
        average, t = self._average, self._t
        if not self._sum:
            self._sum = [copied(weight) for weight in weights]
        else:
            self._change(weights, average.share(t), average.carried(t))
        if average.keeps_past:
            self._inside.append([copied(weight) for weight in weights])
        length = average.length(t)
        while len(self._inside) > length:
            self._change(self._inside.popleft(), -1.0)
        self._t += 1
        return self._sum if length == 1 else [each / length for each in self._sum]

    def _change(self, weights: Sequence[Array], factor: float, keep: float = 1.0) -> None:
        for total, weight in zip(self._sum, weights, strict=True):
            add(total, weight, factor, keep)


def kept_copies(average: Average, steps: int) -> int:
    """Most copies of the weights that an average holds: the sum, the mean of several, and those that are to leave."""
    length = average.length(steps - 1)
    return 1 + (length > 1) + (length + 1 if average.keeps_past else 0)
