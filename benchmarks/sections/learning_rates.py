"""What tuning takes: the best learning rate of a problem, and a sweep."""

import time
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._problem.edit import replace
from deeplinear._theory.curves import worth_batching
from measure import least, race
from pictures import COLORS, picture
from problems import mlp
from sections import seconds, table

TITLE = "Learning rates and sweeps"

GRID = {"lr": np.geomspace(0.002, 0.1, 50).tolist(), "width": np.geomspace(0.5, 8.0, 20).tolist()}


def measure() -> dict[str, Any]:
    return {"optima": [optimum(name, problem) for name, problem in searched().items()], "sweep": sweep()}


def searched() -> dict[str, dl.Problem]:
    """Problems with label noise, whose loss is smooth around the optimum, and without, where it is a cliff."""
    data = {"noise 0.5": dl.Isotropic(0.5), "no noise": dl.Isotropic()}
    networks = {f"MLP, L = {depth}": dl.MLP(depth, 1.0) for depth in (1, 2, 3, 4)} | {
        "residual, L = 4": dl.ResNet(4, 1.0)
    }
    return {
        f"{network_name}, {data_name}": dl.Problem(network, each, dl.FullBatch(2.0), dl.GradientDescent(0.05), 200)
        for network_name, network in networks.items()
        for data_name, each in data.items()
    }


def optimum(name: str, problem: dl.Problem) -> dict[str, Any]:
    return {
        "name": name,
        "seconds": least(lambda: dl.optimal_lr(problem), 2),
        "solve": least(lambda: dl.solve(problem), 2),
        "at_edge": dl.optimal_lr(problem).at_edge,
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
    smooth, edge = (
        [round(each["seconds"] / each["solve"]) for each in data["optima"] if each["at_edge"] is at]
        for at in (False, True)
    )
    run = data["sweep"]
    return [
        ("best of all learning rates of a run of 200 steps, in solutions", f"{min(smooth)} to {max(smooth)}"),
        ("the same where it is at the edge of stability", f"{min(edge)} to {max(edge)}"),
        (f"sweep of {run['points']:.0f} points (L = 3, T = 100), by the clock", seconds(run["clock"])),
        ("its overhead in one process beyond the solves", f"{100 * (run['one_process'] / run['solves'] - 1):.0f} %"),
    ]


def show(data: dict[str, Any]) -> list[str]:
    run, optima = data["sweep"], data["optima"]
    with picture("learning_rates") as (ax,):
        for at_edge, color, label in ((False, COLORS[0], "smooth"), (True, COLORS[4], "at the edge of stability")):
            shown = [(each["seconds"], index) for index, each in enumerate(optima) if each["at_edge"] is at_edge]
            ax.plot(*np.array(shown).T, "o", color=color, label=label)
        ax.set(xlabel="seconds to the best learning rate", xlim=(0, None), ylim=(len(optima) - 0.5, -0.5))
        ax.set_yticks(range(len(optima)), [each["name"] for each in optima])
        ax.legend(loc="lower left")
    return [
        "The best learning rate at the last of 200 steps, to a relative error of 10^-4, full batch. Without label "
        "noise the loss falls up to the edge of stability and rises steeply behind it. Below the edge a few rates are "
        "enough, since earlier steps of a run tell the losses of lower rates; the edge is narrowed down with losses "
        "alone; two to four exact derivatives follow, each at a bit more than twice the cost of a solution. With label "
        "noise the best rate is low, and rough losses past the edge, nearly as good, are searched too. Rates are "
        "solved some at a time, which takes less time than a solution for each.",
        "",
        "![Seconds to the best learning rate](images/learning_rates.png)",
        "",
        *table(
            ["problem", "at the edge", "seconds", "in solutions"],
            (
                [
                    each["name"],
                    "yes" if each["at_edge"] else "no",
                    f"{each['seconds']:.2f}",
                    f"{each['seconds'] / each['solve']:.0f}",
                ]
                for each in optima
            ),
        ),
        f"A sweep over {run['points']:.0f} points of theory (L = 3, T = 100, full batch) takes "
        f"{run['clock']:.1f} s by the clock with all cores. In one process {run['fewer_points']} of them take "
        f"{run['one_process']:.1f} s, "
        f"{100 * (run['one_process'] / run['solves'] - 1):.0f} % more than the same solutions in the same batches "
        f"({1e3 * run['solves'] / run['fewer_points']:.1f} ms a point).",
    ]
