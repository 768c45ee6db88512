"""Finite data: the target, the samples, and what a training step sees of them.

Errors v are weight vectors, w* minus the network's, one column per output, shape (D, C). A stream
turns the errors of one step into the residuals on the training samples and the gradient signal,

    Delta = X v / sqrt(U) + noise eps  (samples, C),     h_0 = sqrt(U) / samples X^T Delta  (D, C)

where U is the input dimension D, or 1 where the data are dimension-free. Networks that are trained together have a
leading axis in all arrays. Inputs are X = Z S with Z standard
normal and S the standard deviation along each direction, so that the data feel the error as S v.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from deeplinear._core.arrays import Array, identity, namespace
from deeplinear._core.device import CPU, Device
from deeplinear._experiment.generators import Generators
from deeplinear._experiment.history import at_all_times, correlation, equal_time_correlation
from deeplinear._problem.data import Modes


@dataclass(frozen=True)
class Inputs:
    """The distribution of the inputs.

    Attributes
    ----------
    deviation
        Standard deviation S along each direction or coordinate, shape (D, 1).
    unit
        U: the input dimension, or 1 where the data are dimension-free.
    """

    deviation: Array
    unit: int

    @classmethod
    def of(cls, finite: Modes, unit: int, device: Device = CPU, counts: Sequence[int] | None = None) -> "Inputs":
        """Return inputs with as many directions in each mode as its weight says, or coordinates as ``counts`` does."""
        repeats = finite.weight.astype(int) if counts is None else np.array(counts)
        return cls(device.put(np.repeat(np.sqrt(finite.eigenvalues), repeats)[:, None]), unit)

    def felt(self, error: Array) -> Array:
        """Return S v: the errors as the data feel them."""
        felt: Array = self.deviation * error
        return felt

    def loss(self, error: Array, noise: float) -> Array:
        """Sum over outputs of the mean squared residual on new samples, one number for each network."""
        loss: Array = _sum_of_squares(self.felt(error)) / self.unit + error.shape[-1] * noise**2
        return loss

    def residual(self, standard: Array, error: Array, label_noise: Array) -> Array:
        """Return Delta on the samples X = ``standard`` S."""
        residual: Array = standard @ self.felt(error) / math.sqrt(self.unit) + label_noise
        return residual

    def signal(self, standard: Array, residual: Array) -> Array:
        """Return h_0 from the residuals on the samples X = ``standard`` S."""
        signal: Array = self.deviation * (standard.mT @ residual * (math.sqrt(self.unit) / standard.shape[-2]))
        return signal


class Signal(NamedTuple):
    """What the data give at one step: the train loss, the residuals (samples, C) and h_0 (D, C)."""

    train_loss: Array
    residual: Array
    h_0: Array


class Uniform(Protocol):
    """Draws numbers between 0 and 1."""

    def random(self, shape: tuple[int, int], /) -> Array:
        """Return numbers of this shape, behind the axis of networks if there is one."""


class Stream(Protocol):
    """The data as training meets them, step after step."""

    def step(self, error: Array) -> Signal:
        """Show the data of the next step to a network whose errors are ``error``."""

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Correlate the residuals of all steps, (..., steps, C, samples), into (..., steps C, steps C)."""


