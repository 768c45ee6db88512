"""The command line as tests call it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from deeplinear import _cli

# The program takes longer to put together than most of what tests ask of it.
typer.testing._get_command = cache(typer.main.get_command)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a command writes by default go into the folder of the test; the terminal is wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(_cli.app, [str(each) for each in arguments])


def document(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Run with --json and parse stdout strictly: no NaN, nothing before or after."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    assert result.stderr == ""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    parsed: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return parsed


def refused(*arguments: str, code: int = 2) -> str:
    """Run what must be refused and return the one line that says why."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1  # nothing has been started
    assert lines[0].startswith("error: ")
    return str(lines[0])
