"""Which build of deeplinear this is: results of one are never taken for those of another."""

import functools
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from deeplinear._core.refusal import Refusal

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

_PACKAGE = Path(__file__).parents[1]
_SOURCES = (".py", ".pyx", ".h")
_COMPUTE_NOTHING = ("_cli", "_explore", "_plots", "_reproduce")
"""Packages that ask for results and show them."""


class OtherBuild(Refusal):
    """Another version of this library, or other source code of the same version."""


def version() -> str:
    """Return the version of the package, which is there by now; the list of installed packages takes long to load."""
    return str(sys.modules["deeplinear"].__version__)


@functools.cache
def this_build() -> str:
    """Return the version; in a checkout, whose source may change under one version, with a digest of the source."""
    name = version()
    if not (_PACKAGE.parents[1] / "pyproject.toml").is_file():
        return name
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        place = path.relative_to(_PACKAGE)
        if path.suffix in _SOURCES and place.parts[0] not in _COMPUTE_NOTHING:
            digest.update(f"{place.as_posix()}\n".encode() + path.read_bytes())
    return f"{name} (source {digest.hexdigest()[:12]})"


def run_as(expected: str, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
    """Do a piece of work in another process, if that process runs the same build.

    Raises
    ------
    OtherBuild
        If it does not.
    """
    if this_build() != expected:
        text = f"a worker runs deeplinear {this_build()}, and this is deeplinear {expected}: give it the same version"
        raise OtherBuild("workers", this_build(), expected, text=text)
    return function(argument)
