"""From problems to solutions: grouping into batches, memory, and the choice of solver."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from deeplinear import _memory
from deeplinear._coefficients import Structure, coefficients, structure
from deeplinear._dense import Dense, dense_memory
from deeplinear._problem import Problem
from deeplinear._solution import Solution
from deeplinear._threads import one_blas_thread

Progress = Callable[[int, int], object]

_CACHE = 16e6
"""Bytes of matrices worth stepping together: more problems than this leave the processor's cache."""


@overload
def solve(problem: Problem, *, progress: Progress | None = None) -> Solution: ...
@overload
def solve(problem: Sequence[Problem], *, progress: Progress | None = None) -> list[Solution]: ...
def solve(problem: Problem | Sequence[Problem], *, progress: Progress | None = None) -> Solution | list[Solution]:
    """Predict how a network trains.

    Every step is solved exactly, in one causal pass: time grows as depth * (steps * outputs)^3, memory
    as depth * (steps * outputs)^2. Data with several modes add a matrix, and two products with it per step, for
    each mode.

    Parameters
    ----------
    problem
        One problem, or a sequence of them. Problems of equal shape (depth, steps, outputs, modes, kind
        of sampling, centering) are solved together, which saves most of the overhead of short ones.
    progress
        Called as ``progress(done, total)``, counted in steps, summed over batches.

    Returns
    -------
    Solution
        Or a list of them, in the order of the problems.

    Raises
    ------
    MemoryError
        Before anything is solved, if the matrices do not fit into the memory available.

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
        return solve([problem], progress=progress)[0]
    problems = list(problem)
    for index, each in enumerate(problems):
        if not isinstance(each, Problem):
            raise ValueError(f"problem[{index}] must be a Problem, got {each!r}")
    batches = list(_batches(problems))
    _memory.require(
        sum(dense_memory(shape, len(members)) for shape, members in batches),
        "solving",
        "lower steps or outputs, or solve fewer problems at a time",
    )
    solutions: dict[int, Solution] = {}
    total = sum(shape.steps for shape, _ in batches)
    done = 0

    def advance(step: int, _: int) -> None:
        if progress is not None:
            progress(done + step, total)

    with one_blas_thread():
        for shape, members in batches:
            start = time.perf_counter()
            dense = Dense(coefficients([problems[index] for index in members]))
            dense.run(advance)
            done += shape.steps
            stats = {"method": "dense", "seconds": time.perf_counter() - start, "batch": len(members)}
            for position, index in enumerate(members):
                solutions[index] = Solution.from_dense(problems[index], dense, position, stats)
    return [solutions[index] for index in range(len(problems))]


def _batches(problems: list[Problem]) -> Iterator[tuple[Structure, list[int]]]:
    """Group problems of equal structure, in batches that stay within the processor's cache."""
    groups: dict[Structure, list[int]] = {}
    for index, problem in enumerate(problems):
        groups.setdefault(structure(problem), []).append(index)
    for shape, members in groups.items():
        size = max(1, int(_CACHE / dense_memory(shape, 1)))
        for start in range(0, len(members), size):
            yield shape, members[start : start + size]
