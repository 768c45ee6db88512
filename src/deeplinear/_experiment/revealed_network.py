"""Networks and data whose Gaussian matrices are revealed where training looks at them, several networks at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from deeplinear._core.arrays import Array, identity
from deeplinear._core.device import Device
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.network import FiniteNetwork, Outer
from deeplinear._experiment.revealed import Revealed, Weight
from deeplinear._experiment.sizes import Sizes
from deeplinear._experiment.spaces import Space, kept_coordinates
from deeplinear._experiment.streams import FixedStream, FreshStream, Inputs, PopulationStream, Stream, target_roots
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem


@dataclass(frozen=True)
class Looks:
    """How many directions of each space training can look at, at most.

    A network of T steps and C outputs applies every matrix to T C vectors from each side.

    Attributes
    ----------
    inputs
        Of each mode of the inputs: the target, W_0^T g_1 and X^T Delta.
    neurons
        Of each hidden layer: W h from below and W^T g from above, or the readout. A residual network has one space
        of neurons for all layers.
    samples
        Of the samples: label noise and X v. None where a step chooses samples, so that they are not alike.
    """

    inputs: int
    neurons: tuple[int, ...]
    samples: int | None

    @classmethod
    def of(cls, problem: Problem) -> "Looks":
        """Count them."""
        outputs, depth = problem.data.outputs, problem.network.layers
        each, sampling = problem.steps * outputs, problem.sampling
        neurons = (2 * each,) * (depth - 1) + (each + outputs,)
        if problem.network.skip:
            neurons = (each * (2 * depth - 1) + outputs,) * depth
        samples = outputs + (outputs if sampling.fresh else each)
        inputs = outputs + (2 if sampling.drawn else 1) * each
        return cls(inputs, neurons, samples if sampling.keep == 1.0 else None)


def coordinates(problem: Problem, sizes: Sizes, finite: Modes, *, reduced: bool) -> Sizes:
    """Count the coordinates that the fields of a network have."""
    if not reduced:
        return sizes
    looks = Looks.of(problem)
    return replace(
        sizes,
        dim=int(kept_coordinates(_counts(finite), looks.inputs).sum()),
        widths=tuple(min(width, most) for width, most in zip(sizes.widths, looks.neurons, strict=True)),
        samples=sizes.samples if looks.samples is None else min(sizes.samples, looks.samples),
    )


@dataclass(frozen=True)
class RevealedNetwork(FiniteNetwork):
    """Networks whose weights are revealed; to the optimizer, these are coefficients of gradients."""

    @property
    def parameters(self) -> list[Array]:
        """Coefficients of every weight, and the readout."""
        return [*(weight.coefficients for weight in self._matrices), self.weights[-1]]

    def gradients(self, h: list[Array], g: list[Array]) -> list[Outer]:
        """Keep the gradients of this step, and return them as they act on ``parameters``."""
        units = [Outer(1.0, np.ones((1, 1)), weight.keep_gradient()) for weight in self._matrices]
        readout = h[-1]
        return [*units, Outer(self.gamma0, readout, identity(readout.shape[-1], readout))]

    @property
    def _matrices(self) -> list[Weight]:
        return self.weights[:-1]  # type: ignore[return-value]  # they pass for arrays


def draw_network(problem: Problem, sizes: Sizes, inputs: Space, draws: Draws, *, reduced: bool) -> RevealedNetwork:
    """Draw networks on a space of inputs."""
    network, looks, outputs = problem.network, Looks.of(problem), sizes.outputs
    most = looks.neurons if reduced else (None,) * len(looks.neurons)
    layers = [Space(draws, [width], each) for width, each in zip(sizes.widths, most, strict=True)]
    if network.skip:
        layers = layers[:1] * len(layers)
    beta = network.branch_factor if network.skip else None
    fan_in = (sizes.unit, *sizes.widths[:-1])
    weights = []
    for layer, (rows, columns) in enumerate(zip(layers, (inputs, *layers[:-1]), strict=True)):
        branch = beta if beta is not None and layer else 1.0
        scale = branch * network.gamma0 / math.sqrt(fan_in[layer])
        weights.append(Weight(rows, columns, scale, problem.steps, outputs))
    return RevealedNetwork([*weights, layers[-1].gaussian(outputs)], network.gamma0, sizes.unit, beta)  # type: ignore[list-item]


def draw_stream(problem: Problem, sizes: Sizes, inputs: Inputs, space: Space, draws: Draws, *, reduced: bool) -> Stream:
    """Draw data on a space of inputs."""
    sampling, noise, outputs = problem.sampling, problem.data.noise, sizes.outputs
    most = Looks.of(problem).samples if reduced else None

    def batch(looks: int) -> Callable[[], tuple[Array, Array]]:
        def draw() -> tuple[Array, Array]:
            samples = Space(draws, [sizes.samples], most)
            return Revealed(samples, space, looks), noise * samples.gaussian(outputs)  # type: ignore[return-value]

        return draw

    if not sampling.drawn:
        return PopulationStream(inputs, noise)
    if sampling.fresh:
        return FreshStream(inputs, sizes.samples, batch(outputs))
    return FixedStream(inputs, *batch(problem.steps * outputs)(), sampling.keep, draws)


def draw_inputs(
    problem: Problem, sizes: Sizes, finite: Modes, draws: Draws, device: Device, *, reduced: bool
) -> tuple[Space, Inputs, Array]:
    """Return the space of inputs, their distribution, and the target w*, shape (coordinates, C).

    Directions of equal variance are alike, so w* lies along the first coordinates of each mode.
    """
    most = Looks.of(problem).inputs if reduced else None
    space = Space(draws, _counts(finite), most)
    space.reserve(sizes.outputs)
    target = np.zeros((space.coordinates, sizes.outputs))
    counts = np.array(_counts(finite))
    for few in np.unique(np.minimum(counts, sizes.outputs)):  # directions that the target may need, of each mode
        alike = np.minimum(counts, sizes.outputs) == few
        places = space.starts[alike][:, None] + np.arange(few)
        target[places] = np.sqrt(counts[alike])[:, None, None] * target_roots(int(few), finite.target[alike])
    return (
        space,
        Inputs.of(finite, sizes.unit, device, kept_coordinates(_counts(finite), most).tolist()),
        device.put(target),
    )


def _counts(finite: Modes) -> list[int]:
    counts: list[int] = finite.weight.astype(int).tolist()
    return counts
