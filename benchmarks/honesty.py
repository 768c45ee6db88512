"""Is the error that a method reports honest? True errors against the dense method, on randomly drawn problems.

python benchmarks/honesty.py [--method panels] [--problems 300] [--seeds 3 17 ...] [--workers 1] [--device cuda]

Problem number s is drawn by a generator seeded with s and solved at four tolerances; the true error of the losses must
stay below ten times the reported one. From number 200 on every problem has a schedule with jumps, ramps or warm
restarts, many of them up to the edge of stability and beyond. With ``--method condensed`` most problems draw batches,
and half of them have momentum. With ``--method coarse`` all of them draw batches, at one low rate. Every answer is kept
in ``out/honesty`` at once, so an interrupted run goes on where it stopped; answers of another version of the solver are
not taken. When all problems are there, ``benchmarks/honesty.md`` (``honesty_condensed.md``, ``honesty_coarse.md``) and
its picture are written. Violations are listed with their problem as a TOML file, and the exit code is then 1. With
``--device`` a graphics card solves the long runs step by step, which takes most of the time otherwise.
"""

import argparse
import datetime
import functools
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.files import write_atomically
from pictures import BAND, COLORS, INK, picture

HERE = Path(__file__).parent
STORE = HERE.parent / "out" / "honesty"
METHODS = ("panels", "condensed", "coarse")
TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)
PROBLEMS, ROUGH = 300, 200
"""Problems, and the first of those with rough schedules."""
ALLOWED = 10.0
"""Most that a true error may be, in units of the reported one."""
ROUNDING = 1e-13
"""Reported errors below this count as this: what two orders of summation differ by."""
GROWN = 1e-6
"""The same where losses are said to depend on rounding from some step on: what it has grown to just before that."""
Record = dict[str, Any]


def draw(seed: int) -> dl.Problem:
    """Draw a problem that panels can solve: any network, data, schedule and decay, some of it close to unstable."""
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.4g}")

    def one_in(count: int) -> bool:
        return not rng.integers(count)

    depth = int(rng.integers(1, 5))
    noise = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
    outputs = 1 if rng.integers(4) else int(rng.integers(2, 4))
    gram = _gram(rng, outputs)
    most_steps, in_counts = 1200, False
    match rng.integers(4):
        case 0:
            modes = int(rng.integers(2, 6))
            share = rng.dirichlet(np.full(modes, 2.0))
            power = [between(0.1, 2.0) for _ in range(modes)]
            target = power if gram is None else [each * np.array(gram) for each in power]
            eigenvalues = [between(0.02, 2.0) for _ in range(modes)]
            data = dl.Spectrum(eigenvalues, target, share, proportional=True, noise=noise)
        case 1:
            outputs, in_counts, most_steps = 1, True, 600  # every mode costs as much as a layer
            data = dl.Spectrum.power_law(
                between(1.2, 2.0), between(0.3, 2.0), modes=int(rng.integers(5, 41)), noise=noise
            )
        case _:
            data = dl.Isotropic(noise, gram)
    sizes = (20.0, 500.0) if in_counts else (0.3, 4.0)
    options: dict[str, Any] = {
        "richness": between(0.05, 2.0),
        "parameterization": "mup" if in_counts or rng.integers(4) else "ntk",
        "centered": bool(rng.integers(2)),
    }
    if one_in(2):
        width = "infinite" if one_in(4) else between(*sizes)
        network = dl.ResNet(depth=int(rng.choice([depth, 8])), width=width, branch=between(0.3, 1.5), **options)
    else:
        widths = {0: "infinite", 1: [between(*sizes) for _ in range(depth)]}
        network = dl.MLP(depth=depth, width=widths.get(int(rng.integers(5)), between(*sizes)), **options)
    steps = int(between(100, most_steps / outputs))
    fastest = 0.5 if one_in(6) else 0.1
    rate = float(f"{between(0.003, fastest) * 2 / (depth + 1):.4g}")
    decay = between(0.01, 0.5) if one_in(3) else 0.0
    sampling = dl.Population() if one_in(3) else dl.FullBatch(between(*sizes))
    schedule = (_schedule if seed < ROUGH else _rough_schedule)(rng, rate, steps)
    return dl.Problem(network, data, sampling, dl.GradientDescent(schedule, weight_decay=decay), steps)


