"""From the sizes of a problem, ratios or counts, to the whole numbers of a finite network."""

import math
from dataclasses import dataclass, replace

import numpy as np

from deeplinear._core.refusal import Refusal
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem

_MOST_LAYERS = 100_000
"""Most hidden layers of a network that is trained: each has a matrix of its own, and its turn in every step."""
_LARGEST = 10**15
"""Largest number of neurons or examples."""


@dataclass(frozen=True)
class Sizes:
    """Counts of a finite network and its data.

    Attributes
    ----------
    dim
        Input dimension D.
    widths
        N_1 .. N_L.
    samples
        P, or B where batches are fresh, or 0 where the data are unlimited; the largest, where it changes.
    outputs
        C.
    dimension_free
        Whether the data have a fixed list of directions, so that nothing is in units of D.
    """

    dim: int
    widths: tuple[int, ...]
    samples: int
    outputs: int
    dimension_free: bool = False

    @property
    def unit(self) -> int:
        """What sizes of the problem are counted in and sums over input directions divided by: D, or 1."""
        return 1 if self.dimension_free else self.dim


def sizes_of(problem: Problem, dim: int | None) -> Sizes:
    """Turn the sizes of ``problem`` into whole counts, each at least 1.

    Ratios are those to the input dimension ``dim``. Where the data are dimension-free, sizes are counts already
    and ``dim`` may be None unless the data have infinitely many directions.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=[0.5, 2.0]), dl.GradientDescent(0.1)
    >>> sizes_of(dl.Problem(network, dl.Isotropic(), dl.FullBatch(samples=1.5), optimizer, steps=10), dim=20)
    Sizes(dim=20, widths=(10, 40), samples=30, outputs=1, dimension_free=False)
    """
    finite, outputs = problem.data.finite(dim), problem.data.outputs
    sizes = Sizes(int(finite.weight.sum()), (), 0, outputs, problem.data.dimension_free)
    if sizes.dim < outputs and not sizes.dimension_free:
        raise Refusal("dim", dim, f"at least the number of outputs ({outputs})")
    _check_targets(finite, tasks_of(problem))
    if problem.network.depth == math.inf:
        why = ": an infinitely deep network can only be solved"
        raise Refusal("depth", math.inf, "finite in a simulation", rest=why)
    if problem.network.layers > _MOST_LAYERS:
        why = ": every layer is trained by itself; a deeper network can be solved"
        raise Refusal("depth", problem.network.depth, f"at most {_MOST_LAYERS} in a simulation", rest=why)
    if not all(math.isfinite(width) for width in problem.network.given_widths):
        why = ": an infinitely wide network can be solved, not simulated"
        raise Refusal("width", problem.network.width, "finite in a simulation", rest=why)
    for width in problem.network.widths:
        _check_count("width", width, sizes.unit)
    widths = tuple(count(width, sizes.unit) for width in problem.network.widths)  # eq-ratios
    return replace(sizes, widths=widths, samples=_samples(problem, sizes.unit))


def tasks_of(problem: Problem) -> int:
    """Number of targets of all phases that are not multiples of earlier ones."""
    return 1 + sum(abs(stage.target_overlap) < 1 for stage in problem.stages[1:])


def count(size: float, unit: int) -> int:
    """Return a size as a whole number, at least 1."""
    return max(1, round(size * unit))


def _check_count(name: str, size: float, unit: int) -> None:
    """Refuse a size that is no count: from there on whole numbers are not told apart."""
    if size * unit > _LARGEST:
        why = "" if unit == 1 else f", a multiple of dim = {unit}"
        raise Refusal(name, size, f"at most {_LARGEST / unit:.1e} in a simulation", rest=why)


def _check_targets(finite: Modes, tasks: int) -> None:
    """Refuse targets that need more directions than their mode has."""
    values = np.linalg.eigvalsh(finite.target)
    rank = (values > 1e-12 * values[:, -1:]).sum(axis=1)
    crowded = np.flatnonzero(tasks * rank > finite.weight)
    if not len(crowded):
        return
    k = crowded[0]
    directions = int(finite.weight[k])
    if rank[k] > directions:
        allowed = f"a rank of at most {directions}, the number of directions of its mode, in a simulation"
        raise Refusal(f"target_power[{k}]", int(rank[k]), allowed, verb="have")
    why = (
        f": {tasks} targets without overlap need {tasks * int(rank[k])} directions of mode {k}, which has {directions}"
    )
    raise Refusal("target_overlap", tasks, "1 or -1 in a simulation", got=f"{tasks} different targets", rest=why)


def _samples(problem: Problem, unit: int) -> int:
    for stage in problem.stages:
        if stage.sampling.drawn:
            _check_count("batch" if stage.sampling.fresh else "samples", stage.sampling.drawn, unit)
    return max(count(stage.sampling.drawn, unit) if stage.sampling.drawn else 0 for stage in problem.stages)
