"""The compiled products, if there are any and they are those of the source that lies beside them."""

import hashlib
import warnings
from pathlib import Path
from types import ModuleType

SOURCES = ("_rows.pyx", "row_products.h")


def load(folder: Path = Path(__file__).parent) -> ModuleType | None:
    """Return the compiled module; None if it was not compiled, or from another source than that in ``folder``.

    Only an installation that can be edited has the source at hand, and only there can it have changed since.

    Warns
    -----
    RuntimeWarning
        If the source has changed. NumPy then computes the products.
    """
    try:
        from deeplinear._equations import _rows
    except ImportError:  # installed without a compiler
        return None
    if not is_stale(_rows, folder):
        return _rows
    warnings.warn(
        "the compiled products of deeplinear do not match its source, so NumPy computes them, more slowly; "
        "install the package again (pip install --editable .)",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def is_stale(module: ModuleType, folder: Path) -> bool:
    """Return whether the source in ``folder``, if it is there, is not the one that ``module`` was compiled from."""
    sources = [folder / name for name in SOURCES]
    if not all(source.exists() for source in sources):
        return False
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return bool(getattr(module, "SOURCE", None) != digest)
