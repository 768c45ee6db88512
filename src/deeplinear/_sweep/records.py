"""The JSON files of a store, each with a checksum, so that none is taken for what it is not."""

import hashlib
import json
from pathlib import Path
from typing import Any

from deeplinear._core.store import Damaged

_CHECKSUM = "sha256"


def to_json(document: dict[str, Any]) -> str:
    """Return a document as text, with its checksum."""
    return json.dumps(document | {_CHECKSUM: _checksum(document)})


def read_json(path: Path) -> dict[str, Any]:
    """Return a document that ``to_json`` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    Damaged
        If the file is not one that ``to_json`` wrote.
    """
    document = parse_json(path)
    if document.pop(_CHECKSUM, None) != _checksum(document):
        raise Damaged
    return document


def parse_json(path: Path) -> dict[str, Any]:
    """Return a document as it stands; raises as ``read_json`` does."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError, IsADirectoryError):
        raise Damaged from None
    if not isinstance(document, dict):
        raise Damaged
    return document


def file_checksums(root: Path) -> dict[str, str]:
    """Return the checksum of every file under a folder, by its path there."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def changed_files(root: Path, checksums: dict[str, str]) -> list[str]:
    """Return the paths under a folder of files that are missing, or are not what they were."""
    changed = []
    for name, checksum in checksums.items():
        try:
            content = (root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            changed.append(name)
            continue
        if hashlib.sha256(content).hexdigest() != checksum:
            changed.append(name)
    return changed


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()
