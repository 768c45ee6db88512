"""BLAS on one thread, while something else is parallel or while results must not depend on threads."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.RLock()  # a signal handler that forks may interrupt whoever holds it
_users = 0
_limits: threadpool_limits | None = None
_here = threading.local()  # blocks: how many this thread is in
_found: tuple[int, ThreadpoolController] | None = None  # modules that had been imported, and libraries found then


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the block.

    The limit belongs to the whole process, so the first block to open sets it and the last to
    close lifts it: blocks may be nested, and may overlap in different threads.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _users, _limits
    with _lock:
        if not _users:
            _limits = _libraries().limit(limits=1, user_api="blas")
        _users += 1
        _here.blocks = getattr(_here, "blocks", 0) + 1


def _libraries() -> ThreadpoolController:
    """Return the libraries that have threads. To look for them takes as long as ten steps of training."""
    global _found
    modules = len(sys.modules)  # a library comes with the module that needs it
    if _found is None or _found[0] != modules:
        _found = modules, ThreadpoolController()
    return _found[1]


def _leave() -> None:
    global _users
    with _lock:
        _users -= 1
        _here.blocks -= 1
        _lift_if_unused()


def _lift_if_unused() -> None:
    global _limits
    if not _users and _limits is not None:
        _limits.restore_original_limits()
        _limits = None


def _forget_other_threads() -> None:
    """Of all threads, a forked process has the one that forked: the blocks of the others have no one to close them."""
    global _users
    _users = getattr(_here, "blocks", 0)
    _lift_if_unused()
    _lock.release()


# A process that is forked while another thread holds the lock would wait for it for ever, so whoever forks holds it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_other_threads)


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_free_cores(work: Callable[[], None], most: int) -> None:
    """Call a function in as many threads as there are cores, this one among them, but no more than asked for.

    The calls share what there is to do, so that a core that others keep busy takes less of it.
    """
    failures: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    others = [threading.Thread(target=call, daemon=True) for _ in range(min(most, count_cores()) - 1)]
    for each in others:
        each.start()
    try:
        work()
    finally:
        for each in others:
            each.join()
    if failures:
        raise failures[0]
