"""The compiled products, if there are any and they are those of the source that lies beside them."""

import hashlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

SOURCES = ("_rows.pyx", "row_products.h", "row_program.h")


MODULE = "deeplinear._equations._rows"


def load(folder: Path = Path(__file__).parent) -> ModuleType | None:
    """Return the compiled module; None if it was not compiled, does not load, or is not of the source in ``folder``.

    Only an installation that can be edited has the source at hand, and only there can it have changed since.

    Warns
    -----
    RuntimeWarning
        If there is a module that does not load, or whose source has changed. NumPy then computes the products, as it
        does where there is none.
    """
    if find_spec(MODULE) is None:  # installed without a compiler
        return None
    try:
        from deeplinear._equations import _rows
    except ImportError as error:
        _warn(f"do not load ({error})", "--force-reinstall --no-deps deeplinear")
        return None
    if is_stale(_rows, folder):
        _warn("do not match its source", "--editable .")
        return None
    return _rows


def _warn(wrong: str, install: str) -> None:
    """Say what is wrong and how to mend it, at the place that asked for the module."""
    warnings.warn(
        f"the compiled products of deeplinear {wrong}, so NumPy computes them, more slowly; "
        f"install the package again (pip install {install})",
        RuntimeWarning,
        stacklevel=3,
    )


def is_stale(module: ModuleType, folder: Path) -> bool:
    """Return whether the source in ``folder``, if it is there, is not the one that ``module`` was compiled from."""
    sources = [folder / name for name in SOURCES]
    if not all(source.exists() for source in sources):
        return False
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return bool(getattr(module, "SOURCE", None) != digest)
