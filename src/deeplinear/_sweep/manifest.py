"""The description of the sweep in a store: written once, compared when it is resumed, and restored if it is lost."""

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from deeplinear._core.files import remove
from deeplinear._core.refusal import Refusal
from deeplinear._core.store import Damaged, origin_of, refuse_other
from deeplinear._sweep.plan import LAYOUT, differences, fingerprints
from deeplinear._sweep.records import parse_json, read_json, to_json

WORK_FOLDER = ".deeplinear"
"""Folder inside a store with everything that is not Zarr."""


def points_of(root: Path) -> Path:
    """Return the folder with a file for each batch that is finished."""
    return root / WORK_FOLDER / "points"


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the description of the sweep in a store."""
    root = local_path(path)
    try:
        return _manifest(root)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not _intact_results(root):
            text = f"store must hold a sweep, and {root} does not{what_is_left(root)}"
            raise Refusal("store", root, "a folder that holds a sweep", text=text) from None
        raise _lost(root, "is missing") from error
    except Damaged:
        raise _lost(root, "is damaged") from None


def local_path(path: Any) -> Path:
    """Return a path if it is one of this machine's."""
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        raise Refusal("store", path, "the path of a folder")
    return Path(path)


def write_once(root: Path, manifest: dict[str, Any], resume: bool) -> dict[str, Any]:
    """Write the manifest unless there is one, of the same sweep; return the one that is there."""
    path = root / WORK_FOLDER / "manifest.json"
    try:
        found = _manifest(root)
    except (FileNotFoundError, Damaged):
        _check_restorable(root, manifest, resume)
    else:
        _check_same(root, found, manifest, resume)
        return found
    temporary = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    temporary.write_text(to_json(manifest))
    try:
        if path.exists():
            remove(path)  # it is damaged
        os.link(temporary, path)  # the one way to create a whole file only if it is not there
    except FileExistsError:  # by another process, just now
        found = _manifest(root)
        _check_same(root, found, manifest, resume)
        return found
    except OSError:  # this file system has no links
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return manifest


def _manifest(root: Path) -> dict[str, Any]:
    path = root / WORK_FOLDER / "manifest.json"
    document = parse_json(path)
    if document.get("layout") != 1:  # which had no checksum
        document = read_json(path)
    if document["layout"] != LAYOUT:
        text = (
            f"store {root} was written by deeplinear {document.get('deeplinear_version')}, whose stores this version "
            f"does not read (they have layout {document['layout']}, and this version reads layout {LAYOUT}); "
            "choose another store, or continue with that version"
        )
        raise Refusal("store", root, f"a store of layout {LAYOUT}", text=text)
    return document


def _check_same(root: Path, found: dict[str, Any], wanted: dict[str, Any], resume: bool) -> None:
    different = differences(found, wanted)
    if different:
        text = f"store {root} holds another sweep: it differs in {' and '.join(different)}; choose another store"
        raise Refusal("store", root, "new or hold this sweep", text=text)
    refuse_other(root, found["build"])
    if not resume:
        text = f"store {root} holds this sweep already; resume it, or choose another store"
        raise Refusal("store", root, "new, or resumed", text=text)


def _check_restorable(root: Path, wanted: dict[str, Any], resume: bool) -> None:
    """Refuse a sweep in a folder whose manifest is lost, if it has results of another one."""
    found = _intact_results(root)
    foreign = {key for key, _ in found} - set(fingerprints(wanted).values())
    if foreign:
        text = (
            f"store {root} is damaged: the description of its sweep is lost, and {len(foreign)} of its {len(found)} "
            "intact results belong to a different sweep; choose another store, or ask for the sweep that it was "
            "made for, which restores it"
        )
        raise Refusal("store", root, "new or hold this sweep", text=text)
    for _, build in found:
        refuse_other(root, build)
    if found and not resume:
        text = f"store {root} holds this sweep already, damaged; resume it, or choose another store"
        raise Refusal("store", root, "new, or resumed", text=text)


def _intact_results(root: Path) -> list[tuple[str, str]]:
    """Return what each of the readable files of results belongs to, and which build has written it."""
    found = []
    for path in sorted(points_of(root).glob("[!.]*.npz")):
        with suppress(FileNotFoundError, Damaged):
            found.append(origin_of(path))
    return found


def what_is_left(root: Path) -> str:
    """Say what is left of a store whose own folder is gone."""
    if not (root / ".zmetadata").exists():
        return ""
    return f"; it has lost its folder {WORK_FOLDER}, and xarray.open_zarr may still read what it published"


def _lost(root: Path, how: str) -> Refusal:
    text = (
        f"store {root} is damaged: the description of its sweep, {WORK_FOLDER}/manifest.json, {how}; "
        f"{len(_intact_results(root))} of its files of results are intact, and are kept when sweep is called again "
        "with the same problem, grid and store, which writes the description again"
    )
    return Refusal("store", root, "a folder that holds a whole sweep", text=text)
