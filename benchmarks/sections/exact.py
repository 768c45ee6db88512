"""Networks of any size: explicit, lazy and reduced matrices."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._experiment.methods import Counts, choose
from measure import peak_bytes, race
from pictures import COLORS, log_axis, picture, sizes_axis
from problems import mlp
from sections import seconds, table

TITLE = "Networks of any size"

DEPTH, STEPS = 3, 40
SIZES = {
    "explicit": (100, 300, 1000, 3000),
    "lazy": (100, 300, 1000, 3000, 10**4, 10**5, 10**6),
    "reduced": (100, 300, 1000, 3000, 10**4, 10**5, 10**6),
}
TOGETHER = {"explicit": 1, "lazy": 1, "reduced": 64}
"""Networks that are trained for one measurement, as many as the library trains together."""
MANY, LARGE = 1000, 10**6
LENGTHS = (10, 20, 40, 100, 200, 400)
"""Steps at which the size is given from which ``auto`` gives up explicit matrices."""


def measure() -> dict[str, Any]:
    works, problem = {}, mlp(STEPS, DEPTH)
    for method, dims in SIZES.items():
        for dim in dims:
            works[method, dim] = _training(problem, dim, TOGETHER[method], method)
    times = race(works, 2)
    runs = []
    for (method, dim), taken in times.items():
        # Memory of the largest is counted, not measured: tracing it would take minutes.
        small = dim <= 10**4 or method == "reduced"
        traced = peak_bytes(works[method, dim]) / TOGETHER[method] if small else None
        need = Counts.of(problem, dim).need(method)
        each = taken / TOGETHER[method]
        counted = {"counted_seconds": need.seconds, "counted_bytes": need.in_flight}
        runs.append({"method": method, "dim": dim, "seconds": each, "bytes": traced, **counted})
    seeds = {str(count): _training(problem, LARGE, count, "reduced") for count in (1, 10, 100, MANY)}
    return {"runs": runs, "seeds": race(seeds, 1), "crossovers": {str(steps): _crossover(steps) for steps in LENGTHS}}


def _training(problem: dl.Problem, dim: int, count: int, method: str) -> Callable[[], object]:
    return lambda: dl.simulate(problem, dim, count, record="losses", method=method, workers=1)


def _crossover(steps: int) -> int:
    """Smallest input dimension, to 1 %, at which explicit matrices are given up."""
    problem, low, high = mlp(steps, DEPTH), 1, 10**6
    while high > 1.01 * low and high > low + 1:
        middle = round(math.sqrt(low * high))
        explicit = choose(Counts.of(problem, middle), math.inf) == "explicit"
        low, high = (middle, high) if explicit else (low, middle)
    return high


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    what = f"{MANY} networks of D = 10^6, L = {DEPTH}, T = {STEPS}, full batch, exactly (processor time)"
    return [(what, seconds(data["seeds"][str(MANY)]))]


def show(data: dict[str, Any]) -> list[str]:
    by_method = {method: [run for run in data["runs"] if run["method"] == method] for method in SIZES}
    with picture("exact", 2) as (time_axes, memory_axes):
        for (method, runs), color in zip(by_method.items(), COLORS, strict=False):
            dims = [run["dim"] for run in runs]
            time_axes.plot(dims, [run["seconds"] for run in runs], "o-", color=color, label=method)
            memory_axes.plot(dims, [run["counted_bytes"] / 1e6 for run in runs], "-", color=color, label=method)
            traced = [(run["dim"], run["bytes"] / 1e6) for run in runs if run["bytes"]]
            memory_axes.plot(*np.transpose(traced), "o", color=color)
        for axes, label in ((time_axes, "seconds per network"), (memory_axes, "MB per network")):
            log_axis(axes)
            axes.set(xlabel="input dimension $D$", ylabel=label)
            sizes_axis(axes.xaxis, SIZES["reduced"])
        time_axes.legend(loc="upper left")
    rows = [
        [
            run["method"],
            f"{run['dim']:,}".replace(",", " "),
            _small(run["seconds"]),
            f"{run['counted_seconds'] / run['seconds']:.1f}",
            f"{(run['bytes'] or run['counted_bytes']) / 1e6:.3g} MB{'' if run['bytes'] else ' (counted)'}",
        ]
        for run in data["runs"]
    ]
    ratios = [run["counted_seconds"] / run["seconds"] for run in data["runs"]]
    many = ", ".join(f"{count} in {seconds(taken)}" for count, taken in data["seeds"].items())
    return [
        f"An MLP of depth {DEPTH} and width D on 2 D examples, {STEPS} steps, losses only, one thread. Explicit "
        "matrices are kept entry by entry. Lazy ones are drawn only along the vectors that training applies them to, "
        f"and reduced ones in coordinates of these alone ({TOGETHER['reduced']} networks as one batch): all three have "
        "the same distribution. Points of the memory are measured, lines are counted.",
        "",
        "![Time and memory of one network over its dimension](images/exact.png)",
        "",
        *table(["matrices", "D", "one network", "counted / measured", "memory"], rows),
        f"What `auto` goes by is counted, and is {min(ratios):.1f} to {max(ratios):.1f} times what was measured here: "
        "too little for a small lazy network that is trained alone, since networks in a batch share the overhead. "
        "`auto` gives up explicit matrices, which need no argument to be trusted, where one network would take more "
        "than half a second and other ways take less:",
        "",
        *table(["steps", *data["crossovers"]], [["from D =", *data["crossovers"].values()]]),
        f"Networks of D = 10^6 as one batch: {many} of processor time.",
    ]


def _small(value: float) -> str:
    return f"{1e3 * value:.2g} ms" if value < 0.1 else seconds(value)
