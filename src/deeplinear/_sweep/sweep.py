"""Sweeps over grids of problems: on this machine or a cluster, to a store from which they resume."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplinear._core import checks
from deeplinear._core.build import version
from deeplinear._core.device import CPU, find_device
from deeplinear._core.drive import drive
from deeplinear._core.pool import InProcess, LocalProcesses, Runner, WorkerLost
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.store import Store, in_use
from deeplinear._core.threads import count_cores
from deeplinear._problem.problem import Problem
from deeplinear._sweep.assemble import damage_of_published, is_published, to_dataset, write_zarr
from deeplinear._sweep.cluster import DaskCluster
from deeplinear._sweep.manifest import local_path, read_manifest
from deeplinear._sweep.plan import Batch, Plan, batches_of
from deeplinear._sweep.store import Memory, open_store, read_results
from deeplinear._sweep.work import Failure, Result, Task, failed, join, run_task, singles

if TYPE_CHECKING:
    import xarray as xr

_TRIAL_SECONDS = 0.2
_WORTH_SECONDS = 3.0
"""Work that takes less than this is not worth starting processes, which takes about as long."""


def sweep(
    problem: Problem,
    grid: Mapping[str, Iterable[Any]],
    store: str | Path | None = None,
    *,
    theory: bool = True,
    experiment: Mapping[str, Any] | None = None,
    workers: int | None = None,
    scheduler: Any = None,
    device: str = "cpu",
    progress: Progress | bool | None = None,
    resume: bool = True,
) -> "xr.Dataset":
    """Solve and simulate a problem at every combination of values of some of its fields.

    With a ``store``, results are written to disk as soon as they are finished: a sweep that was interrupted or killed
    resumes when it is called again. Several processes may work on one store at the same time, even on several machines
    that share a file system; each takes points that no other has taken. Theory is solved in batches of points of
    equal shape.

    Parameters
    ----------
    problem
        The problem that all other values are taken from.
    grid
        Values by field: any field of the problem, short ("lr") or with its part ("optimizer.lr"). Fields of rules
        inside others, and of phases, are given with their path: "other.lr", "phases.1.target_overlap", "phases.1.lr".
    store
        Folder that becomes a Zarr group, which ``xarray.open_zarr`` opens when the sweep is complete and
        ``open_sweep`` at any time. By default results are kept in memory only.
    theory
        Whether to solve.
    experiment
        ``dim`` and ``seeds`` for ``simulate``, to train networks as well; none by default.
    workers
        Number of processes on this machine, all cores by default; 1 is this process itself. A sweep of a few seconds
        stays in this process.
    scheduler
        Address of the scheduler of a Dask cluster ("tcp://host:8786"), or a ``distributed.Client``, to run there. Its
        workers need deeplinear, and no access to the store.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where all points are then computed one batch after the
        other by this process.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in points of theory and of the
        experiment. What an earlier call finished is reported first.
    resume
        Whether to resume a sweep that is already in the store; otherwise such a store is refused.

    Returns
    -------
    xarray.Dataset
        With one dimension for each field, in the order of ``grid``, and time:

        - ``test_loss``, ``train_loss``: theory; ``inf`` from a divergence on;
        - ``diverged_at``: the step of the divergence, -1 if there is none;
        - ``rounding_at``: the step from which on the losses depend on rounding errors and mean nothing; -1 if there is
          none;
        - ``failure``, ``failure_type``: the error of a point that could not be computed, whose losses are nan, and
          its type; empty for all others;
        - ``done``: whether a point is computed or has failed;
        - ``measured_test_loss``, ``measured_train_loss``, each also with ``_error``: mean over networks and its
          standard error; ``measured_diverged``: how many of them diverged; ``measured_failure``,
          ``measured_failure_type``, ``measured_done``.

        Where ``steps`` is in the grid, shorter curves are filled up with nan. Beyond 1000 steps, losses are kept at
        about 400 steps, equally many in each decade, and at the last step of each curve.

    Raises
    ------
    ValueError
        If an argument is not allowed, no point of the grid is valid, or the store has another sweep.
    OSError
        If the store cannot be written, or the scheduler does not answer. What is finished is kept.

    Warns
    -----
    UserWarning
        If the losses of some points depend on rounding errors.

    Notes
    -----
    A point whose values are not allowed, or whose computation fails, does not stop the others. Points that failed for
    lack of memory are tried again when the sweep is resumed, as are those whose files were damaged. Infinite width is
    ``inf`` on its axis.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> found = sweep(problem, {"width": [0.5, 1.0, 2.0, "infinite"], "lr": [0.02, 0.05, 0.1]})
    >>> found.test_loss.dims, found.test_loss.shape
    (('width', 'lr', 'time'), (4, 3, 20))
    >>> found.test_loss.isel(time=-1).idxmin("lr").values
    array([0.1, 0.1, 0.1, 0.1])
    """
    plan, tell = Plan.read(problem, grid, theory, experiment), read_progress(progress)
    checks.flag("resume", resume)
    if workers is not None and scheduler is not None:
        raise Refusal("workers", workers, "None with a scheduler")
    if find_device(device) != CPU:
        if scheduler is not None or workers not in (None, 1):
            raise Refusal("workers", workers, "1, without a scheduler, on a device")
        workers = 1
    count = count_cores() if workers is None else checks.whole("workers", workers)
    if store is not None and find_spec("zarr") is None:
        raise ImportError("a store needs Zarr: pip install 'deeplinear[sweep]'")
    runner = _runner(plan, count, scheduler)
    try:
        folder, batches = (None, plan.batches) if store is None else open_store(store, plan, resume)
        place: Store[Result] | Memory = Memory() if folder is None else folder
        try:
            tasks = {batch.name: plan.task(batch, device) for batch in batches}
            told = _Told(tell, place, batches)
            if workers is None and isinstance(runner, LocalProcesses) and not plan.experiment:
                drive(tasks, run_task, place, InProcess(), end=told.end, stop=_trial(runner))
                told.look()
            drive(tasks, run_task, place, runner, fetch=partial(_fetch, runner), end=told.end)
            found = to_dataset(plan, batches, place.results(), version())
            if folder is not None:
                _publish(found, folder)
            _warn_of_rounding(found)
            return found
        finally:
            place.close()
    finally:
        runner.close()


def default_store(
    problem: Problem, grid: Mapping[str, Iterable[Any]], theory: bool, experiment: Mapping[str, Any] | None
) -> Path:
    """Return a folder whose name belongs to one sweep: the same for the same arguments, another for others."""
    manifest = Plan.read(problem, grid, theory, experiment).manifest()
    defining = {name: manifest[name] for name in ("problem", "grid", "theory", "experiment")}
    digest = hashlib.sha256(json.dumps(defining, sort_keys=True, default=str).encode()).hexdigest()
    return Path(f"sweep-{digest[:8]}.zarr")


def open_sweep(store: str | Path) -> "xr.Dataset":
    """Read a sweep from its store, whether it is complete or not, even while it runs.

    Parameters
    ----------
    store
        The folder.

    Returns
    -------
    xarray.Dataset
        As from ``sweep``; where there is no result yet, ``done`` is False and losses are nan.

    Raises
    ------
    ValueError
        If the folder has no sweep, or its description is damaged.

    Warns
    -----
    UserWarning
        If files of the store are damaged; it names them and says what to do. What is returned is right in any case.
        Also if the losses of some points depend on rounding errors.
    """
    root, manifest = local_path(store), read_manifest(store)
    damaged: list[Path] = []
    results = read_results(root, manifest, damaged)
    plan = Plan.from_manifest(manifest)
    dataset = to_dataset(plan, batches_of(manifest), results, manifest["deeplinear_version"])
    _warn_of_damage(root, damaged, len(batches_of(manifest)))
    _warn_of_rounding(dataset)
    return dataset


def _warn_of_rounding(found: "xr.Dataset") -> None:
    if "rounding_at" not in found:
        return
    steps = found["rounding_at"].values
    count = int((steps >= 0).sum())
    if count:
        first = int(steps[steps >= 0].min())
        where = "1 point" if count == 1 else f"{count} points"
        warnings.warn(
            f"at {where} of {steps.size} the losses depend on rounding errors, from step {first} or a later one on: "
            "rounding_at says which; lower the learning rate there",
            stacklevel=3,
        )


def _warn_of_damage(root: Path, results: list[Path], total: int) -> None:
    again = "call sweep again with the same problem, grid and store"
    if results:
        warnings.warn(
            f"{len(results)} of the {total} files of results in the store {root} are damaged and count as not done: "
            f"{_some([path.name for path in results])}; {again} to compute them again",
            stacklevel=3,
        )
    published = damage_of_published(root)
    if published:
        warnings.warn(
            f"the Zarr group in the store {root} is damaged ({_some(published)}), which xarray may not notice; "
            f"open_sweep does not need it; {again} to write it again",
            stacklevel=3,
        )


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _runner(plan: Plan, workers: int, scheduler: Any) -> Runner:
    if scheduler is not None:
        return DaskCluster(scheduler)
    workers = min(workers, len(plan.batches))
    return InProcess() if workers == 1 else LocalProcesses(workers)


def _trial(processes: LocalProcesses) -> Callable[[int], bool]:
    """Start other processes once it is clear that they are worth it; stop work in this one when they are there."""
    start, first, is_worth_it = time.perf_counter(), 0, False

    def stop(left: int) -> bool:
        nonlocal first, is_worth_it
        first = first or left
        elapsed = time.perf_counter() - start
        seconds_left = elapsed / max(first - left, 1) * left
        if not is_worth_it and elapsed > _TRIAL_SECONDS and seconds_left > _WORTH_SECONDS:
            is_worth_it = True
            processes.start()
        return is_worth_it and processes.is_started

    return stop


class _Told:
    """Tells how many points are done."""

    def __init__(self, tell: Progress | None, place: Store[Result] | Memory, batches: list[Batch]) -> None:
        self._tell, self._place = tell, place
        self._left = {batch.name: len(batch.members) for batch in batches}
        self._total = sum(self._left.values())
        self.look()

    def look(self) -> None:
        """Look for what is finished, whoever did it."""
        for name in [name for name in self._left if self._place.is_done(name)]:
            del self._left[name]
        self._say()

    def end(self, name: str) -> None:
        """Count a batch."""
        del self._left[name]
        self._say()

    def _say(self) -> None:
        if self._tell is not None:
            self._tell(self._total - sum(self._left.values()), self._total)


def _fetch(runner: Runner, future: Any, task: Task) -> Result:
    """Return a result; if the batch cost its process, find the points that did it one by one."""
    try:
        result: Result = runner.result(future)
        return result
    except WorkerLost as error:
        if len(task.problems) == 1:
            return failed(task, Failure.of(error))
    return join([_fetch(runner, runner.submit(run_task, single), single) for single in singles(task)])


def _publish(found: "xr.Dataset", folder: Store[Result]) -> None:
    if not folder.changed and is_published(folder.root):
        return
    with folder.alone("publishing"), in_use(folder.root):
        if folder.changed or not is_published(folder.root):
            write_zarr(found, folder.root)
