"""Causal stepping against the damped fixed point of whole matrices."""

from typing import Any

import numpy as np

import deeplinear as dl
from measure import race
from peer import fixed_point
from pictures import COLORS, picture
from problems import mlp
from sections import seconds, table

TITLE = "Against damped fixed-point iteration of whole matrices"

DEPTH, RATE, TOLERANCE, MOST = 3, 0.05, 1e-6, 400
DAMPINGS = (0.0, 0.5, 0.8)
RICHNESS = (0.25, 0.5, 1.0, 2.0)
STEPS = (25, 50, 100, 200)


def measure() -> dict[str, Any]:
    return {"cells": [cell(richness, steps) for richness in RICHNESS for steps in STEPS]}


def cell(richness: float, steps: int) -> dict[str, Any]:
    """One problem: the weakest damping with which the iteration converges, and both times."""
    problem = mlp(steps, DEPTH, RATE, richness)
    exact = dl.solve(problem, method="dense")
    found: dict[str, Any] = {"richness": richness, "steps": steps, "status": str(exact.status), "failures": []}
    works = {"solve": lambda: dl.solve(problem, method="dense")}
    for damping in DAMPINGS:
        ended = fixed_point(problem, damping, TOLERANCE, MOST)
        if ended.test_loss is not None:
            found |= {"damping": damping, "iterations": ended.iterations}
            found["difference"] = float(np.abs(ended.test_loss / exact.test_loss - 1).max())
            works["peer"] = lambda damping=damping: fixed_point(problem, damping, TOLERANCE, MOST)
            break
        found["failures"].append({"damping": damping, "iterations": ended.iterations, "reason": ended.reason})
    return found | {"seconds": race(works, 1)}


def show(data: dict[str, Any]) -> list[str]:
    cells = data["cells"]
    with picture("peer", 2) as (ratios, iterations):
        for richness, color in zip(RICHNESS, COLORS, strict=False):
            solved = [cell for cell in cells if cell["richness"] == richness and "peer" in cell["seconds"]]
            steps = [cell["steps"] for cell in solved]
            style: dict[str, Any] = {
                "color": color,
                "label": f"richness {richness:g}",
                "linewidth": 1.5,
                "markersize": 4,
            }
            ratios.plot(steps, [cell["seconds"]["peer"] / cell["seconds"]["solve"] for cell in solved], "o-", **style)
            iterations.plot(steps, [cell["iterations"] for cell in solved], "o-", **style)
            failed = [cell["steps"] for cell in cells if cell["richness"] == richness and "peer" not in cell["seconds"]]
            iterations.plot(failed, [MOST] * len(failed), "x", color=color)
        ratios.set(yscale="log", ylabel="fixed point / stepping, time")
        iterations.set(ylabel="iterations (x: fails)", ylim=(0, 1.05 * MOST))
        for ax in (ratios, iterations):
            ax.set(xscale="log", xlabel="steps $T$", xlim=(0.9 * STEPS[0], 1.1 * STEPS[-1]))
        ratios.legend(loc="best")
    failed = sum("peer" not in cell["seconds"] for cell in cells)
    undamped = sum(bool(cell["failures"]) for cell in cells)
    largest = max(cell["difference"] for cell in cells if "difference" in cell)
    return [
        "The usual way to solve such equations: all matrices are updated together from the previous ones until no entry changes by "
        f"more than {TOLERANCE:g} of the largest ([peer.py](peer.py): written to be fast, triangular inverses, the better of the "
        f"usual starts). MLP of depth {DEPTH}, full batch, lr {RATE:g}. Dampings {', '.join(f'{d:g}' for d in DAMPINGS)} are tried in "
        f"turn, and only the first that converges within {MOST} iterations is timed. "
        f"Of {len(cells)} problems {undamped} fail without damping and {failed} with every damping; stepping, which needs "
        f"no iteration, solves them all. Where the iteration converges it agrees with `solve` to {largest:.0e}.",
        "",
        "![Time and iterations over steps](images/peer.png)",
        "",
        *table(
            ["richness", "steps", "damping", "iterations", "fixed point", "stepping", "ratio", "failed before"],
            (_row(cell) for cell in cells),
        ),
    ]


def _row(cell: dict[str, Any]) -> list[str]:
    times = cell["seconds"]
    failures = "; ".join(f"{f['damping']:g}: {f['reason']} ({f['iterations']})" for f in cell["failures"])
    found = ["-", "-", "fails"]
    if "peer" in times:
        found = [f"{cell['damping']:g}", str(cell["iterations"]), seconds(times["peer"])]
    ratio = f"{times['peer'] / times['solve']:.1f}" if "peer" in times else "-"
    return [f"{cell['richness']:g}", str(cell["steps"]), *found, seconds(times["solve"]), ratio, failures]
