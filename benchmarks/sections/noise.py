"""A condensed past: long runs with noise, with momentum and at the edge of stability."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._solvers.rounding import LOSS_FLOOR
from measure import Peak, circumstances, exponent, race
from pictures import COLORS, picture
from sections import measured_at, rounded, seconds, table

TITLE = "Long runs with noise, momentum, or at the edge of stability: a condensed past"


def _make(steps: int, sampling: Any, *, network: Any = None, data: Any = None, **rule: Any) -> dl.Problem:
    network, data = network or dl.MLP(3, 1.0), data or dl.Isotropic(0.3)
    return dl.Problem(network, data, sampling, dl.GradientDescent(**rule), steps)


_ONLINE, _MULTI, _FULL = dl.OnlineSGD(1.0), dl.MultiPassSGD(2.0, 0.5), dl.FullBatch(4.0)
_POWER_LAW = {"data": dl.Spectrum.power_law(1.5, 1.2, modes=20), "network": dl.MLP(3, 50.0)}

CASES: dict[str, Callable[[int], dl.Problem]] = {
    "online SGD": lambda steps: _make(steps, _ONLINE, lr=0.01),
    "multi-pass SGD": lambda steps: _make(steps, _MULTI, lr=0.01),
    "online SGD, momentum 0.9": lambda steps: _make(steps, _ONLINE, lr=0.001, momentum=0.9),
    "full batch, Nesterov 0.9": lambda steps: _make(steps, _FULL, lr=0.001, momentum=0.9, nesterov=True),
    "power law, online SGD, 20 modes": lambda steps: _make(steps, dl.OnlineSGD(20), lr=0.1, **_POWER_LAW),
    "full batch at the edge": lambda steps: _make(steps, _FULL, lr=0.3, network=dl.MLP(3, 4.0, 0.3)),
}
AGAINST, STEPS, AT_THE_EDGE = 1000, (2000, 5000, 10_000), (2000, 4000)
"""Steps of the run that is solved densely, too, and of further runs whose time is measured."""

FAR, TWICE, FINER = 100_000, 2000, 1e-7
"""Steps of the longest runs; steps up to which every case is compared with dense stepping once; and the tolerance at
which the longest runs are solved again, to see what changes."""

EDGE, EXTRAPOLATED = "full batch at the edge", (1000, 2000, 4000)
"""Case whose dense time is measured at the first two of these numbers of steps, and extrapolated to the third."""

LONGEST: dict[str, Callable[[int], dl.Problem]] = {
    "online SGD, lr = 0.001": lambda steps: _make(steps, _ONLINE, lr=0.001),
    "multi-pass SGD, lr = 0.001": lambda steps: _make(steps, _MULTI, lr=0.001),
    **{name: CASES[name] for name in CASES if "momentum" in name or "Nesterov" in name or "power law" in name},
}
"""Cases that are solved for so many steps: up to minutes each."""


def measure() -> dict[str, Any]:
    return {
        "cases": {name: case(name) for name in CASES},
        "longest": {
            "where": circumstances(),
            "against": {name: against(name) for name in CASES},
            "far": {name: far(name) for name in LONGEST},
        },
        "edge": {"where": circumstances(), **edge()},
    }


def against(name: str) -> dict[str, float]:
    """Largest errors of a longer run, relative to the dense solution, once."""
    problem = CASES[name](TWICE)
    found, exact = dl.solve(problem, method="condensed"), dl.solve(problem, method="dense")
    pairs = exact.error_correlation[np.ix_(found.pair_times, found.pair_times)]
    return {
        "error": _largest(found.test_loss, exact.test_loss),
        "pairs": float(np.abs(found.error_correlation - pairs).max() / np.abs(pairs).max()),
    }


def edge() -> dict[str, Any]:
    """Times of dense stepping at the edge, from which that of a run that takes minutes follows, and errors."""
    dense = {}
    for steps in EXTRAPOLATED[:2]:
        start = time.process_time()
        exact = dl.solve(CASES[EDGE](steps), method="dense")
        dense[str(steps)] = time.process_time() - start
    start = time.process_time()
    found = dl.solve(CASES[EDGE](EXTRAPOLATED[2]), method="condensed")
    taken = time.process_time() - start
    error = _largest(found.test_loss[: EXTRAPOLATED[1]], exact.test_loss)
    return {"dense": dense, "condensed": taken, "rows": found.stats["nodes"], "error": error}


def far(name: str) -> dict[str, Any]:
    """A run of very many steps, in a process of its own, and what a lower tolerance changes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        loss, numbers = pool.submit(_far, name, 1e-6).result()
        finer, _ = pool.submit(_far, name, FINER).result()
    return numbers | {"change": _largest(finer, loss)}


def _largest(found: Any, exact: Any) -> float:
    """Largest difference relative to the loss, or to that part of the initial one to which losses are accurate."""
    return float((np.abs(found - exact) / np.maximum(exact, LOSS_FLOOR * exact[0])).max())


def _far(name: str, tolerance: float) -> tuple[Any, dict[str, Any]]:
    start, peak = time.process_time(), Peak()
    solution = dl.solve(LONGEST[name](FAR), method="condensed", tolerance=tolerance)
    taken, held = time.process_time() - start, peak.bytes()
    rows, error = solution.stats["nodes"], solution.stats["error"]
    return solution.test_loss, {"seconds": taken, "bytes": held, "rows": rows, "reported": error}


