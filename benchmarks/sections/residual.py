"""Residual networks against other ways to solve them."""

import math
from typing import Any

import deeplinear as dl
from deeplinear._solvers.reference import reference
from measure import race
from pictures import COLORS, INK, picture, sizes_axis
from problems import residual
from sections import rounded, seconds, table

TITLE = "Residual networks: against all pairs of layers, and many layers through nodes in depth"

PAIRS = (2, 4, 8)
DEEP = (128, 255, 256, 1000, 10_000)


def measure() -> dict[str, Any]:
    pairs = []
    for depth in PAIRS:
        problem = residual(depth, 16)
        times = race({"reference": lambda p=problem: reference(p), "solve": lambda p=problem: dl.solve(p)}, 2)
        pairs.append({"depth": depth, **times})
    problems = {depth: residual(depth, 100) for depth in (*DEEP, math.inf)}
    times = race({depth: lambda p=problem: dl.solve(p) for depth, problem in problems.items()}, 2)
    nodes = {depth: dl.solve(problem).stats.get("depth_nodes") for depth, problem in problems.items()}
    deep = [{"depth": str(depth), "seconds": times[depth], "nodes": nodes[depth]} for depth in problems]
    return {"pairs": pairs, "deep": deep}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    sizes = "; ".join(f"{run['depth']}" for run in data["pairs"])
    ratios = "; ".join(rounded(run["reference"] / run["solve"]) for run in data["pairs"])
    return [(f"residual network, L = {sizes}: all pairs of layers over `solve`", ratios)]


def show(data: dict[str, Any]) -> list[str]:
    deep = data["deep"]
    with picture("residual") as (ax,):
        finite = [run for run in deep if run["depth"] != "inf"]
        for nodes, color, label in ((False, COLORS[0], "layer by layer"), (True, COLORS[1], "nodes in depth")):
            runs = [run for run in finite if bool(run["nodes"]) == nodes]
            ax.plot(
                [int(run["depth"]) for run in runs], [run["seconds"] for run in runs], "o-", color=color, label=label
            )
        ax.axhline(deep[-1]["seconds"], color=INK, linestyle=":", linewidth=1.2, label="infinite depth")
        ax.set(xlabel="depth $L$", ylabel="seconds", ylim=(0, None))
        ax.legend(loc="best")
        sizes_axis(ax.xaxis, DEEP)
    per_layer = next(run["seconds"] / int(run["depth"]) for run in reversed(finite) if not run["nodes"])
    return [
        "T = 100, tolerance 1e-6. From 256 layers on a few nodes in depth stand for all of them; the error comes from "
        "solving with two numbers of nodes.",
        "",
        "![Time over depth](images/residual.png)",
        "",
        *table(
            ["layers", "nodes in depth", "time", "layer by layer it would take"],
            ([run["depth"], run["nodes"] or "-", seconds(run["seconds"]), _by_layers(run, per_layer)] for run in deep),
        ),
        "A solver that keeps all pairs of layers, as the equations are usually written, over `solve`, T = 16:",
        "",
        *table(
            ["layers", "all pairs", "solve", "ratio"],
            (
                [
                    run["depth"],
                    seconds(run["reference"]),
                    seconds(run["solve"]),
                    f"{run['reference'] / run['solve']:.0f}",
                ]
                for run in data["pairs"]
            ),
        ),
    ]


def _by_layers(run: dict[str, Any], per_layer: float) -> str:
    return seconds(per_layer * int(run["depth"])) if run["nodes"] and run["depth"] != "inf" else "-"
