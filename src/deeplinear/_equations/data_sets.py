"""Which rows of the equations see which examples and targets, and what is drawn of them.

Row j and row i share their examples, or not: S(j, i) is 1 or 0. The rows of a phase on a fixed data set share it, and
so do those of later phases that keep it. Fresh batches are shared by the evaluations of one step, and so are batches
that are drawn from a data set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._equations.rules import stretch_of
from deeplinear._problem.problem import Problem

Array = NDArray[Any]


@dataclass(frozen=True)
class DataSets:
    """What two problems must share of their data to be solved as one batch.

    Attributes
    ----------
    reused, subsampled, resized
        Whether examples are seen more than once, whether batches are drawn, and whether their size changes.
    sets
        Number of the data set of each row, empty where there is one for all.
    tasks
        Number of rows that see each target, in order; empty where there is one for all.
    twice
        Whether each row sees the batch that was drawn from a data set for the row before; empty where none does.
    """

    reused: bool
    subsampled: bool
    resized: bool = False
    sets: tuple[int, ...] = ()
    tasks: tuple[int, ...] = ()
    twice: tuple[bool, ...] = ()

    def is_second(self, row: int) -> bool:
        """Whether a row sees the batch that was drawn for the row before."""
        return bool(self.twice) and self.twice[row]

    @property
    def count(self) -> int:
        """Number of targets."""
        return len(self.tasks) or 1


def data_sets(problem: Problem, lengths: Sequence[int] | None = None) -> tuple[DataSets, dict[str, Array]]:
    """Return the data sets of a problem, and its ``sigma``, ``reuse`` and ``subsampling``.

    These have shape (1,), or (rows,) where they change. ``lengths`` are the numbers of nodes in time that stand for the
    steps of each phase, if any do.
    """
    stages = problem.stages
    if len(stages) == 1 and stretch_of(stages[0]).evaluations == 1:
        return _one(problem)
    if lengths is not None:
        return _at_nodes(problem, lengths)
    sigma, reuse, subsampling, sets, twice = [], [], [], [], []
    number = -1
    for stage in stages:
        sampling, evaluations = stage.sampling, stretch_of(stage).evaluations
        draws = sampling.subsampling(stage.of_samples)[stage.since_samples :]
        number += stage.new_samples
        for step in range(stage.steps):
            # Evaluations on one fresh batch share it; otherwise a batch is white noise.
            shares = sampling.subsamples and sampling.fresh and evaluations > 1
            number += sampling.subsamples and sampling.fresh
            sigma += [stage.noise] * evaluations
            reuse += [draws[step] if shares else sampling.reuse] * evaluations
            subsampling += [0.0 if shares else draws[step]] * evaluations
            sets += [number] * evaluations
            twice += [evaluation > 0 and sampling.subsamples and not shares for evaluation in range(evaluations)]
    tasks = [stretch_of(stage).evaluations * stage.steps for stage in stages]
    numbers = {"sigma": np.array(sigma), "reuse": np.array(reuse), "subsampling": np.array(subsampling)}
    many = len(stages) > 1
    pairs = tuple(twice) if any(twice) else ()
    shape = DataSets(any(reuse), any(subsampling), True, tuple(sets), tuple(tasks) if many else (), pairs)
    return shape, numbers


def _one(problem: Problem) -> tuple[DataSets, dict[str, Array]]:
    """Return the data of a problem of one phase, with one evaluation in each step."""
    (stage,) = problem.stages
    sampling = stage.sampling
    changes = sampling.changes_in_time
    draws = sampling.subsampling(stage.of_samples if changes else 1)[stage.since_samples if changes else 0 :]
    alike = not changes or bool((draws == draws[0]).all())
    numbers = {
        "sigma": np.array([stage.noise]),
        "reuse": np.array([sampling.reuse]),
        "subsampling": draws[:1] if alike else draws,
    }
    subsampled = bool(draws[0] != 0 if alike else draws.any())
    return DataSets(bool(sampling.reuse != 0), subsampled, not alike), numbers


def _at_nodes(problem: Problem, lengths: Sequence[int]) -> tuple[DataSets, dict[str, Array]]:
    """Return the data of phases in which no batches are drawn, each with so many nodes in time."""
    stages = problem.stages
    number = np.cumsum([stage.new_samples for stage in stages]) - 1
    numbers = {
        "sigma": np.repeat([stage.noise for stage in stages], lengths),
        "reuse": np.repeat([stage.sampling.reuse for stage in stages], lengths),
        "subsampling": np.zeros(sum(lengths)),
    }
    reused = any(stage.sampling.reuse for stage in stages)
    sets = tuple(np.repeat(number, lengths).tolist())
    return DataSets(reused, False, True, sets, tuple(lengths)), numbers


def targets(problem: Problem) -> Array:
    """Return the products of the targets of all phases for each mode, shape (modes, tasks * outputs, tasks * outputs).

    The overlap of two targets is the product of those between the phases in between.
    """
    count, gram = len(problem.stages), problem.modes.target
    if count == 1:
        return gram
    Q = np.ones((count, count), np.result_type(*(stage.target_overlap for stage in problem.stages)))
    for late in range(count):
        for early in range(late):
            Q[late, early] = Q[early, late] = np.prod(
                [stage.target_overlap for stage in problem.stages[early + 1 : late + 1]]
            )
    modes, outputs = gram.shape[:2]
    products = Q[None, :, None, :, None] * gram[:, None, :, None, :]  # eq-targets
    return np.asarray(products.reshape(modes, count * outputs, count * outputs))
