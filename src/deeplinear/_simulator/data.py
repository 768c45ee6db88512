"""Finite data: the target, the samples, and what a training step sees of them.

Errors v are weight vectors, w* minus the network's, one column per output, shape (D, C). A stream
turns the errors of one step into the residuals on the training samples and the gradient signal,

    Delta = X v / sqrt(D) + noise eps  (samples, C),     h_0 = sqrt(D) / samples X^T Delta  (D, C)
"""

import math
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._simulator.history import correlation, equal_time_correlation

Array = NDArray[np.float64]


class Signal(NamedTuple):
    """What the data give at one step: the train loss, the residuals (samples, C) and h_0 (D, C)."""

    train_loss: float
    residual: Array
    h_0: Array


class Stream(Protocol):
    """The data as training meets them, step after step."""

    def step(self, error: Array) -> Signal:
        """Show the data of the next step to a network whose errors are ``error``."""

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Correlate the residuals of all steps, (steps, C, samples), into (steps C, steps C)."""


class PopulationStream:
    """Unlimited data: the gradient signal is the error itself."""

    def __init__(self, noise: float) -> None:
        self._noise = noise

    def step(self, error: Array) -> Signal:
        """Return the population gradient; the train loss is the test loss."""
        return Signal(population_loss(error, self._noise), np.empty((0, error.shape[1])), error)

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over a sample and its label noise that stay the same at all steps."""
        steps, outputs = residuals.shape[:2]
        return error_correlation + self._noise**2 * np.kron(np.ones((steps, steps)), np.eye(outputs))


class FixedStream:
    """One data set for all steps, each sample kept with probability ``keep`` at each step."""

    def __init__(
        self, rng: np.random.Generator, samples: int, dim: int, outputs: int, noise: float, keep: float = 1.0
    ) -> None:
        self._rng = rng
        self._keep = keep
        self._inputs = rng.standard_normal((samples, dim))
        self._label_noise = noise * rng.standard_normal((samples, outputs))

    def step(self, error: Array) -> Signal:
        """Return the residuals on all samples and the signal from those that are kept."""
        residual = _residual(self._inputs, error, self._label_noise)
        seen = residual
        if self._keep < 1.0:
            seen = residual * ((self._rng.random((len(residual), 1)) < self._keep) / self._keep)
        return Signal(_mean_square(residual), residual, _signal(self._inputs, seen))

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over the samples."""
        return correlation(residuals)


class FreshStream:
    """New samples at every step."""

    def __init__(self, rng: np.random.Generator, samples: int, dim: int, outputs: int, noise: float) -> None:
        self._rng = rng
        self._noise = noise
        self._inputs = np.empty((samples, dim))
        self._label_noise = np.empty((samples, outputs))

    def step(self, error: Array) -> Signal:
        """Draw a batch and return its residuals and signal."""
        self._rng.standard_normal(out=self._inputs)
        self._rng.standard_normal(out=self._label_noise)
        residual = _residual(self._inputs, error, self._noise * self._label_noise)
        return Signal(_mean_square(residual), residual, _signal(self._inputs, residual))

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over the batch; steps share no samples, so only equal times are not zero."""
        return equal_time_correlation(residuals)


def draw_target(rng: np.random.Generator, dim: int, gram: Array) -> Array:
    """Draw w* of shape (dim, C) with ``w*.T @ w* / dim`` equal to ``gram``: random directions otherwise."""
    directions = np.linalg.qr(rng.standard_normal((dim, len(gram))))[0]
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    target: Array = math.sqrt(dim) * directions @ root
    return target


def population_loss(error: Array, noise: float) -> float:
    """Sum over outputs of the mean squared residual on new samples."""
    dim, outputs = error.shape
    return float(np.vdot(error, error) / dim + outputs * noise**2)


def _residual(inputs: Array, error: Array, label_noise: Array) -> Array:
    residual: Array = inputs @ error / math.sqrt(inputs.shape[1]) + label_noise
    return residual


def _signal(inputs: Array, residual: Array) -> Array:
    samples, dim = inputs.shape
    signal: Array = inputs.T @ residual * (math.sqrt(dim) / samples)
    return signal


def _mean_square(residual: Array) -> float:
    return float(np.vdot(residual, residual)) / len(residual)
