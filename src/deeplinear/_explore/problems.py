"""Problems as the page writes them: the shape of a problem's TOML, with some words of its own, within bounds.

An infinite depth is the word "infinite", which JSON can hold. The optimizer may have a ``schedule``, a word for the
shape over time of a learning rate of which ``lr`` is the largest value, with a ``warmup`` and numbers of its ``shape``.
A schedule that was "drawn" has ``knots``: fractions of training, each with a factor on ``lr``, with straight lines
between. Numbers by name are lists such as ``["end=0.1"]``, as they are typed, and ``other`` is a learning rate. Data of
the kind "Uploaded" are those of a ``file`` that the page has sent.
"""

import itertools
import math
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._cost.model import numbers_of_solving
from deeplinear._explore.uploads import read_file, spectrum_of

MOST = {"layers": 256, "steps": 10_000_000, "scheduled": 20_000, "modes": 2000, "outputs": 6, "knots": 64}
"""Largest problems that the page takes; the library itself has no such bounds."""

UPLOADED, DRAWN = "Uploaded", "drawn"
"""The page's own kind of data, and its own shape of a schedule."""

MOST_FACTOR = 10.0
"""Largest factor on the learning rate in a schedule that was drawn."""

SECOND_PHASE = {"steps": 75, "target_overlap": 0.5, "new_samples": True}
"""What the page says of a second phase, and with which values it begins."""

MOST_FINITE = {"dim": 1_000_000, "seeds": 64, "steps": 2000, "neurons": 100_000_000}
"""Largest experiments; what would take too long is refused by its estimate."""

_QUICK_STEPS, _QUICK = 400, 2.4e9
"""Steps times outputs, and numbers to go through, up to which nobody needs an estimate."""


def read_problem(document: Any, whole: bool = False) -> dl.Problem:
    """Build the problem that the page describes.

    Data sets with many directions have fewer, with the same predictions, unless the ``whole`` spectrum is wanted.

    Raises
    ------
    ValueError
        If a value is not allowed, or the problem is larger than the page takes.
    """
    if not isinstance(document, dict):
        raise Refusal("problem", document, "an object", text=f"the problem must be an object, got {document!r:.60}")
    _check_numbers(document)
    document = {name: dict(part) if isinstance(part, dict) else part for name, part in document.items()}
    network, optimizer = document.get("network"), document.get("optimizer")
    _check_bounds(document)
    if isinstance(network, dict):
        _read_network(network)
    if isinstance(optimizer, dict):
        _read_optimizer(optimizer, document.get("steps"))
    if isinstance(document.get("phases"), dict):
        document["phases"] = _read_phases(document["phases"], document.get("steps"))
    uploaded = _uploaded(document.get("data"))
    problem = dl.Problem.from_dict(document if uploaded is None else document | {"data": {"type": "Isotropic"}})
    if uploaded is not None:
        problem = replace(problem, data=spectrum_of(uploaded, whole, problem.largest_momentum))
    _check_size(problem)
    return problem


def _uploaded(data: Any) -> str | None:
    """Return the name of the file of a data set that was uploaded; None for other data."""
    if not isinstance(data, dict) or data.get("type") != UPLOADED:
        return None
    for name in data:
        if name not in ("type", "file"):
            raise Refusal(name, data[name], "left out for data from a file, which determines it", verb="be")
    return read_file(data.get("file"))


def _read_network(network: dict[str, Any]) -> None:
    """Bring the words of the page into those of a problem."""
    if network.get("depth") == "infinite":
        network["depth"] = math.inf
    scaling = network.get("branch_scaling")
    if isinstance(scaling, str) and re.fullmatch(r"[0-9.]{1,10}", scaling):
        network["branch_scaling"] = float(scaling)
    if "init_scale" in network:
        network["init_scale"] = _by_name("init_scale", network["init_scale"])


def _read_optimizer(optimizer: dict[str, Any], steps: Any) -> None:
    for name in ("layer_lr", "layer_decay"):
        if name in optimizer:
            optimizer[name] = _by_name(name, optimizer[name])
    if optimizer.get("other", 0) is None:
        del optimizer["other"]
    if isinstance(optimizer.get("other"), int | float | str):
        optimizer["other"] = {"lr": optimizer["other"]}
    shape, warmup = optimizer.pop("schedule", "constant"), optimizer.pop("warmup", 0.0)
    options, knots = _by_name("shape", optimizer.pop("shape", None)) or {}, optimizer.pop("knots", None)
    if shape == DRAWN:
        optimizer["lr"] = _drawn(optimizer.get("lr"), knots, steps)
        return
    if shape == "constant" and warmup == 0.0 and not options:
        return
    if not isinstance(options, dict):
        raise Refusal("shape", options, "numbers by name, such as end=0.1")
    lr = optimizer.get("lr")
    if isinstance(lr, list | dict) or (isinstance(steps, int | float) and steps > MOST["scheduled"]):
        raise Refusal("schedule", shape, f"constant beyond {MOST['scheduled']} steps and for a list of rates")
    if not isinstance(shape, str) or shape not in dl.schedules.SHAPES:
        raise Refusal("schedule", shape, " or ".join((*dl.schedules.SHAPES, DRAWN)))
    optimizer["lr"] = {"shape": shape, "peak": lr, "warmup": warmup} | options


def _drawn(lr: Any, knots: Any, steps: Any) -> list[float]:
    """Return the rate of every step, of a schedule of straight lines between knots."""
    rate = checks.positive("lr", lr)
    if not isinstance(steps, int) or not 1 <= steps <= MOST["scheduled"]:
        raise Refusal("schedule", DRAWN, f"constant beyond {MOST['scheduled']} steps", got=f"{steps!r:.30} steps")
    at, factors = read_knots(knots)
    return [float(each) for each in rate * np.interp(np.linspace(0.0, 1.0, steps), at, factors)]


