"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


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
