"""Who works on what, among processes that share a folder.

A claim is a file that only one process can create; it names its owner, whose own file says on which machine and in
which process it lives and is touched now and then while it does. The claims of an owner that is dead are taken over by
a claim of the next generation, which again only one process can create.
"""

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil

from deeplinear._core.files import remove, write_atomically

HEARTBEAT = 10.0
"""Seconds between signs of life."""

PATIENCE = 60.0
"""Seconds without a sign of life after which the owner on another machine is taken for dead."""


_ID = re.compile("[0-9a-f]{32}")


class Claims:
    """The claims of one process in a folder; call ``close`` at the end."""

    def __init__(self, folder: Path) -> None:
        self._claims, self._owners = folder / "claims", folder / "owners"
        for each in (self._claims, self._owners):
            each.mkdir(exist_ok=True)
        self.id = uuid.uuid4().hex
        self._held: dict[str, Path] = {}
        self._seen: dict[Path, tuple[float, float]] = {}
        process = psutil.Process()
        owner = {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time()}
        self._file = self._owners / self.id
        write_atomically(self._file, lambda temporary: temporary.write_text(json.dumps(owner)))
        self._closed = threading.Event()
        threading.Thread(target=self._live, daemon=True).start()

    def take(self, name: str) -> bool:
        """Claim a piece of work; False if another living process has it."""
        claims = [path for path in self._claims.glob(f"{name}.*") if path.suffix[1:].isdecimal()]
        earlier = sorted(claims, key=lambda path: int(path.suffix[1:]))
        if earlier and not self._is_stale(earlier[-1]):
            return False
        generation = int(earlier[-1].suffix[1:]) + 1 if earlier else 0
        path = self._claims / f"{name}.{generation}"
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        os.write(handle, self.id.encode())
        os.close(handle)
        self._held[name] = path
        return True

    def release(self, name: str) -> None:
        """Give a claim up."""
        held = self._held.pop(name)
        for generation in range(int(held.suffix[1:]) + 1):
            remove(held.with_suffix(f".{generation}"))

    def clear(self, finished: Collection[str]) -> None:
        """Delete the claims that processes have left which died between finishing a piece of work and giving it up."""
        for claim in list(self._claims.iterdir()):
            if claim.stem in finished and self._is_stale(claim):
                remove(claim)

    def close(self) -> None:
        """Give everything up."""
        self._closed.set()
        for name in list(self._held):
            self.release(name)
        self._file.unlink(missing_ok=True)

    def _live(self) -> None:
        while not self._closed.wait(HEARTBEAT):
            try:
                os.utime(self._file)
            except OSError:  # the folder is gone, or will be back
                continue

    def _is_stale(self, claim: Path) -> bool:
        try:
            owner_id = "" if claim.is_dir() else claim.read_bytes().decode(errors="replace")
            if not _ID.fullmatch(owner_id):  # being written, or its process died just then, or damaged
                return self._is_silent(claim)
            owner_file = self._owners / owner_id
            if not owner_file.exists():
                return True
            owner = _read_owner(owner_file)
            if owner is None or owner.host != socket.gethostname():
                return self._is_silent(owner_file)
        except FileNotFoundError:  # given up just now
            return False
        return not _is_alive(owner.pid, owner.started)

    def _is_silent(self, path: Path) -> bool:
        """Watch a file by this machine's own clock; other clocks may differ."""
        modified, now = path.stat().st_mtime, time.monotonic()
        seen, since = self._seen.get(path, (None, now))
        if seen != modified:
            since = now
        self._seen[path] = (modified, since)
        return now - since > PATIENCE


class _Owner(NamedTuple):
    host: str
    pid: int
    started: float


def _read_owner(path: Path) -> _Owner | None:
    """Return who a process is; None if its file is damaged, and only its signs of life tell of it."""
    try:
        owner = json.loads(path.read_bytes())
        return _Owner(str(owner["host"]), int(owner["pid"]), float(owner["started"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, IsADirectoryError):
        return None


def _is_alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - started) < 2 and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # a number that no process has
        return False
    except psutil.AccessDenied:  # someone else's, so it is there
        return True
