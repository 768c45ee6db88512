"""What files and interrupted work survive: damage of every kind to every file, full disks, kills and forks.

python tools/faults.py [--seed 0] [--kills 25] [--forks 100] [--write]

Each trial holds if what comes out is right to the last bit, or if a sentence says what is damaged; other data and other
exceptions are failures, which are listed, and the exit code is then 1. Takes about five minutes. ``--write`` puts the
figures into ``docs/robustness.md``.
"""

import argparse
import functools
import io
import json
import math
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import xarray as xr

import deeplinear as dl
from deeplinear._core import claims, pool, store
from deeplinear._core.files import sealed, write_atomically
from deeplinear._sweep import plan as sweep_plan
from deeplinear._sweep.manifest import WORK_FOLDER

PAGE = Path(__file__).parents[1] / "docs" / "robustness.md"
PROBLEM = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5)
GRID = {"lr": [0.02, 0.05, -1.0], "steps": [3, 5]}
PLANNED = PROBLEM.replace(sampling=dl.OnlineSGD(0.5))
EXPERIMENT = {"dim": 8, "seeds": 2}
SENTENCE = re.compile(
    "store .*(is damaged|holds another sweep|must hold a sweep|must be new or hold (a sweep|plans)"
    "|cannot be read or written)"
)
RIGHT, SAID = "right", "said"


@dataclass(frozen=True)
class Trial:
    """One fault and what came of it: right results, a sentence, or a failure in words."""

    kind: str
    what: str
    outcome: str

    @property
    def held(self) -> bool:
        """Whether nothing wrong came out."""
        return self.outcome in (RIGHT, SAID)


def sweep(path: Path, problem: dl.Problem = PROBLEM, grid: Any = GRID) -> xr.Dataset:
    """Start a sweep in a store, or go on with it."""
    return dl.sweep(problem, grid, path, experiment=EXPERIMENT, workers=1)


# Damage to stores


def damages(rng: random.Random, other: Path | None) -> dict[str, Callable[[Path], object]]:
    """Ways to damage a file; ``other`` is its counterpart in another store."""

    def truncate(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: rng.randrange(max(path.stat().st_size, 1))])

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 1, 3])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)

    def foreign_arrays(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, mine=np.arange(3.0))

    def folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    ways: dict[str, Callable[[Path], object]] = {
        "truncated": truncate,
        "emptied": lambda path: path.write_bytes(b""),
        "bits flipped": flip,
        "deleted": Path.unlink,
        "overwritten with noise": lambda path: path.write_bytes(rng.randbytes(300)),
        "replaced by a foreign .npz": foreign_arrays,
        "replaced by foreign JSON": lambda path: path.write_text(rng.choice(["{}", "[]", "3", '{"layout": 2}'])),
        "replaced by a foreign file with a checksum": lambda path: path.write_bytes(sealed(io.BytesIO(b"mine"))),
        "replaced by a folder": folder,
    }
    if other is not None and other.is_file():
        ways["taken from another store"] = lambda path: shutil.copyfile(other, path)
    return ways


