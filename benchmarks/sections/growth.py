"""Growth of dense stepping with steps, depth, modes and outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import deeplinear as dl
from deeplinear._solvers.dense import Dense
from measure import exponent, race
from pictures import COLORS, INK, log_axis, picture, sizes_axis
from problems import mlp, power_law, residual
from sections import seconds, table

TITLE = "Growth of dense stepping with steps, depth, modes and outputs"


SLOW = 1e-4
"""Learning rate at which no network diverges, which would end its run early."""


@dataclass(frozen=True)
class Sweep:
    """One size that grows, with the power of it that counting products gives."""

    size: str
    setting: str
    sizes: tuple[int, ...]
    make: Callable[[int], dl.Problem]
    counted: str


SWEEPS = (
    Sweep("steps $T$", "MLP, L = 4", (50, 100, 200, 400, 800), lambda n: mlp(n, lr=SLOW), "T^3"),
    Sweep("depth $L$", "MLP, T = 200", (1, 2, 4, 8, 16, 32), lambda n: mlp(200, n, SLOW), "L"),
    Sweep("depth $L$", "ResNet, T = 100", (4, 8, 16, 32, 64, 128, 255), lambda n: residual(n, 100, SLOW), "L"),
    Sweep("modes", "power law, L = 3, T = 100", (1, 10, 30, 100, 300, 1000), lambda n: power_law(100, n), "modes"),
    Sweep("outputs $C$", "MLP, L = 3, T = 60", (1, 2, 4, 8, 12), lambda n: mlp(60, 3, SLOW, outputs=n), "C^3"),
)
FITTED = 3
"""Largest sizes to which exponents are fitted: overhead counts least there."""


def measure() -> dict[str, Any]:
    sweeps = []
    for sweep in SWEEPS:
        problems = {size: sweep.make(size) for size in sweep.sizes}
        times = race({size: lambda p=problem: solve(p) for size, problem in problems.items()}, 2)
        memory = [Dense().memory([problem]) for problem in problems.values()]
        sweeps.append({"sizes": list(times), "seconds": list(times.values()), "bytes": memory})
    many = dl.Spectrum.power_law(1.5, 1.0, modes=100_000)
    small = many.compress()
    problem = dl.Problem(dl.MLP(3, 100.0), small, dl.FullBatch(100.0), dl.GradientDescent(0.1), 100)
    compressed = race({"compress": many.compress, "solve": lambda: dl.solve(problem)}, 2)
    return {"sweeps": sweeps, "compressed": compressed | {"modes": len(small.eigenvalues)}}


def solve(problem: dl.Problem) -> None:
    """Solve densely; a run that ended early would be timed for less work than it stands for."""
    solution = dl.solve(problem, method="dense")
    if solution.status.diverged_at is not None:
        raise RuntimeError(f"a benchmark must not diverge, got {solution}")


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    exponents = [exponent(found["sizes"][-FITTED:], found["seconds"][-FITTED:]) for found in data["sweeps"]]
    names = "; ".join(f"{sweep.size.replace('$', '')} ({sweep.setting})" for sweep in SWEEPS)
    c = data["compressed"]
    return [
        (f"growth exponent of dense time in {names}", "; ".join(f"{each:.1f}" for each in exponents)),
        ("10^5 modes of a power law, T = 100, compressed and solved", seconds(c["compress"] + c["solve"])),
    ]


def show(data: dict[str, Any]) -> list[str]:
    rows = []
    with picture("growth", 4) as axes:
        by_size = dict(zip(dict.fromkeys(sweep.size for sweep in SWEEPS), axes, strict=True))
        for sweep, found in zip(SWEEPS, data["sweeps"], strict=True):
            slope, memory = (exponent(found["sizes"][-FITTED:], found[of][-FITTED:]) for of in ("seconds", "bytes"))
            listed = ", ".join(f"{n}: {t:.2g}" for n, t in zip(found["sizes"], found["seconds"], strict=True))
            size = sweep.size.replace("$", "")
            rows.append([size, sweep.setting, f"{slope:.2f}", sweep.counted, f"{memory:.2f}", listed])
            _draw(by_size[sweep.size], sweep, found, slope)
        for size, ax in by_size.items():
            log_axis(ax)
            sizes_axis(ax.xaxis, sorted({n for sweep in SWEEPS if sweep.size == size for n in sweep.sizes}))
            ax.set(xlabel=size, ylabel="seconds")
            ax.legend(loc="upper left")
    c = data["compressed"]
    return [
        "Full batch. Exponents are fitted to the last three sizes, since small ones are overhead. For large "
        "sizes time tends to the power that counting products gives; on the way, matrices leave the processor's "
        "caches, which makes it grow faster.",
        "",
        "![Time over steps, depth, modes and outputs](images/growth.png)",
        "",
        *table(["size", "problem", "exponent of time", "by counting", "of memory", "seconds"], rows),
        f"A power law of 10^5 modes is first compressed to {c['modes']} in {seconds(c['compress'])}, then solved "
        f"(L = 3, T = 100) in {seconds(c['solve'])}.",
    ]


def _draw(ax: Axes, sweep: Sweep, found: dict[str, list[float]], slope: float) -> None:
    """Times over sizes, and the power that was fitted."""
    (line,) = ax.plot(found["sizes"], found["seconds"], "o-", markersize=4, label=sweep.setting)
    line.set_color(COLORS[len(ax.get_lines()) // 2])
    sizes = np.array(found["sizes"][-FITTED:], dtype=float)
    scale = np.exp(np.mean(np.log(found["seconds"][-FITTED:]) - slope * np.log(sizes)))
    ax.plot(sizes, 1.6 * scale * sizes**slope, color=INK, linewidth=0.9, linestyle="--", label=f"slope {slope:.2f}")
