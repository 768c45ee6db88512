"""Results in a folder, one file each: what is finished is never computed twice, and processes share the work.

Each file has a checksum, and names what it belongs to and the build of deeplinear that computed it. A file that is
damaged, or belongs to something else, counts as missing; one of another build is refused: results are never mixed.
"""

import io
import json
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.build import OtherBuild, this_build
from deeplinear._core.claims import Claims, Wait
from deeplinear._core.files import sealed, unsealed, write_atomically

Value = TypeVar("Value")
Arrays = dict[str, NDArray[Any]]

_ALONE_SECONDS = 0.1

_NOTE = b"\nbelongs to: "


class Damaged(Exception):
    """A file is there and is not what was written."""


@dataclass(frozen=True)
class Format(Generic[Value]):
    """How results become files: the suffix, and functions to and from bytes; the second raises ``Damaged``."""

    suffix: str
    pack: Callable[[Value], io.BytesIO]
    unpack: Callable[[io.BytesIO], Value]


def _pack_arrays(arrays: Arrays) -> io.BytesIO:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content


def _unpack_arrays(content: io.BytesIO) -> Arrays:
    try:
        with np.load(content) as arrays:
            return dict(arrays)
    except (TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile):  # something else with a checksum
        raise Damaged from None


ARRAYS = Format[Arrays](".npz", _pack_arrays, _unpack_arrays)
"""Arrays by name."""


class Store(Generic[Value]):
    """Results of a number of tasks, in a folder that several processes may use at once.

    Parameters
    ----------
    root
        The folder, as messages name it.
    files, work
        Where results are, and where it is written who works on what; both are made when something is written.
    keys
        What the result of each task belongs to, by the name of the task, which is that of its file.
    format
        How results become files.
    is_final
        Returns whether a result need not be computed again.

    Raises
    ------
    OtherBuild
        If there is a result of one of the tasks that another build has computed.
    OSError
        If the folder cannot be read.
    """

    def __init__(
        self,
        root: Path,
        files: Path,
        work: Path,
        keys: Mapping[str, str],
        format: Format[Value],
        is_final: Callable[[Value], bool] = lambda _: True,
    ) -> None:
        self._root, self.changed = root, False
        self._files, self._work, self._keys, self._format = files, work, keys, format
        self._own_claims: Claims | None = None
        with in_use(root):
            self._finished = {name for name, value in self.results() if is_final(value)}
            self._again = {name: self._written(name) for name in keys if name not in self._finished}
            if (work / "claims").is_dir() and any((work / "claims").iterdir()):
                with suppress(PermissionError):  # of a folder that is there to be read
                    self._claims.clear(self._finished)

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def is_done(self, name: str) -> bool:
        """Return whether a task is finished, whoever did it."""
        if name not in self._finished:
            written = self._written(name)
            if written is not None and written != self._again[name]:
                self._finished.add(name)
        return name in self._finished

    def take(self, name: str) -> bool:
        """Reserve a task that is to be done; False if it is finished or another process has it."""
        with in_use(self.root):
            if not self._claims.take(name):
                return False
        if self.is_done(name):
            self._claims.release(name)
            return False
        return True

    def put(self, name: str, value: Value) -> None:
        """Write the result of a task that was taken, whole or not at all."""
        path, content = self._path(name), self._format.pack(value)
        with in_use(self.root):
            if path.is_dir():  # whatever this is, it is not ours to delete
                path.rename(path.with_name(f".{path.name}-{uuid.uuid4().hex}"))
            content.seek(0, io.SEEK_END)
            content.write(_NOTE + json.dumps({"key": self._keys[name], "build": this_build()}).encode())
            write_atomically(path, lambda temporary: temporary.write_bytes(sealed(content)))
            self._finished.add(name)
            self.changed = True
            self._claims.release(name)

    def results(self) -> Iterator[tuple[str, Value]]:
        """Return all that is there."""
        for name, key in self._keys.items():
            with suppress(FileNotFoundError, Damaged):
                yield name, read(self._path(name), key, self._format, refuse_from=self.root)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait until no other process is inside a block of this name."""
        with in_use(self.root):
            wait = Wait(f"is {name} the store {self.root}")
            while not self._claims.take(name):
                wait.sleep(_ALONE_SECONDS)
        try:
            yield
        finally:
            self._claims.release(name)

    def close(self) -> None:
        """Give up what was taken and not finished."""
        if self._own_claims is not None:
            self._own_claims.close()

    @property
    def _claims(self) -> Claims:
        """Made when first needed: what is complete is only read."""
        if self._own_claims is None:
            for folder in (self._files, self._work):
                folder.mkdir(parents=True, exist_ok=True)
            self._own_claims = Claims(self._work)
        return self._own_claims

    def _path(self, name: str) -> Path:
        return self._files / f"{name}{self._format.suffix}"

    def _written(self, name: str) -> int | None:
        """When the file of a task was written, None if it was not."""
        try:
            return self._path(name).stat().st_mtime_ns
        except FileNotFoundError:
            return None


def read(path: Path, key: str, format: Format[Value], refuse_from: Path | None) -> Value:
    """Return a result from its file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    Damaged
        If the file is not one that was written for this key.
    OtherBuild
        If another build has written it, and the store is given from which such results are refused.
    """
    note, content = _opened(path)
    if note.get("key") != key:
        raise Damaged
    if refuse_from is not None:
        refuse_other(refuse_from, str(note.get("build")))
    return format.unpack(io.BytesIO(content))


def origin_of(path: Path) -> tuple[str, str]:
    """Return what a file belongs to, and the build that has written it; raises as ``read`` does."""
    note = _opened(path)[0]
    return str(note.get("key")), str(note.get("build"))


def refuse_other(root: Path, other: str) -> None:
    """Refuse results of another build, and say what can be done."""
    if other != this_build():
        text = (
            f"store {root} has results of deeplinear {other}, with which those of this deeplinear {this_build()} are "
            "not mixed: choose another store to keep both, or delete this one to start anew"
        )
        raise OtherBuild("store", root, "new, or of this version", text=text)


@contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Name the store in what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise OSError(f"store {root} cannot be read or written: {error.strerror or error}") from error


def _opened(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the note at the end of a file, and what stands before it."""
    try:
        content = unsealed(path.read_bytes())
        if content is None:
            raise Damaged
        whole, _, text = content.rpartition(_NOTE)
        note = json.loads(text)
    except (IsADirectoryError, ValueError, RecursionError):
        raise Damaged from None
    if not isinstance(note, dict):
        raise Damaged
    return note, whole
