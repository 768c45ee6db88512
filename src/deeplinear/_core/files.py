"""Writing files so that a reader never sees half of one, and knows one that has changed since."""

import hashlib
import io
import secrets
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

PICTURES = (".png", ".svg", ".pdf")
"""File formats of pictures, by their suffixes."""

_MOST_NESTED = 32

_LARGEST_TOML = 64 * 2**20

_SEAL = b"\nsha256 of all before this line: "
_SEAL_LENGTH = len(_SEAL) + 2 * hashlib.sha256().digest_size + 1


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a temporary file beside ``path``, then move it into place."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist; create it first")
    temporary = path.parent / f".{secrets.token_hex(8)}{path.suffix}"  # short, where the name is as long as it may be
    temporary.touch(exist_ok=False)  # an ordinary file, not a private one, by the umask of the process
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sealed(content: io.BytesIO) -> memoryview:
    """Add a line at the end of a file by which ``is_intact`` knows it, and return all of it.

    Readers of HDF5 and of zip files pass over what stands behind the end.

    Examples
    --------
    >>> file = bytes(sealed(io.BytesIO(b"results")))
    >>> is_intact(io.BytesIO(file)), is_intact(io.BytesIO(file.replace(b"results", b"resulte")))
    (True, False)
    """
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    content.seek(0, io.SEEK_END)
    content.write(_SEAL + digest.encode() + b"\n")
    return content.getbuffer()


def is_intact(file: BinaryIO) -> bool | None:
    """Return whether a file is what ``sealed`` made; None if it has no seal. Leaves the file at its beginning."""
    length = file.seek(0, io.SEEK_END) - _SEAL_LENGTH
    file.seek(max(length, 0))
    seal = file.read()
    file.seek(0)
    if length < 0 or not seal.startswith(_SEAL):
        return None
    digest = hashlib.sha256()
    left = length
    while left:
        part = file.read(min(left, 2**20))
        if not part:  # it has been cut off meanwhile
            return False
        digest.update(part)
        left -= len(part)
    file.seek(0)
    return seal[len(_SEAL) :] == digest.hexdigest().encode() + b"\n"


def unsealed(file: bytes) -> bytes | None:
    """Return what ``sealed`` was given; None if the file is not one that it made, or was damaged.

    Examples
    --------
    >>> unsealed(bytes(sealed(io.BytesIO(b"results"))))
    b'results'
    """
    return file[:-_SEAL_LENGTH] if is_intact(io.BytesIO(file)) else None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a file of TOML, in UTF-8 whatever the locale; what is none is refused with the name of the file."""
    with Path(path).open("rb") as file:
        return read_toml_from(file, str(path))


def read_toml_from(file: BinaryIO, name: str) -> dict[str, Any]:
    """Read TOML from what can be read but once, such as a pipe, and may not end."""
    content = file.read(_LARGEST_TOML + 1)
    if len(content) > _LARGEST_TOML:
        raise ValueError(f"{name} is not valid TOML: it has more than {_LARGEST_TOML // 2**20} MB")
    try:
        return parse_toml(content.decode())
    except ValueError as error:
        raise ValueError(f"{name} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Read TOML, whose tables and lists may stand in each other only so many times.

    Examples
    --------
    >>> parse_toml("a = " + 40 * "[" + 40 * "]")
    Traceback (most recent call last):
    ...
    ValueError: tables and lists are nested more than 32 times
    """
    too_deep = ValueError(f"tables and lists are nested more than {_MOST_NESTED} times")
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    level: list[Any] = [document]
    for _ in range(_MOST_NESTED):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise too_deep
    return document


def by_path(document: dict[str, Any]) -> dict[str, Any]:
    """Name each entry of nested tables by its path.

    Examples
    --------
    >>> by_path({"lr": [0.1], "phases": {"1": {"noise": [0.2]}}})
    {'lr': [0.1], 'phases.1.noise': [0.2]}
    """
    flat: dict[str, Any] = {}
    for key, value in document.items():
        inner = by_path(value) if isinstance(value, dict) else {}
        flat |= {f"{key}.{name}": each for name, each in inner.items()} or {key: value}
    return flat
