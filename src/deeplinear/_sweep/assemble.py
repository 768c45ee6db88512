"""All results of a sweep as one data set, and as a Zarr group."""

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear._core.files import remove, write_atomically
from deeplinear._core.store import Damaged
from deeplinear._sweep.manifest import WORK_FOLDER
from deeplinear._sweep.plan import EXPERIMENT, THEORY, Batch, Plan
from deeplinear._sweep.records import changed_files, file_checksums, read_json, to_json
from deeplinear._sweep.work import FAILURES, Result, empty

if TYPE_CHECKING:
    import xarray as xr

KIND = "deeplinear.Sweep"

_PREFIX = {THEORY: "", EXPERIMENT: "measured_"}
_MEANING = {
    "test_loss": "test loss, theory",
    "train_loss": "train loss, theory",
    "diverged_at": "first step beyond bounds, -1 if none",
    "rounding_at": "step from which on rounding errors have grown into the losses, -1 if none",
    "failure": "why there is no theory, empty if there is",
    "failure_type": "type of that error, empty if there is none",
    "done": "whether the theory was computed or has failed",
    "measured_test_loss": "test loss, mean over networks",
    "measured_train_loss": "train loss, mean over networks",
    "measured_test_loss_error": "standard error of measured_test_loss",
    "measured_train_loss_error": "standard error of measured_train_loss",
    "measured_diverged": "number of networks that diverged",
    "measured_failure": "why there is no experiment, empty if there is",
    "measured_failure_type": "type of that error, empty if there is none",
    "measured_done": "whether the experiment was done or has failed",
}


def to_dataset(
    plan: Plan, batches: Iterable[Batch], results: Iterable[tuple[str, Result]], version: str
) -> "xr.Dataset":
    """Put every batch into its place; results are given by name."""
    import xarray as xr  # slow to import

    arrays, known = {kind: _blank(plan, kind) for kind in plan.kinds}, {batch.name: batch for batch in batches}
    for batch_name, result in results:
        batch = known[batch_name]
        members = list(batch.members)
        for name, values in result.items():
            arrays[batch.kind][name][members] = values
        arrays[batch.kind]["done"][members] = True
    dims = [axis.name for axis in plan.axes]
    variables: dict[str, Any] = {}
    for kind, by_name in arrays.items():
        for name, values in by_name.items():
            full = _PREFIX[kind] + name
            if name in FAILURES:
                values = values.astype(np.str_)
            shaped = values.reshape(plan.shape + values.shape[1:])
            variables[full] = (dims + ["time"] * (values.ndim - 1), shaped, {"long_name": _MEANING[full]})
    coordinates: dict[str, Any] = {axis.name: (axis.name, axis.coordinate) for axis in plan.axes}
    coordinates["time"] = ("time", plan.times, {"long_name": "training step"})
    attributes = {
        "kind": KIND,
        "problem": plan.problem.to_toml(),
        "experiment": json.dumps(plan.experiment),
        "complete": bool(all(by_name["done"].all() for by_name in arrays.values())),
        "deeplinear_version": version,
    }
    return xr.Dataset(variables, coordinates, attributes)


def is_published(root: Path) -> bool:
    """Return whether the Zarr group of a store is there, is what was written, and has everything."""
    return damage_of_published(root) == [] and json.loads((root / ".zattrs").read_bytes())["complete"] is True


def damage_of_published(root: Path) -> list[str] | None:
    """Return the files of the Zarr group of a store that are not what was written; None if nothing is known of it."""
    try:
        record = read_json(_record(root))
        changed = changed_files(root, record["files"])
        if changed and read_json(_record(root)) != record:  # it was written anew meanwhile
            return None
        return changed
    except (FileNotFoundError, Damaged):  # it was not written yet, or is being written
        return None


def write_zarr(dataset: "xr.Dataset", root: Path) -> None:
    """Write a data set to the Zarr group of a store, in place of what is there; only one process may, at a time.

    Format 2, which every version of Zarr reads. Data sets of one sweep have equal shapes, so that a reader who comes
    in between sees old values or new ones in each variable. To Zarr a missing file is a part of an array that is
    empty, so the checksums of all files are kept beside it.
    """
    for left in (root / WORK_FOLDER).glob("new-*"):  # by a process that was killed
        remove(left)
    fresh = _new_folder_beside(root / WORK_FOLDER)
    try:
        dataset.to_zarr(fresh, mode="w", zarr_format=2, consolidated=True)
        record = to_json({"files": file_checksums(fresh)})
        remove(_record(root))
        _replace_folders(fresh, root)
        write_atomically(_record(root), lambda temporary: temporary.write_text(record))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _record(root: Path) -> Path:
    return root / WORK_FOLDER / "published.json"


def _blank(plan: Plan, kind: str) -> Result:
    """Arrays of a sweep with no results yet; invalid points are done from the start."""
    blank = empty(plan.size, len(plan.times), kind == EXPERIMENT)
    blank |= {name: np.full(plan.size, "", dtype=object) for name in FAILURES}
    blank["done"] = np.zeros(plan.size, dtype=bool)
    for index, error in plan.invalid.items():
        blank["failure"][index], blank["failure_type"][index] = str(error), error.type
        blank["done"][index] = True
    return blank


def _replace_folders(source: Path, target: Path) -> None:
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


def _new_folder_beside(folder: Path) -> Path:
    """Make an empty folder for files that are to be moved."""
    return Path(tempfile.mkdtemp(dir=folder, prefix="new-"))
