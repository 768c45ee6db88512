"""How many nodes in depth stand for the layers of a very deep residual network."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import to_numpy
from deeplinear._core.progress import Progress
from deeplinear._equations.coefficients import Structure, structure
from deeplinear._equations.depth_sweeps import FEW_LAYERS
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Array, Run, Unresolved

AnyRun = TypeVar("AnyRun", bound=Run)


class Compared(Protocol):
    """What two solutions on different numbers of nodes are compared by."""

    @property
    def diverged_at(self) -> NDArray[np.int64]:
        """Step at which each problem diverged, -1 if it did not."""
        ...

    @property
    def test_losses(self) -> Callable[[NDArray[np.int64]], Array]:
        """Test losses at whole steps, shape (steps, batch)."""
        ...


class Coarser(NamedTuple):
    """What is kept of a solution on fewer nodes; its matrices would be held beside those of the next one."""

    diverged_at: NDArray[np.int64]
    test_losses: Callable[[NDArray[np.int64]], Array]


DEPTH_NODES = (5, 7, 9, 12, 16, 21, 28)
"""Numbers of nodes in depth that are tried in turn."""

_MANY_LAYERS = 256
"""Depth of a residual network from which nodes in depth are cheaper than its layers."""

_GROWN = 10.0
"""Growth of the loss, as far as solutions agree, from which that both diverge later is no fault of the nodes."""

_COMPARED = 1000
"""Steps, at most, at which two solutions are compared."""


def likely_nodes(problem: Problem) -> int:
    """Number of nodes that are likely to be enough for a tolerance of 1e-6; 0 if a problem is solved layer by layer.

    Nodes can stand for layers that differ little from one to the next. What the initial branches make of fields grows
    exponentially along the depth, forward and backward; polynomials must follow the product.
    """
    network = problem.network
    if not network.changes_slowly_with_depth or network.depth < _MANY_LAYERS or not _trains_alike(problem):
        return 0
    growth = 2.0 * float(np.real(network.log_initial_gain))
    enough = (nodes for nodes in DEPTH_NODES[1:] if 2.0 * (growth / 4.0) ** nodes / math.factorial(nodes) <= 1e-6)
    return next(enough, DEPTH_NODES[-1])


def _trains_alike(problem: Problem) -> bool:
    """Whether all hidden matrices are trained by one rule."""
    groups = set(structure(problem).groups[1:-1])
    return len(groups) <= 1 or problem.network.depth == math.inf


def most_nodes(problem: Problem, shape: Structure) -> float:
    """Size of the largest solution that may be needed, in units of one on the nodes that are likely to be enough.

    The next number of nodes is often tried. Where training blows up no two numbers may agree, and all are tried.
    """
    if not shape.depth_nodes:
        return 1.0
    following = min([nodes for nodes in DEPTH_NODES if nodes > shape.depth_nodes], default=DEPTH_NODES[-1])
    return (DEPTH_NODES[-1] if blows_up(problem) else following) / shape.depth_nodes


def blows_up(problem: Problem) -> bool:
    """Whether plain descent is beyond the edge of stability at first, by the kernel of the first and last weights."""
    optimizer, network, steps = problem.stages[0].optimizer, problem.network, problem.stages[0].of
    kernel = 2.0 * math.exp(float(np.real(network.log_initial_gain)))
    fastest = float(np.abs(problem.modes.eigenvalues).max())
    return optimizer.is_plain and optimizer.highest_rate(steps) * fastest * kernel > 2.0


def may_need_layers(problem: Problem) -> bool:
    """Whether the layers, as they are not too many, are likely to be solved one by one after all."""
    return problem.network.depth <= FEW_LAYERS and blows_up(problem)


def passes(shape: Structure) -> float:
    """Cost of all solutions until the last one, in units of that."""
    return (
        sum(nodes for nodes in DEPTH_NODES if nodes <= shape.depth_nodes) / shape.depth_nodes
        if shape.depth_nodes
        else 1.0
    )


def resolved(
    run: Callable[[int, Progress | None], AnyRun],
    problem: Problem,
    nodes: int | None,
    tolerance: float,
    progress: Progress | None,
) -> tuple[AnyRun, dict[str, Any], int]:
    """Solve with a number of nodes in depth, or with more and more of them until two solutions agree.

    The difference of two bounds the error of the coarser one; the finer one, which is kept, converges exponentially
    and is far more exact. A finite depth that resists is solved layer by layer, and so are not too many layers
    where it is not clear whether training diverges or nodes do not resolve it. More layers diverge, by what is said,
    at the step from which numbers of nodes differ, if they all diverge then or later.

    Returns
    -------
    run, stats, nodes
        What was solved, what to report about the depth, and the number of nodes that was taken.
    """
    if nodes is not None or not likely_nodes(problem):
        return run(nodes or 0, progress), {"depth_nodes": nodes} if nodes else {}, nodes or 0
    if found := _on_nodes(run, problem, tolerance, progress):
        return found
    if problem.network.depth == math.inf:
        raise Unresolved(
            f"infinite depth was not resolved to tolerance {tolerance:g} with {DEPTH_NODES[-1]} nodes in layer time; "
            "lower branch or lr, or take a finite depth"
        )
    try:
        return run(0, progress), {}, 0
    except MemoryError as error:
        raise MemoryError(
            f"too few nodes in depth, and solving layer by layer fails: {error}, or lower depth or branch"
        ) from None


def _on_nodes(
    run: Callable[[int, Progress | None], AnyRun], problem: Problem, tolerance: float, progress: Progress | None
) -> tuple[AnyRun, dict[str, Any], int] | None:
    """Solve with more and more nodes, and hold the matrices of one solution at a time; None if none are enough."""
    coarse = _without_matrices(run(DEPTH_NODES[0], progress))
    for count in DEPTH_NODES[1:]:
        fine, is_last = run(count, None), count == DEPTH_NODES[-1]
        error = max(_disagreement(coarse, fine, problem.steps), _initial_error(fine, problem))
        unsettled = fine.equations.chain.unsettled
        # Whether a step can be solved may hang on the last digit with few nodes, so that these agree by chance.
        few = problem.network.depth <= FEW_LAYERS or not is_last
        unresolved = unsettled & ((fine.diverged_at < 0) | few)
        if error <= tolerance and not unresolved.any():
            return fine, {"depth_nodes": count, "depth_error": error}, count
        if not few and (end := _parting(coarse, fine, problem.steps, tolerance)):
            fine.diverged_at[:] = end
            return fine, {"depth_nodes": count, "depth_error": tolerance}, count
        coarse = _without_matrices(fine)
        del fine
    return None


def _without_matrices(run: Run) -> Coarser:
    return Coarser(run.diverged_at, run.test_losses)


def _initial_error(run: Run, problem: Problem) -> float:
    """Relative error of what nodes in depth make of the initial weights, which is known in closed form."""
    gain = to_numpy(run.equations.chain.Cg_first.matrix[:, 0, 0])
    expected = problem.network.initial_scales[-1] ** 2 * np.exp(problem.network.log_initial_gain)
    error = float(np.abs(gain / expected - 1.0).max()) if expected else 0.0
    return error if np.isfinite(error) else math.inf


def _disagreement(coarse: Compared, fine: Run, steps: int) -> float:
    """Largest relative difference of the test losses of two solutions.

    On its way to a divergence a run amplifies the last digit, so there steps whose loss is above twice its initial
    value count a thousand times less; the step of the divergence must agree within one, or exactly where it shows in
    that nodes in depth cannot be solved for. Step 0 comes before all training: what fails there has too few nodes.
    """
    allowed = np.where(fine.equations.chain.unsettled, 0, 1)
    if (np.abs(coarse.diverged_at - fine.diverged_at) > allowed).any() or (fine.diverged_at == 0).any():
        return math.inf
    worst = _differences(coarse, fine, steps)[1].max()
    return float(worst) if np.isfinite(worst) else math.inf


def _parting(coarse: Compared, fine: Compared, steps: int, tolerance: float) -> int:
    """Step at which two solutions that both diverge begin to differ; 0 if their loss has not grown by then.

    What grows along the depth beyond what nodes resolve differs from one number of nodes to the next from there on.
    """
    if min(coarse.diverged_at[0], fine.diverged_at[0]) <= 0:
        return 0
    compared, differences = _differences(coarse, fine, steps)
    apart = compared[~(differences <= tolerance)]
    end = int(min([coarse.diverged_at[0], fine.diverged_at[0], *apart]))
    first, agreed = (float(loss) for loss in fine.test_losses(np.array([0, end - 1]))[:, 0].real)
    return end if agreed > _GROWN * first else 0


def _differences(coarse: Compared, fine: Compared, steps: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Relative differences of the test losses at some steps before a divergence, as ``_disagreement`` counts them."""
    end = np.minimum(*(np.where(run.diverged_at < 0, steps, run.diverged_at) for run in (coarse, fine)))
    compared = np.unique(np.geomspace(1, end.max(), _COMPARED).astype(int)) - 1
    # Imaginary parts belong to derivatives.
    losses = np.stack([run.test_losses(compared).real for run in (coarse, fine)])
    difference, size = np.abs(losses[0] - losses[1]), np.maximum(np.abs(losses[1]), 1e-14 * losses[1, 0])
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.where(difference == 0, 0.0, difference / np.where(size > 0, size, difference))
    amplified = (fine.diverged_at >= 0) & (losses[1] >= 2 * losses[1, 0])
    counted = np.where(amplified, 1e-3 * relative, relative)
    return compared, np.where(compared[:, None] < end, counted, 0.0).max(axis=1)
