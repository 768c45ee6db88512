"""What a table of mutants is."""

from typing import NamedTuple


class Suite(NamedTuple):
    """Tests, and by file what they must catch: text that stands there once, and wrong text in its place."""

    tests: list[str]
    mutants: dict[str, list[tuple[str, str]]]