def draw_any(seed: int) -> dl.Problem:
    """Draw the same problem with batches, momentum, both or neither."""
    drawn, rng = draw(seed), np.random.default_rng([seed, 1])
    size = 50.0 if isinstance(drawn.network.width, float) and drawn.network.width >= 20.0 else 1.0
    batch, samples = (float(f"{size * np.exp(rng.uniform(np.log(0.2), np.log(4.0))):.4g}") for _ in range(2))
    samplings = (dl.OnlineSGD(batch), dl.MultiPassSGD(samples, min(batch, samples)), drawn.sampling)
    sampling = samplings[int(rng.integers(3))]
    momentum = float(rng.choice([0.0, 0.0, 0.5, 0.9]))
    rates = (1.0 - momentum) * np.asarray(drawn.optimizer.rates(drawn.steps))
    optimizer = dl.GradientDescent(
        rates.tolist() if drawn.optimizer.has_schedule else float(rates[0]),
        momentum=momentum,
        nesterov=bool(momentum and rng.integers(2)),
        weight_decay=drawn.optimizer.weight_decay,
    )
    return dl.Problem(drawn.network, drawn.data, sampling, optimizer, drawn.steps)


def draw_slow(seed: int) -> dl.Problem:
    """Draw the same problem with batches, a low rate and more than 512 steps, as merged steps need them."""
    noisy, rng = draw_any(seed), np.random.default_rng([seed, 2])
    width = noisy.network.given_widths[0]
    fresh = dl.OnlineSGD(width if np.isfinite(width) else 50.0 if noisy.data.dimension_free else 1.0)
    sampling = noisy.sampling if noisy.sampling.subsamples else fresh
    rate = float(f"{np.exp(rng.uniform(np.log(1e-4), np.log(1e-2))):.4g}")
    optimizer = dl.GradientDescent(rate, weight_decay=noisy.optimizer.weight_decay)
    steps = int(rng.integers(520, 520 + 680 // noisy.data.outputs**3))  # time grows as the cube of both
    return dl.Problem(noisy.network, noisy.data, sampling, optimizer, steps)


DRAWN = {"panels": draw, "condensed": draw_any, "coarse": draw_slow}


def problem_of(method: str, seed: int) -> dl.Problem:
    """Draw a problem that a method can solve."""
    return DRAWN[method](seed)


def _gram(rng: np.random.Generator, outputs: int) -> list[list[float]] | None:
    if outputs == 1:
        return None
    factor = rng.normal(size=(outputs, outputs)).round(2)
    gram: list[list[float]] = (factor @ factor.T / outputs).tolist()
    return gram


def _schedule(rng: np.random.Generator, rate: float, steps: int) -> Any:
    """A constant rate, or one that falls, goes around, rises to a kink, or jumps; to five digits."""
    step = np.arange(steps)
    match rng.integers(8):
        case 0:
            values = rate / (1 + step / 100)
        case 1:
            values = rate * (1 + np.cos(np.pi * step / steps)) / 2
        case 2:
            values = rate * np.minimum(1.0, (step + 1) / (steps // 5))
        case 3:
            values = np.where(step < steps // 2, rate, 0.2 * rate)
        case _:
            return rate
    return [float(value) for value in values]


def _rough_schedule(rng: np.random.Generator, rate: float, steps: int) -> list[float]:
    """A rate that jumps, ramps up, falls in stairs, is restarted, or warms up and cools down."""
    step, top = np.arange(steps), float(np.exp(rng.uniform(np.log(1.5), np.log(20.0))))
    when = int(steps * rng.uniform(0.1, 0.9))
    match rng.integers(6):
        case 0:
            values = np.where(step < when, rate, top * rate)
        case 1:
            values = np.where(step < when, rate, rate / top)
        case 2:
            values = rate * np.linspace(1.0, top, steps)
        case 3:
            values = rate * 0.5 ** (step // (1 + steps // int(rng.integers(3, 7))))
        case 4:
            cycle = 1 + steps // int(rng.integers(2, 6))
            values = 2 * rate * (1 + np.cos(np.pi * (step % cycle) / cycle)) / 2
        case _:
            values = 2 * rate * np.minimum(1.0, np.minimum((step + 1) / (0.1 * steps), (steps - step) / (0.3 * steps)))
    return [float(value) for value in values]


def check(method: str, seed: int, device: str) -> Record:
    """Solve a problem densely, on a device, and by a method at every tolerance."""
    problem = problem_of(method, seed)
    start = time.perf_counter()
    exact = dl.solve(problem, method="dense", device=device)
    record: Record = {"seed": seed, "steps": problem.steps, "status": str(exact.status), "runs": []}
    record["rounding_at"] = exact.status.rounding_at
    record["dense_seconds"] = time.perf_counter() - start
    for tolerance in TOLERANCES:
        start = time.perf_counter()
        run: Record = {"tolerance": tolerance}
        try:
            solution = dl.solve(problem, method=method, tolerance=tolerance)
        except ArithmeticError as error:
            run["unresolved"] = str(error)
        else:
            run |= {"reported": solution.stats["error"], "nodes": solution.stats["nodes"]}
            run["true"] = true_error(solution, exact, solution.stats["error_floor"])
        run["seconds"] = time.perf_counter() - start
        record["runs"].append(run)
    return record


def true_error(solution: dl.Solution, exact: dl.Solution, floor: float) -> float:
    """Largest relative error of both losses over all steps; of losses below a part of the initial one, of that part.

    On its way to a divergence a run amplifies the last digit, so there only the steps count whose loss is
    below twice its initial value, and the step of the divergence must agree within one. Where losses depend on
    rounding nothing can be compared, but both must say so, unless every step was solved with roots because it did.
    """
    steps = np.arange(exact.problem.steps)
    depends = exact.status.rounding_at is not None or exact.solver.roots
    if depends != (solution.status.rounding_at is not None):
        return float("inf")
    end, ours = exact.status.diverged_at, solution.status.diverged_at
    known = [each.status.rounding_at for each in (exact, solution) if each.status.rounding_at is not None]
    if known:
        steps = steps[: min(known)]
    elif (end is None) != (ours is None) or (end is not None and ours is not None and abs(end - ours) > 1):
        return float("inf")
    if end is not None:
        steps = steps[np.maximum.accumulate(exact.test_loss)[steps] < 2 * exact.test_loss[0]]
    found, worst = solution.at(steps), 0.0
    for name in ("test_loss", "train_loss"):
        loss = getattr(exact, name)
        error = np.abs(found[name].values - loss[steps]) / np.maximum(loss[steps], floor * loss[0])
        worst = max(worst, float(error.max()))
    return worst


def reported(record: Record, run: Record) -> float:
    """The reported error of a run, or what rounding adds if that is more."""
    return float(max(run["reported"], ROUNDING if record["rounding_at"] is None else GROWN))


def ratio(record: Record, run: Record) -> float:
    """True error in units of the reported one."""
    return float(run["true"] / reported(record, run))


@functools.cache
def solver_version() -> str:
    """Fingerprint of the package's source when this run began."""
    digest = hashlib.sha256()
    for path in sorted(Path(dl.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def stored(method: str, device: str, seed: int) -> Record:
    """The answer for a problem, from the store if this version of solver and draw has given it before."""
    path = STORE / f"{_prefix(method)}{seed}.json"
    version = f"{solver_version()}-{hashlib.sha256(problem_of(method, seed).to_toml().encode()).hexdigest()[:12]}"
    if path.exists():
        record: Record = json.loads(path.read_text())
        if record["version"] == version:
            return record
    record = check(method, seed, device) | {"version": version}
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(record, indent=1)))
    return record


def _prefix(method: str) -> str:
    return "" if method == "panels" else f"{method}_"


def answers(method: str, seeds: Sequence[int], workers: int, device: str = "cpu") -> Iterator[Record]:
    """The answers for some problems, in their order."""
    STORE.mkdir(parents=True, exist_ok=True)
    answer = functools.partial(stored, method, device)
    if workers == 1:
        yield from map(answer, seeds)
    else:
        # A process that was forked cannot use a card.
        way = multiprocessing.get_context(None if device == "cpu" else "spawn")
        with ProcessPoolExecutor(workers, way) as pool:
            yield from pool.map(answer, seeds)


def summary(method: str, records: list[Record]) -> str:
    """The page: how true errors stand to reported ones, and what was violated."""
    title, sampling, command = {
        "panels": ("panels report", "full batch and population loss", ""),
        "condensed": (
            "a condensed past reports",
            "online and multi-pass SGD, full batch and population loss, momentum and Nesterov",
            " --method condensed",
        ),
        "coarse": ("merged steps report", "online and multi-pass SGD at one low rate", " --method coarse"),
    }[method]
    lines = [
        f"## The error that {title} against the true one",
        "",
        f"{datetime.date.today()}: {len(records)} problems drawn at random (MLP and residual, {sampling}, isotropic "
        "data, spectra and power laws, one to three outputs, schedules, weight decay, 100 to 1200 steps), each solved "
        f"densely and by this method. {_rough_ones(records)}Promise: true error at most {ALLOWED:g} times that "
        f"reported. Source of the solver: {solver_version()}. `python benchmarks/honesty.py{command}` repeats it.",
        "",
        f"![True against reported error](images/{_name(method)}.png)",
        "",
        "| tolerance | runs | true / reported: median | 90 % below | 99 % below | largest | violations | "
        "true error above tolerance | gave up |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for tolerance in TOLERANCES:
        runs = [(record, run) for record in records for run in record["runs"] if run["tolerance"] == tolerance]
        done = [(record, run) for record, run in runs if "true" in run]
        ratios = np.array([ratio(*each) for each in done])
        quantiles = [f"{np.quantile(ratios, q):.2g}" for q in (0.5, 0.9, 0.99, 1.0)]
        above = sum(run["true"] > tolerance for _, run in done)
        counts = [str((ratios > ALLOWED).sum()), str(above), str(len(runs) - len(done))]
        lines.append(f"| {tolerance:g} | {len(runs)} | {' | '.join([*quantiles, *counts])} |")
    lines += ["", *_violations(records), ""]
    return "\n".join(lines)


def _name(method: str) -> str:
    return "honesty" if method == "panels" else f"honesty_{method}"


def _rough_ones(records: list[Record]) -> str:
    rough = [record for record in records if record["seed"] >= ROUGH]
    if not rough:
        return ""
    rounded = [record for record in rough if record["rounding_at"] is not None]
    return (
        f"{len(rough)} of them have schedules with jumps, ramps or warm restarts; {len(rounded)} of these become "
        "unstable after what could grow was trained away, so that their losses depend on rounding, which the method "
        f"must say or give up. Before the step from which on they do, rounding has grown to {GROWN:g}, and a smaller "
        "reported error counts as that. "
    )


def _violations(records: list[Record]) -> list[str]:
    found = [
        (record, run) for record in records for run in record["runs"] if "true" in run and ratio(record, run) > ALLOWED
    ]
    if not found:
        return ["No violation."]
    rows = [
        f"| {record['seed']} | {run['tolerance']:g} | {run['reported']:.1e} | {run['true']:.1e} "
        f"| {ratio(record, run):.3g} |"
        for record, run in found
    ]
    return ["Violations:", "", "| problem | tolerance | reported | true | ratio |", "|---|---|---|---|---|", *rows]


def draw_picture(method: str, records: list[Record]) -> None:
    """True against reported errors; grey is where the promise is broken."""
    with picture(_name(method)) as (ax,):
        ends = np.array([ROUNDING, 1e-3])
        ax.fill_between(ends, ends * ALLOWED, 1.0, color=BAND, linewidth=0)
        ax.plot(ends, ends, color=INK, linewidth=0.6)
        for tolerance, color in zip(TOLERANCES, COLORS, strict=False):
            runs = [(record, run) for record in records for run in record["runs"] if run["tolerance"] == tolerance]
            shown = [(reported(record, run), run["true"]) for record, run in runs if "true" in run]
            ax.plot(*np.array(shown).T, ".", color=color, markersize=3, label=f"tolerance {tolerance:g}")
        ax.set(xscale="log", yscale="log", xlim=ends, ylim=(1e-16, 1e-2))
        ax.set(xlabel="error reported", ylabel="true error", title="grey: more than ten times the error reported")
        ax.legend(loc="upper left")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the errors that a method reports with true ones.")
    parser.add_argument("--method", choices=METHODS, default="panels", help="which method (panels)")
    parser.add_argument("--problems", type=int, default=PROBLEMS, help=f"how many problems to draw ({PROBLEMS})")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these problems; writes no page")
    parser.add_argument("--workers", type=int, default=1, help="how many processes (1)")
    parser.add_argument("--device", default="cpu", help="where exact solutions are found")
    chosen = parser.parse_args()
    records = []
    for record in answers(chosen.method, chosen.seeds or range(chosen.problems), chosen.workers, chosen.device):
        seed = record["seed"]
        records.append(record)
        shown = [f"{ratio(record, run):.2g}" if "true" in run else "gave up" for run in record["runs"]]
        bad = any("true" in run and ratio(record, run) > ALLOWED for run in record["runs"])
        if bad:
            place = STORE / f"{_prefix(chosen.method)}{seed}.toml"
            problem_of(chosen.method, seed).save(place)
            shown.append(f"VIOLATION, see {place}")
        print(f"problem {seed}: {record['steps']} steps, true / reported {', '.join(shown)}", flush=True)
    text = summary(chosen.method, records)
    print("\n" + text)
    if chosen.seeds is None:
        draw_picture(chosen.method, records)
        write_atomically(HERE / f"{_name(chosen.method)}.md", lambda temporary: temporary.write_text(text))
    return int("Violations:" in text)


if __name__ == "__main__":
    sys.exit(main())
