"""Where finished batches are kept: a folder that survives everything, or memory."""

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from deeplinear._core.claims import Claims
from deeplinear._core.files import remove
from deeplinear._core.refusal import Refusal
from deeplinear._sweep.manifest import WORK_FOLDER, local_path, what_is_left, write_once
from deeplinear._sweep.plan import Batch, batches_of, fingerprint
from deeplinear._sweep.records import Damaged, read_result, write_result
from deeplinear._sweep.work import Result, out_of_memory

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


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Name the store in what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise OSError(f"store {root} cannot be written: {error.strerror or error}") from error


class Folder:
    """Keeps results in a folder, one file for each batch; several processes may work on one folder.

    A batch is finished when its file is there, and files appear whole. Batches that failed for lack of memory, and
    files that were damaged or belong elsewhere, count as unfinished when the folder is opened, and are computed again.
    """

    def __init__(self, root: Path, manifest: dict[str, Any], claims: Claims) -> None:
        self.root = root
        self.version: str = manifest["deeplinear_version"]
        self.batches = batches_of(manifest)
        self._manifest = manifest
        self.changed = False
        self._claims = claims
        self._points = root / WORK_FOLDER / "points"
        self._finished = {batch for batch, result in self.results() if not out_of_memory(result)}
        claims.clear({batch.name for batch in self._finished})
        there = {batch for batch in self.batches if self._file(batch).exists()}
        self._again = {batch: self._written(batch) for batch in there - self._finished}

    @classmethod
    def open(cls, path: str | Path, manifest: dict[str, Any], resume: bool) -> "Folder":
        """Start a sweep in a new folder, or resume one.

        Raises
        ------
        ValueError
            If the folder has something else in it, or is there and ``resume`` is False; or if its manifest is damaged
            and it has results of another sweep. Otherwise a damaged manifest is written again.
        OSError
            If the folder cannot be written.
        """
        root = local_path(path)
        with writing(root):
            if root.exists() and not root.is_dir():
                raise Refusal("store", root, "a folder", got=f"the file {root}")
            if root.is_dir() and any(root.iterdir()) and not (root / WORK_FOLDER).is_dir():
                text = (
                    f"store must be new or hold a sweep; the folder {root} has something else in it{what_is_left(root)}"
                )
                raise Refusal("store", root, "new or hold a sweep", text=text)
            (root / WORK_FOLDER / "points").mkdir(parents=True, exist_ok=True)
            found = write_once(root, manifest, resume)
            return cls(root, found, Claims(root / WORK_FOLDER))

    def is_done(self, batch: Batch) -> bool:
        """Return whether a batch is finished, whoever did it."""
        if batch not in self._finished and self._written(batch) != self._again.get(batch):
            self._finished.add(batch)
        return batch in self._finished

    def take(self, batch: Batch) -> bool:
        """Claim a batch; one that another process finished meanwhile is not to be computed again."""
        with writing(self.root):
            if not self._claims.take(batch.name):
                return False
        if self.is_done(batch):
            self._claims.release(batch.name)
            return False
        return True

    def put(self, batch: Batch, result: Result) -> None:
        """Write a result, whole or not at all."""
        path = self._file(batch)
        with writing(self.root):
            if path.is_dir():  # whatever this is, it is not ours to delete
                path.rename(path.with_name(f".{path.name}-{uuid.uuid4().hex}"))
            write_result(path, result, fingerprint(self._manifest, batch))
        self._finished.add(batch)
        self.changed = True
        self._claims.release(batch.name)

    def results(self) -> Iterator[tuple[Batch, Result]]:
        """Return all that is finished."""
        return read_results(self.root, self._manifest, [])

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


def read_results(root: Path, manifest: dict[str, Any], damaged: list[Path]) -> Iterator[tuple[Batch, Result]]:
    """Read every batch that is finished; add to ``damaged`` files that are not what this sweep wrote."""
    for batch in batches_of(manifest):
        path = root / WORK_FOLDER / "points" / f"{batch.name}.npz"
        try:
            result, belongs_to = read_result(path)
        except FileNotFoundError:
            continue
        except Damaged:
            damaged.append(path)
            continue
        if belongs_to == fingerprint(manifest, batch):
            yield batch, result
        else:
            damaged.append(path)


def replace_folders(source: Path, target: Path) -> None:
    """Move the children of a folder over those of another, and what points to them last."""
    for child in sorted(source.iterdir(), key=lambda path: path.is_file()):
        there = target / child.name
        if child.is_file() and not there.is_dir():
            child.replace(there)
            continue
        old = source.with_name(f"{source.name}-{child.name}-old")
        if there.exists():
            there.rename(old)
        child.rename(there)
        remove(old)


def new_folder_beside(folder: Path) -> Path:
    """Make an empty folder for files that are to be moved."""
    return Path(tempfile.mkdtemp(dir=folder, prefix="new-"))