def damaged_stores(seed: int, folder: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Kind of the damage, the file, and what tries it."""
    whole, begun, other = folder / "whole", folder / "begun", folder / "other"
    expected = sweep(whole)
    sweep(other, PROBLEM.replace(network=dl.MLP(2, 2.0)))
    shutil.copytree(whole, begun)
    _leave_a_claim(begun)

    def attempt(base: Path, damage: Callable[[Path], object], name: Path) -> str:
        copy = folder / uuid.uuid4().hex
        shutil.copytree(base, copy)
        damage(copy / name)
        try:
            return check_store(copy, expected)
        finally:
            shutil.rmtree(copy)

    for base in (whole, begun):
        for path in sorted(base.rglob("*")):
            name = path.relative_to(base)
            if base == begun and WORK_FOLDER not in name.parts:
                continue
            rng = random.Random(f"{seed} {base.name} {name}")
            ways = {"deleted": shutil.rmtree} if path.is_dir() else damages(rng, other / name)
            for kind, damage in ways.items():
                yield kind, f"{base.name}/{name}", functools.partial(attempt, base, damage, name)


def damaged_plans(seed: int, folder: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Kind of the damage, the file, and what tries it, in the folder of a plan."""
    whole = folder / "whole"
    expected = plan(whole)
    files = sorted(path for path in whole.rglob("*") if path.is_file())

    def attempt(damage: Callable[[Path], object], name: Path) -> str:
        copy = folder / uuid.uuid4().hex
        shutil.copytree(whole, copy)
        damage(copy / name)
        try:
            return check_plan(copy, expected)
        finally:
            shutil.rmtree(copy)

    for number, path in enumerate(files):
        name = path.relative_to(whole)
        for repeat in range(5):
            rng = random.Random(f"{seed} {name} {repeat}")
            ways = damages(rng, None)
            ways["taken from another model"] = functools.partial(shutil.copyfile, files[number - 1])
            ways["replaced by foreign arrays with a checksum"] = _sealed_arrays
            for kind, damage in ways.items():
                yield kind, str(name), functools.partial(attempt, damage, name)
    for path in sorted(path for path in whole.rglob("*") if path.is_dir()):
        name = path.relative_to(whole)
        for kind, damage in {"deleted": shutil.rmtree, "folder replaced by a file": _file_instead}.items():
            yield kind, str(name), functools.partial(attempt, damage, name)


def plan(path: Path) -> dl.Plan:
    """Make a plan in a store, or go on with it."""
    return dl.plan(PLANNED, 20.0, values={"width": [0.5, 1.0, 2.0]}, store=path)


def check_plan(path: Path, expected: dl.Plan) -> str:
    """Go on with a plan, twice; every answer must be right, or a sentence."""
    for _ in range(2):
        try:
            found = plan(path)
        except (ValueError, OSError) as error:
            return SAID if SENTENCE.search(str(error)) else f"plan: {error!r}"
        except Exception as error:
            return f"plan: {error!r}"
        if not (np.array_equal(found.losses, expected.losses) and np.array_equal(found.lrs, expected.lrs)):
            return "plan: other data"
    return RIGHT


def _sealed_arrays(path: Path) -> None:
    content = io.BytesIO()
    np.savez(content, losses=np.ones(3), lrs=np.ones(3))
    path.write_bytes(sealed(content))


def _file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("mine")


def _leave_a_claim(store: Path) -> None:
    """Make a store that of a process that died at work on a batch."""
    work = store / WORK_FOLDER
    name = uuid.UUID(int=1).hex
    next((work / "points").glob("theory-*")).unlink()
    (work / "claims" / "theory-000000.0").write_text(name)
    (work / "owners" / name).write_text(json.dumps({"machine": "another"}))


def check_store(path: Path, expected: xr.Dataset) -> str:
    """Read a store, go on with it, and read what it published; every answer must be right, or a sentence."""
    outcome = RIGHT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they name what is damaged
        try:
            found = dl.open_sweep(path)
        except ValueError as error:
            outcome = SAID if SENTENCE.search(str(error)) else f"open_sweep: {error!r}"
        except Exception as error:
            outcome = f"open_sweep: {error!r}"
        else:
            if not _agrees_where_done(found, expected):
                outcome = "open_sweep: other data"
    if outcome not in (RIGHT, SAID):
        return outcome
    try:
        if not sweep(path).identical(expected):
            return "sweep: other data"
        with xr.open_zarr(path) as published:
            if not published.load().identical(expected):
                return "open_zarr after sweep: other data"
    except (ValueError, OSError) as error:
        outcome = SAID if SENTENCE.search(str(error)) else f"sweep: {error!r}"
    except Exception as error:
        outcome = f"sweep: {error!r}"
    return outcome


def _agrees_where_done(found: xr.Dataset, expected: xr.Dataset) -> bool:
    for prefix in ("", "measured_"):
        names = [name for name in map(str, expected) if name.startswith("measured_") == bool(prefix)]
        done = found[f"{prefix}done"]
        for name in names:
            if name != f"{prefix}done" and not found[name].where(done).identical(expected[name].where(done)):
                return False
    return all(found[name].identical(expected[name]) for name in map(str, expected.coords))


# Damage to files of results


def damaged_files(seed: int, folder: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Kind of the damage, the file, and what tries it."""
    results = {"solution.nc": dl.solve(PROBLEM), "ensemble.nc": dl.simulate(PROBLEM, dim=8, seeds=2)}
    for name, result in results.items():
        path = folder / name
        result.save(path)
        whole = path.read_bytes()

        def attempt(
            damage: Callable[[Path], object], path: Path = path, result: Any = result, whole: bytes = whole
        ) -> str:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(whole)
            damage(path)
            try:
                return RIGHT if type(result).load(path).to_xarray().identical(result.to_xarray()) else "other data"
            except (ValueError, FileNotFoundError, IsADirectoryError) as error:
                return SAID if str(path) in str(error) else repr(error)
            except Exception as error:
                return repr(error)

        for number in range(20):
            rng = random.Random(f"{seed} {name} {number}")
            for kind, damage in (damages(rng, None) | forgeries(rng)).items():
                yield kind, name, functools.partial(attempt, damage)


def forgeries(rng: random.Random) -> dict[str, Callable[[Path], object]]:
    """Ways to rewrite a file of results so that it is one of its format, and yet must not be read."""
    loss = rng.choice(["test_loss", "train_loss"])
    secret = "/etc/passwd"

    def rewritten(change: Callable[[Any], object]) -> Callable[[Path], object]:
        def rewrite(path: Path) -> None:
            with h5py.File(path, "r+") as file:
                change(file)

        return rewrite

    def instead(make: Callable[[Any, tuple[int, ...]], object]) -> Callable[[Path], object]:
        def replace(file: Any) -> None:
            shape = file[loss].shape
            del file[loss]
            make(file, shape)

        return rewritten(replace)

    def spoilt(value: float) -> Callable[[Path], object]:
        def spoil(file: Any) -> None:
            file[loss][..., rng.randrange(5)] = value

        return rewritten(spoil)

    def problem(text: Callable[[str], str]) -> Callable[[Path], object]:
        return rewritten(lambda file: file.attrs.modify("problem", text(file.attrs["problem"])))

    deep, more = rng.randrange(40, 10_000), rng.randrange(6, 10**12)
    return {
        "a variable in another file": instead(
            lambda file, shape: file.create_dataset(loss, shape, "f8", external=[(secret, 0, 10**6)])
        ),
        "a link to another file": instead(lambda file, _: file.update({loss: h5py.ExternalLink(secret, "/a")})),
        "a variable of gigabytes": instead(
            lambda file, _: file.create_dataset(loss, (10**9,), "f8", chunks=(10**6,), compression="gzip")
        ),
        "losses of nan": spoilt(math.nan),
        "losses below zero": spoilt(-(10.0 ** rng.uniform(-300, 300))),
        "another number of steps": problem(lambda text: text.replace("steps = 5", f"steps = {more}")),
        "nested attributes": problem(lambda _: f"a = {deep * '['}{deep * ']'}"),
    }


# Full disks, kills, forks

_FULL_DISK = """
import random, resource, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import faults
import deeplinear as dl

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then to write more is an error, as on a disk that is full
rng, free = random.Random(sys.argv[3]), resource.RLIM_INFINITY
theory, networks = dl.solve(faults.PROBLEM), dl.simulate(faults.PROBLEM, dim=8, seeds=2)
expected = faults.sweep(Path("expected"))
jobs = {
    "solution.nc": lambda path: faults.is_saved(theory, path),
    "ensemble.nc": lambda path: faults.is_saved(networks, path),
    "store": lambda path: faults.sweep(path).identical(expected),
}
for _ in range(int(sys.argv[2])):
    for name, job in jobs.items():
        path, outcome = Path(name), "nothing was refused"
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(10 ** rng.uniform(0, 3.4)), free))
        try:
            job(path)
        except OSError as error:
            named = f"store {path} cannot be read or written: " in str(error)
            outcome = "right" if named or name != "store" else f"without its name: {error}"
        except BaseException as error:
            outcome = repr(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, free))
        if outcome == "right" and not job(path):
            outcome = "other data"
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        print(name, outcome, sep="\\t", flush=True)
"""

_LONG = {"lr": [round(0.001 * k, 3) for k in range(1, 41)], "steps": [3, 5]}

_RESULTS = f"{WORK_FOLDER}/points/[!.]*.npz"

_KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import faults
faults.sweep(Path(sys.argv[2]), grid=faults._LONG)
"""