class PopulationStream:
    """Unlimited data: the gradient signal is the error itself, times the variance of its direction.

    Parameters
    ----------
    inputs
        Their distribution.
    noise
        Standard deviation of the labels about the target, root mean square over outputs.
    label_gram
        Covariance of label noise between outputs, shape (C, C); noise^2 times the identity unless given.
    """

    def __init__(self, inputs: Inputs, noise: float, label_gram: Array | None = None) -> None:
        self._inputs = inputs
        self._noise, self._label_gram = noise, label_gram

    def step(self, error: Array) -> Signal:
        """Return the population gradient; the train loss is the test loss."""
        h_0 = self._inputs.deviation * self._inputs.felt(error)
        return Signal(self._inputs.loss(error, self._noise), error[..., :0, :], h_0)

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over a sample and its label noise that stay the same at all steps."""
        steps, outputs = residuals.shape[-3:-1]
        gram = self._noise**2 * identity(outputs, residuals) if self._label_gram is None else self._label_gram
        every: Array = error_correlation + at_all_times(gram, steps)
        return every


class FixedStream:
    """One data set for all steps, each sample kept with probability ``keep`` at each step.

    Parameters
    ----------
    inputs
        Their distribution.
    standard
        Z of shape (samples, D), used through ``@``, ``mT`` and ``shape`` only.
    label_noise
        Shape (samples, C).
    keep
        Probability with which a sample enters a step.
    rng
        Draws which samples do.
    """

    def __init__(self, inputs: Inputs, standard: Array, label_noise: Array, keep: float, rng: Uniform) -> None:
        self._inputs, self._standard, self._label_noise = inputs, standard, label_noise
        self._keep, self._rng = keep, rng

    def step(self, error: Array) -> Signal:
        """Return the residuals on all samples and the signal from those that are kept."""
        residual = self._inputs.residual(self._standard, error, self._label_noise)
        seen = residual
        if self._keep < 1.0:
            seen = residual * (self._rng.random((residual.shape[-2], 1)) < self._keep) / self._keep
        return Signal(_mean_square(residual, self._samples), residual, self._inputs.signal(self._standard, seen))

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over the samples."""
        return correlation(residuals, self._samples)

    @property
    def _samples(self) -> int:
        return int(self._standard.shape[-2])


class FreshStream:
    """New samples at every step.

    Parameters
    ----------
    inputs
        Their distribution.
    samples
        Number of samples in a batch.
    draw
        Returns Z and label noise of a new batch, as for ``FixedStream``.
    """

    def __init__(self, inputs: Inputs, samples: int, draw: Callable[[], tuple[Array, Array]]) -> None:
        self._inputs, self._samples, self._draw = inputs, samples, draw

    def step(self, error: Array) -> Signal:
        """Draw a batch and return its residuals and signal."""
        standard, label_noise = self._draw()
        residual = self._inputs.residual(standard, error, label_noise)
        return Signal(_mean_square(residual, self._samples), residual, self._inputs.signal(standard, residual))

    def residual_correlation(self, residuals: Array, error_correlation: Array) -> Array:
        """Average over the batch; steps share no samples, so only equal times are not zero."""
        return equal_time_correlation(residuals, self._samples)


class Batches:
    """Draws one batch after another into the same place, since a batch may be large."""

    def __init__(self, rng: np.random.Generator | Generators, samples: int, dim: int, outputs: int, noise: float):
        self._rng, self._noise = rng, noise
        self._shapes = (samples, dim), (samples, outputs)
        self._drawn: list[Array] = []

    def __call__(self) -> tuple[Array, Array]:
        """Return Z and label noise; they hold until the next call."""
        if self._drawn:
            for numbers in self._drawn:
                self._rng.standard_normal(out=numbers)
        else:
            self._drawn = [self._rng.standard_normal(shape) for shape in self._shapes]
        standard, label_noise = self._drawn
        return standard, self._noise * label_noise


def draw_target(rng: np.random.Generator, dim: int, gram: Array) -> Array:
    """Draw w* of shape (dim, C) with ``w*.T @ w* / dim`` equal to ``gram``: random directions otherwise.

    The rank of ``gram`` must be ``dim`` at most.
    """
    roots = target_roots(dim, gram)
    directions = np.linalg.qr(rng.standard_normal((dim, len(roots))))[0]
    target: Array = math.sqrt(dim) * directions @ roots  # eq-target
    return target


def target_roots(dim: int, gram: Array) -> Array:
    """Return w* / sqrt(dim) along orthonormal directions, as few of ``dim`` as it may need, shape (directions, C).

    Several matrices, with leading axes, are several targets.
    """
    count = min(dim, gram.shape[-1])
    values, vectors = np.linalg.eigh(gram)
    roots: Array = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]).mT[..., -count:, :]  # largest last
    return roots


def draw_targets(rng: np.random.Generator, finite: Modes) -> Array:
    """Draw w* of shape (D, C), mode by mode."""
    counts = finite.weight.astype(int)
    return np.concatenate([draw_target(rng, *each) for each in zip(counts, finite.target, strict=True)])


def _mean_square(residual: Array, samples: int) -> Array:
    mean: Array = _sum_of_squares(residual) / samples
    return mean


def _sum_of_squares(field: Array) -> Array:
    """Sum over sites and outputs."""
    flat = field.reshape(*field.shape[:-2], -1)
    total: Array = namespace(flat).vecdot(flat, flat)
    return total
