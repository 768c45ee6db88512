"""Problems turned into the numbers that stand in the equations, with a leading batch axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deeplinear._arrays import Array, namespace
from deeplinear._device import CPU, Device
from deeplinear._network import ResNet
from deeplinear._problem import Problem
from deeplinear._propagator import propagator


@dataclass(frozen=True)
class Structure:
    """What two problems must share to be solved as one batch."""

    depth: int  # hidden layers, 0 if there are infinitely many
    nodes: int  # nodes in depth that stand for the layers, 0 if every layer is solved
    steps: int
    outputs: int
    modes: int
    skip: bool
    centered: bool
    reuses_data: bool
    subsamples: bool
    decays: bool  # whether weights decay, so that d is not 1
    own_noise: bool  # whether the noise of a mode by its own error is kept

    @property
    def edges(self) -> int | None:
        """Number of weight matrices between hidden layers; None at infinite depth."""
        return self.depth - 1 if self.depth else None

    @property
    def size(self) -> int:
        """Rows of every matrix: one per step and output."""
        return self.steps * self.outputs


@dataclass(frozen=True)
class Coefficients:
    """Constants of the closure; shapes start with the batch axis, scalars are (batch, 1, 1).

    A row index is the pair (step, output), steps outermost. All arrays have one dtype, which every matrix of a
    solution takes on: complex where a field of some problem is complex, as in derivatives by complex step.
    """

    structure: Structure
    d: Array  # (batch, rows)        response of a weight to its initial value
    a: Array  # (batch, rows, rows)  response to gradients, the same for every pair of outputs
    a_readout: Array  # (batch, rows, rows)  the same acting within one output only
    gamma0: Array
    feedback: Array  # 1 / (nu_L gamma0)
    initial_variance: Array  # nu_1 / (nu_L^2 gamma0^2)
    first_to_last: Array  # nu_1 / nu_L
    rho: Array  # (depth - 1, batch, 1, 1), nu_{l+1} / nu_l
    f: Array  # (depth, batch, 1, 1), branch into h_l from below: 1 or beta
    k: Array  # (depth, batch, 1, 1), branch into g_l from above: 1 or beta
    beta2: Array  # squared branch of a residual network; beta_0^2 at infinite depth
    sigma2: Array
    reuse: Array  # 1 / alpha, or 0 where data are fresh at every step
    subsampling: Array  # strength of the white noise that drawing a batch adds
    eigenvalues: Array  # (batch, modes, 1, 1)
    weight: Array  # (batch, modes, 1, 1)
    target: Array  # (batch, modes, outputs, outputs)

    @cached_property
    def xp(self) -> Any:
        """Library that the arrays belong to, as the array API standard has it."""
        return namespace(self.d)


def structure(problem: Problem, nodes: int = 0, times: int | None = None) -> Structure:
    """Return the shape of a problem's equations.

    Parameters
    ----------
    problem
        What is solved.
    nodes
        Number of nodes in depth that stand for its layers, 0 if every layer is solved.
    times
        Number of nodes in time that stand for its steps, None if every step is solved.
    """
    return Structure(
        depth=0 if problem.network.depth == math.inf else problem.network.layers,
        nodes=nodes,
        steps=problem.steps if times is None else times,
        outputs=problem.data.outputs,
        modes=len(problem.data.modes.eigenvalues),
        skip=isinstance(problem.network, ResNet),
        centered=problem.network.centered,
        reuses_data=problem.sampling.reuse != 0,
        subsamples=problem.sampling.subsampling != 0,
        decays=problem.optimizer.weight_decay != 0,
        own_noise=problem.sampling.small_batch,
    )


def coefficients(
    problems: Sequence[Problem], nodes: int = 0, times: int | None = None, device: Device = CPU
) -> Coefficients:
    """Stack the constants of problems that share one structure; see there for ``nodes`` and ``times``.

    With nodes in time, ``d`` and ``a`` are still zero: the time grid fills them as it grows.
    """
    shape = structure(problems[0], nodes, times)
    each = [_of_one(problem, shape, every_step=times is None) for problem in problems]
    stacked: dict[str, Array] = {name: np.stack([one[name] for one in each]) for name in each[0]}
    kind = np.result_type(*stacked.values())
    stacked = {name: device.put(values.astype(kind, copy=False)) for name, values in stacked.items()}
    if shape.outputs == 1:
        stacked["a_readout"] = stacked["a"]
    for name, values in stacked.items():
        if values.ndim == 1:
            stacked[name] = values[:, None, None]
    for name in ("rho", "f", "k"):
        stacked[name] = stacked[name].mT[..., None, None]
    for name in ("eigenvalues", "weight"):
        stacked[name] = stacked[name][..., None, None]
    return Coefficients(structure=shape, **stacked)


def _of_one(problem: Problem, shape: Structure, every_step: bool) -> dict[str, Array]:
    network, data, optimizer, sampling = problem.network, problem.data, problem.optimizer, problem.sampling
    nu = np.array(network.widths if shape.depth else network.end_widths)
    infinite = bool(np.isinf(nu[0]))
    first_to_last = 1.0 if infinite else nu[0] / nu[-1]
    f, beta = np.ones(len(nu)), 0.0
    if isinstance(network, ResNet):
        beta = network.beta if shape.depth else network.branch
        f = np.array([1.0] + [beta] * (len(nu) - 1))
    outputs = data.outputs
    d, a = np.zeros(shape.steps), np.zeros((shape.steps, shape.steps))
    if every_step:
        rates = optimizer.rates(problem.steps)
        d, a = propagator(rates, optimizer.momentum, optimizer.weight_decay, nesterov=optimizer.nesterov)
    modes = data.modes
    numbers = {
        "d": np.repeat(d, outputs),
        "a": np.kron(a, np.ones((outputs, outputs))),
        "a_readout": np.kron(a, np.eye(outputs)),
        "gamma0": network.gamma0,
        "feedback": 0.0 if infinite else 1.0 / (nu[-1] * network.gamma0),
        "initial_variance": first_to_last * network.inverse_output_scale,
        "first_to_last": first_to_last,
        "rho": np.ones(len(nu) - 1) if infinite else nu[1:] / nu[:-1],
        "f": f,
        "k": f[::-1],
        "beta2": beta**2,
        "sigma2": data.noise**2,
        "reuse": sampling.reuse,
        "subsampling": sampling.subsampling,
        "eigenvalues": modes.eigenvalues,
        "weight": modes.weight,
        "target": modes.target,
    }
    return {name: np.asarray(value) for name, value in numbers.items()}
