"""Who works on what, among processes that share a folder.

A claim is a file that only one process can create; it names its owner. The file of an owner is a lease: its process
touches it every few seconds and keeps a lock on it. A lock that is free says at once that a process of this machine has
ended, in whatever container it was; elsewhere a lease ends that is not renewed. Numbers of processes and names of
machines decide nothing, since containers share both. The claims of an owner that is dead are taken over by a claim of
the next generation, which again only one process can create.
"""

import json
import os
import re
import threading
import time
import uuid
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from deeplinear._core.files import remove, write_atomically

try:
    import fcntl
except ImportError:  # not on Windows, where leases alone tell
    fcntl = None  # type: ignore[assignment]

HEARTBEAT = 10.0
"""Seconds between signs of life."""

PATIENCE = 60.0
"""Seconds without a sign of life after which an owner is taken for dead."""

QUIET = 5.0
"""Seconds of waiting for another process after which it is said."""

HAS_LOCKS = fcntl is not None
"""Whether files can be locked on this system."""

_ID = re.compile("[0-9a-f]{32}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Claims:
    """The claims of one process in a folder; call ``close`` at the end."""

    def __init__(self, folder: Path) -> None:
        self._claims, self._owners = folder / "claims", folder / "owners"
        for each in (self._claims, self._owners):
            each.mkdir(exist_ok=True)
        self.id = uuid.uuid4().hex
        self._held: dict[str, Path] = {}
        self._seen: dict[Path, tuple[float, float]] = {}
        self._file = self._owners / self.id
        write_atomically(self._file, lambda temporary: temporary.write_text("{}"))
        self._lock = lock(self._file)
        if self._lock is not None:
            with suppress(OSError):  # of a disk that is full, where signs of life alone tell
                os.write(self._lock, json.dumps({"machine": _machine()}).encode())
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
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _live(self) -> None:
        while not self._closed.wait(HEARTBEAT):
            with suppress(OSError):  # the folder is gone, or will be back
                os.utime(self._file)

    def _is_stale(self, claim: Path) -> bool:
        try:
            owner_id = "" if claim.is_dir() else claim.read_bytes().decode(errors="replace")
            if not _ID.fullmatch(owner_id):  # being written, or its process died just then, or damaged
                return self._is_silent(claim)
            owner = self._owners / owner_id
            return not owner.exists() or _has_ended(owner) or self._is_silent(owner)
        except FileNotFoundError:  # given up just now
            return False

    def _is_silent(self, path: Path) -> bool:
        """Watch a file by this machine's own clock; other clocks may differ."""
        modified, now = path.stat().st_mtime, time.monotonic()
        seen, since = self._seen.get(path, (None, now))
        if seen != modified:
            since = now
        self._seen[path] = (modified, since)
        return now - since > PATIENCE


class Wait:
    """Says what is waited for, once it has been for some seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._since, self._is_said = what, time.monotonic(), False

    def go_on(self) -> None:
        """There is something to do."""
        self._since = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """There is nothing to do for now."""
        if not self._is_said and time.monotonic() - self._since > QUIET:
            self._is_said = True
            text = f"waiting for another process, which {self._what}; one that has died is given up after"
            warnings.warn(f"{text} {PATIENCE:g} s without a sign of life", stacklevel=2)
        time.sleep(seconds)


def lock(path: Path) -> int | None:
    """Lock a file or a folder until the descriptor that is returned is closed or the process ends; None if it fails."""
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _has_ended(owner: Path) -> bool:
    """Return whether the owner was a process of this machine that has ended: nobody holds its lock."""
    try:
        found = json.loads(owner.read_bytes())
        if not isinstance(found, dict) or found.get("machine", "") != _machine():
            return False
        held = lock(owner)
    except (ValueError, RecursionError, IsADirectoryError, PermissionError):  # damaged, or someone else's
        return False
    if held is not None:
        os.close(held)
    return held is not None


def _machine() -> str | None:
    """Return a word for this machine since it was started, the same in all its containers; None if there is none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        import psutil

        return f"{os.uname().nodename} {psutil.boot_time():.0f}" if hasattr(os, "uname") else None
