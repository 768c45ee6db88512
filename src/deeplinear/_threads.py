"""BLAS on one thread, while something else is parallel or while results must not depend on threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_users = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the block.

    The limit belongs to the whole process, so the first block to open sets it and the last to
    close lifts it: blocks may be nested, and may overlap in different threads.
    """
    global _users, _limits
    with _lock:
        if not _users:
            _limits = threadpool_limits(1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
