"""From problems to solutions: grouping into batches, memory, and the choice of solver."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np
import psutil

from deeplinear._core import checks, memory
from deeplinear._core.arrays import to_numpy
from deeplinear._core.device import CPU, Device, find_device
from deeplinear._core.progress import Progress
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.coefficients import Structure, coefficients, structure
from deeplinear._problem.network import Network, ResNet
from deeplinear._problem.problem import Problem
from deeplinear._solvers.dense import Dense, dense_memory, layers_memory
from deeplinear._solvers.merged_steps import no_coarse, solve_coarse
from deeplinear._solvers.panels.solver import Panels, Unresolved, dense_work
from deeplinear._solvers.reach import check_reach
from deeplinear._solvers.rounding import rounding_at
from deeplinear._theory.solution import Solution

Solver = TypeVar("Solver", Dense, Panels)

_NODES = (5, 7, 9, 12, 16, 21, 28)
"""Numbers of nodes in depth that are tried in turn."""

_MANY_LAYERS = 256
"""Depth of a residual network from which nodes in depth are cheaper than its layers."""

_FEW_LAYERS = 1024
"""Depth up to which a divergence in doubt is looked at layer by layer."""

_CACHE = 16e6
"""Bytes of matrices worth stepping together: more problems than this leave the processor's cache."""


_LEAST_RICHNESS = 1e-4
"""Below this panels do not know closely enough how far weights have decayed, which is divided by the richness."""

_COMPARED = 1000
"""Steps, at most, at which two solutions are compared."""

_TRIED = 0.5
"""Part of the work of solving every step after which panels are given up, where every step can be solved."""

_SHORT, _SHORT_ON_DEVICE = 1000, 4000
"""Steps times outputs up to which every step is solved, unless asked otherwise."""


