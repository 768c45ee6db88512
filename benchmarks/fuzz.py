"""Does every problem get a right answer, or a clear refusal? Random problems over every feature and extreme.

python benchmarks/fuzz.py [--problems 3000] [--workers 2] [--seeds 3 17 ...]

Problem number s is drawn by a generator seeded with s, and put to every check that applies to it (``CHECKS``) by
another process, which is stopped and replaced after ``LIMIT`` seconds of work. Every answer is kept in ``out/fuzz`` at
once, so that an interrupted run goes on where it stopped; answers of another version of the package are not taken. In
the end a table says how often each check was tried, and held; problems that failed are listed with the command that
repeats them and their TOML file, and the exit code is then 1. With ``--seeds`` these problems are checked here and now.
"""

import argparse
import contextlib
import hashlib
import json
import math
import resource
import select
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import deeplinear as dl
from deeplinear._equations.system import matrices_read
from deeplinear._problem.rate import up_to
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.reference import reference

STORE = Path(__file__).parents[1] / "out" / "fuzz"
LIMIT = 300.0
"""Seconds of a processor for all checks of one problem, however busy the machine is."""
MOST_TRAFFIC = 2e11
"""Bytes that solving a problem may go through, or else it is drawn again with half as many steps: some 20 s."""
ROOM = 6e9
"""Bytes that a worker may take."""
ROUNDING = 1e-8
"""Two ways to the same answer may differ by this much of the largest loss so far, since training amplifies rounding."""
ALLOWED = 10.0
"""Most that a true error may be, in units of the reported one."""
Record = dict[str, Any]


class Broken(AssertionError):
    """A check did not hold."""


# Problems ----------------------------------------------------------------------------------------------------------


