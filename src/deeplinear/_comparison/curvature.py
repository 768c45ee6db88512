"""Curvature of networks against the curvature that theory predicts."""

from collections.abc import Iterator

import numpy as np

from deeplinear._comparison.observables import ComparedCurve, ComparedObservable
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._geometry.landscape import landscape
from deeplinear._geometry.sharpness import sharpness
from deeplinear._problem.problem import Problem


def curvature_of(problem: Problem, experiment: Ensemble | Measured, steps: int) -> Iterator[ComparedObservable]:
    """Take each Ritz value at the steps before anything diverged, if networks have measured them; solves the theory."""
    if isinstance(experiment, Measured) or experiment.curvature is None:
        return
    wanted = experiment.curvature
    at = [step for step in wanted.at if step < steps]
    if not at:
        return
    theory = sharpness(problem, at, wanted.vectors, operator=wanted.operator, start=wanted.start).ritz_values
    values = np.asarray(experiment.ritz_values)[:, : len(at)]
    for number in range(wanted.vectors):
        known = np.isfinite(theory[:, number]) & np.isfinite(values[..., number]).all(axis=0)
        if not known.any():
            continue
        ours, size = (
            theory[known, number],
            np.abs(theory[known]).max(axis=1, where=np.isfinite(theory[known]), initial=0.0),
        )
        curve = ComparedCurve(ours, values[:, known, number], size, size)
        yield ComparedObservable("ritz_values", number, np.array(at)[known], curve)
    if wanted.line and at[-1] == wanted.at[-1]:
        yield from _line_of(problem, experiment, (at[0], at[-1]))


def _line_of(problem: Problem, experiment: Ensemble, steps: tuple[int, int]) -> Iterator[ComparedObservable]:
    """Take the losses along the line between two steps; numbers of positions stand for times."""
    line = landscape(problem, steps)
    numbers = np.arange(len(line.positions))
    for name, ours in (("line_train_loss", line.train_loss), ("line_test_loss", line.test_loss)):
        values = np.asarray(getattr(experiment, name))
        yield ComparedObservable(name, None, numbers, ComparedCurve(ours, values, ours, ours))
