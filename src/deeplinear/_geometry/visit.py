"""Stops on the way of training, at which the network is evaluated at other weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import memory
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._equations import system
from deeplinear._equations.coefficients import coefficients, structure
from deeplinear._equations.extension import Extension
from deeplinear._equations.rules import Evaluation, evaluations
from deeplinear._equations.training import Training
from deeplinear._geometry.rates import stage_at
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.dense import Dense, DenseRun
from deeplinear._solvers.depth import likely_nodes

MOST_LOOKS = 10_000
"""Most steps, or positions on a line, that are looked at: each takes evaluations of the network."""


class Stop(NamedTuple):
    """A step of training at which to look around.

    Attributes
    ----------
    step
        The step.
    extension
        The equations up to its evaluation, with room for more.
    gains
        What a rule that looks at sizes makes of the last gradient of each layer at rates of 1, shape (L + 1,); None
        of other rules.
    rows
        Row of the first evaluation of each step so far, shape (steps,).
    """

    step: int
    extension: Extension
    gains: NDArray[np.float64] | None
    rows: NDArray[np.int64]


def visit(
    problem: Problem,
    steps: Sequence[int],
    extra: int,
    look: Callable[[Stop], None],
    progress: Progress | None = None,
    *,
    device: Device = CPU,
    twin: bool = False,
) -> int:
    """Train, and look around at some steps, in rising order, with room for so many evaluations at each.

    The equations live on the device.

    Returns
    -------
    int
        Step of divergence, -1 if there is none. Nothing is looked at from then on.

    Raises
    ------
    Unresolved
        If nodes in depth do not solve the network at weights that were looked at.
    """
    cut = problem.first(steps[-1] + 1)
    nodes = _depth_nodes(cut, device)
    shape = replace(structure(cut, nodes), probed=True)
    longer = replace(shape, steps=shape.steps + extra)
    memory.require(system.memory(shape) + system.memory(longer), "solving", "lower steps, outputs or vectors", device)
    rows = np.array([each.row for each in evaluations(shape.rules) if each.number == 0])
    run = DenseRun([cut], replace(coefficients([cut], nodes, device=device), structure=shape))
    total, stops, watched = shape.steps + extra * len(steps), 0, 0

    def holds_up_to(row: int) -> bool:
        """Whether training is within all bounds, of which the run itself asks less often."""
        nonlocal watched
        reported = [each for each in rows if watched <= each <= row]
        diverges = run.equations.diverges(slice(watched, row + 1))[:, np.array(reported) - watched]
        watched = watched if diverges.any() else row + 1
        return not diverges.any()

    def after(evaluation: Evaluation, training: Training) -> None:
        nonlocal stops
        step = evaluation.step
        if step in steps and evaluation.number == 0 and holds_up_to(evaluation.row):
            sampling = stage_at(problem, step).sampling
            fresh = bool(sampling.subsamples and sampling.fresh)
            extension = Extension(run.equations, evaluation.row, extra, fresh=fresh, twin=twin)
            look(Stop(step, extension, training.gains, rows))
            if extension.equations.chain.unsettled.any():
                raise Unresolved(
                    f"{nodes} nodes in depth do not solve the network around step {step}; lower depth or lr"
                )
            stops += 1
        if progress is not None:
            progress(evaluation.row + 1 + stops * extra, total)

    run.fill(look=after)
    return int(run.diverged_at[0])


def check_range(problem: Problem, *values: NDArray[np.float64] | float) -> None:
    """Refuse a problem, by the field that is farthest from 1, if something found of it is beyond all numbers."""
    if all(np.isfinite(each).all() for each in values):
        return
    modes, data = problem.modes, problem.data
    sizes = {
        "richness": problem.network.richness,
        "width": max((width for width in problem.network.end_widths if np.isfinite(width)), default=1.0),
        "init_scale": max(problem.network.initial_scales, key=lambda each: abs(np.log(each)) if each > 0 else 0.0),
        "noise": data.noise,
        "eigenvalues": float(modes.eigenvalues.max()),
        "target_gram" if hasattr(data, "target_gram") else "target_power": float(np.abs(modes.target).max()),
        "batch" if problem.sampling.fresh else "samples": problem.sampling.drawn,
    }
    known = [each for each, size in sizes.items() if size > 0]
    name = max(known, key=lambda each: abs(np.log(sizes[each])))
    raise Refusal(name, sizes[name], "closer to 1", rest=": what is asked for leaves the range of numbers")


def _depth_nodes(problem: Problem, device: Device) -> int:
    """Number of nodes that stand for the layers of a deep network."""
    if not likely_nodes(problem):
        return 0
    (answer,) = Dense(device=device).solve([problem])
    assert isinstance(answer.solver, Dense)
    return answer.solver.depth_nodes or 0
