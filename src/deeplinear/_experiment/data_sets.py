"""Which steps of training share their samples, how many these are, and how often they are looked at.

A phase of training draws new samples or keeps those of the phase before. Steps that share samples are one data set;
so are steps that draw a batch each, or see unlimited data, one after another under the same rule.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from deeplinear._experiment.sizes import count
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._rules.rule import Rule


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


@dataclass(frozen=True)
class DataTotals:
    """What costs are counted from: sums over the steps of a data set, found without arrays as long as the run.

    Attributes
    ----------
    steps
        Number of steps.
    drawn, fresh
        As in ``DataSet``.
    largest, summed
        Largest number of samples of a step, and the sum over all steps.
    chooses
        Whether some step leaves out some of the samples.
    asked
        Residuals and gradients that all steps together ask for.
    looks
        As in ``DataSet``.
    """

    steps: int
    drawn: bool
    fresh: bool
    largest: int
    summed: int
    chooses: bool
    asked: tuple[int, int]
    looks: tuple[int, int]


def evaluations(optimizer: Rule) -> tuple[int, int]:
    """How often a step evaluates the loss, and how often the gradient.

    Examples
    --------
    >>> from deeplinear._rules.sam import SAM
    >>> from deeplinear._rules.schedule_free import ScheduleFree
    >>> evaluations(SAM(lr=0.1, rho=0.05)), evaluations(ScheduleFree(lr=0.1))
    ((2, 2), (2, 1))
    """
    traits = optimizer.traits
    return traits.looks + traits.elsewhere, traits.looks


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
    return [replace(_data_set(group, unit), probes=probes) for group in _groups(problem)]


def data_totals(problem: Problem, unit: int, probes: int = 0) -> list[DataTotals]:
    """Return what the costs of all data sets are counted from; the arguments are those of ``data_sets``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(0.5), optimizer, steps=10**12)
    >>> data_totals(problem, unit=20)[0].summed
    10000000000000
    """
    return [_totals(group, unit, probes) for group in _groups(problem)]


def _groups(problem: Problem) -> list[list[Stage]]:
    """Stages of training that share their samples."""
    groups: list[list[Stage]] = []
    for stage in problem.stages:
        if stage.new_samples:
            groups.append([])
        groups[-1].append(stage)
    return groups


def _totals(stages: Sequence[Stage], unit: int, probes: int) -> DataTotals:
    first = stages[0]
    each = [evaluations(stage.optimizer) for stage in stages]
    residuals, signals = zip(*each, strict=True)
    lengths = [stage.steps for stage in stages]
    asked = (sum(map(operator.mul, lengths, residuals)), sum(map(operator.mul, lengths, signals)))
    once = min(probes, 1)  # the first gradient may be kept
    on_one = (max(residuals) + once, max(signals) + once)
    samples = [_samples_of(stage, unit) for stage in stages]
    return DataTotals(
        steps=stages[-1].stop - first.start,
        drawn=bool(first.sampling.drawn),
        fresh=first.sampling.fresh,
        largest=max(largest for largest, _ in samples),
        summed=sum(summed for _, summed in samples),
        chooses=any(bool((_distinct(stage, stage.sampling.keeps) != 1.0).any()) for stage in stages),
        asked=asked,
        looks=on_one if first.sampling.fresh else (asked[0] + probes, asked[1] + probes),
    )


def _samples_of(stage: Stage, unit: int) -> tuple[int, int]:
    """Largest number of samples of a step, and the sum over the steps of a stage."""
    sampling = stage.sampling
    if not sampling.drawn:
        return 0, 0
    if not sampling.fresh:
        return count(sampling.drawn, unit), stage.steps * count(sampling.drawn, unit)
    sizes = np.maximum(np.rint(unit * _distinct(stage, sampling.batches)), 1.0)  # type: ignore[union-attr]
    return int(sizes.max()), int(sizes.sum()) if sampling.changes_in_time else stage.steps * int(sizes[0])


def _distinct(stage: Stage, values: Callable[[int], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Values of a sampling rule at the steps of a stage, or one that stands for all of them."""
    return _of_steps(stage, values) if stage.sampling.changes_in_time else values(1)


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
