"""Curvature and singular values of networks against those that theory predicts."""

from collections.abc import Iterator

import numpy as np

from deeplinear._comparison.observables import ROUNDING, ComparedCurve, ComparedObservable
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._geometry.landscape import landscape
from deeplinear._geometry.sharpness import sharpness
from deeplinear._geometry.weight_spectra import ACCURACY, weight_spectra
from deeplinear._problem.problem import Problem

_STANDS_OUT = 4.0
"""How far beyond a bulk an outlier must be, relative to it and over n^(-2/3), by which the largest value of a bulk of n
scatters."""


def curvature_of(problem: Problem, experiment: Ensemble | Measured, steps: int) -> Iterator[ComparedObservable]:
    """Take what networks have measured at the steps before anything diverged, if they have; solves the theory.

    These are Ritz values, losses along a line, and of each weight layer its largest singular values.
    """
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
    if wanted.singular_values:
        yield from _singular_values(problem, experiment, at)
    if wanted.line and at[-1] == wanted.at[-1]:
        yield from _line_of(problem, experiment, (at[0], at[-1]))


def _singular_values(problem: Problem, experiment: Ensemble, at: list[int]) -> Iterator[ComparedObservable]:
    """Take those singular values of each layer that stand out from its bulk, largest first.

    Those at the end of a bulk of n lie below that of theory by as much as they scatter, which is n^(-2/3) of it.
    """
    theory, measured = weight_spectra(problem, at), np.asarray(experiment.singular_values)[:, : len(at)]
    unit = 1 if problem.data.dimension_free else experiment.dim
    size = min(experiment.dim, *(unit * width for width in problem.network.given_widths))
    least = theory.edge * (1.0 + _STANDS_OUT * size ** (-2 / 3))
    for layer, number in np.ndindex(measured.shape[2:]):
        ours = np.array([each[layer][number] if number < len(each[layer]) else np.nan for each in theory.outliers])
        values = measured[:, :, layer, number]
        known = (ours > least[:, layer]) & np.isfinite(values).all(axis=0)
        if known.any():
            name = f"singular_values_{number + 1}" if number else "singular_values"
            curve = ComparedCurve(ours[known], values[:, known], ours[known], ACCURACY / ROUNDING * ours[known])
            yield ComparedObservable(name, layer, np.array(at)[known], curve)


def _line_of(problem: Problem, experiment: Ensemble, steps: tuple[int, int]) -> Iterator[ComparedObservable]:
    """Take the losses along the line between two steps; numbers of positions stand for times."""
    line = landscape(problem, steps)
    numbers = np.arange(len(line.positions))
    for name, ours in (("line_train_loss", line.train_loss), ("line_test_loss", line.test_loss)):
        values = np.asarray(getattr(experiment, name))
        yield ComparedObservable(name, None, numbers, ComparedCurve(ours, values, ours, ours))
