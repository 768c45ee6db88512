"""Training on the rows of a real data set, in place of Gaussian samples of the same spectrum.

Samples and batches are rows drawn with replacement, so that each is an independent draw from the data set, which is
the population: losses on new samples are means over all of its rows. In the eigenbasis of its covariance a row is
x = S z, y = x . w* + eps, as a Gaussian sample is, but z has the distribution that it has, and eps may depend on it.
Over all rows z has the identity as covariance and eps has none with z, so that training on all data is the same for
both.
"""

from typing import Any

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.data_sets import DataSet
from deeplinear._experiment.streams import Inputs, Stream, fixed_stream, fresh_stream, population_stream
from deeplinear._problem.from_data import Fit, fit_rows
from deeplinear._problem.problem import Problem

_SAME = 1e-6
"""Relative difference beyond which the spectrum of a problem is not that of the rows."""


def read_rows(problem: Problem, data: Any) -> Fit:
    """Return the data set (x, y), checked to have the spectrum of the problem.

    Raises
    ------
    ValueError
        If it is not a pair of tables, or the problem has another spectrum.
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise Refusal("data", data, "a pair (x, y) of inputs and targets", got=type(data).__name__)
    fit = fit_rows(*data)
    modes = fit.modes
    ours = problem.data
    is_same = ours.dimension_free and ours.modes.target.shape == modes.target.shape
    if is_same:
        pairs = [
            (ours.modes.eigenvalues, modes.eigenvalues),
            (ours.modes.target, modes.target),
            (ours.noise, fit.noise),
        ]
        is_same = bool((ours.modes.weight == 1).all()) and all(_is_close(*pair) for pair in pairs)
    if not is_same:
        made_from = "the rows that the problem was made from, with data=Spectrum.from_data(x, y) in the problem"
        raise Refusal("data", data, made_from, got=f"rows with another spectrum than {ours!r}")
    for stage in problem.stages:
        if stage.noise != ours.noise:
            raise Refusal(
                "noise", stage.noise, f"that of the data ({ours.noise!r}) in every phase where rows are given"
            )
    return fit


def row_stream(data: DataSet, inputs: Inputs, rng: np.random.Generator, rows: Fit) -> Stream:
    """Return what training sees of the rows, which ``rng`` draws."""

    def draw(count: int) -> tuple[Array, Array]:
        chosen = rng.integers(len(rows.standard), size=count)
        return rows.standard[chosen], rows.residual[chosen]

    as_it_is = np.ones_like(data.noises)
    if not data.drawn:
        return population_stream(inputs, data.noises)
    if data.fresh:
        return fresh_stream(inputs, draw, as_it_is, data.samples)
    return fixed_stream(inputs, *draw(int(data.samples[0])), as_it_is, data.keeps, rng)


def label_gram(rows: Fit) -> Array:
    """Covariance of what the rows have beside the target between outputs, in units of the noise, shape (C, C)."""
    gram: Array = rows.residual.T @ rows.residual / len(rows.residual)
    return gram / rows.noise**2 if rows.noise else gram


def _is_close(one: Any, other: Any) -> bool:
    return bool(np.abs(np.subtract(one, other)).max() <= _SAME * np.abs(other).max())
