"""The one model of what work takes: numbers that have to be gone through, and bytes that are held.

What solving takes is asked of the solver, which asks its equations. One number is eight bytes; how many of them a
machine goes through in a second is measured where seconds are wanted.
"""

import math

from deeplinear._equations.observables import matrices
from deeplinear._experiment.methods import AUTO, PASS, Counts, Need, choose
from deeplinear._experiment.sizes import Sizes
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Work
from deeplinear._solvers.choose import SHORT, Choice

_CALLS = 4e4
"""Numbers that could be gone through while the calls of a step are made for one layer."""


def work_of(problem: Problem) -> tuple[str, Work]:
    """Say how a problem is solved, and what that takes."""
    solver = Choice().solver(problem)
    return solver.name, solver.estimate(problem)


def longest_short(outputs: int) -> int:
    """Most steps of runs whose functions of two times are solved for at every pair, for so many outputs."""
    return SHORT // outputs


def method_of_two_times(problem: Problem) -> str:
    """Return the method that finds functions of two times with the losses; "auto" may find them when asked for."""
    return "dense" if problem.steps <= longest_short(problem.data.outputs) else "auto"


def numbers_of_solving(problem: Problem) -> float:
    """Numbers that the solver chosen for a problem goes through, and those that its calls take the time of."""
    _, work = work_of(problem)
    layers = work.shape.depth_nodes or work.shape.depth
    return work.numbers + work.passes * _CALLS * layers * work.shape.steps


def held_in_files(problem: Problem) -> int:
    """Bytes of the two-time functions in the file of a solution."""
    work = Choice().solver(problem).of_two_times.estimate(problem)
    layers = work.shape.depth_nodes if problem.network.depth == math.inf else problem.network.layers
    return 8 * matrices(layers) * work.shape.size**2


def numbers_per_step(sizes: Sizes) -> int:
    """Numbers that every step of training goes through: weights and inputs."""
    weights = sum(a * b for a, b in zip((sizes.dim, *sizes.widths), (*sizes.widths, sizes.outputs), strict=True))
    return weights + sizes.samples * sizes.dim


def numbers_of_training(problem: Problem, dim: int, seeds: int, method: str = AUTO) -> float:
    """Numbers that training several networks goes through, or could in the time that it takes to draw and to call."""
    return seconds_of_training(problem, dim, seeds, method) / PASS


def seconds_of_training(problem: Problem, dim: int, seeds: int, method: str = AUTO) -> float:
    """Seconds of the same, on an ordinary machine."""
    return seeds * _network(problem, dim, method).seconds


def bytes_of_networks(problem: Problem, dim: int, together: int, method: str = AUTO) -> float:
    """Bytes of networks that are trained at the same time."""
    return float(together * _network(problem, dim, method).in_flight)


def _network(problem: Problem, dim: int, method: str) -> Need:
    """What one network needs of which only the losses are kept, its matrices kept as ``simulate`` does or chooses."""
    counts = Counts.of(problem, dim)
    return counts.need(choose(counts, math.inf) if method == AUTO else method)
