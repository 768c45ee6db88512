"""Panels against dense stepping: from how many steps on are they faster, and how exact are they?"""

from collections.abc import Callable
from functools import partial
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
    "MLP, L = 2, 2 outputs": lambda steps: mlp(steps, 2, outputs=2),
    "ResNet, L = 8": lambda steps: residual(8, steps),
    "power law, L = 3": power_law,
}
STEPS = (100, 150, 200, 300, 400, 600, 800, 1000, 1400, 2000)
LONGEST = 10.0
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
    found: dict[str, dl.Solution] = {}

    def solve(method: str) -> None:
        found[method] = dl.solve(problem, method=method)

    times = race({method: partial(solve, method) for method in ("dense", "panels")}, 2)
    exact, by_panels = (found[method].at(np.arange(problem.steps))["test_loss"].values for method in times)
    return {
        "steps": problem.steps,
        **times,
        "nodes": found["panels"].stats["nodes"],
        "error": float(np.abs(by_panels / exact - 1).max()),
    }


def crossover(runs: list[dict[str, float]]) -> float | None:
    """Steps from which panels are faster, interpolated on log scales; None if they never or always are."""
    logs = [np.log(run["dense"] / run["panels"]) for run in runs]
    for before, after, low, high in zip(runs, runs[1:], logs, logs[1:], strict=False):
        if low < 0 <= high:
            share = -low / (high - low)
            return float(before["steps"] * (after["steps"] / before["steps"]) ** share)
    return None


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    wins = [at for at in map(crossover, data["cases"].values()) if at]
    name, last = max(
        ((name, runs[-1]) for name, runs in data["cases"].items()),
        key=lambda pair: pair[1]["dense"] / pair[1]["panels"],
    )
    return [
        ("steps from which panels (tolerance 1e-6) beat dense stepping", f"{min(wins):.0f} to {max(wins):.0f}"),
        (f"dense stepping over panels at T = {last['steps']}, {name}", f"{last['dense'] / last['panels']:.1f}"),
    ]


def show(data: dict[str, Any]) -> list[str]:
    cases = data["cases"]
    with picture("panels") as (ax,):
        for (name, runs), color in zip(cases.items(), COLORS, strict=False):
            ratios = [run["dense"] / run["panels"] for run in runs]
            ax.plot([run["steps"] for run in runs], ratios, "o-", markersize=3, linewidth=1.5, color=color, label=name)
        ax.axhline(1.0, color=INK, linewidth=0.7)
        log_axis(ax)
        ax.set(xlabel="steps $T$", ylabel="time of dense / time of panels")
        ax.legend(loc="upper left", handlelength=1.2)
        sizes_axis(ax.xaxis, STEPS)
    measured = [steps for steps in STEPS if any(run["steps"] == steps for runs in cases.values() for run in runs)]
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
            ["problem", *(f"{steps}" for steps in measured)],
            ([name, *_cells(runs, measured)] for name, runs in cases.items()),
        ),
    ]


def _cells(runs: list[dict[str, float]], measured: list[int]) -> list[str]:
    shown = {run["steps"]: f"{run['dense']:.2g} / {run['panels']:.2g}" for run in runs}
    return [shown.get(steps, "") for steps in measured]
