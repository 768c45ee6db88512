"""The command line ``deeplinear``.

``_fields`` and ``_options`` declare every option once and turn them into objects, ``_grid`` and ``_sweep_options``
those of many problems; ``_commands``, ``_sweep_commands``, ``_reproduce`` and ``_explore`` do the jobs, ``_report``
shows them (progress on stderr, results on stdout) and ``_errors`` ends them with an exit code.
"""

from deeplinear._cli import _explore, _reproduce, _sweep_commands  # noqa: F401  # their commands register themselves
from deeplinear._cli._commands import app


def main() -> None:
    """Run the command line."""
    app(prog_name="deeplinear")


__all__ = ["app", "main"]
