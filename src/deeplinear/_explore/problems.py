"""Problems as the page writes them: the shape of a problem's TOML, with two words of its own, within bounds.

An infinite depth is the word "infinite", which JSON can hold, and the optimizer may have a ``schedule``, a word for the
shape over time of a learning rate of which ``lr`` is the largest value.
"""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import deeplinear as dl
from deeplinear._explore.controls import CONTROLS

SHAPES: dict[str, tuple[str, Callable[[int, int], float]]] = {
    "warmup": ("min(1, 10 * (t + 1) / {steps})", lambda t, steps: min(1.0, 10 * (t + 1) / steps)),
    "cosine": ("(1 + math.cos(math.pi * t / {steps})) / 2", lambda t, steps: (1 + math.cos(math.pi * t / steps)) / 2),
    "decay": ("1 / math.sqrt(1 + t)", lambda t, _: 1 / math.sqrt(1 + t)),
}
"""Shapes of a schedule over steps t: the words for Python, and the function."""

MOST = {"layers": 256, "steps": 10_000_000, "scheduled": 20_000, "modes": 2000, "outputs": 6}
"""Largest problems that the page takes; the library itself has no such bounds."""

MOST_FINITE = {"dim": 1_000_000, "seeds": 64, "steps": 2000, "neurons": 100_000_000}
"""Largest experiments; what would take too long is refused by its estimate."""

_QUICK_STEPS, _QUICK_WORK = 400, 12 * 400**2


def read_problem(document: Any) -> dl.Problem:
    """Build the problem that the page describes.

    Raises
    ------
    ValueError
        If a value is not allowed, or the problem is larger than the page takes.
    """
    if not isinstance(document, dict):
        raise ValueError(f"the problem must be an object, got {document!r:.60}")
    _check_numbers(document)
    document = {name: dict(part) if isinstance(part, dict) else part for name, part in document.items()}
    network, optimizer = document.get("network"), document.get("optimizer")
    if isinstance(network, dict) and network.get("depth") == "infinite":
        network["depth"] = math.inf
    shape = optimizer.pop("schedule", "constant") if isinstance(optimizer, dict) else "constant"
    _check_bounds(document)
    problem = dl.Problem.from_dict(document)
    _check_size(problem)
    return problem if shape == "constant" else _scheduled(problem, shape)


def scaled(problem: dl.Problem, factor: float) -> dl.Problem:
    """Return the problem with its learning rate, or its whole schedule, multiplied by a factor."""
    rate = problem.optimizer.lr
    new = factor * rate if isinstance(rate, float) else tuple(factor * each for each in rate)  # type: ignore[union-attr]
    return replace(problem, optimizer=replace(problem.optimizer, lr=new))


def finite_dim(problem: dl.Problem, dim: Any, seeds: Any) -> int:
    """Return the input dimension of an experiment, refusing those that are larger than the page takes.

    It is the given one, or of a spectrum whose directions are counted their number.
    """
    for name, value in (("dim", dim), ("seeds", seeds)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_FINITE[name]:
            raise ValueError(f"{name} must be a whole number from 1 to {MOST_FINITE[name]}, got {value!r}")
    if problem.steps > MOST_FINITE["steps"]:
        raise ValueError(f"steps must be at most {MOST_FINITE['steps']} to train real networks, got {problem.steps}")
    unit = 1 if problem.data.dimension_free else dim
    widths = problem.network.width if isinstance(problem.network.width, tuple) else (problem.network.width,)
    sizes = [("width", width) for width in widths if not isinstance(width, str)]
    sizes += [(name, getattr(problem.sampling, name, 0.0)) for name in ("samples", "batch")]
    for name, size in sizes:
        if size * unit > MOST_FINITE["neurons"]:
            raise ValueError(
                f"{name} must come to at most {MOST_FINITE['neurons']} in a network, got {size * unit:.0f}"
            )
    has_own_dim = type(problem.data) is dl.Spectrum and problem.data.dimension_free
    return int(problem.data.modes.weight.sum()) if has_own_dim else dim


def is_quick(problem: dl.Problem) -> bool:
    """Whether a solve takes so little that nobody needs an estimate of it."""
    size = problem.steps * problem.data.outputs
    layers = problem.network.depth * (3 if isinstance(problem.network, dl.ResNet) else 1)
    return size <= _QUICK_STEPS and (layers + len(problem.data.modes.eigenvalues) / 4) * size**2 <= _QUICK_WORK


def field_of(message: str) -> str | None:
    """Find the control that an error is about: the library names the argument first.

    Examples
    --------
    >>> field_of("width[1] must be a positive finite number, got 0"), field_of("not enough memory")
    ('network.width', None)
    """
    names = {control.name: ".".join(filter(None, (control.part, control.name))) for control in CONTROLS}
    names |= {"dim": "experiment.dim", "seeds": "experiment.seeds"}
    found = re.match(r"(?:[a-z]+: )?'?([a-z_]+)\b", message)
    return names.get(found[1]) if found else None


def _check_numbers(document: dict[str, Any]) -> None:
    """Refuse whole numbers that no float can hold, anywhere in a problem."""
    left = list(document.items())
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(name, each) for each in value]
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError(f"{name} must be below {sys.float_info.max:.2g}, got a number of {len(str(value))} digits")


def _check_bounds(document: dict[str, Any]) -> None:
    """Refuse numbers that would take long even to check."""
    steps = document.get("steps")
    if isinstance(steps, int | float) and steps > MOST["steps"]:
        raise ValueError(f"steps must be at most {MOST['steps']} on this page, got {steps!r}")
    data = document.get("data")
    for name in ("eigenvalues", "target_power", "multiplicity", "target_gram"):
        values = data.get(name) if isinstance(data, dict) else None
        most = MOST["outputs"] if name == "target_gram" else MOST["modes"]
        if isinstance(values, list) and len(values) > most:
            raise ValueError(f"{name} must have at most {most} entries on this page, got {len(values)}")


def _check_size(problem: dl.Problem) -> None:
    depth, network = problem.network.depth, problem.network
    by_layers = isinstance(network, dl.MLP) or network.branch_scaling == "none"
    if by_layers and depth > MOST["layers"]:
        raise ValueError(f"depth must be at most {MOST['layers']} on this page, got {depth}")
    if problem.data.outputs > MOST["outputs"]:
        raise ValueError(f"target_power must have at most {MOST['outputs']} outputs on this page")


def _scheduled(problem: dl.Problem, shape: Any) -> dl.Problem:
    if not isinstance(shape, str) or shape not in SHAPES:
        raise ValueError(f"schedule must be constant or {' or '.join(SHAPES)}, got {shape!r}")
    steps, rate = problem.steps, problem.optimizer.lr
    if steps > MOST["scheduled"] or not isinstance(rate, float):
        raise ValueError(
            f"schedule must be constant beyond {MOST['scheduled']} steps and for a list of rates, got {shape!r}"
        )
    _, function = SHAPES[shape]
    rates = tuple(rate * function(t, steps) for t in range(steps))
    return replace(problem, optimizer=replace(problem.optimizer, lr=rates))
