"""The folder for files that the server hands on, and the removal of those that killed servers left behind."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from deeplinear._core.claims import HAS_LOCKS, lock

_NAME = re.compile(r"deeplinear-explore-(\d+)-\w+")


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder that is deleted in the end; first delete those of servers that were killed.

    Its name has the number of this process, and this process holds a lock on it.
    """
    remove_left_behind()
    with tempfile.TemporaryDirectory(prefix=f"deeplinear-explore-{os.getpid()}-", ignore_cleanup_errors=True) as name:
        held = lock(Path(name))
        try:
            yield Path(name)
        finally:
            if held is not None:
                os.close(held)


def remove_left_behind() -> None:
    """Delete the folders of servers of this user that no longer run."""
    for folder in Path(tempfile.gettempdir()).glob("deeplinear-explore-*"):
        with suppress(OSError):  # another server may be deleting the same
            if _is_abandoned(folder):
                shutil.rmtree(folder)


def _is_abandoned(folder: Path) -> bool:
    """Whether a folder is ours by its name and owner, and no living process has it."""
    named, status = _NAME.fullmatch(folder.name), folder.lstat()
    if not named or not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        return False
    if psutil.pid_exists(int(named[1])):
        return False
    held = lock(folder)  # a process that is not seen here, in another container say, may have it
    if held is not None:
        os.close(held)
    return held is not None or not HAS_LOCKS  # where the number of the process alone says whose a folder is