_FORKS = """
import os, random, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import faults
import deeplinear as dl

expected, ends, rng = dl.solve(faults.PROBLEM).variance.bias[-1], [], random.Random(sys.argv[3])

def work():
    while not ends:
        dl.solve(faults.PROBLEM).variance

threading.Thread(target=work).start()
for _ in range(int(sys.argv[2])):
    time.sleep(rng.uniform(0, 0.01))
    child = os.fork()
    if not child:
        signal.alarm(10)
        os._exit(0 if dl.solve(faults.PROBLEM).variance.bias[-1] == expected else 1)
    print(os.waitpid(child, 0)[1], flush=True)
ends.append(True)
"""


def is_saved(result: Any, path: Path) -> bool:
    """Save a result, and say whether what is read back is the same."""
    result.save(path)
    return bool(type(result).load(path).to_xarray().identical(result.to_xarray()))


def child(script: str, *arguments: object) -> list[str]:
    """Return the command of a process that knows this module; kept bytecode would be cut off by a full disk."""
    return [sys.executable, "-B", "-c", script, str(Path(__file__).parent), *map(str, arguments)]


def full_disks(seed: int, count: int, folder: Path) -> Iterator[Trial]:
    """Write results and stores in a process whose files may not grow beyond a random size; then with room again."""
    command = child(_FULL_DISK, count, seed)
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    for line in ended.stdout.splitlines():
        name, outcome = line.split("\t")
        yield Trial("full disk", name, outcome)
    if ended.returncode:
        yield Trial("full disk", "the process", f"died ({ended.returncode}): {ended.stderr[-500:]}")


