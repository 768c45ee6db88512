"""How a command ends: exit codes, and errors as one line on stderr."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

import typer
import typer.core

from deeplinear._core.failures import in_words
from deeplinear_command import end

OK, DISAGREES, BAD_INPUT, DIVERGED, NO_MEMORY, MISSING, INTERRUPTED, NOBODY_READS = 0, 1, 2, 3, 4, 5, 130, 141

# What is wrong with the options themselves is click's UsageError, wherever this version of typer keeps it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Commands(typer.core.TyperGroup):
    """Turns errors into one line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command's name; without any argument, show the help."""
        with _errors_as_exit_codes() if args else nullcontext():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Read the options of a command and run it."""
        with _errors_as_exit_codes(), _interrupts_raised():
            return super().invoke(ctx)


@contextmanager
def _interrupts_raised() -> Iterator[None]:
    """Have interrupts raise KeyboardInterrupt, so that work can be tidied up."""
    if signal.getsignal(signal.SIGINT) is not end:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end)


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # what cannot be written is found here, and not when Python ends
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich ends the program itself
            _leave_quietly()
        raise
    except BrokenPipeError:
        _leave_quietly()
    except ImportError as error:
        fail(in_words(error), MISSING)
    except MemoryError as error:
        fail(in_words(error), NO_MEMORY)
    except OSError as error:
        _drop_output()
        fail(f"{error.filename}: {error.strerror}" if error.filename else in_words(error), BAD_INPUT)
    except (ValueError, ArithmeticError, RecursionError) as error:
        fail(in_words(error), BAD_INPUT)
    except UsageError as error:
        fail(getattr(error, "format_message", error.__str__)(), BAD_INPUT)
    except KeyboardInterrupt:
        _say("interrupted")
        raise typer.Exit(INTERRUPTED) from None


def _leave_quietly() -> NoReturn:
    """End as other programs do when whoever reads their output has left, such as head."""
    _drop_output()
    raise typer.Exit(NOBODY_READS)


def _drop_output() -> None:
    """Let what is left in the buffer of a stream that cannot be written go nowhere."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
            continue
        with suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(message: str, code: int) -> NoReturn:
    """End with one line that says why, and an exit code."""
    _say(f"error: {' '.join(message.split())}")
    raise typer.Exit(code) from None


def _say(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr)
