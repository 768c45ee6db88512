"""Averages of the weights of a network over training, kept up to date step after step."""

from collections import deque
from collections.abc import Sequence

from deeplinear._core.arrays import Array
from deeplinear._experiment.in_place import add, copied
from deeplinear._problem.averages import EMA, Average, TailMean


class RunningEMA:
    """x_0 = W_0 and x_t = decay x_{t-1} + (1 - decay) W_t.

    Parameters
    ----------
    average
        The rule.
    """

    def __init__(self, average: EMA) -> None:
        self._decay = average.decay
        self._mean: list[Array] = []

    def update(self, weights: Sequence[Array]) -> list[Array]:
        """Add the weights of the next step, and return the average."""
        if not self._mean:
            self._mean = [copied(weight) for weight in weights]
        else:
            for mean, weight in zip(self._mean, weights, strict=True):
                add(mean, weight, 1.0 - self._decay, keep=self._decay)
        return self._mean


class RunningTail:
    """The mean over the steps t - floor(part t) .. t; earlier weights in it are kept until they leave it.

    Parameters
    ----------
    average
        The rule.
    """

    def __init__(self, average: TailMean) -> None:
        self._average, self._t = average, 0
        self._sum: list[Array] = []
        self._inside: deque[list[Array]] = deque()

    def update(self, weights: Sequence[Array]) -> list[Array]:
        """Add the weights of the next step, and return the average."""
        if not self._sum:
            self._sum = [weight * 0.0 for weight in weights]
        self._change(weights, 1.0)
        if self._average.part < 1.0:
            self._inside.append([copied(weight) for weight in weights])
        length = self._average.length(self._t)
        while self._average.part < 1.0 and len(self._inside) > length:
            self._change(self._inside.popleft(), -1.0)
        self._t += 1
        return [each / length for each in self._sum]

    def _change(self, weights: Sequence[Array], factor: float) -> None:
        for total, weight in zip(self._sum, weights, strict=True):
            add(total, weight, factor)


Running = RunningEMA | RunningTail


def running(average: Average) -> Running:
    """Return an average to be kept up to date."""
    return RunningEMA(average) if isinstance(average, EMA) else RunningTail(average)


def kept_copies(average: Average, steps: int) -> int:
    """Most copies of the weights that an average holds."""
    if isinstance(average, EMA):
        return 1
    return 2 + (average.length(steps - 1) + 1 if average.part < 1.0 else 0)