class Draw:
    """Random choices, extremes among them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_in(self, count: int) -> bool:
        return not self.rng.integers(count)

    def among(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: float, high: float) -> float:
        """A number of four digits, even over decades."""
        return float(f"{10 ** self.rng.uniform(math.log10(low), math.log10(high)):.4g}")

    def size(self, extremes: bool) -> float:
        return self.between(1e-6, 1e6) if extremes else self.between(0.3, 4.0)

    def network(self, depth_limit: int) -> dl.MLP | dl.ResNet:
        extreme = self.one_in(8)
        richness = self.between(1e-300, 1e-3) if self.one_in(6) else self.between(0.1, 3.0)
        richness = self.between(3.0, 1e6) if self.one_in(12) else richness
        options: dict[str, Any] = {
            "richness": richness,
            "parameterization": self.among("mup", "ntk"),
            "centered": bool(self.rng.integers(2)) or richness < 1e-100,
        }
        if self.one_in(2):
            depth = int(self.rng.integers(1, min(6, depth_limit) + 1))
            widths = [self.size(extreme) for _ in range(depth)]
            return dl.MLP(depth, self.among("infinite", widths, widths[0], widths[0], widths[0]), **options)
        depth = self.among(*range(1, 9), 32, 300, 10**4, 10**9, math.inf)
        depth = depth if depth <= depth_limit else self.among(1, 2, 3)
        branch = self.among(0.0, self.between(0.1, 2.0), self.between(0.1, 2.0), self.between(2.0, 4.5))
        scaling = "none" if depth <= 8 and self.one_in(4) else "depth-mup"
        width = self.among("infinite", self.size(extreme), self.size(extreme), self.size(extreme))
        return dl.ResNet(depth, width, branch=branch, branch_scaling=scaling, **options)

    def data(self) -> dl.Isotropic | dl.Spectrum:
        noise = self.among(0.0, 0.0, 0.1, 0.5, self.between(1e-8, 1e4))
        outputs = int(self.rng.integers(2, 4)) if self.one_in(5) else 1
        factor = self.rng.normal(size=(outputs, outputs)).round(2)
        gram = factor @ factor.T * self.among(0.0, 1.0, 1.0, 1.0)
        if self.one_in(2):
            return dl.Isotropic(noise, gram.tolist() if outputs > 1 else None)
        if self.one_in(4):
            modes = self.among(None, int(self.rng.integers(1, 30)))
            return dl.Spectrum.power_law(self.between(1.05, 4.0), self.between(0.1, 20.0), modes=modes, noise=noise)
        count = int(self.rng.integers(1, 6))
        spread = self.among(1.0, 1.0, 8.0)
        values = [self.among(0.0, 1.0, *[self.between(10**-spread, 2.0)] * 4) for _ in range(count)]
        power = np.array([self.among(0.0, *[self.between(10**-spread, 2.0)] * 4) for _ in range(count)])
        target = power if outputs == 1 else power[:, None, None] * gram
        proportional = bool(self.rng.integers(2))
        share = self.rng.dirichlet(np.full(count, 2.0)) if proportional else self.rng.integers(1, 9, count)
        return dl.Spectrum(values, target, share, proportional, noise)

    def sampling(self, data: dl.Isotropic | dl.Spectrum) -> Any:
        size = self.size(self.one_in(8)) * (50.0 if data.dimension_free else 1.0)
        small = data.dimension_free and data.outputs == 1 and self.one_in(3)
        return self.among(
            dl.Population(),
            dl.FullBatch(size),
            dl.OnlineSGD(size, small_batch=small),
            dl.MultiPassSGD(size, self.among(1.0, self.between(0.01, 1.0)) * size),
        )

    def optimizer(self, steps: int, scale: float) -> dl.GradientDescent:
        momentum = self.among(0.0, 0.0, 0.5, 0.9, 0.999)
        rate = self.between(1e-4, 0.3) * (1 - momentum) * scale
        if self.one_in(10):
            rate = self.between(1e-12, 1e12)
        step = np.arange(steps)
        schedules = (
            np.where(step < steps // 2, rate, 10 * rate),
            rate * (step + 1) / steps,
            rate * (1 + np.cos(2 * np.pi * step / max(steps // 3, 1))) / 2,
            np.where(self.rng.random(steps) < 0.5, 0.0, rate),
            np.zeros(steps),
        )
        return dl.GradientDescent(
            lr=[float(each) for each in self.among(*schedules)] if self.one_in(4) else rate,
            momentum=momentum,
            nesterov=momentum > 0 and self.one_in(3),
            weight_decay=self.among(0.0, 0.0, 0.0, self.between(1e-12, 1.0), self.between(1.0, 100.0)),
        )


def draw(seed: int) -> dl.Problem:
    """Draw a problem, or raise what its parts refuse."""
    of = Draw(seed)
    if seed % 40 == 39:
        return draw_for_merged_steps(of)
    steps = of.among(*[int(of.rng.integers(1, 9))] * 3, *[int(of.between(9, 120))] * 4, int(of.between(120, 400)))
    if of.one_in(30):
        steps = int(of.between(1001, 30_000))
    data = of.data()
    network = of.network(8 if steps > 120 else 32 if steps > 8 and of.one_in(2) else math.inf)
    if network.depth >= 256 and steps > 16 and not of.one_in(6):
        steps = 9 + steps % 8  # every step is swept along the depth, on few nodes and then on more
    sampling = of.sampling(data)
    kernel = float(data.modes.eigenvalues.max()) * (min(network.depth, 16) + 1)
    while True:
        problem = dl.Problem(network, data, sampling, of.optimizer(steps, 2.0 / max(kernel, 1e-3)), steps)
        if steps <= 400 or traffic(problem) <= MOST_TRAFFIC:
            return problem
        steps //= 2


def draw_for_merged_steps(of: Draw) -> dl.Problem:
    """Draw a run long enough for steps to be merged and short enough to solve them all, of which few come by chance."""
    data = of.data()
    network, size = of.network(2), of.size(False) * (50.0 if data.dimension_free else 1.0)
    sampling = of.among(dl.OnlineSGD(size), dl.MultiPassSGD(size, 0.3 * size))
    rate = of.between(1e-5, 0.1) / max(float(data.modes.eigenvalues.max()), 1e-3)
    rule = dl.GradientDescent(rate, weight_decay=of.among(0.0, of.between(1e-6, 0.1)))
    return dl.Problem(network, data, sampling, rule, int(of.between(520, 800)))


def traffic(problem: dl.Problem, method: str = "auto") -> float:
    """Bytes that solving a problem goes through, by its estimate, which are the same on every machine."""
    work = Choice(method).solver(problem).estimate(problem)
    return float(work.passes * 8 * matrices_read(work.shape) * work.shape.size**3 / 3)


# Checks ------------------------------------------------------------------------------------------------------------


def answered(problem: dl.Problem, solution: dl.Solution) -> None:
    """A status, and numbers up to a divergence, infinite from there on; none negative, none below the noise."""
    end = solution.status.diverged_at
    _holds(end is None or 0 < end < problem.steps, f"diverged at {end}")
    floor = problem.data.outputs * problem.data.noise**2
    before = np.ones(len(solution.times), bool) if end is None else solution.times < end
    for name in ("test_loss", "train_loss", "kernel", *(f"decomposition.{part}" for part in ("bias", "width", "data"))):
        curve = solution
        for word in name.split("."):
            curve = getattr(curve, word)
        _holds(bool(np.isfinite(curve[before]).all()), f"{name} is not finite before the end")
        _holds(bool((curve[before] >= 0).all()), f"{name} is negative")
        _holds(bool(np.isposinf(curve[~before]).all()), f"{name} is finite after the divergence")
    _holds(bool((solution.test_loss >= floor * (1 - 1e-9)).all()), "test loss below the label noise")


def same_again(problem: dl.Problem, solution: dl.Solution) -> None:
    """The same problem has the same answer, to the last bit, and so has its TOML file."""
    again = dl.solve(dl.Problem.from_toml(problem.to_toml()))
    for name in ("test_loss", "train_loss"):
        _holds(np.array_equal(getattr(again, name), getattr(solution, name)), f"{name} differs")


def batch(problem: dl.Problem, solution: dl.Solution) -> None:
    """A problem that is solved together with another one has the answer that it has alone."""
    other = replace(
        problem, optimizer=replace(problem.optimizer, lr=[r / 2 for r in problem.optimizer.rates(problem.steps)])
    )
    together = dl.solve([other, problem, other], method="dense")[1]
    _agree(together, solution, ROUNDING)


def against_reference(problem: dl.Problem, solution: dl.Solution) -> None:
    """The slow reference finds the same losses.

    It solves for all steps at once, so that what overflows after a divergence would cost it the digits of step 0. It
    also takes the difference from the function at initialisation, of which rounding leaves 1e-15.
    """
    least = 1e-15 / ROUNDING * initial_loss(problem) if problem.network.centered else 0.0
    end = solution.status.diverged_at or problem.steps
    with np.errstate(all="ignore"):
        expected = reference(up_to(problem, end - 1))
    for name in ("test_loss", "train_loss"):
        _close(getattr(solution, name)[:end], expected[name][:end], ROUNDING, name, least)


def two_times(problem: dl.Problem, solution: dl.Solution) -> None:
    """Two-time functions are finite up to a divergence, correlations symmetric; parts of variance sum to the loss."""
    end = problem.data.outputs * (solution.status.diverged_at or problem.steps)
    for name in ("feature", "gradient", "error", "residual"):
        C = getattr(solution, f"{name}_correlation")[..., :end, :end]
        _holds(bool(np.isfinite(C).all()), f"{name}_correlation is not finite")
        size = np.abs(C).max(initial=0.0)
        _holds(bool(np.abs(C - np.swapaxes(C, -1, -2)).max(initial=0.0) <= ROUNDING * size), f"{name}: not symmetric")
        if name != "feature" or problem.network.richness > 1e-100:  # what answers to one step is of order 1 / richness
            R = getattr(solution, f"{name}_response")[..., :end, :end]
            _holds(bool(np.isfinite(R).all()), f"{name}_response is not finite")
    whole = sum(vars(solution.variance).values())
    steps = end // problem.data.outputs
    # Replicas on nodes in depth settle to what rounding leaves of the function that is subtracted, unless that is huge.
    on_nodes = "depth_nodes" in solution.stats and problem.network.richness > 0.1
    floor = 1e-15 * initial_loss(problem) if on_nodes else 0.0
    _close(whole[:steps], solution.test_loss[:steps], 1e-6, "parts of variance", floor / 1e-6)


def initial_loss(problem: dl.Problem) -> float:
    """Test loss before training, of the network as it is."""
    first = replace(up_to(problem, 0), network=replace(problem.network, centered=False))
    return float(dl.solve(first).test_loss[0])


def panels(problem: dl.Problem, solution: dl.Solution) -> None:
    """Panels find what every step finds, as closely as they say."""
    _as_reported(problem, solution, "panels")


def coarse(problem: dl.Problem, solution: dl.Solution) -> None:
    """Coarse steps find what every step finds, as closely as they say."""
    _as_reported(problem, solution, "coarse")


def condensed(problem: dl.Problem, solution: dl.Solution) -> None:
    """With a condensed past every step finds what it finds with all of it, as closely as it says."""
    _as_reported(problem, solution, "condensed")


def _is_small(problem: dl.Problem) -> bool:
    network = problem.network
    exact = not network.centered or network.richness > 0.05  # else double precision does not do for the reference
    return problem.steps <= 8 and network.depth <= 3 and network.gamma0 > 0 and exact


def _may(problem: dl.Problem, method: str) -> bool:
    """Whether a method can solve a problem, and every step of it can be solved to compare with."""
    try:
        return Choice(method).solver(problem).name == method and traffic(problem, "dense") <= MOST_TRAFFIC
    except ValueError:
        return False


CHECKS: dict[str, tuple[Callable[[dl.Problem, dl.Solution], None], Callable[[dl.Problem], bool]]] = {
    "answered": (answered, lambda problem: True),
    "same again": (same_again, lambda problem: problem.steps <= 400),
    "batch": (batch, lambda problem: problem.steps <= 120 and problem.network.depth < 256),
    "reference": (against_reference, lambda problem: _is_small(problem) and not problem.sampling.small_batch),
    "two times": (two_times, lambda problem: problem.steps <= 40 and problem.network.depth != 10**9),
    "panels": (panels, lambda problem: 120 < problem.steps <= 400 and _may(problem, "panels")),
    "condensed": (condensed, lambda problem: 60 < problem.steps <= 400 and _may(problem, "condensed")),
    "coarse": (coarse, lambda problem: 512 < problem.steps <= 1500 and _may(problem, "coarse")),
}
"""Each check, and which problems it applies to."""


def _as_reported(problem: dl.Problem, solution: dl.Solution, method: str) -> None:
    try:
        other = dl.solve(problem, method=method)
    except ArithmeticError:
        return  # it says that it cannot
    exact = dl.solve(problem, method="dense")
    end = exact.status.diverged_at
    _holds(other.status.diverged_at == end, f"{method}: {other.status}, dense: {exact.status}")
    steps = np.arange(problem.steps if end is None else end)
    losses = other.at(steps)
    for name in ("test_loss", "train_loss"):
        curve = getattr(exact, name)[steps]
        scale = np.maximum(curve, 1e-5 * curve[0])
        error = float((np.abs(losses[name].values - curve) / np.where(scale > 0, scale, 1.0)).max())
        reported = max(other.stats["error"], 1e-9)
        _holds(error <= ALLOWED * reported, f"{method}: {name} is off by {error:.2g}, reported {reported:.2g}")


def _agree(one: dl.Solution, other: dl.Solution, tolerance: float) -> None:
    ends = [solution.status.diverged_at or len(solution.times) for solution in (one, other)]
    _holds(abs(ends[0] - ends[1]) <= 1, f"{one.status} against {other.status}")
    for name in ("test_loss", "train_loss"):
        _close(getattr(one, name)[: min(ends)], getattr(other, name)[: min(ends)], tolerance, name)


def _close(actual: Any, expected: Any, tolerance: float, name: str, least: float = 1e-300) -> None:
    largest = np.maximum.accumulate(np.maximum(np.abs(expected), max(least, 1e-300)))
    worst = float((np.abs(actual - expected) / largest).max(initial=0.0))
    _holds(worst <= tolerance, f"{name} differs by {worst:.2g}")


def _holds(held: bool, message: str) -> None:
    if not held:
        raise Broken(message)


# Running -----------------------------------------------------------------------------------------------------------


def check(seed: int) -> Record:
    """Put problem number ``seed`` to all checks; return what came of each: held, refused or what failed."""
    start = time.process_time()
    outcomes: dict[str, str] = {}
    record: Record = {"seed": seed, "outcomes": outcomes}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            problem = draw(seed)
            record["toml"] = problem.to_toml()
            peak = Peak()
            solution = dl.solve(problem)
            taken = peak.bytes()
        except Exception as error:
            refused = _is_refusal(error)
            outcomes["answered"] = f"refused: {error}" if refused else _story(error)
            return record | {"seconds": time.process_time() - start}
        # Layers that nodes in depth do not resolve are solved one by one, which no estimate foresees.
        foreseen = problem.network.depth < 256 or "depth_nodes" in solution.stats
        if taken is not None and foreseen:
            outcomes["memory"] = _memory_outcome(problem, solution, taken)
        for name, (holds, applies) in CHECKS.items():
            if applies(problem):
                try:
                    holds(problem, solution)
                    outcomes[name] = "held"
                except Exception as error:
                    outcomes[name] = str(error) if isinstance(error, Broken) else _story(error)
    return record | {"seconds": time.process_time() - start}


def _memory_outcome(problem: dl.Problem, solution: dl.Solution, taken: float) -> str:
    """Compare the memory that was taken with the estimate.

    Where a method has not resolved a run, which shows on the way only, every step is solved, and takes what that takes.
    """
    try:
        estimate = dl.estimate(problem)
    except Exception as error:
        return f"estimate failed: {_story(error)}"
    expected = estimate.theory.bytes
    if solution.stats["method"] != estimate.method:
        expected = Choice("dense").solver(problem).estimate(problem).bytes
    fits = taken <= 1.5 * expected + 100e6
    return "held" if fits else f"took {taken / 1e6:.0f} MB, estimate {expected / 1e6:.0f} MB"


class Peak:
    """Most memory that this process takes from here on; known on Linux only."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._before: float | None = self._read("VmRSS")
        except OSError:
            self._before = None

    def bytes(self) -> float | None:
        return None if self._before is None else self._read("VmHWM") - self._before

    @staticmethod
    def _read(name: str) -> float:
        status = Path("/proc/self/status").read_text()
        return 1024.0 * float(status.split(f"{name}:")[1].split()[0])


