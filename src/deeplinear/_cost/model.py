"""The one model of what work takes: numbers that have to be gone through, and bytes that are held.

What solving takes is asked of the solver, which asks its equations. One number is eight bytes; how many of them a
machine goes through in a second is measured where seconds are wanted.
"""

import math

from deeplinear._equations.coefficients import Structure
from deeplinear._equations.data_sets import DataSets
from deeplinear._equations.system import matrices_read
from deeplinear._experiment.methods import PASS, Counts, Need, choose
from deeplinear._experiment.sizes import Sizes
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Work
from deeplinear._solvers.choose import SHORT, Choice
from deeplinear._solvers.depth import NODES

_CALLS = 4e4
"""Numbers that could be gone through while the calls of a step are made for one layer."""


def work_of(problem: Problem) -> tuple[str, Work]:
    """Say how a problem is solved, and what that takes."""
    solver = Choice().solver(problem)
    return solver.name, solver.estimate(problem)


def longest_short(outputs: int) -> int:
    """Most steps that are solved one by one, for so many outputs."""
    return SHORT // outputs


def numbers_of_solving(problem: Problem) -> float:
    """Numbers that the solver chosen for a problem goes through, and those that its calls take the time of."""
    _, work = work_of(problem)
    layers = work.shape.depth_nodes or work.shape.depth
    return work.numbers + work.passes * _CALLS * layers * work.shape.steps


def held_in_files(problem: Problem) -> int:
    """Bytes of the two-time functions in the file of a solution: two of every layer's fields, and four of layer 0."""
    _, work = work_of(problem)
    layers = work.shape.depth_nodes if problem.network.depth == math.inf else problem.network.layers
    return 8 * (4 * layers + 6) * work.shape.size**2


def numbers_per_step(sizes: Sizes) -> int:
    """Numbers that every step of training goes through: weights and inputs."""
    weights = sum(a * b for a, b in zip((sizes.dim, *sizes.widths), (*sizes.widths, sizes.outputs), strict=True))
    return weights + sizes.samples * sizes.dim


def numbers_of_training(problem: Problem, dim: int, seeds: int) -> float:
    """Numbers that training several networks goes through, or could in the time that it takes to draw and to call."""
    return seeds * _network(problem, dim).seconds / PASS


def bytes_of_networks(problem: Problem, dim: int, together: int) -> float:
    """Bytes of networks that are trained at the same time."""
    return float(together * _network(problem, dim).in_flight)


def _network(problem: Problem, dim: int) -> Need:
    """What one network needs of which only the losses are kept, its matrices kept as ``simulate`` chooses."""
    counts = Counts.of(problem, dim)
    return counts.need(choose(counts, math.inf))


def step_costs(steps: int = 100) -> dict[str, float]:
    """Matrices read in a step, as the page counts them: of a first and each further layer, a mode, and a deep chain.

    Examples
    --------
    >>> step_costs()["layer"]
    8.0
    """

    def read(depth: int, nodes: int = 0, modes: int = 1, skip: bool = False) -> float:
        flags = dict.fromkeys(("centered", "decays", "own_noise"), False)
        sets, groups = DataSets(reused=True, subsampled=False), (0,) * (max(depth, 2) + 1)
        return matrices_read(
            Structure(depth, nodes, steps, 1, modes, skip, sets=sets, rules=(), groups=groups, **flags)
        )

    return {
        "first": read(1),
        "layer": read(2) - read(1),
        "skip_layer": read(2, skip=True) - read(1, skip=True),
        "mode": read(1, modes=2) - read(1),
        "infinite": read(0, nodes=NODES[1]),
    }
