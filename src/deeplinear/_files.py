"""Writing files so that a reader never sees half of one, and knows one that has changed since."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_SEAL = b"\nsha256 of all before this line: "
_SEAL_LENGTH = len(_SEAL) + 2 * hashlib.sha256().digest_size + 1


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a temporary file beside ``path``, then move it into place."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist; make it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files private; results are ordinary files
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sealed(content: bytes) -> bytes:
    """Return the content of a file with a line at its end by which ``is_intact`` knows it.

    Readers of HDF5 and of zip files pass over what stands behind the end.

    Examples
    --------
    >>> file = io.BytesIO(sealed(b"results"))
    >>> is_intact(file), is_intact(io.BytesIO(file.getvalue().replace(b"results", b"resulte")))
    (True, False)
    """
    return content + _SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


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
        digest.update(part)
        left -= len(part)
    file.seek(0)
    return seal[len(_SEAL) :] == digest.hexdigest().encode() + b"\n"
