"""Panels from a thousand to ten million steps."""

import math
from collections.abc import Callable
from typing import Any

import deeplinear as dl
from measure import exponent, least
from pictures import COLORS, picture
from problems import long, residual
from sections import seconds, table

TITLE = "Growth with the horizon: a power of log T"

CASES: dict[str, Callable[[int], dl.Problem]] = {
    "MLP, L = 3": long,
    "ResNet, L = 4": lambda steps: residual(4, steps, lr=0.005),
}
DECADES = range(3, 8)


def measure() -> dict[str, Any]:
    return {"cases": {name: [run(make, decade) for decade in DECADES] for name, make in CASES.items()}}


def run(make: Callable[[int], dl.Problem], decade: int) -> dict[str, float]:
    """One solution by panels."""
    problem, solutions = make(10**decade), []
    taken = least(lambda: solutions.append(dl.solve(problem, method="panels")), 1)
    stats = solutions[-1].stats
    return {"decade": decade, "seconds": taken, "nodes": stats["nodes"], "error": stats["error"]}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    name, runs = next(iter(data["cases"].items()))
    sizes = "; ".join(f"10^{run['decade']}" for run in runs)
    return [(f"T = {sizes} by panels, {name}", "; ".join(seconds(run["seconds"]) for run in runs))]


def show(data: dict[str, Any]) -> list[str]:
    rows, growth = [], []
    with picture("horizons", 2) as (times, nodes):
        for (name, runs), color in zip(data["cases"].items(), COLORS, strict=False):
            steps = [10.0 ** run["decade"] for run in runs]
            style: dict[str, Any] = {"color": color, "label": name}
            times.plot(steps, [run["seconds"] for run in runs], "o-", **style)
            nodes.plot(steps, [run["nodes"] for run in runs], "o-", **style)
            power = exponent([math.log(step) for step in steps], [run["seconds"] for run in runs])
            growth.append(f"{name}: time grows as (log T)^{power:.1f}")
            for run in runs:
                rows.append([name, f"10^{run['decade']}", seconds(run["seconds"]), run["nodes"], f"{run['error']:.0e}"])
        for ax, label in ((times, "seconds"), (nodes, "nodes in time")):
            ax.set(xscale="log", xlabel="steps $T$", ylabel=label, ylim=(0, None))
            ax.legend(loc="upper left")
    return [
        f"Panels, full batch, tolerance 1e-6. {'; '.join(growth)}.",
        "",
        "![Time and nodes over steps](images/horizons.png)",
        "",
        *table(["problem", "steps", "time", "nodes", "error reported"], rows),
    ]
