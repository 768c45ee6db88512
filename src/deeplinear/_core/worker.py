"""A worker process of a pool: a Python that runs ``main``.

It reads pickled calls from its standard input and answers on what was its standard output. It ends at once when its
input ends, as it does when the process that started it is killed.
"""

import os
import pickle
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from deeplinear._core.build import OtherBuild

READY = "ready"


def main() -> None:
    """Answer calls until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not get among the answers
    calls: queue.SimpleQueue[tuple[Any, Any] | Exception] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, calls), daemon=True).start()
    _answer(answers, READY)
    while True:
        call = calls.get()
        try:
            if isinstance(call, Exception):
                raise call
            function, argument = call
            _answer(answers, function(argument))
        except OtherBuild as error:
            _answer(answers, error)
        except Exception as error:
            _answer(answers, RuntimeError(f"{type(error).__name__}: {error}"))


def _read(source: BinaryIO, calls: "queue.SimpleQueue[tuple[Any, Any] | Exception]") -> None:
    while True:
        try:
            calls.put(pickle.load(source))
        except EOFError:
            os._exit(0)
        except Exception as error:  # what cannot be imported here
            calls.put(error)


def _answer(answers: BinaryIO, value: Any) -> None:
    pickle.dump(value, answers)
    answers.flush()
