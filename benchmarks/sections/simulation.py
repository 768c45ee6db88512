"""Theory against training real networks until they say the same as exactly."""

import math
from typing import Any

import numpy as np

import deeplinear as dl
from measure import exponent, race
from pictures import COLORS, INK, picture
from problems import mlp
from sections import seconds, table

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
        losses = dl.simulate(problem, dim, count, record="losses").test_loss[:, -1] / exact
        errors.append({"dim": dim, "networks": count, "bias": losses.mean() - 1, "spread": losses.std(ddof=1)})
    works = {str(dim): lambda dim=dim: dl.simulate(problem, dim, 1, record="losses") for dim in TIMED}
    return {"errors": errors, "seconds": race(works | {"theory": lambda: dl.solve(problem, method="dense")}, 4)}


def scaling(data: dict[str, Any]) -> dict[str, float]:
    """Fit of what is measured: bias = b / D, spread = s / sqrt(D), seconds = c D^q."""
    D, n, bias, spread = (
        np.array([run[key] for run in data["errors"]]) for key in ("dim", "networks", "bias", "spread")
    )
    s = float(np.sqrt(np.average(spread**2 * D, weights=n)))
    weight = n * D / s**2  # of each bias, by its standard error
    b_error = 1 / math.sqrt((weight / D**2).sum())
    b = float((weight * bias / D).sum() * b_error**2)
    dims, times = zip(*((int(dim), t) for dim, t in data["seconds"].items() if dim != "theory"), strict=True)
    q = exponent(dims[-3:], times[-3:])
    return {"b": b, "b_error": b_error, "s": s, "q": q, "c": times[-1] / dims[-1] ** q}


def cheapest(fit: dict[str, float], wanted: float) -> tuple[int, int, float]:
    """Input dimension, networks and seconds that reach an error at least cost: |bias| + standard error = wanted."""
    dims = np.geomspace(8, 1e7, 4000)
    room = wanted - abs(fit["b"]) / dims
    dims, room = dims[room > 0], room[room > 0]
    networks = np.maximum(1.0, fit["s"] ** 2 / dims / room**2)
    cost = networks * fit["c"] * dims ** fit["q"]
    best = int(cost.argmin())
    return round(dims[best]), math.ceil(networks[best]), float(cost[best])


def show(data: dict[str, Any]) -> list[str]:
    fit, theory, errors = scaling(data), data["seconds"]["theory"], data["errors"]
    dims = np.array([run["dim"] for run in errors])
    with picture("simulation", 2) as (measured, needed):
        spread = np.array([run["spread"] for run in errors])
        standard = spread / np.sqrt([run["networks"] for run in errors])
        bias = np.abs([run["bias"] for run in errors])
        ends = np.array([dims[0], dims[-1]])
        measured.plot(dims, spread, "o", color=COLORS[0], label="spread of networks")
        measured.plot(
            ends, fit["s"] / np.sqrt(ends), color=COLORS[0], linewidth=1, label=f"{fit['s']:.2g} / $\\sqrt{{D}}$"
        )
        measured.errorbar(dims, bias, standard, fmt="o", color=COLORS[1], label="|mean / theory - 1|")
        measured.plot(ends, abs(fit["b"]) / ends, color=COLORS[1], linewidth=1, label=f"{abs(fit['b']):.2g} / $D$")
        measured.set(xscale="log", yscale="log", xlabel="input dimension $D$", ylabel="relative to the test loss")
        measured.set_ylim(bottom=2e-3)
        accuracies = np.geomspace(0.03, 0.001, 30)
        cost = [cheapest(fit, accuracy)[2] for accuracy in accuracies]
        needed.plot(accuracies, cost, color=COLORS[1], label="training networks")
        needed.axhline(theory, color=INK, linestyle=(0, (4, 2)), linewidth=1.1, label="theory")
        needed.set(xscale="log", yscale="log", xlabel="relative error wanted", ylabel="seconds", xlim=(0.03, 0.001))
        for ax in (measured, needed):
            ax.legend(loc="best")
    rows = []
    for wanted in WANTED:
        dim, networks, cost = cheapest(fit, wanted)
        rows.append([f"{100 * wanted:g} %", dim, networks, _duration(cost), f"{cost / theory:.2g}"])
    timed = ", ".join(f"D = {dim}: {seconds(t)}" for dim, t in data["seconds"].items() if dim != "theory")
    return [
        f"An MLP of depth {DEPTH} and width D on 2 D examples, test loss after {STEPS} steps. A network of finite size differs from "
        "the limit by a bias and by its own spread; both are measured against theory at small D and fall as fitted: "
        f"bias ({fit['b']:.2g} ± {fit['b_error']:.1g}) / D, spread {fit['s']:.2g} / sqrt(D). Training one network takes time as "
        f"D^{fit['q']:.1f} ({timed}, one thread). From this follow the D and the number of networks that make |bias| + standard "
        "error as small as wanted at least cost. **Beyond the sizes measured this is an extrapolation.** "
        f"Theory takes {seconds(theory)} and has no such error.",
        "",
        "![Bias and spread over dimension; cost over accuracy](images/simulation.png)",
        "",
        *table(
            ["D", "networks", "mean / theory - 1", "its standard error", "spread"], (_error_row(run) for run in errors)
        ),
        *table(["relative error wanted", "D", "networks", "training takes", "over theory"], rows),
    ]


def _error_row(run: dict[str, float]) -> list[str]:
    standard = run["spread"] / math.sqrt(run["networks"])
    return [f"{run['dim']}", f"{run['networks']}", f"{run['bias']:+.4f}", f"{standard:.4f}", f"{run['spread']:.3f}"]


def _duration(value: float) -> str:
    return f"{value / 3600:.2g} h" if value > 3600 else seconds(value)
