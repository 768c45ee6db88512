"""The targets that networks learn, one for each phase of training.

In every group of directions of equal variance the first target has a given Gram matrix over the outputs. That of a
later phase overlaps with the one before it, and the rest of it is new:

    w_p = rho w_{p-1} + sqrt(1 - rho^2) w_new

with w_new of the same Gram matrix, orthogonal to all earlier targets.
"""

import math
from collections.abc import Sequence

import numpy as np

from deeplinear._core.arrays import Array
from deeplinear._experiment.sizes import tasks_of
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem


def draw_targets(rng: np.random.Generator, finite: Modes, problem: Problem) -> list[Array]:
    """Draw the target w* of each phase, each of shape (D, C), mode by mode."""
    tasks, counts = tasks_of(problem), finite.weight.astype(int)
    alike = np.split(np.arange(len(counts)), np.flatnonzero(np.diff(counts)) + 1)  # neighbours of the same size
    drawn: list[list[Array]] = [[] for _ in alike]  # directions of earlier targets
    fresh = []
    for _ in range(tasks):
        parts = []
        for modes, known in zip(alike, drawn, strict=True):
            size = int(counts[modes[0]])
            roots = target_roots(size // tasks, finite.target[modes])
            known.append(_draw_directions(rng, (len(modes), size, roots.shape[-2]), known))
            parts.append((math.sqrt(size) * known[-1] @ roots).reshape(-1, roots.shape[-1]))  # eq-target
        fresh.append(np.concatenate(parts))
    return join_targets(fresh, problem)


def join_targets(fresh: Sequence[Array], problem: Problem) -> list[Array]:
    """Return the target of each phase, from as many without overlap as there are."""
    left = iter(fresh)
    targets = [next(left)]
    for stage in problem.stages[1:]:
        overlap = stage.target_overlap
        target = overlap * targets[-1] if overlap != 1 else targets[-1]
        targets.append(target if abs(overlap) == 1 else target + math.sqrt(1 - overlap**2) * next(left))
    return targets


def target_roots(most: int, gram: Array) -> Array:
    """Return w* / sqrt(dim) along ``most`` orthonormal directions or fewer, shape (directions, C).

    Several matrices, with leading axes, are several targets.
    """
    count = min(most, gram.shape[-1])
    values, vectors = np.linalg.eigh(gram)
    roots: Array = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]).mT
    return roots[..., roots.shape[-2] - count :, :]  # largest last


def _draw_directions(rng: np.random.Generator, shape: tuple[int, ...], known: Sequence[Array]) -> Array:
    """Draw orthonormal directions that are orthogonal to known ones, shape (..., dim, count)."""
    numbers = np.concatenate([*known, rng.standard_normal(shape)], axis=-1)
    directions: Array = np.linalg.qr(numbers)[0][..., numbers.shape[-1] - shape[-1] :]
    return directions
