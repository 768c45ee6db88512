"""Theory against training real networks until they say the same as exactly."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import deeplinear as dl
from measure import race
from pictures import COLORS, INK, log_axis, picture, sizes_axis
from problems import mlp
from sections import rounded, seconds, table

Array = NDArray[np.float64]

TITLE = "Theory against training real networks to the same accuracy"

DEPTH, STEPS = 4, 200
NETWORKS = {24: 3200, 32: 1600, 64: 800, 128: 200, 256: 50}
"""Input dimensions at which the error of networks is measured, and how many are trained."""
TIMED = (128, 256, 512, 1024)
"""Input dimensions at which the training of one network is timed."""
WANTED = (0.03, 0.01, 0.003, 0.001)
"""Relative errors of the test loss."""


def measure() -> dict[str, Any]:
    problem = mlp(STEPS, DEPTH)
    exact = dl.solve(problem, method="dense").test_loss[-1]
    errors = []
    for dim, count in NETWORKS.items():
        losses = dl.simulate(problem, dim, count, record="losses", method="explicit").test_loss[:, -1] / exact
        errors.append({"dim": dim, "networks": count, "bias": losses.mean() - 1, "spread": losses.std(ddof=1)})
    works = {
        str(dim): lambda dim=dim: dl.simulate(problem, dim, 1, record="losses", method="explicit") for dim in TIMED
    }
    return {"errors": errors, "seconds": race(works | {"theory": lambda: dl.solve(problem, method="dense")}, 4)}


def scaling(data: dict[str, Any]) -> dict[str, float]:
    """Fit of the errors that were measured: bias = b / D and spread = s / sqrt(D)."""
    D, n, bias, spread = (
        np.array([run[key] for run in data["errors"]]) for key in ("dim", "networks", "bias", "spread")
    )
    s = float(np.sqrt(np.average(spread**2 * D, weights=n)))
    weight = n * D / s**2  # of each bias, by its standard error
    b_error = 1 / math.sqrt((weight / D**2).sum())
    return {"b": float((weight * bias / D).sum() * b_error**2), "b_error": b_error, "s": s}


def training_seconds(data: dict[str, Any], dims: Array) -> Array:
    """Time to train one network: between the sizes measured on log scales; beyond them as D^2, by counting."""
    sizes = np.array(TIMED, dtype=float)
    times = np.array([data["seconds"][str(dim)] for dim in TIMED])
    return np.exp(np.interp(np.log(dims), np.log(sizes), np.log(times))) * np.maximum(dims / sizes[-1], 1.0) ** 2


def cheapest(data: dict[str, Any], wanted: float) -> tuple[int, int, float]:
    """Input dimension, networks and seconds that reach an error at least cost: |bias| + standard error = wanted."""
    fit = scaling(data)
    dims = np.geomspace(8, 1e7, 4000)
    room = wanted - abs(fit["b"]) / dims
    dims, room = dims[room > 0], room[room > 0]
    networks = np.ceil(fit["s"] ** 2 / dims / room**2)
    cost = networks * training_seconds(data, dims)
    best = int(cost.argmin())
    return round(dims[best]), int(networks[best]), float(cost[best])


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    theory = data["seconds"]["theory"]
    ratios = [rounded(cheapest(data, wanted)[2] / theory) for wanted in (0.01, 0.001)]
    what = f"training networks to a test loss within 1 %; 0.1 % (extrapolated) over `solve` (L = {DEPTH}, T = {STEPS})"
    return [(what, "; ".join(ratios))]


def show(data: dict[str, Any]) -> list[str]:
    fit, theory, errors = scaling(data), data["seconds"]["theory"], data["errors"]
    with picture("simulation", 2) as (measured, needed):
        _draw_errors(measured, errors, fit)
        accuracies = np.geomspace(WANTED[0], WANTED[-1], 30)
        cost = [cheapest(data, accuracy)[2] for accuracy in accuracies]
        needed.plot(accuracies, cost, color=COLORS[1], label="training networks")
        needed.axhline(theory, color=INK, linestyle=(0, (4, 2)), linewidth=1.1, label="theory")
        log_axis(needed)
        needed.set(xlabel="relative error wanted", ylabel="seconds")
        needed.legend(loc="best")
        sizes_axis(needed.xaxis, WANTED)
        needed.invert_xaxis()
    rows = []
    for wanted in WANTED:
        dim, networks, cost = cheapest(data, wanted)
        rows.append([f"{100 * wanted:g} %", dim, networks, _duration(cost), rounded(cost / theory)])
    timed = ", ".join(f"D = {dim}: {seconds(t)}" for dim, t in data["seconds"].items() if dim != "theory")
    return [
        f"An MLP of depth {DEPTH} and width D on 2 D examples, test loss after {STEPS} steps. A network of finite size "
        "differs from the limit by a bias and by its own spread. Both are measured against theory at small D and "
        f"fitted: bias ({fit['b']:.2g} ± {fit['b_error']:.1g}) / D, spread {fit['s']:.2g} / sqrt(D). Training one "
        f"network takes {timed}, and D^2 beyond. From this follow the D and the number of networks that make "
        "|bias| + standard error as small as wanted at least cost. **Beyond the sizes measured this is an "
        f"extrapolation.** Theory takes {seconds(theory)} and has no such error.",
        "",
        "![Bias and spread over dimension; cost over accuracy](images/simulation.png)",
        "",
        *table(["D", "networks", "mean / theory - 1", "its standard error", "spread"], map(_error_row, errors)),
        *table(["relative error wanted", "D", "networks", "training takes", "over theory"], rows),
    ]


def _draw_errors(ax: Axes, errors: list[dict[str, float]], fit: dict[str, float]) -> None:
    """Bias and spread over dimension, each with its fit."""
    dims, networks, bias, spread = (
        np.array([run[key] for run in errors]) for key in ("dim", "networks", "bias", "spread")
    )
    style: dict[str, Any] = {"fmt": "o", "markersize": 4, "elinewidth": 1}
    ax.errorbar(dims, spread, color=COLORS[0], label="spread of networks", **style)
    ax.errorbar(dims, np.abs(bias), spread / np.sqrt(networks), color=COLORS[1], label="|mean / theory - 1|", **style)
    for color, curve, label in (
        (COLORS[0], fit["s"] / np.sqrt(dims), f"{fit['s']:.2g} / $\\sqrt{{D}}$"),
        (COLORS[1], abs(fit["b"]) / dims, f"{abs(fit['b']):.2g} / $D$"),
    ):
        ax.plot(dims, curve, color=color, linewidth=1, label=label)
    log_axis(ax)
    ax.set(xlabel="input dimension $D$", ylabel="relative to the test loss", ylim=(1e-3, 4))
    ax.legend(loc="upper right", ncols=2)
    sizes_axis(ax.xaxis, dims)


def _error_row(run: dict[str, float]) -> list[str]:
    standard = run["spread"] / math.sqrt(run["networks"])
    return [f"{run['dim']}", f"{run['networks']}", f"{run['bias']:+.4f}", f"{standard:.4f}", f"{run['spread']:.3f}"]


def _duration(value: float) -> str:
    return f"{value / 3600:.2g} h" if value > 3600 else seconds(value)
