"""What panels take, and doing it: everything up to the drawing, so that another machine can do it alone."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import xarray as xr

from deeplinear._core import checks
from deeplinear._core.device import CPU
from deeplinear._core.drive import drive
from deeplinear._core.pool import InProcess, LocalProcesses
from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.store import Store
from deeplinear._core.threads import count_cores
from deeplinear._reproduce import SCALES, jobs
from deeplinear._reproduce.cost import speed
from deeplinear._reproduce.figures import PANELS
from deeplinear._reproduce.jobs import Job
from deeplinear._reproduce.plan import Plan
from deeplinear._reproduce.store import open_store

_WORTH_PROCESSES = 10_000.0
"""Milliseconds of work from which other processes are started for it."""


def plan_panels(ids: Iterable[str] | None, scale: str) -> list[Plan]:
    """Return the plans of panels, in the order of the paper."""
    checks.word("scale", scale, SCALES)
    if isinstance(ids, str):
        raise Refusal("ids", ids, "a list of panels or figures")
    wanted = list(PANELS) if ids is None else list(ids)
    for each in wanted:
        if not any(each in (panel.id, panel.figure) for panel in PANELS.values()):
            raise Refusal("ids", each, f"panels or figures ({', '.join(PANELS)})")
    chosen = [panel for panel in PANELS.values() if panel.id in wanted or panel.figure in wanted]
    return [Plan.of(panel, scale) for panel in chosen]


def compute(plans: list[Plan], folder: Path, device: str, progress: Progress | None) -> dict[str, xr.Dataset]:
    """Return the results of all jobs by their keys, running those that are not in the folder; draws nothing."""
    wanted = {jobs.key(job): job for plan in plans for job in plan.jobs}
    store = open_store(folder, wanted.values())
    try:
        missing = {name: job for name, job in wanted.items() if not store.is_done(name)}
        work = _Work(missing, store, device, progress)
        work.together()
        work.one_by_one()
        return dict(store.results())
    finally:
        store.close()


class _Work:
    """Jobs to do, and how far they are."""

    def __init__(
        self, missing: dict[str, Job], store: Store[xr.Dataset], device: str, progress: Progress | None
    ) -> None:
        self._missing, self._store, self._device, self._progress = missing, store, device, progress
        self._cost = {name: 1000 * speed().seconds(job) for name, job in missing.items()} if missing else {}
        self._total, self._done, self._reported = round(sum(self._cost.values())), 0.0, -1

    def together(self) -> None:
        """Run jobs in as many processes as there are cores, the longest first, where that pays."""
        names = [name for name, job in self._missing.items() if not job.alone]
        names.sort(key=lambda name: -self._cost[name])
        workers = min(count_cores(), len(names))
        largest = max((self._missing[name].work.bytes for name in names), default=0.0)
        room = workers * largest < CPU.available()  # else one by one, and what is too large for that is refused there
        if self._device != CPU.name or workers < 2 or not room:
            return
        if sum(self._cost[name] for name in names) < _WORTH_PROCESSES:
            return
        runner = LocalProcesses(workers)
        try:
            drive({name: self._missing[name] for name in names}, _run, self._store, runner, end=self._end)
        finally:
            runner.close()

    def one_by_one(self) -> None:
        """Run what is left in this process."""
        left = {name: name for name in self._missing if not self._store.is_done(name)}
        drive(left, self._run_here, self._store, InProcess(), end=self._end)

    def _run_here(self, name: str) -> xr.Dataset:
        return jobs.run(self._missing[name], partial(self._advance, self._done, self._cost[name]), self._device)

    def _advance(self, start: float, own: float, fraction: float) -> None:
        self._report(start + fraction * own)

    def _end(self, name: str) -> None:
        self._done += self._cost[name]
        self._report(self._done)

    def _report(self, milliseconds: float) -> None:
        if self._progress is not None and round(milliseconds) > self._reported:  # what is left may be guessed anew
            self._reported = round(milliseconds)
            self._progress(min(self._reported, self._total), self._total)


def _run(job: Job) -> xr.Dataset:
    """Run a job in a process of its own."""
    return jobs.run(job, lambda fraction: None, CPU.name)
