"""How a command ends: exit codes, and errors as one line on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import typer
import typer.core

OK, DISAGREES, BAD_INPUT, DIVERGED, NO_MEMORY, INTERRUPTED = 0, 1, 2, 3, 4, 130

# What is wrong with the options themselves is click's UsageError, wherever this version of typer keeps it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Commands(typer.core.TyperGroup):
    """Turns errors into one line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command's name; without any argument, show the help."""
        with _errors_as_exit_codes() if args else nullcontext():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Read the options of a command and run it."""
        with _errors_as_exit_codes():
            return super().invoke(ctx)


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except MemoryError as error:
        _fail(f"error: {error}", NO_MEMORY)
    except OSError as error:
        _fail(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", BAD_INPUT)
    except (ValueError, ArithmeticError) as error:
        _fail(f"error: {error}", BAD_INPUT)
    except _UsageError as error:
        _fail(f"error: {getattr(error, 'format_message', error.__str__)()}", BAD_INPUT)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)


def _fail(message: str, code: int) -> NoReturn:
    print(" ".join(message.split()), file=sys.stderr)
    raise typer.Exit(code)
