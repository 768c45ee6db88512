"""The spectrum of a real data set: a linear fit in the eigenbasis of its covariance."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._problem.data import Modes

Array = NDArray[np.float64]

_RESOLVED = 1e-7
"""Columns that vary less than this beside the one that varies most have eigenvalues lost in rounding (its square)."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A data set in the eigenbasis of its covariance, x = standard * sqrt(eigenvalues) and y = x @ weights + residual.

    Attributes
    ----------
    modes, noise
        As ``Spectrum.from_data`` takes them.
    standard
        Inputs of mean 0 and variance 1 along each direction, without correlations, shape (rows, directions).
    weights
        Of the least-squares fit, shape (directions, outputs).
    residual
        What that leaves of the targets, uncorrelated with the inputs, shape (rows, outputs).
    """

    modes: Modes
    noise: float
    standard: Array
    weights: Array
    residual: Array


def fit_rows(x: Any, y: Any) -> Fit:
    """Fit targets y (samples,) or (samples, outputs) to inputs x (samples, features); both are centred."""
    inputs, targets = _table("x", x, (2,)), _table("y", y, (1, 2))
    if len(inputs) != len(targets):
        raise Refusal("y", len(targets), f"as many rows as x ({len(inputs)})", verb="have")
    targets = targets.reshape(len(targets), -1)
    (inputs, scale), (targets, unit) = _centered("x", inputs), _centered("y", targets)
    _check_scales(inputs)
    samples = len(inputs)
    left, singular, _ = np.linalg.svd(inputs, full_matrices=False)
    rank = int((singular > singular[0] * max(inputs.shape) * np.finfo(float).eps).sum())
    if samples <= rank + 1:
        allowed = f"more samples than directions to fit: {rank + 2} or more for {rank} directions"
        raise Refusal("x", samples, allowed, verb="have")
    left, singular = left[:, :rank], singular[:rank]
    fitted = left.T @ targets
    residual = targets - left @ fitted
    if np.linalg.norm(residual) <= max(inputs.shape) * np.finfo(float).eps * np.linalg.norm(targets):
        residual[:] = 0.0
    noise = float(np.sqrt(np.mean(residual**2))) * unit
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        weights = fitted / singular[:, None] * unit / scale
        modes = Modes(
            eigenvalues=(scale * singular) ** 2 / samples,
            target=weights[:, :, None] * weights[:, None, :],
            weight=np.ones(rank),
        )
        values = (modes.eigenvalues, modes.target, 1 / modes.eigenvalues)
    if not all(np.isfinite(each).all() for each in values):
        raise ValueError(
            f"x and y must be numbers that can be squared, got up to {scale:.2g} and {unit:.2g}: rescale them"
        )
    return Fit(modes, noise, math.sqrt(samples) * left, weights, residual * unit)


def _table(name: str, value: Any, dims: tuple[int, ...]) -> Array:
    try:
        table = np.asarray(value)
        if table.dtype.kind not in "biufO":  # text and complex numbers, which conversion would let through
            raise TypeError
        table = table.astype(float)
    except (TypeError, ValueError):
        raise Refusal(name, value, "an array of real numbers", got=type(value).__name__) from None
    if table.ndim not in dims or not table.size:
        expected = "(samples, features)" if dims == (2,) else "(samples,) or (samples, outputs)"
        raise Refusal(name, table.shape, f"shape {expected}", verb="have")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        where = ", ".join(str(int(i)) for i in bad[0])
        first = table[tuple(bad[0])]
        raise Refusal(name, float(first), "finite", got=f"{first} at [{where}] ({len(bad)} such entries)")
    return table


def _centered(name: str, table: Array) -> tuple[Array, float]:
    """Subtract column means; return the table in units of its largest entry, and that. Constant columns become zero."""
    largest = np.abs(table).max(axis=0)
    scale = float(largest.max()) or 1.0
    table = table / scale
    centered = table - table.mean(axis=0)
    centered -= centered.mean(axis=0)  # once more, for what rounding left
    constant = np.abs(centered).max(axis=0) <= 16 * np.finfo(float).eps * largest / scale
    centered[:, constant] = 0.0
    if name == "x" and constant.all():
        raise Refusal("x", None, "a column that varies", verb="have", got="constant columns only")
    return centered, scale


def _check_scales(inputs: Array) -> None:
    spread = np.sqrt(np.mean(inputs**2, axis=0))
    varies = spread > 0
    small = np.flatnonzero(varies & (spread < _RESOLVED * spread.max()))
    if len(small):
        ratio = spread[small[0]] / spread.max()
        got = f"column {small[0]}, which varies {ratio:.2g} times as much as column {spread.argmax()}"
        raise Refusal("x", ratio, "columns of comparable scale", verb="have", got=got, rest=": standardise them")
