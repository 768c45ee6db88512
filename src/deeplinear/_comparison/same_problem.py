"""Whether an experiment belongs to a theory."""

import tomllib
from dataclasses import replace
from typing import Any

from deeplinear._core.dataset import LOSSES
from deeplinear._core.files import by_path
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured, measured, recorded
from deeplinear._theory.solution import Solution


def checked_experiment(theory: Any, experiment: Any) -> Ensemble | Measured:
    """Return an experiment, or what ``measured`` makes of it, that belongs to a theory."""
    if not isinstance(theory, Solution):
        raise Refusal("theory", theory, "a Solution, which solve returns", got=type(theory).__name__)
    if isinstance(experiment, Solution):
        raise Refusal("experiment", experiment, "an Ensemble or measured curves", got="a Solution")
    if isinstance(experiment, Ensemble):
        _check_problem(theory, experiment)
        return experiment
    curves = experiment if isinstance(experiment, Measured) else measured(experiment)
    steps = theory.problem.steps
    checked_steps(steps, curves)
    known = curves.times < steps  # of runs of unequal length, the others are not compared
    losses = {name: getattr(curves, name)[:, known] for name in LOSSES}
    return curves if known.all() else replace(curves, times=curves.times[known], **losses)


def checked_steps(steps: int, curves: Ensemble | Measured) -> None:
    """Refuse curves whose steps are not those of a theory with so many steps."""
    last = max(int(recorded(curves, name)[0][-1]) for name in LOSSES if recorded(curves, name)[0].size)
    if isinstance(curves, Measured) and not curves.has_steps and last != steps - 1:
        text = f"the curve has {last + 1} values and theory has {steps} steps: say which steps, measured(steps=...)"
        raise Refusal("steps", None, f"given unless there are {steps} values", text=text)
    if last >= steps:
        text = f"the curve goes to step {last} and theory to {steps - 1}: solve {last + 1} steps, or cut the curve"
        raise Refusal("steps", last, f"below {steps}", text=text)


def _check_problem(theory: Solution, experiment: Ensemble) -> None:
    # As written to a file, so that a learning-rate function equals its values.
    ours, theirs = (by_path(tomllib.loads(each.problem.to_toml())) for each in (theory, experiment))
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            got = f"{name} = {ours.get(name)!r} in theory and {theirs.get(name)!r} in experiment"
            raise Refusal("theory and experiment", experiment, "the same problem", verb="have", got=got)
    averages = theory.solver.averages
    if averages and experiment.averages and averages != experiment.averages:
        got = f"{averages!r} in theory and {experiment.averages!r} in experiment"
        raise Refusal("theory and experiment", experiment, "the same averages", verb="have", got=got)
