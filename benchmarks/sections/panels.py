"""Panels against dense stepping: from how many steps on are they faster, and how exact are they?"""

from collections.abc import Callable
from typing import Any

import numpy as np

import deeplinear as dl
from measure import race
from pictures import COLORS, INK, log_axis, picture, sizes_axis
from problems import mlp, power_law, residual
from sections import seconds, table

TITLE = "Panels against dense stepping"

CASES: dict[str, Callable[[int], dl.Problem]] = {
    "MLP, L = 1": lambda steps: mlp(steps, 1),
    "MLP, L = 2": lambda steps: mlp(steps, 2),
    "MLP, L = 4": lambda steps: mlp(steps, 4),
    "ResNet, L = 8": lambda steps: residual(8, steps),
    "power law, L = 3": power_law,
}
STEPS = (100, 150, 200, 300, 400, 600, 800, 1000, 1400, 2000)
LONGEST = 12.0
"""Seconds of dense stepping beyond which a longer run is left out."""


def measure() -> dict[str, Any]:
    cases = {}
    for name, make in CASES.items():
        runs: list[dict[str, float]] = []
        for steps in STEPS:
            if runs and runs[-1]["dense"] * (steps / runs[-1]["steps"]) ** 3 > LONGEST:
                break
            runs.append(compare(make(steps)))
        cases[name] = runs
    return {"cases": cases}


def compare(problem: dl.Problem) -> dict[str, float]:
    """Solve a problem both ways, in turns."""
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    found = solution.at(np.arange(problem.steps))["test_loss"].values
    return {
        "steps": problem.steps,
        **race({method: lambda method=method: dl.solve(problem, method=method) for method in ("dense", "panels")}, 2),
        "nodes": solution.stats["nodes"],
        "error": float(np.abs(found / exact.test_loss - 1).max()),
    }


def crossover(runs: list[dict[str, float]]) -> float | None:
    """Steps from which panels are faster, interpolated on log scales; None if they never or always are."""
    logs = [np.log(run["dense"] / run["panels"]) for run in runs]
    for before, after, low, high in zip(runs, runs[1:], logs, logs[1:], strict=False):
        if low < 0 <= high:
            share = -low / (high - low)
            return float(before["steps"] * (after["steps"] / before["steps"]) ** share)
    return None


def show(data: dict[str, Any]) -> list[str]:
    cases = data["cases"]
    with picture("panels") as (ax,):
        for (name, runs), color in zip(cases.items(), COLORS, strict=False):
            ratios = [run["dense"] / run["panels"] for run in runs]
            ax.plot([run["steps"] for run in runs], ratios, "o-", markersize=3, linewidth=1.5, color=color, label=name)
        ax.axhline(1.0, color=INK, linewidth=0.7)
        log_axis(ax)
        ax.set(xlabel="steps $T$", ylabel="time of dense / time of panels")
        ax.legend(loc="upper left")
        sizes_axis(ax.xaxis, STEPS)
    rows = []
    for name, runs in cases.items():
        at, last = crossover(runs), runs[-1]
        rows.append(
            [
                name,
                f"{at:.0f}" if at else "not seen",
                f"{last['steps']:.0f}",
                seconds(last["dense"]),
                seconds(last["panels"]),
                f"{last['dense'] / last['panels']:.1f}",
                f"{last['nodes']:.0f}",
                f"{max(run['error'] for run in runs):.0e}",
            ]
        )
    return [
        "Tolerance 1e-6. Panels are faster from the steps in the second column on; the columns after it are for the "
        "longest run that both solved, and the largest relative error of the test loss over all steps of all runs.",
        "",
        "![Dense over panels, over steps](images/panels.png)",
        "",
        *table(
            ["problem", "panels win from T =", "T", "dense", "panels", "ratio", "nodes", "error"],
            rows,
        ),
        "All times, dense / panels in seconds:",
        "",
        *table(
            ["problem", *(f"{steps}" for steps in STEPS)],
            ([name, *_cells(runs)] for name, runs in cases.items()),
        ),
    ]


def _cells(runs: list[dict[str, float]]) -> list[str]:
    shown = {run["steps"]: f"{run['dense']:.2g} / {run['panels']:.2g}" for run in runs}
    return [shown.get(steps, "") for steps in STEPS]
