"""Many short problems: as one list against one by one."""

from collections.abc import Callable
from typing import Any

import deeplinear as dl
from deeplinear._solvers.dense import Dense
from measure import circumstances, race
from pictures import COLORS, INK, picture, sizes_axis
from problems import mlp
from sections import measured_at, table
from sections.dense import entries_read

TITLE = "Many short problems as one list"

COUNT = 64

SIZES, STEPS = (1, 2, 4, 8, 16), 200
"""Problems that are stepped together, to see how many are best, and their steps."""


def measure() -> dict[str, Any]:
    runs = []
    for steps in (25, 50, 100, 200):
        problems = [mlp(steps, lr=0.005 + 0.0001 * i) for i in range(COUNT)]
        times = race(
            {
                "list": lambda problems=problems: dl.solve(problems),
                "apart": lambda problems=problems: [dl.solve(problem) for problem in problems],
            },
            2,
        )
        runs.append({"steps": steps, **times})
    return {"runs": runs, "together": {"where": circumstances(), **together()}}


def together() -> dict[str, Any]:
    """Seconds of a problem by the number of problems that are stepped together."""
    problems = [mlp(STEPS, lr=0.005 + 0.0001 * i) for i in range(max(SIZES))]

    def work(size: int) -> Callable[[], Any]:
        starts = range(0, len(problems), size)
        return lambda: [Dense().solve(problems[start : start + size]) for start in starts]

    times = race({size: work(size) for size in SIZES}, 2)
    return {"seconds": [times[size] / len(problems) for size in SIZES]}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    sizes = "; ".join(f"{run['steps']}" for run in data["runs"])
    ratios = "; ".join(f"{run['apart'] / run['list']:.1f}" for run in data["runs"])
    return [(f"{COUNT} problems of T = {sizes}: one by one over as a list", ratios)]


def show(data: dict[str, Any]) -> list[str]:
    runs = data["runs"]
    with picture("lists") as (ax,):
        ax.plot([run["steps"] for run in runs], [run["apart"] / run["list"] for run in runs], "o-", color=COLORS[0])
        ax.axhline(1.0, color=INK, linewidth=0.7)
        ax.set(xlabel="steps $T$", ylabel="one by one / as a list", ylim=(0, None))
        sizes_axis(ax.xaxis, [run["steps"] for run in runs])
    return [
        f"{COUNT} MLPs of depth 4, full batch, each with its own learning rate. As a list they share the overhead of "
        "every step, until their matrices fill the processor's cache.",
        "",
        "![One by one over as a list](images/lists.png)",
        "",
        *table(
            ["steps", "one by one", "as a list", "ratio"],
            (
                [
                    run["steps"],
                    f"{1e3 * run['apart'] / COUNT:.1f} ms a problem",
                    f"{1e3 * run['list'] / COUNT:.1f} ms a problem",
                    f"{run['apart'] / run['list']:.1f}",
                ]
                for run in runs
            ),
        ),
        "",
        _bounded(runs[0], runs[-1]),
        "",
        _by_size(data["together"]),
    ]


def _by_size(data: dict[str, Any]) -> str:
    """How many problems are best stepped together, in a sentence."""
    times = ", ".join(f"{1e3 * each:.0f}" for each in data["seconds"])
    return (
        f"{measured_at(data['where'])}: a problem of T = {STEPS} takes {times} ms where {', '.join(map(str, SIZES))} "
        f"are stepped together, with {Dense().memory([mlp(STEPS)]) / 1e6:.0f} MB each. Lists are made of "
        f"{Dense().worth_batching(mlp(STEPS))}."
    )


def _bounded(short: dict[str, float], long: dict[str, float]) -> str:
    """What bounds the longest problems, in a sentence: a short one, alone, has nothing but overhead."""
    steps, shape = round(long["steps"]), Dense().shape(mlp(round(long["steps"])))
    together = Dense().worth_batching(mlp(steps))
    overhead = short["apart"] / COUNT / short["steps"]
    read = 8 * sum(entries_read(shape, e) for e in range(1, steps + 1))
    held = Dense().memory([mlp(steps)]) / 1e6
    alone = read / (long["apart"] / COUNT - steps * overhead)
    listed = read / (long["list"] / COUNT - steps * overhead / together)
    return (
        f"What bounds it: a step alone has at most {1e6 * overhead:.0f} µs of overhead, which is all that a step of "
        f"T = {short['steps']} takes. The rest of the time at T = {steps} goes into reading {read / 1e6:.0f} MB of "
        f"matrices, at {alone / 1e9:.0f} GB/s one by one and at {listed / 1e9:.0f} GB/s as a list, of which {together} "
        f"are stepped together. It seems that the {held:.0f} MB of one problem stay in a cache from step to step, "
        f"and those of {together} do not: what is gained by sharing the overhead is lost in reading."
    )
