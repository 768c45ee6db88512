"""Causal stepping against the damped fixed point of whole matrices."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import deeplinear as dl
from measure import race
from peer import fixed_point
from pictures import BAND, COLORS, INK, log_axis, picture, sizes_axis
from problems import mlp
from sections import rounded, seconds, table

TITLE = "Against damped fixed-point iteration of whole matrices"

DEPTH, RATE, TOLERANCE, MOST = 3, 0.05, 1e-6, 400
DAMPINGS = (0.0, 0.5, 0.9)
RICHNESS = (0.25, 0.5, 1.0, 2.0)
STEPS = (25, 50, 100, 200, 400)


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


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    failed = sum("peer" not in cell["seconds"] for cell in data["cells"])
    solved = max((cell for cell in data["cells"] if "peer" in cell["seconds"]), key=lambda cell: cell["steps"])
    ratio, setting = solved["seconds"]["peer"] / solved["seconds"]["solve"], f"L = {DEPTH}, T = {solved['steps']}"
    return [
        (f"damped fixed point of whole matrices over `solve` ({setting})", rounded(ratio)),
        (f"of {len(data['cells'])} problems, those on which it fails and `solve` does not", f"{failed}"),
    ]


def show(data: dict[str, Any]) -> list[str]:
    cells = data["cells"]
    with picture("peer", 2) as (ratios, outcome):
        for richness, color in zip(RICHNESS, COLORS, strict=False):
            solved = [cell for cell in cells if cell["richness"] == richness and "peer" in cell["seconds"]]
            if not solved:
                continue
            faster = [cell["seconds"]["peer"] / cell["seconds"]["solve"] for cell in solved]
            ratios.plot([cell["steps"] for cell in solved], faster, "o-", color=color, label=f"richness {richness:g}")
        ratios.axhline(1.0, color=INK, linewidth=0.7)
        log_axis(ratios)
        ratios.set(xlabel="steps $T$", ylabel="time of fixed point / time of stepping")
        ratios.legend(loc="best")
        sizes_axis(ratios.xaxis, STEPS)
        _draw_outcome(outcome, cells)
    failed = sum("peer" not in cell["seconds"] for cell in cells)
    undamped = sum(bool(cell["failures"]) for cell in cells)
    largest = max(cell["difference"] for cell in cells if "difference" in cell)
    return [
        "The usual way to solve such equations: all matrices are updated together from the previous ones, until no "
        f"entry changes by more than {TOLERANCE:g} of the largest (`benchmarks/peer.py`, written to be fast: "
        f"triangular inverses, the better of the usual starts). MLP of depth {DEPTH}, full batch, lr {RATE:g}. "
        f"Dampings {', '.join(f'{damping:g}' for damping in DAMPINGS)} are tried in turn; only the first that "
        f"converges within {MOST} iterations is timed. Of {len(cells)} problems {undamped} fail without damping and "
        f"{failed} with every damping; stepping, which needs no iteration, solves them all. Where the iteration "
        "converges it agrees with "
        f"`solve` to {largest:.0e}.",
        "",
        "![Time and iterations over steps](images/peer.png)",
        "",
        *table(
            ["richness", "steps", "damping", "iterations", "fixed point", "stepping", "ratio", "failed before"],
            (_row(cell) for cell in cells),
        ),
    ]


def _draw_outcome(ax: Axes, cells: list[dict[str, Any]]) -> None:
    """A map over steps and richness: the number of iterations, grey where it fails."""
    for cell in cells:
        column, row = STEPS.index(cell["steps"]), RICHNESS.index(cell["richness"])
        failed = "peer" not in cell["seconds"]
        style: dict[str, Any] = {"color": BAND} if failed else {"color": COLORS[0], "alpha": 0.35}
        ax.add_patch(Rectangle((column, row), 0.96, 0.96, linewidth=0, **style))
        words = "fails" if failed else f"{cell['iterations']}"
        ax.text(column + 0.48, row + 0.48, words, ha="center", va="center", fontsize=8)
    ax.set(xlim=(0, len(STEPS)), ylim=(0, len(RICHNESS)), xlabel="steps $T$", ylabel="richness")
    ax.set_xticks(np.arange(len(STEPS)) + 0.48, [f"{steps}" for steps in STEPS])
    ax.set_yticks(np.arange(len(RICHNESS)) + 0.48, [f"{richness:g}" for richness in RICHNESS])
    ax.set_title("iterations until it stands still")


def _row(cell: dict[str, Any]) -> list[str]:
    times = cell["seconds"]
    failures = "; ".join(f"{f['damping']:g}: {f['reason']} ({f['iterations']})" for f in cell["failures"])
    found = ["-", "-", "fails"]
    if "peer" in times:
        found = [f"{cell['damping']:g}", str(cell["iterations"]), seconds(times["peer"])]
    ratio = f"{times['peer'] / times['solve']:.1f}" if "peer" in times else "-"
    return [f"{cell['richness']:g}", str(cell["steps"]), *found, seconds(times["solve"]), ratio, failures]
