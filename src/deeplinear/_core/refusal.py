"""The error that says which value was refused, and what would be allowed in its place."""

import math
import reprlib
from collections.abc import Callable, Iterable, Sized
from fractions import Fraction
from typing import Any

from deeplinear._core.words import did_you_mean

_MANY_DIGITS = 10**40
"""From where on whole numbers are not written out."""
_MANY_ENTRIES = 100
"""Most entries of a list that a message shows."""
_LONG = 2000
"""Most letters of a value that a message shows."""
_CUT = reprlib.Repr()


class Refusal(ValueError):
    """A value that is not allowed.

    Parameters
    ----------
    name
        The argument that was refused, as the message names it: ``"width"``, or ``"width[1]"`` for one of its entries.
    value
        The value that was given.
    allowed
        What is allowed, as words that follow "must be" (or "must" and another ``verb``).
    verb
        The verb of the sentence.
    got
        How the message shows the value; its ``repr`` by default.
    rest
        What follows the value in the message, with its punctuation, such as a reason.
    text
        The whole message, where the usual sentence does not fit.

    Attributes
    ----------
    field
        Name of the argument, without the index of an entry.
    value, allowed
        As given.

    Examples
    --------
    >>> refusal = Refusal("width[1]", -2.0, "a positive finite number")
    >>> refusal.field, refusal.value, refusal.allowed
    ('width', -2.0, 'a positive finite number')
    >>> print(refusal)
    width[1] must be a positive finite number, got -2.0
    """

    def __init__(
        self,
        name: str,
        value: Any,
        allowed: str,
        *,
        verb: str = "be",
        got: str | None = None,
        rest: str = "",
        text: str | None = None,
    ) -> None:
        shown = _shown(value) if got is None else got
        super().__init__(f"{name} must {verb} {allowed}, got {shown}{rest}" if text is None else text)
        self.field, self.value, self.allowed = name.partition("[")[0], value, allowed

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process with the text as it stands."""
        return _made, (type(self), self.field, self.value, self.allowed, str(self))


def _shown(value: Any) -> str:
    """Return how a value looks in a message; of a number with hundreds of digits, about how large it is."""
    if isinstance(value, int | Fraction) and abs(math.trunc(value)) >= _MANY_DIGITS:
        digits = int(math.log10(2) * abs(math.trunc(value)).bit_length())
        return f"{'-' if value < 0 else ''}10**{digits} or so"
    try:
        text = _CUT.repr(value) if isinstance(value, Sized) and len(value) > _MANY_ENTRIES else repr(value)
    except (RecursionError, TypeError, OverflowError):  # nested deeply, or without a length that can be told
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} ... {text[-_LONG // 10 :]}"


def _made(kind: type[Refusal], field: str, value: Any, allowed: str, text: str) -> Refusal:
    return kind(field, value, allowed, text=text)


class UnknownNames(Refusal):
    """Words in a table that nobody knows."""


def check_names(where: str, table: dict[str, Any], allowed: list[str]) -> None:
    """Refuse words in a table that nobody knows; say which, all of them, and which were probably meant."""
    unknown = [key for key in table if key not in allowed]
    if unknown:
        words = " and ".join(f"{key!r}{did_you_mean(key, allowed)}" for key in unknown)
        text = f"{words} {'is' if len(unknown) == 1 else 'are'} not known in {where}; allowed: {', '.join(allowed)}"
        raise UnknownNames(unknown[0], table[unknown[0]], ", ".join(allowed), text=text)


def gather_unknown(checks_of_tables: Iterable[Callable[[], Any]]) -> list[Any]:
    """Do several checks, and refuse unknown words of all of them at once."""
    found, refusals = [], []
    for check in checks_of_tables:
        try:
            found.append(check())
        except UnknownNames as refusal:
            refusals.append(refusal)
    if refusals:
        first = refusals[0]
        raise UnknownNames(first.field, first.value, first.allowed, text="; ".join(map(str, refusals)))
    return found
