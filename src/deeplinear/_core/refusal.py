"""The error that says which value was refused, and what would be allowed in its place."""

from typing import Any


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
        shown = repr(value) if got is None else got
        super().__init__(f"{name} must {verb} {allowed}, got {shown}{rest}" if text is None else text)
        self.field, self.value, self.allowed = name.partition("[")[0], value, allowed

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process with the text as it stands."""
        return _made, (self.field, self.value, self.allowed, str(self))


def _made(field: str, value: Any, allowed: str, text: str) -> Refusal:
    return Refusal(field, value, allowed, text=text)
