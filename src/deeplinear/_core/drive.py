"""Getting every task done: by this process, or by others that work on the same store."""

import queue
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from deeplinear._core.claims import Wait
from deeplinear._core.pool import Runner

Argument = TypeVar("Argument")
Value = TypeVar("Value")
Kept = TypeVar("Kept", contravariant=True)

_OTHERS_SECONDS = 0.2
_CHECK_SECONDS = 1.0
"""How often to look at what other processes do, if there is nothing else to do or if there is."""


class Place(Protocol[Kept]):
    """What is asked of the place where results are."""

    @property
    def root(self) -> Path | None:
        """Folder that other processes may use too; None if there is none."""

    def is_done(self, name: str) -> bool:
        """Return whether a task is finished, whoever did it."""

    def take(self, name: str) -> bool:
        """Reserve a task that is to be done; False if it is finished or someone else has it."""

    def put(self, name: str, value: Kept) -> None:
        """Keep the result of a task that was taken."""


def drive(
    tasks: Mapping[str, Argument],
    function: Callable[[Argument], Value],
    place: Place[Value],
    runner: Runner,
    *,
    fetch: Callable[[Any, Argument], Value] | None = None,
    end: Callable[[str], object] = lambda name: None,
    stop: Callable[[int], bool] = lambda left: False,
) -> None:
    """Do the tasks that are not done yet, and wait for those that other processes have.

    Parameters
    ----------
    tasks
        What the function is given for each task, by its name.
    function
        Does a task.
    place
        Where results are.
    runner
        Where tasks run.
    fetch
        Returns the value of a future that is done and was given an argument; ``runner.result`` by default.
    end
        Called with the name of each task that is finished.
    stop
        Asked with the number of tasks left after each one; when it says so, what is not begun is left.
    """
    waiting = deque(name for name in tasks if not place.is_done(name))
    running: dict[Any, str] = {}
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    wait = Wait(f"is at work on the store {place.root}")
    while (waiting or running) and not (stop(len(waiting)) and not running):
        for _ in range(len(waiting)):
            if len(running) >= runner.window:
                break
            name = waiting.popleft()
            if place.is_done(name):
                wait.go_on()
                end(name)
            elif place.take(name):
                future = runner.submit(function, tasks[name])
                running[future] = name
                future.add_done_callback(finished.put)
            else:
                waiting.append(name)
        if not running:
            if waiting:
                wait.sleep(_OTHERS_SECONDS)
            continue
        try:
            future = finished.get(timeout=_CHECK_SECONDS)
        except queue.Empty:
            runner.check()
            continue
        name = running.pop(future)
        place.put(name, runner.result(future) if fetch is None else fetch(future, tasks[name]))
        wait.go_on()
        end(name)
