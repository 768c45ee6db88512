"""From the ratios of a problem to the counts of a finite network."""

import math
from dataclasses import dataclass

from deeplinear import _checks
from deeplinear._problem import Problem
from deeplinear._sampling import OnlineSGD, Population


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
        P, or B where batches are fresh, or 0 where the data are unlimited.
    outputs
        C.
    """

    dim: int
    widths: tuple[int, ...]
    samples: int
    outputs: int


def sizes_of(problem: Problem, dim: int) -> Sizes:
    """Round the ratios of ``problem`` to counts at input dimension ``dim``, each at least 1.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=[0.5, 2.0]), dl.GradientDescent(0.1)
    >>> sizes_of(dl.Problem(network, dl.Isotropic(), dl.FullBatch(samples=1.5), optimizer, steps=10), dim=20)
    Sizes(dim=20, widths=(10, 40), samples=30, outputs=1)
    """
    dim = _checks.whole("dim", dim)
    outputs = problem.data.outputs
    if dim < outputs:
        raise ValueError(f"dim must be at least the number of outputs ({outputs}), got {dim}")
    if problem.network.depth == math.inf:
        raise ValueError("depth must be finite in a simulation, got inf: an infinitely deep network can only be solved")
    if not all(math.isfinite(width) for width in problem.network.widths):
        raise ValueError(
            f"width must be finite in a simulation, got {problem.network.width!r}: "
            "an infinitely wide network can be solved, not simulated"
        )
    return Sizes(dim, tuple(_count(width, dim) for width in problem.network.widths), _samples(problem, dim), outputs)


def _samples(problem: Problem, dim: int) -> int:
    sampling = problem.sampling
    if isinstance(sampling, Population):
        return 0
    return _count(sampling.batch if isinstance(sampling, OnlineSGD) else sampling.samples, dim)


def _count(ratio: float, dim: int) -> int:
    return max(1, round(ratio * dim))
