"""Networks and data whose Gaussian matrices are revealed where training looks at them, several networks at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeplinear._core.arrays import Array, identity
from deeplinear._core.device import Device
from deeplinear._experiment.data_sets import DataSet, data_totals, evaluations
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.network import FiniteNetwork, Outer
from deeplinear._experiment.revealed import Revealed, Weight
from deeplinear._experiment.sizes import Sizes, tasks_of
from deeplinear._experiment.spaces import Space, kept_coordinates
from deeplinear._experiment.streams import Inputs, Stream, fixed_stream, fresh_stream, population_stream
from deeplinear._experiment.targets import join_targets, target_roots
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem
from deeplinear._rules.layers import spread


@dataclass(frozen=True)
class Looks:
    """How many directions of each space training can look at, at most.

    Each of K gradients applies every matrix to C vectors, and each of E backward passes its transpose.

    Attributes
    ----------
    gradients, evaluations
        K and E. Plain descent has one of each at every step; a loss of averaged weights is one more of E.
    probes
        Passes both ways that measure the curvature, which are counted in E and are more than K.
    inputs
        Of each mode of the inputs: the targets, W_0^T g_1 and X^T Delta.
    neurons
        Of each hidden layer: W h from below and W^T g from above, or the readout. A residual network has one space
        of neurons for all layers.
    """

    gradients: int
    evaluations: int
    probes: int
    inputs: int
    neurons: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, averages: int = 0, probes: int = 0) -> "Looks":
        """Count them, where so many averages of the weights have losses, and so many passes measure the curvature."""
        outputs, depth = problem.data.outputs, problem.network.layers
        gradients, backward, signals = 0, probes, probes
        for stage in problem.stages:
            losses, each = evaluations(stage.optimizer)
            gradients += stage.steps * each
            backward += stage.steps * (losses + averages)
            signals += stage.steps * each if stage.sampling.drawn else 0
        forward = gradients + probes
        neurons = (outputs * (forward + backward),) * (depth - 1) + (outputs * (forward + 1),)
        if problem.network.skip:
            neurons = (outputs * (depth * forward + (depth - 1) * backward + 1),) * depth
        inputs = outputs * (tasks_of(problem) + backward + signals)
        return cls(gradients, backward, probes, inputs, neurons)


def sample_looks(looks: tuple[int, int], chooses: bool, outputs: int) -> int | None:
    """Directions of the samples: label noise and X v. None where a step chooses samples, so that they are not alike."""
    residuals, _ = looks
    return None if chooses else outputs * (1 + residuals)


def coordinates(
    problem: Problem, sizes: Sizes, finite: Modes, averages: int = 0, probes: int = 0, *, reduced: bool
) -> Sizes:
    """Count the coordinates that the fields of a network have."""
    if not reduced:
        return sizes
    looks = Looks.of(problem, averages, probes)
    samples = 0
    for data in data_totals(problem, sizes.unit, probes):
        most = sample_looks(data.looks, data.chooses, sizes.outputs)
        samples = max(samples, data.largest if most is None else min(data.largest, most))
    return replace(
        sizes,
        dim=int(kept_coordinates(_counts(finite), looks.inputs).sum()),
        widths=tuple(min(width, most) for width, most in zip(sizes.widths, looks.neurons, strict=True)),
        samples=samples,
    )


@dataclass(frozen=True)
class RevealedNetwork(FiniteNetwork):
    """Networks whose weights are revealed; to the optimizer, these are coefficients of gradients."""

    @property
    def parameters(self) -> list[Array]:
        """Coefficients of every weight, and the readout."""
        return [*(weight.coefficients for weight in self._matrices), self.weights[-1]]

    @property
    def rounding(self) -> float:
        """As sums over directions, which become more with every look: some tens of rounding errors."""
        return 1e-14

    def use(self, parameters: Sequence[Array]) -> None:
        """Take these for the parameters from now on."""
        for weight, coefficients in zip(self._matrices, parameters[:-1], strict=True):
            weight.coefficients = coefficients
        self.weights[-1] = parameters[-1]

    def gradients(self, h: list[Array], g: list[Array]) -> list[Outer]:
        """Keep the gradients of the last fields, and return them as they act on ``parameters``."""
        readout = h[-1]
        one = identity(1, readout)
        units = [Outer(1.0, one, weight.keep_gradient()) for weight in self._matrices]
        return [*units, Outer(self.gamma0, readout, identity(readout.shape[-1], readout))]

    @property
    def _matrices(self) -> list[Weight]:
        return self.weights[:-1]  # type: ignore[return-value]  # they pass for arrays


def draw_network(
    problem: Problem, sizes: Sizes, inputs: Space, draws: Draws, averages: int = 0, probes: int = 0, *, reduced: bool
) -> RevealedNetwork:
    """Draw networks on a space of inputs."""
    network, looks, outputs = problem.network, Looks.of(problem, averages, probes), sizes.outputs
    most = looks.neurons if reduced else (None,) * len(looks.neurons)
    layers = [Space(draws, [width], each) for width, each in zip(sizes.widths, most, strict=True)]
    if network.skip:
        layers = layers[:1] * len(layers)
    beta = network.branch_factor if network.skip else None
    fan_in = (sizes.unit, *sizes.widths[:-1])
    initial = spread(network.initial_scales, network.layers + 1).tolist()
    weights = []
    for layer, (rows, columns) in enumerate(zip(layers, (inputs, *layers[:-1]), strict=True)):
        branch = beta if beta is not None and layer else 1.0
        scale = branch * network.gamma0 / math.sqrt(fan_in[layer])
        weights.append(
            Weight(
                rows,
                columns,
                scale=scale,
                initial=initial[layer],
                gradients=looks.gradients,
                evaluations=looks.evaluations,
                probes=looks.probes,
                outputs=outputs,
            )
        )
    readout = initial[-1] * layers[-1].gaussian(outputs)
    return RevealedNetwork([*weights, readout], network.gamma0, sizes.unit, beta)  # type: ignore[list-item]


def draw_stream(data: DataSet, outputs: int, inputs: Inputs, space: Space, draws: Draws, *, reduced: bool) -> Stream:
    """Draw data on a space of inputs."""
    most = sample_looks(data.looks, bool((data.keeps != 1.0).any()), outputs) if reduced else None
    residuals, signals = (outputs * looks for looks in data.looks)

    def draw(count: int) -> tuple[Array, Array]:
        samples = Space(draws, [count], most)
        return Revealed(samples, space, residuals, signals), samples.gaussian(outputs)  # type: ignore[return-value]

    if not data.drawn:
        return population_stream(inputs, data.noises)
    if data.fresh:
        return fresh_stream(inputs, draw, data.noises, data.samples)
    return fixed_stream(inputs, *draw(int(data.samples[0])), data.noises, data.keeps, draws)


def draw_inputs(
    problem: Problem,
    sizes: Sizes,
    finite: Modes,
    draws: Draws,
    device: Device,
    averages: int = 0,
    probes: int = 0,
    *,
    reduced: bool,
) -> tuple[Space, Inputs, list[Array]]:
    """Return the space of inputs, their distribution, and the target w* of each phase, shape (coordinates, C).

    Directions of equal variance are alike, so targets lie along the first coordinates of each mode.
    """
    most = Looks.of(problem, averages, probes).inputs if reduced else None
    space, tasks, counts = Space(draws, _counts(finite), most), tasks_of(problem), np.array(_counts(finite))
    space.reserve(tasks * sizes.outputs)
    fresh = [np.zeros((space.coordinates, sizes.outputs)) for _ in range(tasks)]
    directions = np.minimum(counts // tasks, sizes.outputs)  # that a target may need, of each mode
    for few in np.unique(directions):
        alike = directions == few
        roots = np.sqrt(counts[alike])[:, None, None] * target_roots(int(few), finite.target[alike])
        for task, target in enumerate(fresh):
            target[space.starts[alike][:, None] + task * few + np.arange(few)] = roots
    return (
        space,
        Inputs.of(finite, sizes.unit, device, kept_coordinates(_counts(finite), most).tolist()),
        [device.put(target) for target in join_targets(fresh, problem)],
    )


def _counts(finite: Modes) -> list[int]:
    counts: list[int] = finite.weight.astype(int).tolist()
    return counts
