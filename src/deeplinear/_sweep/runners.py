"""Where batches run: in this process, in other processes of this machine, or on a Dask cluster.

Runners share three things: ``submit`` starts a batch and returns a future, ``result`` waits for it, ``window`` is the
number of batches worth having under way. ``result`` raises ``WorkerLost`` where the process that computed died.
"""

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from deeplinear._core.processes import command, ended
from deeplinear._core.refusal import Refusal
from deeplinear._sweep.work import Result, Task
from deeplinear._sweep.worker import READY

# Why not loky, measured with two processes: its first results come no sooner (2.7 to 3.1 s, here 2.2 to 2.6 s) and a
# batch costs no less (8 to 9 ms, here 5 to 7 ms). But when one worker is killed, loky fails every batch that is under
# way or waits (TerminatedWorkerError); a sweep has to know which batch cost its process, and go on with the others.

_WORKER = "deeplinear._sweep.worker"

Function = Callable[[Task], Result]
Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

ATTEMPTS = 3
"""How often a batch is tried whose process dies."""

_ANSWER_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_COUNT_SECONDS = 5.0

_ENDING_SECONDS = 1.0
"""Most time between the last word of a process and its end."""


class WorkerLost(Exception):
    """The process that computed a batch died, several times."""


class Runner(Protocol):
    """What a sweep asks of the place where it runs."""

    @property
    def window(self) -> int:
        """Number of batches worth having under way."""

    def submit(self, function: Function, task: Task) -> Any:
        """Start a batch and return its future."""

    def result(self, future: Any) -> Result:
        """Return the result of a future that is done."""

    def check(self) -> None:
        """Raise if nothing can come any more."""

    def close(self) -> None:
        """End everything that is under way."""


class InProcess:
    """Runs batches here and now."""

    window = 1

    def submit(self, function: Function, task: Task) -> "Future[Result]":
        """Compute a batch."""
        future: Future[Result] = Future()
        future.set_result(function(task))
        return future

    def result(self, future: "Future[Result]") -> Result:
        """Return the result."""
        return future.result()

    def check(self) -> None:
        """Nothing can go wrong."""

    def close(self) -> None:
        """There is nothing to end."""


class LocalProcesses:
    """Runs batches, or anything that can be pickled, in processes of this machine, each with one thread.

    The processes know nothing of the program that started them, so a script needs no ``if __name__ == "__main__"``.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._threads = ThreadPoolExecutor(workers)
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all: set[_Process] = set()
        self._closed = False

    @property
    def window(self) -> int:
        """One batch in each process, and one to follow."""
        return 2 * self._count

    def start(self) -> None:
        """Start the processes now, without waiting for them; they also start when they are needed."""
        for _ in range(self._count):
            self._threads.submit(lambda: self._idle.put(self._new()))

    @property
    def is_started(self) -> bool:
        """Whether a process is there."""
        return not self._idle.empty()

    def submit(self, function: Callable[[Argument], Answer], task: Argument) -> "Future[Answer]":
        """Start a batch in the next process that is free."""
        return self._threads.submit(self._run, function, task)

    def result(self, future: "Future[Answer]") -> Answer:
        """Return the result."""
        return future.result()

    def check(self) -> None:
        """Processes are watched by their own threads."""

    def close(self) -> None:
        """End all processes; what waits for one is not begun."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._all):
            process.kill()
        self._threads.shutdown()

    def _run(self, function: Callable[[Argument], Answer], task: Argument) -> Answer:
        how = ""
        for _ in range(ATTEMPTS):
            if self._closed:
                raise CancelledError
            process = self._process()
            try:
                answer = process.call(function, task)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # it died, or its pipes are closed
                self._all.discard(process)
                how = process.died()
                continue
            self._idle.put(process)
            return answer
        if self._closed:
            raise CancelledError
        raise WorkerLost(f"the process that computed it died {ATTEMPTS} times, the last time {how}")

    def _process(self) -> "_Process":
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._new()

    def _new(self) -> "_Process":
        process = _Process()
        self._all.add(process)
        if self._closed:  # too late to be ended with the others
            process.kill()
            raise CancelledError
        process.wait_until_ready()
        return process


