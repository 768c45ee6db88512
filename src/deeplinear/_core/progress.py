"""How long work tells what is done."""

from collections.abc import Callable

Progress = Callable[[int, int], object]
"""Called as ``progress(done, total)``; an exception that it raises ends the work."""