def kills(seed: int, count: int, folder: Path) -> Iterator[Trial]:
    """Kill a sweep at a random number of finished batches, or while it publishes, and go on with it.

    Nothing that was finished may be computed again.
    """
    expected = sweep(folder / "expected", grid=_LONG)
    batches = len(list((folder / "expected").glob(_RESULTS)))
    rng = random.Random(seed)
    for number in range(count):
        path = folder / f"killed-{number}"
        pattern, wanted = (_RESULTS, rng.randrange(batches)) if number % 3 else (f"{WORK_FOLDER}/new-*", 1)
        pause = rng.uniform(0, 0.05)
        process = subprocess.Popen(child(_KILLED, path))
        while len(list(path.glob(pattern))) < wanted and process.poll() is None:
            time.sleep(0.001)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        died = process.wait() == -signal.SIGKILL
        finished = {each: each.stat().st_mtime_ns for each in path.glob(_RESULTS)}
        try:
            outcome = RIGHT if sweep(path, grid=_LONG).identical(expected) else "other data"
            with xr.open_zarr(path) as published:
                outcome = outcome if published.load().identical(expected) else "other data published"
        except Exception as error:
            outcome = repr(error)
        if any(each.stat().st_mtime_ns != written for each, written in finished.items()):
            outcome = "finished work was done again"
        if died:  # otherwise it was through before
            yield Trial("killed", f"{len(finished)} of {batches} batches finished", outcome)


def forks(seed: int, count: int) -> Iterator[Trial]:
    """Fork a process at random moments while one of its threads solves; every child must solve as well."""
    command = child(_FORKS, count, seed)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60 + 11 * count, check=False)
    for status in ended.stdout.splitlines():
        yield Trial("forked", "child", RIGHT if status == "0" else f"ended with status {status}")
    if ended.returncode:
        yield Trial("forked", "the process", f"died: {ended.stderr[-500:]}")


def foreign_modules(folder: Path) -> Iterator[Trial]:
    """Run a sweep in two processes from a folder with a file that is called as a module and does harm."""
    command = [sys.executable, "-P", "-c", "from deeplinear_command import main; main()", "sweep"]
    command += ["--over", "lr=0.01,0.02", "--steps", "5", "--workers", "2"]
    for name in ("random", "json", "queue", "numpy", "scipy", "deeplinear", "sitecustomize"):
        (here := folder / name).mkdir()
        (here / f"{name}.py").write_text("open('it was run', 'w'); raise SystemExit(3)")
        ended = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, check=False)
        was_run = (here / "it was run").exists()
        outcome = "it was run" if was_run else RIGHT if ended.returncode == 0 else ended.stderr[-500:]
        yield Trial("foreign module", f"{name}.py", outcome)


