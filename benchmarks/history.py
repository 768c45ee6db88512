"""A kept series of a few timings, so that a slowdown is seen.

    python benchmarks/history.py           # measures, and compares with what was kept last; exit code 1 if slower
    python benchmarks/history.py --keep    # also adds the measurement to benchmarks/history.jsonl, one line each
    python benchmarks/history.py --show    # the series, without measuring

Times are of the processor, the least of several repeats, and divided by that of a fixed piece of work in Python and
NumPy, which is measured in turns with them: so they mean the same on another machine, nearly, and on a busy one.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.products import _rows
from measure import race

KEPT = Path(__file__).with_name("history.jsonl")
SLOWER = 1.4
"""Ratio from which on a case counts as slower. On a busy machine two measurements of one commit differed by 26 %."""

ROUNDS = 7


def problem(**fields: Any) -> dl.Problem:
    """Return a small problem, with some fields replaced."""
    whole = dl.Problem(
        dl.MLP(depth=3, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), steps=30
    )
    return whole.replace(**fields)


RESIDUAL = dl.Problem(dl.ResNet(6, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.02), steps=60)
CASES: dict[str, Callable[[], object]] = {
    "30 steps": lambda: dl.solve(problem()),
    "200 steps": lambda: dl.solve(problem(steps=200)),
    "residual, online": lambda: dl.solve(RESIDUAL),
    "100000 steps in panels": lambda: dl.solve(problem(steps=100_000, lr=0.003)),
    "best rate": lambda: dl.optimal_lr(problem()),
    "16 networks, D = 100": lambda: dl.simulate(problem(), dim=100, seeds=16, workers=1, record="losses"),
    "16 networks, D = 1000000": lambda: dl.simulate(problem(steps=15), dim=10**6, seeds=16, workers=1, record="losses"),
}


def standard() -> object:
    """Do a fixed piece of work, half of it in Python and half in NumPy."""
    matrix = np.full((160, 160), 0.5)
    for _ in range(12):
        matrix = matrix @ matrix / 160
    return sum(number * number % 7 for number in range(60_000))


def measure() -> dict[str, float]:
    """Return the time of every case, in units of the standard one."""
    with one_blas_thread():
        found = race({"": standard, **CASES}, ROUNDS)
    unit = found.pop("")
    return {name: taken / unit for name, taken in found.items()}


def record(found: dict[str, float]) -> dict[str, Any]:
    """Return a measurement with what it is of."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": dl.__version__,
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "compiled": _rows is not None,
        "times": {name: float(f"{value:.4g}") for name, value in found.items()},
    }


def kept() -> list[dict[str, Any]]:
    """Return the measurements that were kept, oldest first."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def slower(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Return the cases that take more than they did."""
    return [name for name, value in now.items() if name in before and value > SLOWER * before[name]]


def table(series: list[dict[str, Any]]) -> str:
    """Return the last measurements side by side, in units of the standard work."""
    last = series[-6:]
    width = max(map(len, CASES))
    lines = [" " * width + "".join(f"{each['commit']:>10}" for each in last)]
    for name in CASES:
        cells = [each["times"].get(name) for each in last]
        lines.append(f"{name:<{width}}" + "".join(" " * 10 if cell is None else f"{cell:>10.3g}" for cell in cells))
    return "\n".join(lines)


def main() -> int:
    """Measure, compare, and keep if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="add the measurement to the series")
    parser.add_argument("--show", action="store_true", help="show the series without measuring")
    options = parser.parse_args()
    before = kept()
    if options.show:
        print(table(before) if before else "nothing was kept yet")
        return 0
    now = record(measure())
    print(table([*before, now]))
    if options.keep:
        with KEPT.open("a") as file:
            file.write(json.dumps(now) + "\n")
    late = slower(before[-1]["times"], now["times"]) if before else []
    for name in late:
        print(f"slower: {name}, by {now['times'][name] / before[-1]['times'][name]:.2f}", file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    raise SystemExit(main())
