"""Give the command line wrong values in every option, and see that each ends in a sentence and a documented code.

    python tools/faults_cli.py [--lines 640] [--seed 0]

Options come from the commands themselves, so that new ones are tried too. Every line runs in this process, with a limit
of time and of memory; what does not hold is printed, and the exit code is 1.
"""

import argparse
import os
import random
import resource
import shlex
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from deeplinear._cli import app

CODES = {0, 1, 2, 3, 4, 5}
SECONDS = 60
"""Most seconds of the processor for a line; it may wait ten times as long by the clock."""
BYTES = 8 * 2**30
SMALL = {
    "compare": "--steps 6 --dim 8 --seeds 2",
    "solve": "--steps 6",
    "simulate": "--steps 6 --dim 8 --seeds 2",
    "estimate": "--steps 6",
    "sweep": "--over lr=0.01,0.02 --steps 5 --workers 1",
    "transfer": "--values 1,2 --steps 5",
    "sharpness": "--steps 6 --vectors 3 --at 5",
    "landscape": "--steps 6",
    "optimal": "--steps 6 --starts 1",
    "plan": "--compute 20 --steps 6 --values width=1,2",
    "reproduce": "--list",
    "explore": "--no-browser --port 99999",
}
"""What makes each command quick; a later value of an option takes the place of these."""

UGLY = [
    "", " ", "-1", "0", "-0.0", "1e-320", "1e308", "1e400", "-inf", "inf", "nan", "1" + "0" * 400, "9" * 5000, "0x10",
    "1_0", "³", "true", "None", "infinite", "wide", "--depth", "[", "[[", "[[1, 2], [3]]", '{"a": 1}', "[" * 5000,
    "1,2,3", "1,,2", ";", "1;2", "a=b", "lr=", "=1", "lr=1:2:3log", "lr=2:1:3log", "lr=1:2:999999999999",
    "depth=1.5,2", "missing.toml", "bad.toml", "deep.toml", "binary.toml", "/", "/dev/null", "/proc/nothing/x.nc",
    "x.nc", "x.png", "x" * 300 + ".nc", "\x00", "\udcff", "tcp://127.0.0.1", "foo", "dim=3", "dim=3,seeds=2",
    "dim=,seeds=2", "dim=99999999999999999999,seeds=1",
    *["100000", "1e5", "1000000000", "1e9", "1e30", "1" + "0" * 30] * 2,  # within what a field takes, or just beyond
]  # fmt: skip


class TooLong(BaseException):
    """Raised in a command that does not end."""


def options() -> list[tuple[str, str, bool]]:
    """Every option of every command: command, name and whether it takes a value."""
    group: Any = typer.main.get_command(app)
    return [
        (name, flag, not parameter.is_flag)
        for name, command in group.commands.items()
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("-") and flag not in ("--help", "--browser") and hasattr(parameter, "is_flag")
    ]


def command_lines(count: int, seed: int) -> list[list[str]]:
    """Lines with one or two options wrong; every option comes about equally often."""
    choose = random.Random(seed)
    known = options()
    order = [*known * (count // len(known) + 1)]
    choose.shuffle(order)
    lines = []
    for name, flag, has_value in order[:count]:
        line = [name, *SMALL.get(name, "").split(), flag, *([choose.choice(UGLY)] if has_value else [])]
        others = [(other, valued) for command, other, valued in known if command == name and other != flag]
        if others and choose.random() < 0.3:
            other, valued = choose.choice(others)
            line += [other, *([choose.choice(UGLY)] if valued else [])]
        lines.append([*line, "--json"] if choose.random() < 0.3 and name != "explore" else line)
    broken = [
        [],
        ["--nope"],
        ["sovle"],
        ["solve", "extra"],
        ["--version", "solve"],
        ["solve", "--steps"],
        ["\x00"],
        [""],
    ]
    return [*lines, *broken]


def fault_of(line: list[str]) -> str | None:
    """Run one line and return what is wrong with how it ended."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)
    try:
        result = CliRunner().invoke(app, line)
    except TooLong:
        return f"did not end in {SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if isinstance(result.exception, TooLong):
        return f"did not end in {SECONDS} s"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception)[-3:]).strip()
    errors = [each for each in result.stderr.splitlines() if not each.endswith((": started", " s"))]
    if result.exit_code not in CODES:
        return f"exit code {result.exit_code}"
    if "Traceback" in result.output:
        return "a traceback"
    if result.exit_code in (2, 4, 5) and line and (len(errors) != 1 or not errors[0].startswith("error: ")):
        return f"exit code {result.exit_code} without one sentence: {errors}"
    return None


def main() -> int:
    """Try all lines and say how many held."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--lines", type=int, default=640)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)  # of numbers that left their range, which the status tells

    def end(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
    signal.signal(signal.SIGPROF, end)
    lines = command_lines(given.lines, given.seed)
    tried: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("bad.toml").write_text("steps = = 3")
        Path("deep.toml").write_text("steps = " + "[" * 5000)
        Path("binary.toml").write_bytes(bytes(range(256)))
        for index, line in enumerate(lines):
            name = line[0] if line and line[0] in SMALL else "(none)"
            tried[name] += 1
            fault = fault_of(line)
            if fault:
                faults[name] += 1
                print(f"{shlex.join(line)[:200]!a}\n    {fault}", file=sys.stderr)
            if sys.stderr.isatty():
                print(f"\r{index + 1} of {len(lines)}", end="", file=sys.stderr)
        os.chdir("/")
    print("| command | lines tried | held |\n|---|---|---|")
    for name, count in sorted(tried.items()):
        print(f"| {name} | {count} | {count - faults[name]} |")
    print(f"| all | {tried.total()} | {tried.total() - faults.total()} |")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
