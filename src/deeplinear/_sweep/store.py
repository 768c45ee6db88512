"""Where the batches of a sweep are kept: a folder that survives everything, or memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deeplinear._core.refusal import Refusal
from deeplinear._core.store import ARRAYS, Damaged, Store, in_use, read
from deeplinear._sweep.manifest import WORK_FOLDER, local_path, points_of, what_is_left, write_once
from deeplinear._sweep.plan import Batch, Plan, batches_of, fingerprints
from deeplinear._sweep.work import Result, out_of_memory


class Memory:
    """Keeps results in memory."""

    root: Path | None = None

    def __init__(self) -> None:
        self._results: dict[str, Result] = {}

    def is_done(self, name: str) -> bool:
        """Return whether a batch is finished."""
        return name in self._results

    def take(self, name: str) -> bool:
        """There is no one else."""
        return True

    def put(self, name: str, value: Result) -> None:
        """Keep a result."""
        self._results[name] = value

    def results(self) -> Iterator[tuple[str, Result]]:
        """Return all that is finished."""
        yield from self._results.items()

    def close(self) -> None:
        """There is nothing to give up."""


def open_store(path: str | Path, plan: Plan, resume: bool) -> tuple[Store[Result], list[Batch]]:
    """Start a sweep in a new folder, or resume one; return the store and the batches that it was begun with.

    Batches that failed for lack of memory, and files that were damaged or belong elsewhere, count as unfinished when
    the folder is opened, and are computed again.

    Raises
    ------
    ValueError
        If the folder has something else in it, or is there and ``resume`` is False, or has results of another build;
        or if its manifest is damaged and it has results of another sweep. Otherwise a damaged manifest is written
        again.
    OSError
        If the folder cannot be written.
    """
    root = local_path(path)
    with in_use(root):
        if root.exists() and not root.is_dir():
            raise Refusal("store", root, "a folder", got=f"the file {root}")
        if root.is_dir() and any(root.iterdir()) and not (root / WORK_FOLDER).is_dir():
            text = f"store must be new or hold a sweep; the folder {root} has something else in it{what_is_left(root)}"
            raise Refusal("store", root, "new or hold a sweep", text=text)
        points_of(root).mkdir(parents=True, exist_ok=True)
        manifest = write_once(root, plan.manifest(), resume)
    store = Store(root, points_of(root), root / WORK_FOLDER, fingerprints(manifest), ARRAYS, _is_final)
    return store, batches_of(manifest)


def read_results(root: Path, manifest: dict[str, Any], damaged: list[Path]) -> Iterator[tuple[str, Result]]:
    """Read every batch that is finished; add to ``damaged`` files that are not what this sweep wrote."""
    for name, key in fingerprints(manifest).items():
        path = points_of(root) / f"{name}{ARRAYS.suffix}"
        try:
            yield name, read(path, key, ARRAYS, refuse_from=None)
        except FileNotFoundError:
            continue
        except Damaged:
            damaged.append(path)


def _is_final(result: Result) -> bool:
    return not out_of_memory(result)
