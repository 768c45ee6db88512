"""The sections of the page.

Each has a TITLE, ``measure() -> data``, ``headlines(data) -> (what, number) pairs`` and
``show(data) -> lines of Markdown``.
"""

from collections.abc import Iterable, Mapping


def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """A table in Markdown."""
    names = [str(name) for name in header]
    body = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names), *body, ""]


def seconds(value: float) -> str:
    """A time to two digits.

    >>> [seconds(value) for value in (0.01234, 3.456, 123.4)]
    ['0.012 s', '3.5 s', '123 s']
    """
    return f"{value:.0f} s" if value >= 100 else f"{value:.2g} s"


def rounded(value: float) -> str:
    """A ratio to two digits, written out.

    >>> [rounded(value) for value in (1.234, 98.7, 12345.6)]
    ['1.2', '99', '12 000']
    """
    return f"{float(f'{value:.2g}'):,.0f}".replace(",", " ") if value >= 10 else f"{value:.2g}"


def measured_at(where: Mapping[str, str]) -> str:
    """When and how busy the machine was, of a part that was measured on its own."""
    return f"Measured {where['date']}, {where['machine'].partition(';')[0]}, at load {where['load']}"