def _is_refusal(error: Exception) -> bool:
    """Whether an error says, on purpose, that something cannot be: an argument, memory, or what was not resolved."""
    text = str(error)
    return (
        (isinstance(error, ValueError) and " must " in text)
        or (isinstance(error, MemoryError) and "needs about" in text)
        or (
            isinstance(error, ArithmeticError)
            and any(word in text for word in ("resolve", "reach", "smooth", "lower lr"))
        )
    )


def _story(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


class Worker:
    """Another process that checks problems, one at a time."""

    def __init__(self) -> None:
        self._process = self._start()

    def check(self, seed: int) -> Record:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n".encode())
        self._process.stdin.flush()
        end = self._seconds() + LIMIT
        ready: list[Any] = []
        while not ready and self._seconds() < end:
            ready, _, _ = select.select([self._process.stdout], [], [], 1.0)
        line = self._process.stdout.readline() if ready else b""
        if line:
            record: Record = json.loads(line)
            return record
        self.stop()
        what = f"no answer within {LIMIT:g} s" if not ready else f"the process died ({self._process.returncode})"
        self._process = self._start()
        return {"seed": seed, "outcomes": {"answered": what}, "seconds": LIMIT}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _seconds(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--serve"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve() -> None:
    """Answer seeds from the standard input, one JSON line each."""
    resource.setrlimit(resource.RLIMIT_AS, (int(ROOM), int(ROOM)))
    for line in sys.stdin:
        print(json.dumps(check(int(line))), flush=True)


def version() -> str:
    """Digest of the package and of this script."""
    files = [*sorted(Path(dl.__file__).parent.rglob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def kept(path: Path) -> dict[int, Record]:
    """Return the answers in a file; a line that was cut off is left out."""
    records: dict[int, Record] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(line)
            records[record["seed"]] = record
    return records


def run(seeds: list[int], workers: int, path: Path) -> None:
    """Check all seeds that are not yet in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = set(kept(path))
    left, lock = iter([seed for seed in seeds if seed not in done]), threading.Lock()
    with path.open("a") as file:
        file.write("\n")  # what was cut off stays alone

    def work() -> None:
        worker = Worker()
        try:
            while True:
                with lock:
                    seed = next(left, None)
                if seed is None:
                    return
                record = worker.check(seed)
                with lock, path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                    done.add(seed)
                    if len(done) % 50 == 0:
                        print(f"{len(done)} of {len(seeds)} problems", file=sys.stderr, flush=True)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def table(records: list[Record]) -> str:
    """How often each check was tried, held, was refused, and failed."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("answered", "memory", *CHECKS)}
    for record in records:
        for name, outcome in record["outcomes"].items():
            counts[name][_kind(outcome)] += 1
    rows = [f"| {name} | {c.total()} | {c['held']} | {c['refused']} | {c['failed']} |" for name, c in counts.items()]
    return "\n".join(["| check | tried | held | refused | failed |", "|---|---|---|---|---|", *rows])


def failures(records: list[Record]) -> list[tuple[Record, str]]:
    """Return what failed, with its record."""
    return [
        (record, f"{name}: {outcome}")
        for record in sorted(records, key=lambda record: int(record["seed"]))
        for name, outcome in record["outcomes"].items()
        if _kind(outcome) == "failed"
    ]


def _kind(outcome: str) -> str:
    return outcome if outcome == "held" else "refused" if outcome.startswith("refused: ") else "failed"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    if options.seeds:
        records = [check(seed) for seed in options.seeds]
        print(json.dumps(records, indent=2))
    else:
        path = STORE / f"{version()}.jsonl"
        run(list(range(options.problems)), options.workers, path)
        records = [record for seed, record in kept(path).items() if seed < options.problems]
        print(table(records))
    broken = failures(records)
    for record, message in broken:
        file = STORE / f"{record['seed']}.toml"
        if "toml" in record:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(record["toml"])
        print(f"{message}\n    python benchmarks/fuzz.py --seeds {record['seed']}    # {file}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
