"""Read the curves of problems off equations that have been filled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._equations.system import Equations, Values
from deeplinear._solvers.base import Answer, Curves, Run, Solver
from deeplinear._time.axis import TimeAxis

Array = NDArray[Any]


def curves_of(equations: Equations, values: Values) -> Curves:
    """Take the curves of all problems, each of shape (batch, times), from the values at all times.

    The train loss is the test loss without samples.
    """
    outputs = equations.c.structure.outputs

    def over_outputs(rows: Array) -> Array:
        return np.asarray(rows.reshape(len(rows), -1, outputs).sum(axis=-1))

    test = equations.test_losses(values.error)
    train = np.trace(values.residual, axis1=-2, axis2=-1) if equations.data_covariances.noisy else test
    return Curves(test, train, values.kernel, *map(over_outputs, (values.bias, values.width, values.data)))


def answer_from(
    solver: Solver,
    run: Run,
    curves: Curves,
    index: int,
    axis: TimeAxis,
    stats: dict[str, Any],
    rounding_at: int = -1,
    averaged: Array | None = None,
) -> Answer:
    """Take one problem out of a run, with its curves; these are inf from a divergence on. Steps -1 stand for never."""
    equations, end = run.equations, int(run.diverged_at[index])
    curves = curves.map(lambda every: every[index])
    many = equations.c.structure.sets.count > 1
    tasks = equations.task_losses[index] if many else np.zeros((0, len(axis.times)))
    if end >= 0:
        late = axis.times >= end
        curves = curves.map(lambda curve: np.where(late, np.inf, curve))
        tasks = np.where(late, np.inf, tasks)
    averaged = np.zeros((0, len(axis.times))) if averaged is None else averaged
    return Answer(
        solver=solver,
        axis=axis,
        diverged_at=None if end < 0 else end,
        rounding_at=None if rounding_at < 0 else rounding_at,
        curves=curves,
        stats=stats | ({} if rounding_at < 0 else {"rounding_at": rounding_at}),
        averaged_test_loss=averaged,
        task_loss=tasks,
        run=run,
        index=index,
    )
