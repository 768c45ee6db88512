"""What tuning takes: the best learning rate of a problem, and a sweep."""

import time
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._problem.edit import replace
from deeplinear._theory.curves import worth_batching
from measure import least, race
from pictures import COLORS, INK, picture
from problems import mlp
from sections import seconds, table

TITLE = "Learning rates and sweeps"

GRID = {"lr": np.geomspace(0.002, 0.1, 50).tolist(), "width": np.geomspace(0.5, 8.0, 20).tolist()}


def measure() -> dict[str, Any]:
    return {"optima": [optimum(name, problem) for name, problem in searched().items()], "sweep": sweep()}


def searched() -> dict[str, dl.Problem]:
    """Typical problems of 200 steps, and two of 100.

    With label noise the loss of full batches is smooth around the optimum, and rough past the edge of stability;
    without, the optimum is at a cliff.
    """
    full, online, passes = dl.FullBatch(2.0), dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 0.5)
    plain, momentum = dl.GradientDescent(0.05), dl.GradientDescent(0.05, momentum=0.9)
    found: dict[str, dl.Problem] = {}

    def add(name: str, network: Any, noise: float, sampling: Any, rule: Any = plain, steps: int = 200) -> None:
        noisy = f"noise {noise:g}" if noise else "no noise"
        found[f"{name}, {noisy}"] = dl.Problem(network, dl.Isotropic(noise), sampling, rule, steps)

    for depth in (2, 3, 4):
        network, name = dl.MLP(depth, 1.0), f"MLP, L = {depth}"
        add(f"{name}, full batch", network, 0.5, full)
        add(f"{name}, full batch", network, 0.0, full)
        add(f"{name}, full batch, momentum 0.9", network, 0.3, full, momentum)
        add(f"{name}, fresh batches", network, 0.3, online)
    add("MLP, L = 4, many passes", dl.MLP(4, 1.0), 0.3, passes)
    add("MLP, L = 4, fresh batches, momentum 0.9", dl.MLP(4, 1.0), 0.3, online, momentum)
    add("residual, L = 4, full batch", dl.ResNet(4, 1.0), 0.5, full)
    add("residual, L = 4, full batch", dl.ResNet(4, 1.0), 0.0, full)
    add("residual, L = 4, fresh batches", dl.ResNet(4, 1.0), 0.3, online)
    add("MLP, L = 4, 100 steps, full batch", dl.MLP(4, 1.0), 0.3, full, plain, 100)
    add("MLP, L = 4, 100 steps, full batch, momentum 0.9", dl.MLP(4, 1.0), 0.3, full, momentum, 100)
    for modes in (30, None):
        data = dl.Spectrum.power_law(1.5, 1.0, modes=modes)
        name = f"MLP, L = 3, power law, {modes or 'infinitely many'} modes, fresh batches"
        found[name] = dl.Problem(dl.MLP(3, 100.0), data, dl.OnlineSGD(50.0), plain, 200)
    return found


def optimum(name: str, problem: dl.Problem) -> dict[str, Any]:
    kept: list[dl.OptimalLr] = []
    taken = least(lambda: kept.append(dl.optimal_lr(problem)), 1)
    return {
        "name": name,
        "modes": len(problem.modes.eigenvalues),
        "seconds": taken,
        "solve": least(lambda: dl.solve(replace(problem, {"lr": kept[0].lr}), method="dense"), 3),
        "rates": len(kept[0].lrs) + len(kept[0].dips),
        "at_edge": kept[0].at_edge,
    }


