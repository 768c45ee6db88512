"""Where finished batches are kept: a folder that survives everything, or memory."""

import json
import os
import shutil
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from deeplinear._files import write_atomically
from deeplinear._sweeping.claims import Claims
from deeplinear._sweeping.plan import Batch, batches_of, differences
from deeplinear._sweeping.work import Result, out_of_memory

WORK_FOLDER = ".deeplinear"
"""Folder inside a store with everything that is not Zarr."""

_PUBLISHING = "publishing"


class Store(Protocol):
    """What a sweep asks of the place that keeps its results."""

    batches: list[Batch]

    def is_done(self, batch: Batch) -> bool:
        """Return whether a batch is finished, whoever did it."""

    def take(self, batch: Batch) -> bool:
        """Reserve a batch that is to be computed; False if it is finished or someone else has it."""

    def put(self, batch: Batch, result: Result) -> None:
        """Keep the result of a batch that was taken."""

    def results(self) -> Iterator[tuple[Batch, Result]]:
        """Return all that is finished."""

    def close(self) -> None:
        """Give up what was taken and not finished."""


class Memory:
    """Keeps results in memory."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self._results: dict[Batch, Result] = {}

    def is_done(self, batch: Batch) -> bool:
        """Return whether a batch is finished."""
        return batch in self._results

    def take(self, batch: Batch) -> bool:
        """There is no one else."""
        return True

    def put(self, batch: Batch, result: Result) -> None:
        """Keep a result."""
        self._results[batch] = result

    def results(self) -> Iterator[tuple[Batch, Result]]:
        """Return all that is finished."""
        yield from self._results.items()

    def close(self) -> None:
        """There is nothing to give up."""


class Folder:
    """Keeps results in a folder, one file for each batch; several processes may work on one folder.

    A batch is finished when its file is there, and files appear whole. Batches that failed for want of memory, and
    files that were damaged, count as unfinished when the folder is opened, and are computed again.
    """

    def __init__(self, root: Path, manifest: dict[str, Any], claims: Claims) -> None:
        self.root = root
        self.version: str = manifest["deeplinear_version"]
        self.batches = batches_of(manifest)
        self.changed = False
        self._claims = claims
        self._points = root / WORK_FOLDER / "points"
        self._finished = {batch for batch, result in self.results() if not out_of_memory(result)}
        there = {batch for batch in self.batches if self._file(batch).exists()}
        self._again = {batch: self._written(batch) for batch in there - self._finished}

    @classmethod
    def open(cls, path: str | Path, manifest: dict[str, Any], resume: bool) -> "Folder":
        """Start a sweep in a new folder, or go on with the same one.

        Raises
        ------
        ValueError
            If the folder has something else in it, or is there and ``resume`` is False.
        OSError
            If the folder cannot be written.
        """
        root = local_path(path)
        try:
            if root.exists() and not root.is_dir():
                raise ValueError(f"store must be a folder, got the file {root}")
            if root.is_dir() and any(root.iterdir()) and not (root / WORK_FOLDER).is_dir():
                raise ValueError(f"store must be new or hold a sweep; the folder {root} has something else in it")
            (root / WORK_FOLDER / "points").mkdir(parents=True, exist_ok=True)
            found, is_new = _write_once(root / WORK_FOLDER / "manifest.json", manifest)
            if not is_new:
                _check_same(root, found, manifest, resume)
            return cls(root, found, Claims(root / WORK_FOLDER))
        except OSError as error:
            raise OSError(f"store {root} cannot be written: {error.strerror or error}") from error

    def is_done(self, batch: Batch) -> bool:
        """Return whether a batch is finished, whoever did it."""
        if batch not in self._finished and self._written(batch) != self._again.get(batch):
            self._finished.add(batch)
        return batch in self._finished

    def take(self, batch: Batch) -> bool:
        """Claim a batch; one that another process finished meanwhile is not to be computed again."""
        if not self._claims.take(batch.name):
            return False
        if self.is_done(batch):
            self._claims.release(batch.name)
            return False
        return True

    def put(self, batch: Batch, result: Result) -> None:
        """Write a result, whole or not at all."""
        write_atomically(self._file(batch), lambda temporary: np.savez(temporary, **result))  # type: ignore[arg-type]
        self._finished.add(batch)
        self.changed = True
        self._claims.release(batch.name)

    def results(self) -> Iterator[tuple[Batch, Result]]:
        """Return all that is finished."""
        return read_results(self._points, self.batches)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process is inside this block."""
        while not self._claims.take(_PUBLISHING):
            time.sleep(0.1)
        try:
            yield
        finally:
            self._claims.release(_PUBLISHING)

    def close(self) -> None:
        """Give up what was taken and not finished."""
        self._claims.close()

    def _file(self, batch: Batch) -> Path:
        return self._points / f"{batch.name}.npz"

    def _written(self, batch: Batch) -> int | None:
        """When the file of a batch was written, None if it was not."""
        try:
            return self._file(batch).stat().st_mtime_ns
        except FileNotFoundError:
            return None


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the description of the sweep in a store."""
    root = local_path(path)
    try:
        manifest: dict[str, Any] = json.loads((root / WORK_FOLDER / "manifest.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"store must hold a sweep, and {root} does not") from None
    return manifest


def read_results(folder: Path, batches: list[Batch]) -> Iterator[tuple[Batch, Result]]:
    """Read every batch that has a readable file; one that was damaged counts as unfinished."""
    for batch in batches:
        try:
            with (folder / f"{batch.name}.npz").open("rb") as file, np.load(file) as arrays:
                result = dict(arrays)
        except (FileNotFoundError, ValueError, EOFError, zipfile.BadZipFile):
            continue
        yield batch, result


def replace_folders(source: Path, target: Path) -> None:
    """Move the children of a folder over those of another, and what points to them last."""
    for child in sorted(source.iterdir(), key=lambda path: path.is_file()):
        if child.is_dir():
            old = source.with_name(f"{source.name}-{child.name}-old")
            if (target / child.name).exists():
                (target / child.name).rename(old)
            child.rename(target / child.name)
            shutil.rmtree(old, ignore_errors=True)
        else:
            child.replace(target / child.name)


def local_path(path: Any) -> Path:
    """Return a path if it is one of this machine's."""
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        raise ValueError(f"store must be the path of a folder, got {path!r}")
    return Path(path)


def _write_once(path: Path, manifest: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Write the manifest unless there is one; return the one that is there, and whether it is new."""
    if path.exists():
        return json.loads(path.read_text()), False
    temporary = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    temporary.write_text(json.dumps(manifest))
    try:
        os.link(temporary, path)  # the one way to create a whole file only if it is not there
    except FileExistsError:
        return json.loads(path.read_text()), False
    except OSError:  # this file system has no links
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return manifest, True


def _check_same(root: Path, found: dict[str, Any], wanted: dict[str, Any], resume: bool) -> None:
    different = differences(found, wanted)
    if different:
        raise ValueError(
            f"store {root} holds another sweep: it differs in {' and '.join(different)}; choose another store"
        )
    if not resume:
        raise ValueError(f"store {root} holds this sweep already; resume it, or choose another store")


def new_folder_beside(folder: Path) -> Path:
    """Make an empty folder for files that are to be moved."""
    return Path(tempfile.mkdtemp(dir=folder, prefix="new-"))
