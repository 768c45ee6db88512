"""The command line ``deeplinear``.

``_fields`` and ``_options`` declare every option once and turn them into objects, ``_grid`` and ``_sweep_options``
those of many problems, ``_geometry_options`` those of curvature and landscapes, ``_planning_options`` those of plans;
``_commands``, ``_sweep_commands``, ``_geometry_commands``, ``_planning_commands``, ``_fit``, ``_runs_commands``,
``_reproduce`` and ``_explore`` do the jobs, ``_report`` shows them (progress on stderr, results on stdout),
``_pictures`` draws them, and ``_errors`` ends them with an exit code.
"""

import os
import sys
import warnings

# Their commands register themselves.
from deeplinear._cli import (  # noqa: F401
    _explore,
    _fit,
    _geometry_commands,
    _planning_commands,
    _reproduce,
    _runs_commands,
    _sweep_commands,
)
from deeplinear._cli._commands import app

_shown: set[str] = set()
"""Warnings that were shown."""

_QUIET = "ignore::RuntimeWarning"


def main() -> None:
    """Run the command line."""
    if not sys.warnoptions:  # numbers that leave their range are told by the status of a run; who asks sees them
        warnings.simplefilter("ignore", RuntimeWarning)
        os.environ.setdefault("PYTHONWARNINGS", _QUIET)  # for the processes of a sweep
    warnings.showwarning = _one_line
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a letter that the terminal lacks must not cost the result
    sys.unraisablehook = _not_of_dask
    app(prog_name="deeplinear")


def _one_line(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning as people read it, without the line of code that it comes from, and once."""
    if str(message) not in _shown:
        _shown.add(str(message))
        print(f"warning: {message}", file=sys.stderr)


def _not_of_dask(ignored: "sys.UnraisableHookArgs") -> None:
    """Leave out that a client of Dask which never was connected cannot be closed, which is said after our own error."""
    if not str(getattr(ignored.object, "__module__", "")).startswith("distributed"):
        sys.__unraisablehook__(ignored)


__all__ = ["app", "main"]
