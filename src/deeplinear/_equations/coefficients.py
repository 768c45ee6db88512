"""Problems turned into the numbers that stand in the equations, with a leading batch axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace
from deeplinear._core.cached import cached_property
from deeplinear._core.device import CPU, Device
from deeplinear._equations.data_sets import DataSets, data_sets, targets
from deeplinear._equations.rules import Stretch, evaluations, groups_of, stretch_of
from deeplinear._problem.network import MLP, ResNet
from deeplinear._problem.problem import Problem
from deeplinear._rules.traits import traits_within


@dataclass(frozen=True)
class Structure:
    """What two problems must share to be solved as one batch."""

    depth: int  # hidden layers, 0 if there are infinitely many
    depth_nodes: int  # that stand for the layers, 0 if every layer is solved
    steps: int  # times of the equations: evaluations of the gradient, or nodes in time
    outputs: int
    modes: int
    skip: bool
    centered: bool
    sets: DataSets
    decays: bool  # whether weights decay, so that d is not 1
    rules: tuple[Stretch, ...]  # of the phases of training
    groups: tuple[int, ...]  # of weight layers that train alike, by the first of each
    own_noise: bool  # whether the noise of a mode by its own error is kept
    branches_vanish: bool = False  # whether gradients of hidden weights vanish beside those of input and readout
    probed: bool = False  # whether products of gradients are asked for, of all weights

    @property
    def edges(self) -> int | None:
        """Number of weight matrices between hidden layers; None at infinite depth."""
        return self.depth - 1 if self.depth else None

    @property
    def size(self) -> int:
        """Rows of every matrix: one per time and output."""
        return self.steps * self.outputs

    @cached_property
    def reported(self) -> NDArray[np.int64] | None:
        """Rows over times whose losses are those of the steps, shape (steps,); None if all are."""
        if all(rule.evaluations == 1 for rule in self.rules):
            return None
        first = [each.row for each in evaluations(self.rules) if each.number == 0]
        return np.array(first)

    @property
    def reuses_data(self) -> bool:
        """Whether examples are seen more than once."""
        return self.sets.reused

    @property
    def subsamples(self) -> bool:
        """Whether batches are drawn."""
        return self.sets.subsampled

    @property
    def measures_gradients(self) -> bool:
        """Whether sizes of gradients are looked at, so that C_h of the last layer is needed."""
        return self.probed or any(rule.traits.sizes for rule in self.rules)


@dataclass(frozen=True)
class Coefficients:
    """Constants of the closure; shapes start with the batch axis, scalars are (batch, 1, 1).

    A row index is the pair (step, output), steps outermost. All arrays have one dtype, which every matrix of a
    solution takes on: complex where a field of some problem is complex, as in derivatives by complex step.
    """

    structure: Structure
    scale: Array | None  # unit of g(t) - g(0) in a centered network, which is its richness; None stands for 1
    whole_gamma0: Array  # gamma0
    gamma0: Array  # gamma0 / scale
    feedback: Array  # scale / (nu_L gamma0)
    initial_variance: Array  # scale^2 nu_1 / (nu_L^2 gamma0^2)
    first_to_last: Array  # nu_1 / nu_L
    rho: tuple[Array | None, ...]  # nu_{l+1} / nu_l for each layer but the last; None stands for 1
    f: tuple[Array | None, ...]  # branch into h_l from below for each layer, 1 or beta; None stands for 1
    f_bar: tuple[Array | None, ...]  # branch into g_l from above, likewise
    beta2: Array  # squared branch of a residual network; beta_0^2 at infinite depth
    sigma: Array  # standard deviation of the labels, (batch, 1) or (batch, times)
    task_sigma: Array  # the same for the target of each phase, (batch, tasks)
    reuse: Array  # 1 / alpha, or 0 where data are fresh at every step; (batch, 1) or (batch, times)
    subsampling: Array  # strength of the white noise that drawing a batch adds; (batch, 1) or (batch, times)
    variances: tuple[Array | None, ...]  # of initial entries of each weight layer; None stands for 1
    rate_factors: tuple[Array | None, ...]  # on the learning rate of each weight layer at first; None stands for 1
    eigenvalues: Array  # (batch, modes, 1, 1)
    weight: Array  # (batch, modes, 1, 1)
    target: Array  # (batch, modes, tasks * outputs, tasks * outputs)

    @cached_property
    def xp(self) -> Any:
        """Library that the arrays belong to, as the array API standard has it."""
        return namespace(self.gamma0)

    @property
    def batch(self) -> int:
        """Number of problems."""
        return len(self.gamma0)

    @cached_property
    def is_isotropic(self) -> bool:
        """Whether there is one mode, of eigenvalue and weight 1, so that sums over modes are what they sum."""
        return self.structure.modes == 1 and bool(((self.eigenvalues == 1) & (self.weight == 1)).all())

    @cached_property
    def moments(self) -> tuple[Array, Array, Array]:
        """Weight of each mode times its eigenvalue to the power 0, 1, 2, shape (batch, modes, 1, 1)."""
        return self.weight, self.weight * self.eigenvalues, self.weight * self.eigenvalues**2


@lru_cache(maxsize=128)
def structure(
    problem: Problem, depth_nodes: int = 0, times: int | None = None, lengths: tuple[int, ...] | None = None
) -> Structure:
    """Return the shape of a problem's equations.

    Parameters
    ----------
    problem
        What is solved.
    depth_nodes
        Number of nodes in depth that stand for its layers, 0 if every layer is solved.
    times
        Number of nodes in time that stand for its steps, None if every step is solved.
    lengths
        How many of these belong to each phase.
    """
    rules = tuple(map(stretch_of, problem.stages))
    rows = sum(rule.evaluations * (rule.stop - rule.start) for rule in rules)
    decays = any(traits_within(stage.optimizer, stage.of).decays for stage in problem.stages)
    return Structure(
        depth=0 if problem.network.depth == math.inf else problem.network.layers,
        depth_nodes=depth_nodes,
        steps=rows if times is None else times,
        outputs=problem.data.outputs,
        modes=len(problem.modes.eigenvalues),
        skip=problem.network.skip,
        centered=problem.network.centered,
        sets=data_sets(problem, lengths)[0],
        decays=decays,
        rules=rules,
        groups=groups_of(problem, rules),
        own_noise=any(stage.sampling.small_batch for stage in problem.stages),
        branches_vanish=problem.network.branches_vanish,
    )


def coefficients(
    problems: Sequence[Problem],
    depth_nodes: int = 0,
    times: int | None = None,
    device: Device = CPU,
    lengths: tuple[int, ...] | None = None,
) -> Coefficients:
    """Stack the constants of problems that share one structure; see there for nodes in depth and in time."""
    shape = structure(problems[0], depth_nodes, times, lengths)
    each = [_of_one(problem, shape, lengths) for problem in problems]
    stacked = {name: np.array([one[name] for one in each]) for name in each[0]}
    kind = complex if any(problem.is_complex for problem in problems) else float

    def place(values: Array) -> Array:
        """One of the constants; a number for each problem is a matrix of one entry."""
        return device.put((values[:, None, None] if values.ndim == 1 else values).astype(kind, copy=False))

    layers = {name: stacked.pop(name).T for name in ("rho", "f", "f_bar", "variances", "rate_factors")}
    for name in ("eigenvalues", "weight"):
        stacked[name] = stacked[name][..., None, None]
    constants: dict[str, Any] = {name: place(values) for name, values in stacked.items()}
    for name, values in layers.items():
        constants[name] = tuple(None if (layer == 1).all() else place(layer) for layer in values)
    if not shape.centered:
        constants["scale"] = None
    return Coefficients(structure=shape, **constants)


def _of_one(problem: Problem, shape: Structure, lengths: Sequence[int] | None) -> dict[str, Array | complex]:
    modes, kind = problem.modes, complex if problem.is_complex else float
    return {
        **_of_network(problem.network, bool(shape.depth_nodes), kind),
        **data_sets(problem, lengths)[1],
        "task_sigma": np.array([stage.noise for stage in problem.stages]),
        "rate_factors": problem.layer_rates(problem.stages[0].optimizer),
        "eigenvalues": modes.eigenvalues,
        "weight": modes.weight,
        "target": targets(problem),
    }


@lru_cache(maxsize=32)
def _of_network(network: MLP | ResNet, by_nodes: bool, kind: type) -> dict[str, Array | complex]:
    """Return the constants that belong to the network, which many problems share; to be read only.

    Their kind is asked for, since networks with 1 and with 1 + 0j are equal.
    """
    # Where nodes stand for the layers nothing is known of each of these: their number does not matter.
    nu = np.array(network.end_widths if by_nodes else network.widths)
    infinite = bool(np.isinf(nu[0]))
    first_to_last = 1.0 if infinite else nu[0] / nu[-1]
    f = np.array([1.0] + [network.branch_factor] * (len(nu) - 1))
    in_units_of_scale = 1.0 if network.centered else network.richness
    gamma0 = in_units_of_scale * network.gamma0_per_richness
    numbers = {
        "scale": network.richness,
        "whole_gamma0": network.gamma0,
        "gamma0": gamma0,
        "feedback": 0.0 if infinite else 1.0 / (nu[-1] * gamma0),
        "initial_variance": first_to_last * network.initial_variance / in_units_of_scale**2,
        "first_to_last": first_to_last,
        "beta2": network.branch_factor**2,
    }
    arrays = {
        "rho": np.ones(len(nu) - 1) if infinite else nu[1:] / nu[:-1],
        "f": f,
        "f_bar": f[::-1],
        "variances": network.initial_scales**2,
    }
    arrays = {name: np.asarray(array, kind) for name, array in arrays.items()}
    for array in arrays.values():
        array.setflags(write=False)
    return {name: kind(number) for name, number in numbers.items()} | arrays


def row_set(c: Coefficients, step: int) -> slice:
    """Rows of one step: one per output."""
    outputs = c.structure.outputs
    return slice(step * outputs, (step + 1) * outputs)


def times_of(rows: slice, outputs: int) -> slice:
    """Return the times of rows. Of a row that only a device knows (``replay.py``) it also knows the time."""
    times: slice | None = getattr(rows, "times", None)
    return slice(rows.start // outputs, rows.stop // outputs) if times is None else times
