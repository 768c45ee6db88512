"""The dense solver against the memory bandwidth of the machine."""

from typing import Any
from unittest.mock import patch

import numpy as np

import deeplinear as dl
from deeplinear._equations import products as row_products
from deeplinear._equations import system
from deeplinear._equations.coefficients import Structure
from deeplinear._solvers.dense import Dense
from measure import circumstances, peak_bytes, race
from pictures import COLORS, INK, picture, sizes_axis
from problems import mlp
from sections import measured_at, seconds, table

TITLE = "Dense stepping against memory bandwidth"

ROWS = 400
"""Steps times outputs of problems with other features."""

FEATURES = ("weight decay", "2 outputs", "4 outputs", "centered, with decay")


def entries_read(shape: Structure, e: int) -> float:
    """Entries of matrices that step e reads: the lower triangle, of causal ones with the blocks on the diagonal."""
    lower, symmetric = system.products(shape)
    return (lower * (e + row_products.SETS) + symmetric * (e + 1)) * e / 2


def measure() -> dict[str, Any]:
    return {"runs": [run(steps) for steps in (100, 200, 400, 800)], "features": features()}


def features() -> dict[str, Any]:
    """Time of problems with as many rows each, in turns, by sampling: with weight decay, or with outputs for steps."""

    def problem(sampling: Any, outputs: int = 1, centered: bool = False, decay: float = 0.0) -> dl.Problem:
        network, rule = dl.MLP(3, 1.0, centered=centered), dl.GradientDescent(0.01, weight_decay=decay)
        gram = None if outputs == 1 else np.eye(outputs).tolist()
        return dl.Problem(network, dl.Isotropic(0.3, gram), sampling, rule, ROWS // outputs)

    found = {}
    for name, sampling in (("full batch", dl.FullBatch(2.0)), ("online SGD", dl.OnlineSGD(1.0))):
        problems = {
            "plain": problem(sampling),
            "weight decay": problem(sampling, decay=0.1),
            "2 outputs": problem(sampling, 2),
            "4 outputs": problem(sampling, 4),
            "centered, with decay": problem(sampling, centered=True, decay=0.1),
        }
        works = {each: lambda one=one: dl.solve(one, method="dense") for each, one in problems.items()}
        found[name] = race(works, 2)
    return {"where": circumstances(), "times": found}


def run(steps: int) -> dict[str, float]:
    """One solution, in turns with the matrix-vector product."""
    problem = mlp(steps)
    shape = Dense().shape(problem)
    matrix, vector = np.ones((4000, 4000)), np.ones(4000)

    def solve() -> None:
        dl.solve(problem, method="dense")

    def solve_in_numpy() -> None:
        with patch.object(row_products, "_rows", None):
            solve()

    if row_products._rows is None:
        raise RuntimeError("products are not compiled: install a C compiler, then the package again")
    times = race({"solve": solve, "numpy": solve_in_numpy, "product": lambda: matrix @ vector})
    return {
        "steps": steps,
        "seconds": times["solve"],
        "numpy_seconds": times["numpy"],
        "bandwidth": 8 * sum(entries_read(shape, e) for e in range(1, steps + 1)) / times["solve"],
        "product_bandwidth": matrix.nbytes / times["product"],
        "peak_bytes": peak_bytes(solve),
        "kept_bytes": system.memory(shape),
    }


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    runs = [run for run in data["runs"] if run["steps"] >= 400]
    sizes = "; ".join(f"{run['steps']}" for run in runs)
    ratios = "; ".join(f"{run['bandwidth'] / run['product_bandwidth']:.2f}" for run in runs)
    memory = max(run["peak_bytes"] / run["kept_bytes"] for run in runs)
    every = "; ".join(f"{run['steps']}" for run in data["runs"])
    faster = "; ".join(f"{run['numpy_seconds'] / run['seconds']:.1f}" for run in data["runs"])
    return [
        (f"`solve` in NumPy alone (L = 4, T = {every}), in units of the time with compiled products", faster),
        (f"memory bandwidth of `solve` (L = 4, T = {sizes}) over that of a large matrix-vector product", ratios),
        ("its peak memory over the matrices that are kept", f"{memory:.2f}"),
    ]


def show(data: dict[str, Any]) -> list[str]:
    runs = data["runs"]
    with picture("dense") as (ax,):
        steps = [run["steps"] for run in runs]
        ax.plot(steps, [run["bandwidth"] / 1e9 for run in runs], "o-", color=COLORS[0], label="solve, dense")
        product = [run["product_bandwidth"] / 1e9 for run in runs]
        ax.plot(steps, product, color=INK, linestyle=":", linewidth=1.2, label="4000 x 4000 matrix times vector")
        ax.set(xlabel="steps $T$", ylabel="GB/s", ylim=(0, None))
        ax.legend(loc="best")
        sizes_axis(ax.xaxis, steps)
    return [
        "An MLP of depth 4 on a full batch. Every step reads half of each matrix a known number of times; these bytes "
        "over the time of the run are compared with a matrix-vector product that is too large for any cache. "
        "Without a compiler, NumPy alone takes longer. "
        "Memory is the most that is held at once, over the matrices that the answer consists of.",
        "",
        "![Bandwidth over steps](images/dense.png)",
        "",
        *table(
            ["steps", "time", "in NumPy alone", "GB/s", "GB/s of the product", "ratio", "peak memory / kept"],
            (
                [
                    run["steps"],
                    seconds(run["seconds"]),
                    seconds(run["numpy_seconds"]),
                    f"{run['bandwidth'] / 1e9:.1f}",
                    f"{run['product_bandwidth'] / 1e9:.1f}",
                    f"{run['bandwidth'] / run['product_bandwidth']:.2f}",
                    f"{run['peak_bytes'] / run['kept_bytes']:.2f} of {run['kept_bytes'] / 1e6:.0f} MB",
                ]
                for run in runs
            ),
        ),
        "",
        f"{measured_at(data['features']['where'])}. Depth 3, {ROWS} steps times outputs: time of other features over "
        "that of plain descent with one output.",
        "",
        *table(["sampling", *FEATURES], _over_plain(data["features"]["times"])),
    ]


def _over_plain(features: dict[str, dict[str, float]]) -> list[list[str]]:
    """Rows of ratios, a sampling rule each."""
    return [[name, *(f"{times[each] / times['plain']:.2f}" for each in FEATURES)] for name, times in features.items()]
