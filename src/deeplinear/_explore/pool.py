"""Processes that work for the page: a bounded number of them, a bounded queue, and an end to work nobody waits for."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from deeplinear._core.processes import command, ended

_LINE = 64 * 2**20
"""Most bytes of one answer."""

_PATIENCE = 0.5
"""Seconds in which a task that was given up may end by itself before its process is killed."""

_HEARTBEAT = 0.5
"""Seconds after which a line is sent even if there is no news, to find out whether anybody is still listening."""

_STARTING = 120.0
"""Most seconds in which a process has to load the library."""

READING = 5.0
"""Most seconds in which a request has to be read and checked."""

_PROGRESS = b'{"progress"'
"""How every line begins that is not the last of a task."""

_LOWER = "lower the steps, the depth or the sizes"
_ADVICE = {"data": "give it fewer rows or columns"}
"""What to do where a task takes too long."""

_WORKER = "deeplinear._explore.worker"


class Busy(Exception):
    """Raised if too many tasks are waiting."""


class Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout
        self._number = -1
        self._is_ready = False

    @classmethod
    async def start(cls, folder: Path) -> "Worker":
        """Start a process with a folder for its files; it does tasks when it has loaded the library."""
        pipe = asyncio.subprocess.PIPE
        environment = os.environ | {"TMPDIR": str(folder)}
        return cls(
            await asyncio.create_subprocess_exec(
                *command(_WORKER, "-W", "ignore"), stdin=pipe, stdout=pipe, limit=_LINE, env=environment
            )
        )

    async def answers(self, number: int, task: dict[str, Any], limit: float) -> AsyncIterator[bytes]:
        """Give a task to the process and pass on its answers line by line, and empty lines while there are none.

        The first progress means that the task was read and is in order, for which there is less time than for the rest.
        """
        self._number = number
        clock = asyncio.get_running_loop().time
        # Not asyncio.timeout, which would also end whoever is slow to take an answer.
        deadline, late = self._deadline(clock())
        self._input.write(json.dumps({"number": number} | task).encode() + b"\n")
        is_read = False
        reading: asyncio.Future[bytes] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(self._output.readline())
                done, _ = await asyncio.wait([reading], timeout=_HEARTBEAT)
                if clock() > deadline:
                    raise TimeoutError(late)
                if not done:
                    yield b"\n"
                    continue
                line, reading = reading.result(), None
                if not line:
                    raise ConnectionError(f"the process that worked on this died {await self._died()}")
                if not self._is_ready:
                    self._is_ready = True
                    deadline, late = self._deadline(clock())
                    continue
                if not line.startswith(_PROGRESS):
                    self._number = -1
                    yield line
                    return
                if not is_read:
                    is_read = True
                    deadline, late = clock() + limit, _took_longer("this", limit, _ADVICE.get(task["name"], _LOWER))
                yield line
        finally:
            if reading is not None:
                reading.cancel()

    def _deadline(self, now: float) -> tuple[float, str]:
        """When a task must have been read, and what to say if it was not."""
        if not self._is_ready:
            return now + _STARTING, _took_longer("starting a process", _STARTING)
        return now + READING, _took_longer("reading this", READING)

    @property
    def is_idle(self) -> bool:
        """Whether its last task has been answered."""
        return self._number < 0 and self._process.returncode is None

    async def give_up(self) -> None:
        """Ask the process to end its task, and kill it if it does not."""
        try:
            self._input.write(b"%d\n" % self._number)
            async with asyncio.timeout(_PATIENCE):
                while line := await self._output.readline():
                    if self._is_ready and not line.startswith(_PROGRESS):
                        self._number = -1
                        return
                    self._is_ready = True
        except (TimeoutError, OSError, ValueError):
            pass
        await self.kill()

    async def _died(self) -> str:
        """Say how the process ended that does not answer any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()
        await self.kill()
        return ended(self._process.returncode)

    async def kill(self) -> None:
        """End the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Pool:
    """Hands tasks to processes, which it starts as they are needed and keeps for the next task.

    Parameters
    ----------
    size
        Most tasks at the same time.
    queue
        Most tasks that wait.
    folder
        Where processes may put files; whoever made it deletes it.
    nice
        Whether other processes go first.
    """

    def __init__(self, size: int, queue: int, folder: Path, nice: bool = False) -> None:
        self._free = asyncio.Semaphore(size)
        self._size, self._room, self._folder, self._nice = size, size + queue, folder, nice
        self._inside = 0
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()

    async def warm_up(self) -> None:
        """Start all processes before the first task."""
        while len(self._all) < self._size:
            self._idle.append(await self._start())

    @property
    def tasks(self) -> int:
        """Number of tasks that run or wait."""
        return self._inside

    async def run(
        self, name: str, request: dict[str, Any], limit: float, only_short: bool = False
    ) -> AsyncIterator[bytes]:
        """Do a task and pass on its answers as lines of JSON; if the caller stops listening, the task ends.

        The first line is empty and comes at once, or Busy is raised: whoever has it has a place.

        Parameters
        ----------
        name, request
            What to do.
        limit
            Seconds after which the task is ended with an error.
        only_short
            Whether to do it only if it is short; what is not is answered by ``{"long": true}``.
        """
        if self._inside >= self._room:
            raise Busy(f"{self._inside} requests of this kind are already waiting; try again when some are done")
        self._inside += 1
        try:
            yield b"\n"
            await self._free.acquire()
        except BaseException:
            self._inside -= 1
            raise
        last = b""
        async with self._worker() as worker:
            try:
                task = {"name": name, "request": request, "nice": self._nice, "only_short": only_short}
                async for line in worker.answers(next(self._numbers), task, limit):
                    if line.startswith((_PROGRESS, b"\n")):
                        yield line
                    else:
                        last = line
            except (TimeoutError, ConnectionError) as error:
                last = _error(str(error))
        yield last  # when the process is free for others, however slowly this is read

    async def settled(self) -> None:
        """Wait until no process works on anything that was given up."""
        await asyncio.gather(*self._settling, return_exceptions=True)

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.kill() for worker in self._all))

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        worker = None
        try:
            worker = self._idle.pop() if self._idle else await self._start()
            yield worker
        finally:
            # In a task of its own, since the one that ends here may have been cancelled.
            task = asyncio.ensure_future(self._settle(worker))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle(self, worker: Worker | None) -> None:
        """Make a process ready for the next task, or leave it behind."""
        try:
            if worker is not None and not worker.is_idle:
                await worker.give_up()
            if worker is not None and worker.is_idle:
                self._idle.append(worker)
            elif worker is not None:
                self._all.discard(worker)
        finally:
            self._inside -= 1
            self._free.release()

    async def _start(self) -> Worker:
        worker = await Worker.start(self._folder)
        self._all.add(worker)
        return worker


def _took_longer(what: str, limit: float, advice: str = _LOWER) -> str:
    return f"{what} took longer than {limit:.0f} s and was ended; {advice}"


def _error(message: str) -> bytes:
    return json.dumps({"error": message, "field": None}).encode() + b"\n"