def other_builds(seed: int, folder: Path) -> Iterator[Trial]:
    """Stop work at a random point, and let another build of deeplinear go on with it, which must be refused."""
    stores = {
        "sweep": lambda path, tell: dl.sweep(PROBLEM, _LONG, path, workers=1, progress=tell),
        "plan": lambda path, tell: plan(path),
        "figures": lambda path, tell: dl.reproduce(["1c"], "tiny", path, progress=tell),
    }

    for what, work in stores.items():
        for number in range(5):
            path, rng = folder / f"{what}-{number}", random.Random(f"{seed} {what} {number}")
            stop_at = rng.random()

            def stop(done: int, total: int, stop_at: float = stop_at) -> None:
                if done > stop_at * total:
                    raise KeyboardInterrupt

            with suppress(KeyboardInterrupt):
                work(path, stop)
            is_begun = any(path.rglob("*.npz")) or any(path.rglob("*.nc"))
            outcome = "another build went on with it" if is_begun else SAID
            with ExitStack() as patches:
                for module in (store, pool, sweep_plan):
                    patches.enter_context(mock.patch.object(module, "this_build", return_value="99.0"))
                try:
                    work(path, None)
                except ValueError as error:
                    outcome = SAID if "not mixed" in str(error) else repr(error)
            yield Trial("another build", what, outcome)


_IN_A_CONTAINER = """
import os, sys, time
from pathlib import Path
from deeplinear._core.claims import Claims
claims, end = Claims(Path(sys.argv[2])), time.monotonic() + 20
while not claims.take("a") and time.monotonic() < end:
    time.sleep(0.01)
print("taken" if claims._held else "never taken over", flush=True)
time.sleep(float(sys.argv[3]))
os._exit(0)
"""


def containers(seed: int, folder: Path, count: int = 10) -> Iterator[Trial]:
    """Let two processes, each number 1 of a container of its own, want one piece of work; the one that has it dies."""
    own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        print("no containers can be made here", file=sys.stderr)
        return
    rng = random.Random(seed)
    for number in range(count):
        (place := folder / str(number)).mkdir()
        command = [*own, *child(_IN_A_CONTAINER, place, rng.uniform(0, 1))]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [each.communicate(timeout=120)[0].strip() for each in both]
        yield Trial("container", "claim", RIGHT if said == ["taken", "taken"] else str(said))


def try_all(seed: int, kill_count: int, fork_count: int) -> dict[str, list[Trial]]:
    """Try everything, by group."""
    claims.PATIENCE = 0.1  # so that no trial waits a minute for someone who does not live
    trials: dict[str, list[Trial]] = {}
    with tempfile.TemporaryDirectory() as name:
        damaged = {
            "store of a sweep": damaged_stores,
            "store of a plan": damaged_plans,
            "file of results": damaged_files,
        }
        for group, faults in damaged.items():
            (folder := Path(name) / group).mkdir()
            trials[group] = [Trial(kind, what, run()) for kind, what, run in faults(seed, folder)]
        for group in ("full disks", "kills", "modules", "builds", "containers"):
            (Path(name) / group).mkdir()
        trials["disk full while results are written"] = list(full_disks(seed, 20, Path(name) / "full disks"))
        trials["sweep killed (SIGKILL) and resumed"] = list(kills(seed, kill_count, Path(name) / "kills"))
        trials["work of another build"] = list(other_builds(seed, Path(name) / "builds"))
        trials["process that died in another container"] = list(containers(seed, Path(name) / "containers"))
        trials["module of the same name in the current folder"] = list(foreign_modules(Path(name) / "modules"))
        trials["process forked while a thread solves"] = list(forks(seed, fork_count))
    return trials


def table(trials: dict[str, list[Trial]]) -> str:
    """Tried and held, by kind of fault; of what held, how much went on with right results."""
    lines = ["| fault | tried | held | of these with right results, the others with a sentence |", "|---|---|---|---|"]
    for group, of_group in trials.items():
        for kind in dict.fromkeys(trial.kind for trial in of_group):
            some = [trial for trial in of_group if trial.kind == kind]
            held, right = sum(trial.held for trial in some), sum(trial.outcome == RIGHT for trial in some)
            what = group if len({trial.kind for trial in of_group}) == 1 else f"{group}: {kind}"
            lines.append(f"| {what} | {len(some)} | {held} | {right} |")
    return "\n".join(lines)


def main() -> int:
    """Try everything, and say what held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--forks", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    trials = try_all(options.seed, options.kills, options.forks)
    print(table(trials))
    failures = [trial for each in trials.values() for trial in each if not trial.held]
    for trial in failures:
        print(f"failed: {trial.what} {trial.kind}: {trial.outcome}", file=sys.stderr)
    if options.write:
        before, rest = PAGE.read_text().split("% files: begin\n")
        _, after = rest.split("% files: end\n")
        text = f"{before}% files: begin\n\n{table(trials)}\n\n% files: end\n{after}"
        write_atomically(PAGE, lambda temporary: temporary.write_text(text))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
