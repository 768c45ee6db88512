"""Which steps of training share their samples, how many these are, and how often they are looked at.

A phase of training draws new samples or keeps those of the phase before. Steps that share samples are one data set;
so are steps that draw a batch each, or see unlimited data, one after another under the same rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from deeplinear._experiment.sizes import count
from deeplinear._problem.optimizer import Optimizer
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem


@dataclass(frozen=True, eq=False)
class DataSet:
    """The data of some steps that follow each other.

    Attributes
    ----------
    start, stop
        They are the steps from ``start`` up to but not including ``stop``.
    drawn, fresh
        Whether there are samples at all, and whether each step has its own.
    samples
        Number of samples at each step, shape (steps,); all are equal unless fresh.
    keeps
        Probability with which a sample enters each step, shape (steps,).
    noises
        Standard deviation of the label noise at each step, shape (steps,).
    residuals, signals
        How many residuals and gradients each step asks for, shape (steps,).
    probes
        How many more of both may be asked for, where samples are not fresh.
    """

    start: int
    stop: int
    drawn: bool
    fresh: bool
    samples: NDArray[np.int64]
    keeps: NDArray[np.float64]
    noises: NDArray[np.float64]
    residuals: NDArray[np.int64]
    signals: NDArray[np.int64]
    probes: int = 0

    @property
    def looks(self) -> tuple[int, int]:
        """Most residuals and gradients that are asked for on the same samples."""
        if self.fresh:
            once = min(self.probes, 1)  # the first gradient may be kept
            return int(self.residuals.max()) + once, int(self.signals.max()) + once
        return int(self.residuals.sum()) + self.probes, int(self.signals.sum()) + self.probes


def evaluations(optimizer: Optimizer) -> tuple[int, int]:
    """How often a step evaluates the loss, and how often the gradient.

    Examples
    --------
    >>> from deeplinear._problem.more_optimizers import SAM, ScheduleFree
    >>> evaluations(SAM(lr=0.1, rho=0.05)), evaluations(ScheduleFree(lr=0.1))
    ((2, 2), (2, 1))
    """
    ascends, averages = optimizer.ascent is not None, optimizer.averaging is not None
    return (2 if ascends or averages else 1), (2 if ascends else 1)


def data_sets(problem: Problem, unit: int, probes: int = 0) -> list[DataSet]:
    """Return the data of all steps, with sizes of the problem in the given unit; ``probes`` are as in ``DataSet``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD([0.5, 0.5, 1.0]), optimizer, steps=3)
    >>> data_sets(problem, unit=20)[0].samples
    array([10, 10, 20])
    """
    groups: list[list[Stage]] = []
    for stage in problem.stages:
        if stage.new_samples:
            groups.append([])
        groups[-1].append(stage)
    return [replace(_data_set(group, unit), probes=probes) for group in groups]


def _data_set(stages: Sequence[Stage], unit: int) -> DataSet:
    first = stages[0]
    each = [evaluations(stage.optimizer) for stage in stages]
    steps = [stage.steps for stage in stages]
    sampling = first.sampling
    if sampling.fresh and sampling.drawn:
        sizes = chain(*(_of_steps(stage, stage.sampling.batches) for stage in stages))  # type: ignore[union-attr]
        samples = [count(size, unit) for size in sizes]
    else:
        samples = [count(sampling.drawn, unit) if sampling.drawn else 0] * sum(steps)
    return DataSet(
        start=first.start,
        stop=stages[-1].stop,
        drawn=bool(sampling.drawn),
        fresh=sampling.fresh,
        samples=np.array(samples),
        keeps=np.concatenate([_of_steps(stage, stage.sampling.keeps) for stage in stages]),
        noises=np.repeat([stage.noise for stage in stages], steps),
        residuals=np.repeat([residuals for residuals, _ in each], steps),
        signals=np.repeat([signals for _, signals in each], steps),
    )


def _of_steps(stage: Stage, values: Callable[[int], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Values of a sampling rule at the steps of a stage."""
    return values(stage.of_samples)[stage.since_samples : stage.since_samples + stage.steps]
