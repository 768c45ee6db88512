"""The data of a problem as tensors: what each training step sees, and rows to test on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from deeplinear._core import checks
from deeplinear._core.arrays import Array
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.data_sets import DataSet
from deeplinear._experiment.rows import read_rows
from deeplinear._experiment.streams import Inputs, SampleBatch
from deeplinear._experiment.train import DATA, TEST, explicit_task, generator
from deeplinear._experiment.training import Task
from deeplinear._problem.from_data import Fit
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._torch.network import checked_sizes


class Batch(NamedTuple):
    """Rows of data.

    Attributes
    ----------
    x
        Inputs, shape (rows, D).
    y
        Targets with their noise, shape (rows, C).
    weight
        How much each row counts in the gradient, shape (rows,). The train loss is the mean of squared errors over all
        rows; the gradient is that of half the mean of squared errors times weights.
    """

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor


@dataclass(frozen=True)
class Data:
    """The batches of all steps, in order; ``data`` makes it. Iterating over it again draws the same batches again.

    Attributes
    ----------
    problem, dim, seed
        As given to ``data``.
    rows
        The data set whose rows are drawn; None for Gaussian samples.
    """

    problem: Problem
    dim: int | None
    seed: int
    rows: Fit | None = None

    def __len__(self) -> int:
        return self.problem.steps

    def __iter__(self) -> Iterator[Batch]:
        task = self._task()
        for dataset in task.data:
            yield from self._batches(task, dataset)

    def test(self, step: int = 0, samples: int | None = None) -> Batch:
        """Return rows to test on.

        Parameters
        ----------
        step
            Number of the step, which matters where phases have targets or noise of their own.
        samples
            Number of new Gaussian samples. None for a few rows on which every linear function has exactly the mean
            squared error of infinitely many samples; networks with an activation need samples. Where rows of a data
            set are drawn, the test data are all of these rows, and ``samples`` is None.

        Examples
        --------
        >>> import deeplinear as dl
        >>> problem = dl.Problem(
        ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.5), dl.Population(), dl.GradientDescent(0.1), steps=2
        ... )
        >>> x, y, _ = data(problem, dim=10).test()
        >>> round(y.square().mean().item(), 12)  # the loss of the function that is zero: 1 + 0.5^2
        1.25
        """
        task = self._task()
        phase, stage = self._stage(checks.whole("step", step, at_least=0))
        if samples is None:
            return self._everything(task, task.targets[phase], stage.noise)
        if self.rows is not None:
            raise Refusal("samples", samples, "None where rows of a data set are drawn")
        rng, count = generator(self.seed, TEST), checks.whole("samples", samples)
        standard = rng.standard_normal((count, len(task.inputs.deviation)))
        noise = stage.noise * rng.standard_normal((count, self.problem.data.outputs))
        return _batch(task.inputs, standard, noise, task.targets[phase])

    def _task(self) -> Task:
        return explicit_task(self.problem, self.dim, generator(self.seed, DATA), self.rows)

    def _stage(self, step: int) -> tuple[int, Stage]:
        """Return the phase of a step, and its number."""
        for phase, stage in enumerate(self.problem.stages):
            if step < stage.stop:
                return phase, stage
        raise Refusal("step", step, f"below the number of steps ({self.problem.steps})")

    def _batches(self, task: Task, dataset: DataSet) -> Iterator[Batch]:
        for step, batch in enumerate(task.stream(dataset), dataset.start):
            phase, stage = self._stage(step)
            target = task.targets[phase]
            if isinstance(batch, SampleBatch):
                weight = None if batch.kept is None else batch.kept[:, 0] / batch.keep
                yield _batch(batch.inputs, batch.standard, batch.label_noise, target, weight)
            else:
                yield self._everything(task, target, stage.noise)

    def _everything(self, task: Task, target: Array, noise: float) -> Batch:
        """Return rows that stand for all data there are."""
        if self.rows is not None:
            return _batch(task.inputs, self.rows.standard, self.rows.residual, target)
        dim = len(task.inputs.deviation)
        standard, ones = math.sqrt(dim) * np.eye(dim), np.ones((dim, self.problem.data.outputs))
        if not noise:
            return _batch(task.inputs, standard, 0 * ones, target)
        labels = np.concatenate([noise * ones, -noise * ones])
        return _batch(task.inputs, np.concatenate([standard, standard]), labels, target)


def data(
    problem: Problem,
    dim: int | None = None,
    *,
    seed: int = 0,
    data: tuple[ArrayLike, ArrayLike] | None = None,
) -> Data:
    """Return the batches of a problem, as ``simulate`` draws them for a seed.

    Parameters
    ----------
    problem, dim
        As in ``simulate``.
    seed
        Zero or above.
    data
        A data set (x, y) whose rows are drawn in place of Gaussian samples, as in ``simulate``.

    Returns
    -------
    Data
        Iterate over it for the (x, y, weight) of each step, ``Batch``, in double precision on the processor. Its method
        ``test`` returns rows to test on. Unlimited data (``Population``) are a few rows on which every linear function
        has exactly the mean squared error, and its gradient, of infinitely many samples; a network with an activation
        does not.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=3
    ... )
    >>> [tuple(x.shape) for x, y, weight in data(problem, dim=20)]
    [(10, 20), (10, 20), (10, 20)]
    """
    seed = checks.whole("seed", seed, at_least=0)
    checked_sizes(problem, dim)
    return Data(problem, dim, seed, None if data is None else read_rows(problem, data))


def _batch(inputs: Inputs, standard: Array, label_noise: Array, target: Array, weight: Array | None = None) -> Batch:
    """Return samples X = ``standard`` S with the labels X w* / sqrt(U) + noise."""
    x = standard * inputs.deviation.T
    y = x @ target / math.sqrt(inputs.unit) + label_noise
    return Batch(*(torch.from_numpy(each) for each in (x, y, np.ones(len(x)) if weight is None else weight)))
