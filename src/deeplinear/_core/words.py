"""Numbers as people write them."""

import difflib
import math
from collections.abc import Iterable

INFINITE = "infinite"
"""The word for the limit of infinite width, ``MLP(width="infinite")``."""


def in_time(seconds: float) -> str:
    """Write a duration for people.

    Examples
    --------
    >>> [in_time(s) for s in (0.004, 12.0, 600.0, 9000.0, 864000.0)]
    ['< 0.1 s', '12.0 s', '10.0 min', '2.5 h', '10.0 days']
    """
    if seconds < 0.1:
        return "< 0.1 s"
    for unit, length, enough in (("s", 1.0, 60.0), ("min", 60.0, 3600.0), ("h", 3600.0, 86400.0)):
        if seconds < enough:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def in_bytes(count: float) -> str:
    """Write an amount of memory for people.

    Examples
    --------
    >>> [in_bytes(b) for b in (12, 3.45e6, 2e9, 2e13)]
    ['12 B', '3.5 MB', '2.0 GB', '20.0 TB']
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def counted(count: int, what: str) -> str:
    """Write a number of things whose plural ends in s.

    Examples
    --------
    >>> counted(1, "run"), counted(10, "run")
    ('1 run', '10 runs')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the nearest of some known words, in parentheses; empty if none is near.

    Examples
    --------
    >>> did_you_mean("widht", ["depth", "width"]), did_you_mean("colour", ["depth", "width"])
    (" (did you mean 'width'?)", '')
    """
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def percent(fraction: float) -> str:
    """Write a relative extra loss in per cent, to two digits, up to a thousand times as much.

    Examples
    --------
    >>> percent(0.0), percent(0.00321), percent(0.257), percent(25.7), percent(math.inf), percent(math.nan)
    ('0 %', '0.32 %', '26 %', '2600 %', 'diverges', 'unknown')
    >>> percent(5.1e7)
    'over 100000 %'
    """
    if math.isnan(fraction):
        return "unknown"
    if math.isinf(fraction):
        return "diverges"
    if fraction > 1e3:
        return "over 100000 %"
    return f"{float(f'{100 * fraction:.2g}'):g} %" if abs(fraction) >= 5e-5 else "0 %"


def in_three_decimals(value: float) -> str:
    """Write a number to three decimals, and zero without a sign.

    Examples
    --------
    >>> in_three_decimals(-0.12345), in_three_decimals(-0.0001)
    ('-0.123', '0.000')
    """
    return f"{round(value, 3) + 0.0:.3f}"
