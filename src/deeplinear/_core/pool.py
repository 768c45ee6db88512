"""Where tasks run: in this process, or in other processes of this machine.

Runners share three things: ``submit`` starts a task and returns a future, ``result`` waits for it, ``window`` is the
number of tasks worth having under way. ``result`` raises ``WorkerLost`` where the process that computed died.
"""

import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from deeplinear._core.build import run_as, this_build
from deeplinear._core.processes import command, ended
from deeplinear._core.worker import READY

# Why not loky, measured with two processes: its first results come no sooner (2.7 to 3.1 s, here 2.2 to 2.6 s) and a
# task costs no less (8 to 9 ms, here 5 to 7 ms). But when one worker is killed, loky fails every task that is under
# way or waits (TerminatedWorkerError); a sweep has to know which task cost its process, and go on with the others.

_WORKER = "deeplinear._core.worker"

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

ATTEMPTS = 3
"""How often a task is tried whose process dies."""

_ENDING_SECONDS = 1.0
"""Most time between the last word of a process and its end."""


class WorkerLost(Exception):
    """The process that computed a task died, several times."""


class Runner(Protocol):
    """A place where tasks run."""

    @property
    def window(self) -> int:
        """Number of tasks worth having under way."""

    def submit(self, function: Callable[[Argument], Answer], argument: Argument) -> Any:
        """Start a task and return its future."""

    def result(self, future: Any) -> Any:
        """Return the result of a future that is done."""

    def check(self) -> None:
        """Raise if nothing can come any more."""

    def close(self) -> None:
        """End everything that is under way."""


class InProcess:
    """Runs tasks here and now."""

    window = 1

    def submit(self, function: Callable[[Argument], Answer], argument: Argument) -> "Future[Answer]":
        """Do a task."""
        future: Future[Answer] = Future()
        future.set_result(function(argument))
        return future

    def result(self, future: "Future[Answer]") -> Answer:
        """Return the result."""
        return future.result()

    def check(self) -> None:
        """Nothing can go wrong."""

    def close(self) -> None:
        """There is nothing to end."""


class LocalProcesses:
    """Runs what can be pickled in processes of this machine, each with one thread.

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
        """One task in each process, and one to follow."""
        return 2 * self._count

    def start(self) -> None:
        """Start the processes now, without waiting for them; they also start when they are needed."""
        for _ in range(self._count):
            self._threads.submit(lambda: self._idle.put(self._new()))

    @property
    def is_started(self) -> bool:
        """Whether a process is there."""
        return not self._idle.empty()

    def submit(self, function: Callable[[Argument], Answer], argument: Argument) -> "Future[Answer]":
        """Start a task in the next process that is free."""
        return self._threads.submit(self._run, partial(run_as, this_build(), function), argument)

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

    def _run(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
        how = ""
        for _ in range(ATTEMPTS):
            if self._closed:
                raise CancelledError
            process = self._process()
            try:
                answer = process.call(function, argument)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # it died, or its pipes are closed
                self._all.discard(process)
                how = process.died()
                continue
            self._idle.put(process)
            if isinstance(answer, Exception):
                raise answer
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

    def call(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer | Exception:
        assert self._process.stdin is not None
        pickle.dump((function, argument), self._process.stdin)
        self._process.stdin.flush()
        answer: Answer | Exception = self._read()
        return answer

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
