"""Problems whose answers are known to 12 digits, and what this installation makes of them.

The file was made by ``tools/make_check_values.py``: by the slow reference and by recursions, in extended precision.
"""

import json
import math
import platform
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._equations.products import COMPUTED
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import averages_from_json
from deeplinear._theory.solution import Solution
from deeplinear._theory.solve import solve

VALUES = "check_values.json"

_EXACT = 2e-11
"""Most error of a method that solves every step, relative to the largest of the values: 12 digits, and rounding."""
_REPORTED = 10.0
"""Most error of an approximate method, in units of the error that it reports, or of 1e-9 if that is larger."""
_DEEP = 1e-9
"""Most error at infinite depth."""


@dataclass(frozen=True)
class Checked:
    """How a method did.

    Attributes
    ----------
    method
        Its name, as ``solve`` takes it.
    problems, values
        How many of each were compared.
    error
        Largest relative error.
    used
        Largest part of what was allowed that an error has used, at most 1 if all is well.
    worst
        Name of the problem where that was.
    """

    method: str
    problems: int
    values: int
    error: float
    used: float
    worst: str

    @property
    def holds(self) -> bool:
        """Return True if every value is as close as it should be."""
        return self.used <= 1.0

    def __str__(self) -> str:
        verdict = "agrees" if self.holds else f"DISAGREES, most of all on {self.worst!r}"
        return f"{self.method}: {verdict}; {self.values} values of {self.problems} problems within {self.error:.1e}"


def known() -> dict[str, Any]:
    """Return the content of the file."""
    content: dict[str, Any] = json.loads(files("deeplinear").joinpath(VALUES).read_text("utf-8"))
    return content


def machine() -> str:
    """Name this kind of machine, as the file does."""
    return f"{platform.system()} {platform.machine()}, products {COMPUTED}"


def check(device: str = "cpu", progress: Progress | None = None) -> list[Checked]:
    """Solve every problem of the file by every method that it names and that runs on a device, and compare."""
    problems = known()["problems"]
    methods = list(dict.fromkeys(method for each in problems for method in each["methods"]))
    checked = []
    for index, method in enumerate(methods):
        try:
            checked.append(_check(method, [each for each in problems if method in each["methods"]], device))
        except Refusal as refusal:  # some methods run on the processor only
            if refusal.field != "method":
                raise
        if progress is not None:
            progress(index + 1, len(methods))
    return checked


def _check(method: str, problems: list[dict[str, Any]], device: str) -> Checked:
    count, error, used, worst = 0, 0.0, 0.0, ""
    for each in problems:
        problem = Problem.from_toml(each["problem"])
        is_deep = math.isinf(problem.network.depth)
        averages = averages_from_json(json.dumps(each["averages"]))
        solution = solve(problem, method=method, tolerance=1e-10 if is_deep else 1e-6, averages=averages, device=device)
        reported = solution.stats.get("error", 0.0) if method != "dense" else 0.0
        allowed = _DEEP if is_deep else max(_REPORTED * max(reported, 1e-9) if reported else 0.0, _EXACT)
        for name, values in each["values"].items():
            expected = np.array(values, float)
            found = _found(solution, name, np.array(each["steps"]))
            off = _error(found, expected)
            count, error = count + expected.size, max(error, off)
            if off / allowed > used:
                used, worst = off / allowed, each["name"]
    return Checked(method, len(problems), count, error, used, worst)


def _found(solution: Solution, name: str, steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what a solution has in the place of some values."""
    if name in ("test_loss", "train_loss"):
        losses: NDArray[np.float64] = solution.at(steps)[name].values
        return losses
    values: NDArray[np.float64] = getattr(solution.decomposition, name, getattr(solution, name, np.zeros(0)))
    return values[..., -1, :] if name.endswith(("correlation", "response")) else values


def _error(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the largest error, relative to the largest value; infinite where a shape or a divergence is another."""
    ends = np.isnan(expected)  # where training has diverged
    if found.shape != expected.shape or not np.array_equal(~np.isfinite(found), ends):
        return math.inf
    largest = np.abs(expected[~ends]).max(initial=0.0)
    return float(np.abs(found - expected)[~ends].max(initial=0.0) / (largest or 1.0))