class _Process:
    """One worker process."""

    def __init__(self) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            command(_WORKER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | threads
        )

    def wait_until_ready(self) -> None:
        try:
            ready = self._read() == READY
        except (EOFError, pickle.UnpicklingError):
            ready = False
        if not ready:
            raise RuntimeError(f"a worker process could not start: {sys.executable} ended {self.died()}")

    def call(self, function: Callable[[Argument], Answer], task: Argument) -> Answer:
        assert self._process.stdin is not None
        pickle.dump((function, task), self._process.stdin)
        self._process.stdin.flush()
        answer = self._read()
        if isinstance(answer, Exception):
            raise answer
        result: Answer = answer
        return result

    def died(self) -> str:
        """Say how the process ended that does not answer any more."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_SECONDS)
        self.kill()
        return ended(self._process.returncode)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what was not sent yet has nowhere to go
                continue

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)


class DaskCluster:
    """Runs batches on a Dask cluster, given by the address of its scheduler or a ``distributed.Client``."""

    def __init__(self, scheduler: Any) -> None:
        try:
            import distributed
        except ImportError:
            raise ImportError("a scheduler needs Dask: pip install 'deeplinear[sweep]'") from None
        self._distributed: Any = distributed
        self._owned = isinstance(scheduler, str)
        self._client = self._connect(scheduler) if isinstance(scheduler, str) else scheduler
        if not isinstance(self._client, distributed.Client) or self._client.asynchronous:
            raise Refusal("scheduler", scheduler, "an address or a synchronous distributed.Client")
        self._counted = (0, -_COUNT_SECONDS)
        self._futures: set[Any] = set()

    @property
    def window(self) -> int:
        """Two batches for each thread of the cluster, and some more so that a cluster that can grow sees a need."""
        threads, when = self._counted
        if time.monotonic() - when > _COUNT_SECONDS:
            threads = sum(self._client.nthreads().values())
            self._counted = threads, time.monotonic()
        return 2 * threads + 8

    def submit(self, function: Function, task: Task) -> Any:
        """Start a batch on the cluster."""
        future = self._client.submit(function, task, key=f"deeplinear-{uuid.uuid4().hex}", pure=False)
        self._futures.add(future)
        return future

    def result(self, future: Any) -> Result:
        """Fetch a result."""
        self._futures.discard(future)
        try:
            result: Result = future.result()
        except self._distributed.KilledWorker as error:
            raise WorkerLost(str(error)) from None
        except CancelledError:
            raise self._lost() from None
        return result

    def check(self) -> None:
        """Raise if the scheduler is gone."""
        if self._client.status not in ("running", "connecting"):
            raise self._lost()

    def close(self) -> None:
        """Cancel what is under way, and leave the cluster to its owner."""
        if self._client.status == "running" and self._futures:
            self._client.cancel(list(self._futures))
        if self._owned:
            self._client.close(timeout=2)

    def _connect(self, address: str) -> Any:
        """Connect, in another thread, since Dask itself waits for ever on one who accepts and then says nothing."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def connect() -> None:
            try:
                answers.put(self._distributed.Client(address, timeout=_ANSWER_SECONDS, set_as_default=False))
            except Exception as error:
                answers.put(error)

        threading.Thread(target=connect, daemon=True).start()
        try:
            answer = answers.get(timeout=_ANSWER_SECONDS + _GRACE_SECONDS)
        except queue.Empty:
            answer = TimeoutError()
        if isinstance(answer, ValueError):
            raise Refusal("scheduler", address, "an address such as 'tcp://127.0.0.1:8786'") from answer
        if isinstance(answer, OSError):  # among them what says that time is up
            raise ConnectionError(f"scheduler {address} does not answer within {_ANSWER_SECONDS:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lost(self) -> ConnectionError:
        return ConnectionError("the connection to the scheduler was lost; run the sweep again to resume it")