@overload
def solve(
    problem: Problem,
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Solution: ...
@overload
def solve(
    problem: Sequence[Problem],
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Solution]: ...
def solve(
    problem: Problem | Sequence[Problem],
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Solution | list[Solution]:
    """Predict how a network trains.

    The dense method solves every step exactly, in one causal pass: time grows as depth * (steps * outputs)^3,
    memory as depth * (steps * outputs)^2. Data with several modes add a matrix, and two products with it per step,
    for each mode.

    Panels solve the same equations, for every network, at a few nodes in time, whose number grows as the
    logarithm of the steps: millions of steps take seconds. They need losses that become smooth: training on
    all data or on the population loss, without momentum. While a run oscillates they take exact steps.

    Long runs of stochastic gradient descent, whose noise is never smooth, are solved densely through coarse steps,
    each of which stands for several, and extrapolated. That pays where the learning rate is well below the edge of
    stability; the curves are found, two-time functions are not.

    Parameters
    ----------
    problem
        One problem, or a sequence of them. Problems of equal shape (depth, steps, outputs, modes, kind
        of sampling, centering) are solved together, which saves most of the overhead of short ones.
    method
        ``"dense"``, ``"panels"``, ``"coarse"``, or ``"auto"``: for runs that are long (more than 1000 steps times
        outputs) panels if they are smooth, coarse steps if batches are drawn. Should either not resolve a run, or
        panels not pay, it is solved densely if there is memory for it.
    tolerance
        Relative error of the losses that is allowed where something is approximated: residual networks of
        infinite depth, or of 256 layers and more with depth-muP branches, are solved through a few nodes in
        depth. ``Solution.stats`` says how many, and the error found. The same holds for panels and coarse steps,
        where losses below a fraction ``error_floor`` of the initial one, 1e-5 as a rule, are accurate to that scale
        only. All else is exact to rounding; ``Solution.status`` says where rounding errors have grown into the losses.
    device
        ``"cpu"``, or a device of PyTorch such as ``"cuda"`` or ``"cuda:1"`` (this needs
        ``pip install 'deeplinear[gpu]'``; ``"torch:cpu"`` is PyTorch on the processor, for tests). It pays for many
        problems of equal shape, all of which are solved together there, and for large dense ones. Runs count as
        long there from 4000 steps times outputs; panels run on the processor even so. Solutions have arrays of
        NumPy; matrices stay on the device until they are asked for.
    progress
        Called as ``progress(done, total)``, counted in steps, summed over batches.

    Returns
    -------
    Solution
        Or a list of them, in the order of the problems.

    Raises
    ------
    ImportError
        If a device is asked for and PyTorch is missing.
    MemoryError
        Before anything is solved, if the matrices do not fit into the memory available.
    ArithmeticError
        If infinite depth, or a run that is too long for the dense method, was not resolved; or if an infinite power
        law was trained beyond the modes that stand for it.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=2, width=1.0),
    ...     data=dl.Isotropic(noise=0.1),
    ...     sampling=dl.FullBatch(samples=2.0),
    ...     optimizer=dl.GradientDescent(lr=0.05),
    ...     steps=4,
    ... )
    >>> dl.solve(problem).test_loss.round(4)
    array([2.01  , 1.3152, 1.0512, 0.8991])
    """
    if isinstance(problem, Problem):
        return solve([problem], method=method, tolerance=tolerance, device=device, progress=progress)[0]
    problems, tolerance = list(problem), checks.positive("tolerance", tolerance)
    checks.word("method", method, ("auto", "dense", "panels", "coarse"))
    for index, each in enumerate(problems):
        if not isinstance(each, Problem):
            raise ValueError(f"problem[{index}] must be a Problem, got {each!r}")
    place = find_device(device)
    methods = [chosen_method(each, method, place) for each in problems]
    if place != CPU and method == "panels":
        raise ValueError(
            f'method must be "dense", "coarse" or "auto" on {device}, got "panels": they need the processor'
        )
    room = place.available() if place != CPU else 0
    short = [index for index, each in enumerate(methods) if each == "dense"]
    long = [index for index, each in enumerate(methods) if each != "dense"]
    batches = [
        (shape, [short[position] for position in positions])
        for shape, positions in _batches([problems[index] for index in short], _CACHE if place == CPU else room)
    ]
    memory.require(
        sum(dense_memory(shape, len(members)) + layers_memory(shape) for shape, members in batches),
        "solving",
        "lower steps or outputs, or solve fewer problems at a time",
        place,
    )
    solutions: dict[int, Solution] = {}
    total = sum(shape.steps for shape, _ in batches) + sum(problems[index].steps for index in long)
    done = 0

    def advance(step: int, _: int) -> None:
        if progress is not None:
            progress(done + step, total)

    with one_blas_thread():
        for shape, members in batches:
            batch = [problems[index] for index in members]
            solutions |= zip(members, _solve_dense(batch, shape, tolerance, advance, place), strict=True)
            done += shape.steps
        for index in long:
            solutions[index] = _solve_long(problems[index], methods[index], method == "auto", tolerance, advance, place)
            done += problems[index].steps
    return [solutions[index] for index in range(len(problems))]


def chosen_method(problem: Problem, method: str = "auto", device: Device = CPU) -> str:
    """Say how a problem is solved; ValueError if a method was asked for that cannot."""
    long = problem.steps * problem.data.outputs > (_SHORT if device == CPU else _SHORT_ON_DEVICE)
    for name, why_not in (("panels", _no_panels), ("coarse", no_coarse)):
        reason = why_not(problem)
        if method == name and reason:
            raise ValueError(f'method must be "dense" or "auto" {reason}, got "{name}"')
        if method == name or (method == "auto" and reason is None and long):
            return name
    return "dense"


def _no_panels(problem: Problem) -> str | None:
    """Why panels cannot solve a problem, None if they can."""
    optimizer = problem.optimizer
    if problem.sampling.subsampling:
        return "where batches are drawn, whose noise is never smooth"
    if optimizer.momentum:
        return "with momentum"
    largest_rate = float(np.abs(optimizer.rates(problem.steps)).max()) if optimizer.weight_decay else 0.0
    if abs(optimizer.weight_decay) * largest_rate >= 0.5:
        return "where weights decay within a few steps (lr * weight_decay is 0.5 or more)"
    if optimizer.weight_decay and problem.network.centered and abs(problem.network.richness) < _LEAST_RICHNESS:
        return f"where weights of a centered network decay and its richness is below {_LEAST_RICHNESS:g}"
    return None


def _solve_long(
    problem: Problem, name: str, free: bool, tolerance: float, advance: Progress, device: Device
) -> Solution:
    """Solve through fewer nodes or steps; if that gives up and the choice was free, densely."""
    shape = plan(problem)
    start = time.perf_counter()
    # Near the edge of stability panels do not pay: what they have cost until that is seen is a part of the dense cost.
    may_step = free and dense_memory(shape, 1) <= psutil.virtual_memory().available
    most_work = _TRIED * dense_work(shape) if may_step else math.inf

    def solve_steps(each: Problem, progress: Progress | None) -> Solution:
        memory.require(dense_memory(plan(each), 1), "solving", "lower outputs, or raise tolerance", device)
        return _solve_dense([each], plan(each), tolerance, progress, device)[0]

    try:
        if name == "panels":
            return _solve_panels(problem, shape, tolerance, advance, most_work)
        solution = solve_coarse(problem, tolerance, solve_steps, advance)
    except Unresolved:
        if not may_step:
            raise
        return _solve_dense([problem], shape, tolerance, advance, CPU)[0]
    advance(problem.steps, problem.steps)
    return replace(solution, stats=solution.stats | {"seconds": time.perf_counter() - start, "batch": 1})


def _solve_panels(
    problem: Problem, shape: Structure, tolerance: float, advance: Progress, most_work: float
) -> Solution:
    """Solve at nodes in time."""
    start = time.perf_counter()
    panels, stats = run_panels(problem, shape, tolerance, advance, most_work)
    stats |= {
        "method": "panels",
        "nodes": len(panels.grid),
        "lengths": panels.grid.lengths,
        "tolerance": tolerance,
        "error": max(panels.error, stats.get("depth_error", 0.0)),
        "error_floor": panels.error_floor,
        "seconds": time.perf_counter() - start,
        "batch": 1,
    }
    (node,) = rounding_at(panels.equations, len(panels.grid) - (panels.diverged_at >= 0), panels.grid.single)
    if node >= 0:
        stats["rounding_at"] = round(float(panels.grid.times[node]))
    return Solution.from_solver(problem, panels, 0, stats)


def run_panels(
    problem: Problem, shape: Structure, tolerance: float, advance: Progress | None, most_work: float = math.inf
) -> tuple[Panels, dict[str, Any]]:
    """Fill the rows of all nodes in time; Unresolved if that is more work than was given, see ``dense_work``."""

    def run(nodes: int, progress: Progress | None) -> Panels:
        panels = Panels(problem, tolerance, nodes, most_work)
        panels.run(progress)
        return panels

    panels, stats = _refine_depth(run, problem, tolerance, advance) if shape.nodes else (run(0, advance), {})
    check_reach([problem], panels.equations)
    return panels, stats


def _solve_dense(
    batch: list[Problem], shape: Structure, tolerance: float, advance: Progress | None, device: Device
) -> list[Solution]:
    """Solve every step."""
    start = time.perf_counter()
    dense, stats = run_dense(batch, shape, tolerance, advance, device)
    stats |= {"method": "dense", "seconds": time.perf_counter() - start, "batch": len(batch)}
    found = rounding_at(dense, np.where(dense.diverged_at < 0, shape.steps, dense.diverged_at))
    return [
        Solution.from_solver(problem, dense, index, stats | ({"rounding_at": step} if step >= 0 else {}))
        for index, (problem, step) in enumerate(zip(batch, found, strict=True))
    ]


def run_dense(
    batch: list[Problem], shape: Structure, tolerance: float, advance: Progress | None, device: Device = CPU
) -> tuple[Dense, dict[str, Any]]:
    """Fill all rows of problems of one structure."""

    def run(nodes: int, progress: Progress | None) -> Dense:
        dense = Dense(coefficients(batch, nodes, device=device))
        dense.run(progress)
        return dense

    dense, stats = _refine_depth(run, batch[0], tolerance, advance) if shape.nodes else (run(0, advance), {})
    check_reach(batch, dense)
    return dense, stats


def _refine_depth(
    run: Callable[[int, Progress | None], Solver], problem: Problem, tolerance: float, advance: Progress | None
) -> tuple[Solver, dict[str, Any]]:
    """Solve with more and more nodes in depth, until two solutions agree.

    Their difference bounds the error of the coarser one; the finer one, which is kept, converges
    exponentially and is far more exact. A finite depth that resists is solved layer by layer, and so are not too many
    layers where it is not clear whether training diverges or nodes do not resolve it.
    """
    coarse: Solver | None = None
    for nodes in _NODES:
        fine = run(nodes, advance if nodes == _NODES[0] else None)
        if coarse is not None:
            error = max(_disagreement(coarse, fine, problem.steps), _initial_error(fine, problem.network))
            unresolved = fine.chain.unsettled & ((fine.diverged_at < 0) | (problem.network.depth <= _FEW_LAYERS))
            if error <= tolerance and not unresolved.any():
                return fine, {"depth_nodes": nodes, "depth_error": error}
        coarse = fine
    if problem.network.depth < math.inf:
        layers = structure(problem, times=fine.chain.Cg_first.shape[-1] // problem.data.outputs)
        memory.require(
            dense_memory(layers, 1) + layers_memory(layers),
            "solving layer by layer, since nodes in depth were not enough,",
            "lower depth, branch or lr, or raise tolerance",
        )
        return run(0, advance), {}
    raise Unresolved(
        f"infinite depth was not resolved to tolerance {tolerance:g} with {_NODES[-1]} nodes in layer time; "
        "lower branch or lr, or take a finite depth"
    )


def _initial_error(solver: Dense | Panels, network: Network) -> float:
    """Relative error of what nodes in depth make of the initial weights, which is known in closed form."""
    assert isinstance(network, ResNet)
    gain = to_numpy(solver.chain.Cg_first[:, 0, 0])
    error = float(np.abs(gain * np.exp(-network.log_initial_gain) - 1.0).max())
    return error if np.isfinite(error) else math.inf


def _disagreement(coarse: Dense | Panels, fine: Dense | Panels, steps: int) -> float:
    """Largest relative difference of the test losses of two solutions.

    On its way to a divergence a run amplifies the last digit, so there steps whose loss is above twice its initial
    value count a thousand times less; the step of the divergence must agree within one, or exactly where it shows in
    that nodes in depth cannot be solved for. Step 0 comes before all training: what fails there has too few nodes.
    """
    allowed = np.where(fine.chain.unsettled, 0, 1)
    if (np.abs(coarse.diverged_at - fine.diverged_at) > allowed).any() or (fine.diverged_at == 0).any():
        return math.inf
    ends = [np.where(solver.diverged_at < 0, steps, solver.diverged_at) for solver in (coarse, fine)]
    end = np.minimum(*ends)
    compared = np.unique(np.geomspace(1, end.max(), _COMPARED).astype(int)) - 1
    # Imaginary parts belong to derivatives.
    losses = np.stack([solver.test_losses(compared).real for solver in (coarse, fine)])
    difference, size = np.abs(losses[0] - losses[1]), np.maximum(np.abs(losses[1]), 1e-14 * losses[1, 0])
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.where(difference == 0, 0.0, difference / np.where(size > 0, size, difference))
    amplified = (fine.diverged_at >= 0) & (losses[1] >= 2 * losses[1, 0])
    worst = np.where(amplified, 1e-3 * relative, relative)[compared[:, None] < end].max()
    return float(worst) if np.isfinite(worst) else math.inf


def _batches(problems: list[Problem], memory: float = _CACHE) -> Iterator[tuple[Structure, list[int]]]:
    """Group problems of equal structure, in batches that take as much memory, in bytes."""
    groups: dict[Structure, list[int]] = {}
    for index, problem in enumerate(problems):
        groups.setdefault(plan(problem), []).append(index)
    for shape, members in groups.items():
        # Problems on nodes in depth settle, and choose their number of nodes, each on its own.
        size = 1 if shape.nodes else max(1, int(memory / dense_memory(shape, 1)))
        for start in range(0, len(members), size):
            yield shape, members[start : start + size]


def plan(problem: Problem) -> Structure:
    """Return the structure with which a problem is first solved: layer by layer, or through nodes in depth.

    Nodes can stand for layers that differ little from one to the next.
    """
    network = problem.network
    changes_slowly = isinstance(network, ResNet) and network.branch_scaling == "depth-mup"
    return structure(problem, _NODES[1] if changes_slowly and network.depth >= _MANY_LAYERS else 0)
