"""The program ``deeplinear``, up to where the library takes over.

It stands beside the library, since importing anything inside of it loads all of it, which takes a second or so in which
an interrupt must end the program as it does at any other time. It imports as little as it can: an interrupt before
``main`` is left to Python.
"""

import os
import signal
import sys

INTERRUPTED = 130
REFUSED = 2


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have asked to ignore interrupts
        signal.signal(signal.SIGINT, end)
    import_rules()
    from deeplinear._cli import main as run

    run()


def import_rules() -> None:
    """Import the module of update rules that ``--rules`` names, before options are made of what is known."""
    arguments = sys.argv[1:]
    given = [index for index, each in enumerate(arguments) if each == "--rules" or each.startswith("--rules=")]
    if not given:
        return
    index = given[0]
    name = arguments[index].partition("=")[2] or "".join(arguments[index + 1 : index + 2])
    sys.path.append(os.getcwd())
    import importlib

    try:
        importlib.import_module(name)
    except (ImportError, ValueError) as error:
        os.write(2, f"error: --rules must be a module that Python can import, got {name!r}: {error}\n".encode())
        sys.exit(REFUSED)


def end(*_: object) -> None:
    """End at once where there is nothing to tidy up: while the library loads, and when the work is done."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
