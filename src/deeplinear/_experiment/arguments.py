"""Arguments of simulations, checked before anything is trained."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from deeplinear._core import checks
from deeplinear._core.device import CPU, Device
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.curvature import Curvature
from deeplinear._experiment.methods import AUTO, EXPLICIT, METHODS, Counts, choose
from deeplinear._experiment.rows import read_rows
from deeplinear._problem.from_data import Fit
from deeplinear._problem.problem import Problem

_MOST_SEEDS = 10**12
"""Most seeds of an ensemble: memory is counted for so many, and found wanting."""
_MOST_LISTED = 10**6
"""Most seeds that are given one by one."""


def check_curvature(problem: Problem, curvature: Any) -> None:
    """Refuse what cannot be measured."""
    if curvature is None:
        return
    if not isinstance(curvature, Curvature):
        raise Refusal("curvature", curvature, "a Curvature, such as Curvature(at=[0, 10])")
    if curvature.at[-1] >= problem.steps:
        raise Refusal("at", curvature.at[-1], f"a step from 0 to {problem.steps - 1}")
    for stage in problem.stages:
        scaling, orthogonal = stage.optimizer.scaling, stage.optimizer.orthogonal
        only_divides = orthogonal is not None and orthogonal.momentum == 0.0 and problem.data.outputs == 1
        if only_divides or (scaling is not None and scaling.by_layer):
            raise Refusal("curvature", curvature, "None where gradients are divided by sizes of their layers")


def read_seeds(seeds: Any) -> Sequence[int]:
    """Return the seeds that a number of them, which may be large, or a sequence stands for."""
    if not isinstance(seeds, Iterable):
        count = checks.whole("seeds", seeds)
        if count > _MOST_SEEDS:
            raise Refusal("seeds", seeds, f"at most {_MOST_SEEDS}")
        return range(count)
    if isinstance(seeds, range):
        return _read_range(seeds)
    values = tuple(
        checks.whole(f"seeds[{i}]", seed, at_least=0) for i, seed in enumerate(islice(seeds, _MOST_LISTED + 1))
    )
    if len(values) > _MOST_LISTED:
        raise Refusal("seeds", seeds, f"a number or a range where there are more than {_MOST_LISTED}", got="a list")
    if not values or len(set(values)) < len(values) or max(values) >= 2**63:
        raise Refusal("seeds", list(values), "one or more distinct whole numbers below 2**63")
    return values


def seeds_from(seed: Any, seeds: Any) -> range:
    """Return so many seeds from the first one on."""
    if isinstance(seeds, Iterable):
        raise Refusal("seed", seed, "left out where the seeds are listed")
    first, count = checks.whole("seed", seed, at_least=0), checks.whole("seeds", seeds)
    return range(first, first + count)


def _read_range(seeds: range) -> range:
    """Return seeds that nobody lists; those of a range are distinct, and its ends are the least and the greatest."""
    if not seeds or min(seeds[0], seeds[-1]) < 0 or max(seeds[0], seeds[-1]) >= 2**63:
        raise Refusal("seeds", seeds, "one or more distinct whole numbers from 0, below 2**63")
    if len(seeds) > _MOST_SEEDS:
        raise Refusal("seeds", seeds, f"at most {_MOST_SEEDS}")
    return seeds


def read_method(method: Any, counts: Counts, device: Device) -> str:
    """Return how matrices are kept."""
    checks.word("method", method, METHODS)
    counts.check(method)
    kept = choose(counts, device.available()) if method == AUTO else str(method)
    check_richness(counts, kept)
    return kept


def check_richness(counts: Counts, method: str) -> None:
    """Refuse networks whose function, less that at initialisation, would be lost in rounding."""
    if not counts.resolves(method):
        allowed = f"at least {counts.least_richness(method):.2g} for centered networks with {method} matrices"
        why = ": the function at initialisation, which is subtracted, is as large as 1 / richness"
        raise Refusal("richness", counts.problem.network.richness, allowed, rest=why)


def read_data(problem: Problem, data: Any, method: Any, device: Device) -> Fit:
    """Return the rows to train on; ValueError where that is not possible."""
    checks.word("method", method, METHODS)
    if method not in (AUTO, EXPLICIT):
        raise Refusal("method", method, "'explicit' where rows of data are given")
    if device != CPU:
        raise Refusal("device", device.name, "'cpu' where rows of data are given")
    return read_rows(problem, data)
