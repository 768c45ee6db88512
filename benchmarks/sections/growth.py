"""Growth of dense stepping with steps, depth, modes and outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._dense import dense_memory
from deeplinear._solve import plan
from measure import exponent, race
from pictures import COLORS, INK, picture
from problems import mlp, power_law, residual
from sections import seconds, table

TITLE = "Growth of dense stepping with steps, depth, modes and outputs"


@dataclass(frozen=True)
class Sweep:
    """One size that grows; the exponent is fitted to the last three points, where overhead counts least."""

    what: str
    setting: str
    sizes: tuple[int, ...]
    make: Callable[[int], dl.Problem]
    theory: str


def outputs(count: int) -> dl.Problem:
    data = dl.Isotropic(noise=0.3, target_gram=np.eye(count).tolist())
    return dl.Problem(dl.MLP(3, 1.0), data, dl.FullBatch(2.0), dl.GradientDescent(0.01), 60)


SWEEPS = {
    "steps": Sweep("steps T", "MLP, L = 4", (50, 100, 200, 400, 800), mlp, "T^3"),
    "depth": Sweep("depth L", "MLP, T = 200", (1, 2, 4, 8, 16, 32), lambda depth: mlp(200, depth), "L"),
    "residual": Sweep("depth L", "ResNet, T = 100", (4, 8, 16, 32, 64, 128, 255), lambda d: residual(d, 100), "L"),
    "modes": Sweep(
        "modes", "power law, L = 3, T = 100", (1, 10, 30, 100, 300, 1000), lambda k: power_law(100, k), "modes"
    ),
    "outputs": Sweep("outputs C", "L = 3, T = 60", (1, 2, 4, 8, 12), outputs, "C^3"),
}


def measure() -> dict[str, Any]:
    sweeps: dict[str, Any] = {}
    for name, sweep in SWEEPS.items():
        problems = {size: sweep.make(size) for size in sweep.sizes}
        times = race({size: lambda p=problem: dl.solve(p, method="dense") for size, problem in problems.items()}, 2)
        memory = [dense_memory(plan(problem), 1) for problem in problems.values()]
        sweeps[name] = {"sizes": list(times), "seconds": list(times.values()), "bytes": memory}
    many = dl.Spectrum.power_law(1.5, 1.0, modes=100_000)
    small = many.compress()
    problem = dl.Problem(dl.MLP(3, 100.0), small, dl.FullBatch(100.0), dl.GradientDescent(0.1), 100)
    compressed = race({"compress": many.compress, "solve": lambda: dl.solve(problem)}, 2)
    return {"sweeps": sweeps, "compressed": compressed | {"modes": len(small.eigenvalues)}}


def show(data: dict[str, Any]) -> list[str]:
    rows = []
    with picture("growth", 4) as axes:
        by_axis = dict(zip(("steps", "depth", "modes", "outputs"), axes, strict=True)) | {"residual": axes[1]}
        for name, sweep in SWEEPS.items():
            found, ax = data["sweeps"][name], by_axis[name]
            slope = exponent(found["sizes"][-3:], found["seconds"][-3:])
            color = COLORS[1] if name == "residual" else COLORS[0]
            ax.plot(found["sizes"], found["seconds"], "o-", markersize=4, color=color, label=sweep.setting)
            ends = np.array(found["sizes"][-3:], dtype=float)
            fit = np.exp(np.mean(np.log(found["seconds"][-3:]) - slope * np.log(ends)))
            ax.plot(ends, fit * ends**slope, color=INK, linewidth=0.9, linestyle="--", zorder=3)
            ax.set(xscale="log", yscale="log", xlabel=sweep.what, ylabel="seconds")
            ax.legend(loc="upper left", title=None)
            listed = ", ".join(f"{n}: {t:.2g}" for n, t in zip(found["sizes"], found["seconds"], strict=True))
            memory = exponent(found["sizes"][-3:], found["bytes"][-3:])
            rows.append([sweep.what, sweep.setting, f"{slope:.2f}", sweep.theory, f"{memory:.2f}", listed])
    c = data["compressed"]
    return [
        "Full batch. Exponents are fitted to the last three sizes (dashed): shorter runs are overhead. For large sizes time "
        "tends to the power that counting products gives.",
        "",
        "![Time over steps, depth, modes and outputs](images/growth.png)",
        "",
        *table(["size", "problem", "exponent of time", "by counting", "of memory", "seconds"], rows),
        f"A power law of 10^5 modes is first compressed to {c['modes']}: {seconds(c['compress'])}, then solved (L = 3, T = 100) "
        f"in {seconds(c['solve'])}.",
    ]