def read_knots(knots: Any) -> tuple[list[float], list[float]]:
    """Return the fractions of training of some knots, and their factors on the rate."""
    allowed = (
        f"2 to {MOST['knots']} pairs of a fraction of training, rising from 0 to 1, and a factor on the rate, "
        f"0 to {MOST_FACTOR:g}"
    )
    is_list = isinstance(knots, list) and 2 <= len(knots) <= MOST["knots"]
    pairs = [each for each in knots if isinstance(each, list) and len(each) == 2] if is_list else []
    numbers = [x for pair in pairs for x in pair if isinstance(x, int | float) and not isinstance(x, bool)]
    if not is_list or len(numbers) != 2 * len(knots):
        raise Refusal("knots", knots, allowed, got=f"{knots!r:.60}")
    at, factors = numbers[::2], numbers[1::2]
    if (at[0], at[-1]) != (0, 1) or any(x >= y for x, y in itertools.pairwise(at)):
        raise Refusal("knots", knots, allowed, got=f"fractions {at!r:.60}")
    if not all(0 <= each <= MOST_FACTOR for each in factors):
        raise Refusal("knots", knots, allowed, got=f"factors {factors!r:.60}")
    return at, factors


def _read_phases(phases: dict[str, Any], steps: Any) -> list[dict[str, Any]]:
    """Return no phases, or two of which the second one is described."""
    second = SECOND_PHASE | phases
    kind, length = second.pop("type", "One"), second["steps"]
    if kind != "Two":
        return []
    if not isinstance(length, int) or not isinstance(steps, int) or not 1 <= length < steps:
        raise Refusal("phases.steps", length, f"a whole number, at least 1 and less than all steps ({steps})")
    return [{"steps": steps - length}, second]


def _by_name(field: str, value: Any) -> Any:
    """Return numbers by name as a mapping, where they were typed as such; all else as it is."""
    if not isinstance(value, list) or not any(isinstance(each, str) and "=" in each for each in value):
        return value
    found: dict[str, Any] = {}
    for each in value:
        name, _, text = each.partition("=") if isinstance(each, str) else ("", "", "")
        try:
            found[name.strip()] = float(text)
        except ValueError:
            raise Refusal(field, value, "numbers by name, such as input=1, readout=0") from None
    return found


def scaled(problem: dl.Problem, factor: float) -> dl.Problem:
    """Return the problem with its learning rate, or its whole schedule, multiplied by a factor."""
    return replace(problem, optimizer=problem.optimizer.scaled(factor, problem.steps))


def finite_dim(problem: dl.Problem, dim: Any, seeds: Any) -> int:
    """Return the input dimension of an experiment, refusing those that are larger than the page takes.

    It is the given one, or of a spectrum whose directions are counted their number.
    """
    for name, value in (("dim", dim), ("seeds", seeds)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_FINITE[name]:
            raise Refusal(name, value, f"a whole number from 1 to {MOST_FINITE[name]}")
    if problem.steps > MOST_FINITE["steps"]:
        raise Refusal("steps", problem.steps, f"at most {MOST_FINITE['steps']} to train real networks")
    if problem.data.dimension_free and problem.data.own_dim is None and dim > MOST["modes"]:
        rest = ": theory has as many modes, to compare networks with"
        raise Refusal("dim", dim, f"at most {MOST['modes']} for a power law", rest=rest)
    unit = 1 if problem.data.dimension_free else dim
    sizes = [("width", width) for width in problem.network.given_widths if math.isfinite(width)]
    sizes += list(problem.sampling.sizes.items())[:1]  # a batch is no larger than the data set
    for name, size in sizes:
        if size * unit > MOST_FINITE["neurons"]:
            allowed = f"to at most {MOST_FINITE['neurons']} in a network"
            raise Refusal(name, size, allowed, verb="come", got=f"{size * unit:.0f}")
    return dim if problem.data.own_dim is None else problem.data.own_dim


def is_quick(problem: dl.Problem) -> bool:
    """Whether a problem is solved so quickly that no estimate is needed."""
    return problem.steps * problem.data.outputs <= _QUICK_STEPS and numbers_of_solving(problem) <= _QUICK


def _check_numbers(document: dict[str, Any]) -> None:
    """Refuse whole numbers that no float can hold, anywhere in a problem."""
    left = list(document.items())
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(f"phases.{key}" if name == "phases" else key, each) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(name, each) for each in value]
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            digits = f"a number of {len(str(value))} digits"
            raise Refusal(name, value, f"below {sys.float_info.max:.2g}", got=digits)


def _check_bounds(document: dict[str, Any]) -> None:
    """Refuse numbers that would take long even to check."""
    steps = document.get("steps")
    if isinstance(steps, int | float) and steps > MOST["steps"]:
        raise Refusal("steps", steps, f"at most {MOST['steps']} on this page")
    data = document.get("data")
    for name in ("eigenvalues", "target_power", "multiplicity", "target_gram"):
        values = data.get(name) if isinstance(data, dict) else None
        most = MOST["outputs"] if name == "target_gram" else MOST["modes"]
        if isinstance(values, list) and len(values) > most:
            raise Refusal(name, len(values), f"at most {most} entries on this page", verb="have")


def _check_size(problem: dl.Problem) -> None:
    depth = problem.network.depth
    if not problem.network.changes_slowly_with_depth and depth > MOST["layers"]:
        raise Refusal("depth", depth, f"at most {MOST['layers']} on this page")
    if problem.data.outputs > MOST["outputs"]:
        allowed = f"at most {MOST['outputs']} outputs on this page"
        raise Refusal("target_power", problem.data.outputs, allowed, verb="have")
