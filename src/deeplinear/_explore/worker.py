"""A process that works for the page: it reads tasks as lines of JSON and answers in lines of JSON.

It says when it is ready. Then each task is read, which may take long and fail as the work itself may: the first
``{"progress": ...}`` means that it is in order, and the next one says whether its problem is solved soon. Any number
of them follow, and one ``{"result": ...}`` or
``{"error": ...}``; ``{"long": true}`` in place of them all if only what is short was to be done. A line with a number
on it means that nobody waits for the task of that number any more. The process ends at once when its input ends, as it
does when the server is killed.
"""

import json
import os
import queue
import signal
import sys
import threading
from typing import Any, TextIO

from deeplinear._core.failures import in_words, is_full_disk
from deeplinear._core.json import plain
from deeplinear._explore import tasks
from deeplinear._explore.controls import field_of

_LONGEST_ERROR = 600


class _GivenUp(BaseException):
    """Raised inside a task that nobody waits for."""


class _Worker:
    """Takes tasks one by one, and learns meanwhile which were given up."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._given_up = -1

    def read(self, source: TextIO) -> None:
        for line in source:
            message = json.loads(line)
            if isinstance(message, int):
                self._given_up = message
            else:
                self._tasks.put(message)
        os._exit(0)

    def work(self) -> None:
        self._answer(ready=True)
        while True:
            task = self._tasks.get()
            if task["nice"]:
                _step_back()
            self._answer(**self._done(task["number"], task["name"], task["request"], task["only_short"]))

    def _done(self, number: int, name: str, request: dict[str, Any], only_short: bool) -> dict[str, Any]:
        def report(**message: Any) -> None:
            if self._given_up == number:
                raise _GivenUp
            if message:
                self._answer(progress=message)

        try:
            reading = tasks.read(name, request)
            if only_short and not reading.is_short:
                return {"long": True}
            report(stage="starting")
            report(stage="starting", soon=reading.is_soon)
            return {"result": tasks.TASKS[name](request, report)}
        except _GivenUp:
            return {"given_up": number}
        except (ValueError, ArithmeticError, MemoryError, RecursionError) as error:  # what the library refuses
            return {"error": _shortened(in_words(error)), "field": field_of(error)}
        except Exception as error:
            if is_full_disk(error):
                return {"error": in_words(error), "field": None, "full_disk": True}
            words = f"this failed unexpectedly: {type(error).__name__}: {error}"
            return {"error": _shortened(words), "field": None, "unexpected": True}

    def _answer(self, **message: Any) -> None:
        self._answers.write(json.dumps(plain(message), allow_nan=False) + "\n")
        self._answers.flush()


def main() -> None:
    """Work until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the server
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints must not get among the answers
    worker = _Worker(answers)
    threading.Thread(target=worker.read, args=(sys.stdin,), daemon=True).start()
    worker.work()


def _shortened(text: str) -> str:
    """Leave out the middle of an error that repeats a long value."""
    half = _LONGEST_ERROR // 2
    return text if len(text) <= _LONGEST_ERROR else f"{text[:half]} ... {text[-half:]}"


def _step_back() -> None:
    """Let short tasks of other processes go first."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, 0, 10)
