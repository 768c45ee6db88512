"""Read the curves of one problem off equations that have been filled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._solvers.base import Answer, Curves, Run, Solver
from deeplinear._time.axis import TimeAxis

Array = NDArray[Any]


def answer_from(
    solver: Solver,
    run: Run,
    index: int,
    axis: TimeAxis,
    stats: dict[str, Any],
    rounding_at: int = -1,
    averaged: Array | None = None,
) -> Answer:
    """Take one problem out of a run; losses are inf from a divergence on, and steps -1 stand for never."""
    equations, end = run.equations, int(run.diverged_at[index])
    outputs, equal = equations.c.structure.outputs, equations.equal_times

    def over_outputs(rows: Array) -> Array:
        return np.asarray(rows[index].reshape(-1, outputs).sum(axis=-1))

    test = over_outputs(equal.error) + equations.label_noise[index]
    train = test if equations.train_losses is None else equations.train_losses[index]
    curves = Curves(test, train, equal.kernel[index], *map(over_outputs, (equal.bias, equal.width, equal.data)))
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
