"""The program ``deeplinear``, up to where the library takes over.

It stands beside the library, since importing anything inside of it loads all of it, which takes a second or so in which
an interrupt must end the program as it does at any other time. It imports as little as it can: an interrupt before
``main`` is left to Python.
"""

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have asked to ignore interrupts
        signal.signal(signal.SIGINT, end)
    from deeplinear._cli import main as run

    run()


def end(*_: object) -> None:
    """End at once where there is nothing to tidy up: while the library loads, and when the work is done."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