def case(name: str) -> dict[str, Any]:
    """One problem: time and error against dense stepping, and how the time grows."""
    make, solutions = CASES[name], {}

    def work(method: str) -> Callable[[], None]:
        return lambda: solutions.update({method: dl.solve(make(AGAINST), method=method)})

    taken = race({method: work(method) for method in ("dense", "condensed")}, 1)
    exact, found = solutions["dense"], solutions["condensed"]
    runs = [{"steps": AGAINST, "seconds": taken["condensed"], "rows": found.stats["nodes"]}]
    for steps in AT_THE_EDGE if name.endswith("edge") else STEPS:
        start = time.process_time()  # long, and warm by now
        solution = dl.solve(make(steps), method="condensed")
        runs.append({"steps": steps, "seconds": time.process_time() - start, "rows": solution.stats["nodes"]})
    error = float(np.abs(found.test_loss / exact.test_loss - 1).max())
    return {"dense": taken["dense"], "error": error, "reported": found.stats["error"], "runs": runs}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    cases = data["cases"]
    last = [each["runs"][-1] for each in cases.values()]
    names = "; ".join(f"{name}, T = {run['steps']}" for name, run in zip(cases, last, strict=True))
    return [
        (f"with a condensed past: {names}", "; ".join(seconds(run["seconds"]) for run in last)),
        ("largest error of the test loss there, at T = 1000", f"{max(each['error'] for each in cases.values()):.0e}"),
        (
            f"T = {FAR}: {'; '.join(data['longest']['far'])}",
            "; ".join(seconds(each["seconds"]) for each in data["longest"]["far"].values()),
        ),
    ]


def show(data: dict[str, Any]) -> list[str]:
    rows, longest = [], data["longest"]
    with picture("noise", 2) as (times, kept):
        for (name, each), color in zip(data["cases"].items(), COLORS * 2, strict=False):
            steps = [run["steps"] for run in each["runs"]]
            style: dict[str, Any] = {"color": color, "label": name, "markersize": 3}
            times.plot(steps, [run["seconds"] for run in each["runs"]], "o-", **style)
            kept.plot(steps, [run["rows"] for run in each["runs"]], "o-", **style)
            first, last = each["runs"][0], each["runs"][-1]
            ratio = rounded(each["dense"] / first["seconds"])
            numbers = [seconds(each["dense"]), seconds(first["seconds"]), ratio]
            errors = [f"{each['error']:.0e}", f"{each['reported']:.0e}"]
            rows.append([name, *numbers, *errors, last["steps"], seconds(last["seconds"]), last["rows"]])
        times.set(xscale="log", yscale="log", xlabel="steps $T$", ylabel="seconds")
        kept.set(xscale="log", xlabel="steps $T$", ylabel="times that are kept", ylim=(0, None))
        kept.legend(loc="upper right", bbox_to_anchor=(1.0, 0.8), fontsize="x-small")
    header = ["problem", "dense", "condensed", "ratio", "error", "error reported", "T", "time", "times kept"]
    return [
        f"Depth 3, tolerance 1e-6; the first columns are for T = {AGAINST}, the last ones for a longer run. The error "
        "is the largest relative one of the test loss over all steps.",
        "",
        "![Time and times kept over steps](images/noise.png)",
        "",
        *table(header, rows),
        "",
        f"{measured_at(longest['where'])}. At T = {TWICE}, once each: largest relative error of the test loss (of "
        f"{LOSS_FLOOR:g} of the initial one where it is less), and of the correlation of errors at all pairs of times "
        "that are kept, relative to its largest value.",
        "",
        *table(
            ["problem", "error of the loss", "of correlations"],
            [[name, f"{each['error']:.0e}", f"{each['pairs']:.0e}"] for name, each in longest["against"].items()],
        ),
        "",
        f"T = {FAR}, once each: processor time, memory that the process takes for it, and the "
        f"largest relative change of the test loss at tolerance {FINER:g}.",
        "",
        *table(
            ["problem", "time", "times kept", "memory", "error reported", "change"],
            [_row(name, each) for name, each in longest["far"].items()],
        ),
        "",
        _at_the_edge(data["edge"]),
    ]


def _at_the_edge(edge: dict[str, Any]) -> str:
    """What dense stepping would take at the edge, in a few sentences."""
    first, second, last = EXTRAPOLATED
    power = exponent([first, second], list(edge["dense"].values()))
    dense = edge["dense"][str(second)] * (last / second) ** power
    return (
        f"{measured_at(edge['where'])}: {EDGE}. Dense stepping takes {seconds(edge['dense'][str(first)])} at "
        f"T = {first} and {seconds(edge['dense'][str(second)])} at T = {second}, which grows as T^{power:.1f}. At "
        f"T = {last} it would take {seconds(dense)} (extrapolated), and a condensed past of {edge['rows']} times takes "
        f"{seconds(edge['condensed'])} (measured): {rounded(dense / edge['condensed'])} times less. Over the first "
        f"{second} steps the largest relative error of its test loss is {edge['error']:.0e}."
    )


def _row(name: str, far: dict[str, Any]) -> list[Any]:
    """A longest run, as a row of the table."""
    errors = [f"{far['reported']:.0e}", f"{far['change']:.0e}"]
    memory = "unknown" if far["bytes"] is None else f"{far['bytes'] / 1e6:.0f} MB"
    return [name, seconds(far["seconds"]), far["rows"], memory, *errors]
