"""How soon the page of ``deeplinear explore`` has a curve to draw."""

import json
import re
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import deeplinear as dl
from pictures import COLORS, INK, picture
from sections import table

TITLE = "The explorer"

STEPS, REPEATS = 300, 5
AT_ONCE = 150


def measure() -> dict[str, Any]:
    with server() as address:
        return {"steps": STEPS, "runs": [run(address, depth) for depth in (1, 2, 3, 4)]}


def run(address: str, depth: int) -> dict[str, float]:
    """Milliseconds from a request to its answer, for a rate that was not asked for before."""
    times: dict[str, list[float]] = {"half": [], "whole": []}
    for repeat in range(REPEATS + 1):
        rule = dl.GradientDescent(0.02 + 1e-4 * repeat)
        problem = dl.Problem(dl.MLP(depth, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), rule, STEPS)
        for name, only in (("half", STEPS // 2), ("whole", STEPS)):
            body = {"problem": tomllib.loads(problem.first(only).to_toml())}
            start = time.perf_counter()
            ask(address, body)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {"depth": depth, **{name: min(taken[1:]) for name, taken in times.items()}}


def ask(address: str, body: dict[str, Any]) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}api/solve", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        last = json.loads(answer.read().splitlines()[-1])
    if "result" not in last:
        raise RuntimeError(f"the explorer answered {last}")


@contextmanager
def server() -> Iterator[str]:
    """Run the page's server on a free port, and give its address."""
    command = [
        sys.executable,
        "-c",
        "from deeplinear_command import main; main()",
        "explore",
        "--port",
        "0",
        "--no-browser",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            if found is None:
                raise RuntimeError("the explorer did not start: pip install 'deeplinear[explore]'")
            yield found[0]
        finally:
            process.terminate()


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    depths = "; ".join(f"{run['depth']}" for run in data["runs"])
    times = "; ".join(f"{run['whole']:.0f}" for run in data["runs"])
    return [(f"explorer: ms by the clock from a request to the curve, T = {data['steps']}, L = {depths}", times)]


def show(data: dict[str, Any]) -> list[str]:
    runs, labels = data["runs"], {"whole": "whole curve", "half": f"first {data['steps'] // 2} steps"}
    with picture("explorer") as (ax,):
        for (name, label), color in zip(labels.items(), COLORS, strict=False):
            ax.plot([run["depth"] for run in runs], [run[name] for run in runs], "o-", color=color, label=label)
        ax.axhline(AT_ONCE, color=INK, linewidth=0.7)
        ax.set(
            xlabel="layers $L$", ylabel="milliseconds", ylim=(0, 1.15 * AT_ONCE), xticks=[run["depth"] for run in runs]
        )
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.3))
    return [
        f"Milliseconds by the clock from a request of the page to the answer of its server, multilayer network, full "
        f"batch, {data['steps']} steps. Deeper networks draw the first steps while the rest is solved. The line is at "
        f"{AT_ONCE} ms, below which a curve follows the hand.",
        "",
        "![Milliseconds to a curve](images/explorer.png)",
        "",
        *table(
            ["layers", labels["half"], labels["whole"]],
            ([run["depth"], f"{run['half']:.0f} ms", f"{run['whole']:.0f} ms"] for run in data["runs"]),
        ),
    ]