def sweep() -> dict[str, float]:
    """A thousand points by the clock on all cores; a quarter of them in one process, against the solves alone."""
    problem, fewer = mlp(100, depth=3), {name: values[::2] for name, values in GRID.items()}
    problems = [replace(problem, {"lr": lr, "width": width}) for lr in fewer["lr"] for width in fewer["width"]]
    start = time.perf_counter()
    dl.sweep(problem, GRID)
    clock, size = time.perf_counter() - start, worth_batching(problem, len(problems))

    def solve_all() -> None:
        for first in range(0, len(problems), size):
            dl.solve(problems[first : first + size])

    times = race({"one_process": lambda: dl.sweep(problem, fewer, workers=1), "solves": solve_all})
    return {
        "points": len(GRID["lr"]) * len(GRID["width"]),
        "clock": clock,
        "fewer_points": len(problems),
        **times,
    }


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    run, plain = data["sweep"], [each for each in data["optima"] if "power law" not in each["name"]]
    times, solutions = ([each[name] for each in plain] for name in ("seconds", "solve"))
    ratio = [round(each / one) for each, one in zip(times, solutions, strict=True)]
    return [
        ("best of all learning rates, isotropic data, 100 or 200 steps", f"{min(times):.1f} to {max(times):.1f} s"),
        ("the same in solutions", f"{min(ratio)} to {max(ratio)}"),
        (f"sweep of {run['points']:.0f} points (L = 3, T = 100), by the clock", seconds(run["clock"])),
        ("its overhead in one process beyond the solves", f"{100 * (run['one_process'] / run['solves'] - 1):.0f} %"),
    ]


def show(data: dict[str, Any]) -> list[str]:
    run, optima = data["sweep"], data["optima"]
    with picture("learning_rates") as (ax,):
        for at_edge, color, label in ((False, COLORS[0], "smooth"), (True, COLORS[4], "at the edge of stability")):
            shown = [(each["rates"] * each["solve"], each["seconds"]) for each in optima if each["at_edge"] is at_edge]
            ax.plot(*np.array(shown).T, "o", color=color, label=label)
        ends = [min(each["seconds"] for each in optima) / 2, 2 * max(each["seconds"] for each in optima)]
        ax.plot(ends, ends, color=INK, linewidth=0.8)
        ax.set(xlabel="rates times seconds of one solution", ylabel="seconds to the best learning rate")
        ax.set(xscale="log", yscale="log")
        ax.legend()
    return [
        "The best learning rate at the last of 200 steps (two problems have 100), to a relative error of 10^-4. Below "
        "the edge of stability a few rates are enough, since earlier steps of a run tell the losses of lower rates, or "
        "those of neighbouring rates can be interpolated. Without label noise the loss falls up to the edge and rises "
        "steeply behind it; the edge is narrowed down with losses alone. With label noise the best rate is low, and "
        "rough losses past the edge that are nearly as good are searched too. Two or three exact derivatives follow, "
        "each at a bit more than twice the cost of a solution. Rates are solved some at a time, which takes less time "
        "than a solution for each, and those that diverge end early.",
        "",
        "![Seconds to the best learning rate](images/learning_rates.png)",
        "",
        *table(
            ["problem", "modes", "at the edge", "seconds", "rates", "one solution", "seconds in solutions"],
            (
                [
                    each["name"],
                    each["modes"],
                    "yes" if each["at_edge"] else "no",
                    f"{each['seconds']:.2f}",
                    each["rates"],
                    seconds(each["solve"]),
                    f"{each['seconds'] / each['solve']:.0f}",
                ]
                for each in optima
            ),
        ),
        "What bounds it is the number of solutions times the time of one, which the line in the picture is: finding "
        "which rates to solve takes some hundredths of a second. Each mode of a spectrum adds to the time of a "
        "solution; an infinite power law is solved with as many as the steps of the run can tell apart.",
        "",
        f"A sweep over {run['points']:.0f} points of theory (L = 3, T = 100, full batch) takes "
        f"{run['clock']:.1f} s by the clock with all cores. In one process {run['fewer_points']} of them take "
        f"{run['one_process']:.1f} s, "
        f"{100 * (run['one_process'] / run['solves'] - 1):.0f} % more than the same solutions in the same batches "
        f"({1e3 * run['solves'] / run['fewer_points']:.1f} ms a point).",
    ]
