"""Getting every batch of a sweep done: by this process, or by others that work on the same store."""

import queue
import time
from collections.abc import Callable
from typing import Any

from deeplinear._core.progress import Progress
from deeplinear._sweep.plan import EXPERIMENT, Batch, Plan
from deeplinear._sweep.runners import Runner, WorkerLost
from deeplinear._sweep.store import Store
from deeplinear._sweep.work import Failure, Result, Task, failed, join, run_task, singles

_OTHERS_SECONDS = 0.2
_CHECK_SECONDS = 1.0
"""How often to look at what other processes do, if there is nothing else to do or if there is."""


def drive(
    plan: Plan,
    store: Store,
    runner: Runner,
    progress: Progress | None = None,
    stop: Callable[[int], bool] = lambda left: False,
    device: str = "cpu",
) -> None:
    """Run the batches that are not done yet, and wait for those that other processes have.

    Ends early when ``stop(left)`` says so, asked with the number of batches left after each one.
    """
    pending = {batch.name: batch for batch in store.batches if not store.is_done(batch)}
    total = sum(len(batch.members) for batch in store.batches)
    left = sum(len(batch.members) for batch in pending.values())
    running: dict[Any, Batch] = {}
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def end(batch: Batch) -> None:
        nonlocal left
        left -= len(batch.members)
        if progress is not None:
            progress(total - left, total)

    if progress is not None:
        progress(total - left, total)
    while (pending or running) and not (stop(len(pending)) and not running):
        for batch in list(pending.values()):
            if len(running) >= runner.window:
                break
            if store.is_done(batch):
                end(pending.pop(batch.name))
            elif store.take(batch):
                future = runner.submit(run_task, _task(plan, pending.pop(batch.name), device))
                running[future] = batch
                future.add_done_callback(finished.put)
        if not running:
            time.sleep(_OTHERS_SECONDS if pending else 0)
            continue
        try:
            future = finished.get(timeout=_CHECK_SECONDS)
        except queue.Empty:
            runner.check()
            continue
        batch = running.pop(future)
        store.put(batch, _result(runner, future, _task(plan, batch, device)))
        end(batch)


def _result(runner: Runner, future: Any, task: Task) -> Result:
    """Fetch a result; if the batch cost its process, find the points that did it one by one."""
    try:
        return runner.result(future)
    except WorkerLost as error:
        if len(task.problems) == 1:
            return failed(task, Failure.of(error))
    return join([_result(runner, runner.submit(run_task, single), single) for single in singles(task)])


def _task(plan: Plan, batch: Batch, device: str) -> Task:
    problems = tuple(plan.problems[index] for index in batch.members)
    return Task(problems, plan.times, plan.experiment if batch.kind == EXPERIMENT else None, device)
