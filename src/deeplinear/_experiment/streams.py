"""Finite data: the samples, and what a training step sees of them.

Errors v are weight vectors, w* minus the network's, one column per output, shape (D, C). A batch
turns the errors of one step into the residuals on its samples and the gradient signal,

    Delta = X v / sqrt(U) + noise eps  (samples, C),     h_0 = sqrt(U) / samples X^T Delta  (D, C)

where U is the input dimension D, or 1 where the data are dimension-free. Networks that are trained together have a
leading axis in all arrays. Inputs are X = Z S with Z standard
normal and S the standard deviation along each direction, so that the data feel the error as S v.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace
from deeplinear._core.device import CPU, Device
from deeplinear._experiment.generators import Generators
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


class Seen(NamedTuple):
    """What the data give at some errors: the train loss, and the residuals (samples, C)."""

    train_loss: Array
    residual: Array


class Uniform(Protocol):
    """Draws numbers between 0 and 1."""

    def random(self, shape: tuple[int, int], /) -> Array:
        """Return numbers of this shape, behind the axis of networks if there is one."""


class Batch(Protocol):
    """The data of one step, which may be asked more than once."""

    @property
    def share(self) -> float:
        """What residuals are multiplied with in the record, 1 / sqrt(samples), so that their overlaps are means."""

    def see(self, error: Array) -> Seen:
        """Show the data to a network whose errors are ``error``."""

    def signal(self, error: Array, residual: Array) -> Array:
        """Return h_0, shape (D, C), of errors and the residuals that they make."""

    def whole(self) -> "Batch":
        """Return the data with all of their samples in the gradient."""

    def population(self, noise: float) -> "Batch":
        """Return unlimited data like these, with label noise of this strength where these are samples."""

    def without_noise(self) -> "Batch":
        """Return the data with the labels of the target alone."""


@dataclass(frozen=True)
class PopulationBatch:
    """Unlimited data: the gradient signal is the error itself, times the variance of its direction.

    Attributes
    ----------
    inputs
        Their distribution.
    noise
        Standard deviation of the labels about the target, root mean square over outputs.
    """

    inputs: Inputs
    noise: float

    @property
    def share(self) -> float:
        """As in ``Batch``; there are no residuals."""
        return 1.0

    def see(self, error: Array) -> Seen:
        """The train loss is the test loss, and there are no samples."""
        return Seen(self.inputs.loss(error, self.noise), error[..., :0, :])

    def signal(self, error: Array, residual: Array) -> Array:
        """Return the population gradient."""
        signal: Array = self.inputs.deviation * self.inputs.felt(error)
        return signal

    def whole(self) -> Batch:
        """There is no more."""
        return self

    def population(self, noise: float) -> Batch:
        """They are unlimited already."""
        return self

    def without_noise(self) -> Batch:
        """As in ``Batch``."""
        return replace(self, noise=0.0)


@dataclass(frozen=True)
class SampleBatch:
    """Samples with their labels.

    Attributes
    ----------
    inputs
        Their distribution.
    standard
        Z of shape (samples, D), used through ``@``, ``mT`` and ``shape`` only.
    label_noise
        Shape (samples, C).
    keep
        Probability with which a sample enters the gradient.
    kept
        Whether each does, shape (samples, 1); None if all do.
    """

    inputs: Inputs
    standard: Array
    label_noise: Array
    keep: float = 1.0
    kept: Array | None = None

    @property
    def share(self) -> float:
        """As in ``Batch``."""
        return 1.0 / math.sqrt(self.standard.shape[-2])

    def see(self, error: Array) -> Seen:
        """Return the residuals on all samples."""
        residual = self.inputs.residual(self.standard, error, self.label_noise)
        return Seen(_sum_of_squares(residual) / self.standard.shape[-2], residual)

    def signal(self, error: Array, residual: Array) -> Array:
        """Return the signal from the samples that are kept."""
        seen = residual if self.kept is None else residual * self.kept / self.keep
        return self.inputs.signal(self.standard, seen)

    def whole(self) -> Batch:
        """As in ``Batch``."""
        return replace(self, keep=1.0, kept=None)

    def population(self, noise: float) -> Batch:
        """Return the distribution that the samples come from."""
        return PopulationBatch(self.inputs, noise)

    def without_noise(self) -> Batch:
        """As in ``Batch``."""
        return replace(self, label_noise=0.0 * self.label_noise)


Stream = Iterator[Batch]
"""The data as training meets them, step after step."""


def population_stream(inputs: Inputs, noises: Array) -> Stream:
    """Yield unlimited data, with label noise of the given strengths, one for each step."""
    for noise in noises.tolist():
        yield PopulationBatch(inputs, noise)


def fixed_stream(
    inputs: Inputs, standard: Array, label_noise: Array, noises: Array, keeps: Array, rng: Uniform
) -> Stream:
    """Yield the same samples at every step, each kept with a probability.

    Parameters
    ----------
    inputs, standard, label_noise
        As in ``SampleBatch``, the label noise in units of ``noises``.
    noises, keeps
        Strength of the label noise, and probability with which a sample enters, of each step.
    rng
        Draws which samples do.
    """
    for noise, keep in zip(noises.tolist(), keeps.tolist(), strict=True):
        kept = rng.random((standard.shape[-2], 1)) < keep if keep < 1.0 else None
        yield SampleBatch(inputs, standard, noise * label_noise, keep, kept)


def fresh_stream(
    inputs: Inputs, draw: Callable[[int], tuple[Array, Array]], noises: Array, samples: NDArray[np.int64]
) -> Stream:
    """Yield new samples at every step.

    Parameters
    ----------
    inputs, noises
        As in ``fixed_stream``.
    draw
        Returns Z and label noise of a new batch of so many samples.
    samples
        Number of samples at each step.
    """
    for noise, count in zip(noises.tolist(), samples.tolist(), strict=True):
        standard, label_noise = draw(count)
        yield SampleBatch(inputs, standard, noise * label_noise)


class Batches:
    """Draws one batch after another into the same place, since a batch may be large."""

    def __init__(self, rng: np.random.Generator | Generators, dim: int, outputs: int) -> None:
        self._rng, self._columns = rng, (dim, outputs)
        self._drawn: list[Array] = []

    def __call__(self, samples: int) -> tuple[Array, Array]:
        """Return Z and label noise of unit variance; they hold until the next call."""
        if self._drawn and self._drawn[0].shape[-2] == samples:
            for numbers in self._drawn:
                self._rng.standard_normal(out=numbers)
        else:
            self._drawn = [self._rng.standard_normal((samples, columns)) for columns in self._columns]
        standard, label_noise = self._drawn
        return standard, label_noise


def _sum_of_squares(field: Array) -> Array:
    """Sum over sites and outputs."""
    flat = field.reshape(*field.shape[:-2], -1)
    total: Array = namespace(flat).vecdot(flat, flat)
    return total
