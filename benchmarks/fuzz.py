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
import resource
import select
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

import deeplinear as dl
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.condensed.solver import Condensed
from fuzz_checks import CHECKS, Broken, GaveUp
from fuzz_problems import draw
from measure import Peak

STORE = Path(__file__).parents[1] / "out" / "fuzz"
LIMIT = 300.0
"""Seconds of a processor for all checks of one problem, however busy the machine is."""
ROOM = 6e9
"""Bytes that a worker may take."""
Record = dict[str, Any]


def check(seed: int) -> Record:
    """Put problem number ``seed`` to all checks; return what came of each: held, gave up, refused or what failed."""
    start = time.process_time()
    outcomes: dict[str, str] = {}
    record: Record = {"seed": seed, "outcomes": outcomes}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".* times the input dimension D here", category=UserWarning)
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
                except GaveUp as error:
                    outcomes[name] = f"gave up: {error}"
                except Exception as error:
                    outcomes[name] = str(error) if isinstance(error, Broken) else _story(error)
    return record | {"seconds": time.process_time() - start}


def _memory_outcome(problem: dl.Problem, solution: dl.Solution, taken: float) -> str:
    """Compare the memory that was taken with the estimate.

    Where a method has not resolved a run, which shows on the way only, every step is solved, and takes what that takes.
    Where training comes to oscillate, and more times are kept than foreseen, it takes at most what the estimate says.
    """
    try:
        estimate = dl.estimate(problem)
    except Exception as error:
        return f"estimate failed: {_story(error)}"
    expected = estimate.theory.bytes
    if solution.stats["method"] != estimate.method:
        expected = Choice("dense").solver(problem).estimate(problem).bytes
    elif estimate.theory.most_bytes and estimate.method == Condensed.name and _oscillates(problem, solution):
        expected = estimate.theory.most_bytes / 1.5
    fits = taken <= 1.5 * expected + 100e6
    return "held" if fits else f"took {taken / 1e6:.0f} MB, estimate {expected / 1e6:.0f} MB"


def _oscillates(problem: dl.Problem, solution: dl.Solution) -> bool:
    """Whether a condensed past has kept so many more times than foreseen that training must have come to oscillate."""
    return solution.stats["nodes"] > Condensed().estimate(problem).shape.steps


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
    """Digest of the package and of these scripts."""
    files = [*sorted(Path(dl.__file__).parent.rglob("*.py")), *sorted(Path(__file__).parent.glob("fuzz*.py"))]
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
    """How often each check was tried, held, was given up by the method, was refused, and failed."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("answered", "memory", *CHECKS)}
    for record in records:
        for name, outcome in record["outcomes"].items():
            counts[name][_kind(outcome)] += 1
    kinds = ("held", "gave up", "refused", "failed")
    rows = [f"| {name} | {c.total()} | {' | '.join(str(c[kind]) for kind in kinds)} |" for name, c in counts.items()]
    return "\n".join([f"| check | tried | {' | '.join(kinds)} |", f"|{'---|' * (2 + len(kinds))}", *rows])


def failures(records: list[Record]) -> list[tuple[Record, str]]:
    """Return what failed, with its record."""
    return [
        (record, f"{name}: {outcome}")
        for record in sorted(records, key=lambda record: int(record["seed"]))
        for name, outcome in record["outcomes"].items()
        if _kind(outcome) == "failed"
    ]


def _kind(outcome: str) -> str:
    return next((kind for kind in ("held", "gave up", "refused") if outcome.partition(": ")[0] == kind), "failed")


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
