"""What is claimed of a panel, and how it is judged: numbers with errors, against bounds that are fixed beforehand.

A bound comes from the statement itself, from a closed form, from half the way to what a rival says, or from the width
of a line in the pictures; never from the number that is judged. Its reason stands beside it and is shown with it.
"""

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SIGNIFICANT = 3.0
"""Standard errors by which a number must clear a bound, on either side: less than 0.3 % of decisions are chance."""

LINE_WIDTH = 0.1
"""Relative distance at which two curves are seen apart: a line is 2.2 points wide, which is ten per cent where a
decade takes 55 points, as in most of the pictures."""

MOVES = 0.1
"""Exponent from which a learning rate counts as moving: ten times the size then asks for a rate that is one step away
on a grid of ten rates per decade."""


class Outcome(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Check:
    """A number that must lie between two bounds.

    Attributes
    ----------
    name, source
        What was measured, and of what: "theory", "networks", or "clock" for times.
    value, error
        The number and its standard error; None where it is exact.
    low, high
        The bounds.

    Examples
    --------
    >>> Check("exponent", "networks", 0.02, 0.01, low=-0.1, high=0.1).outcome
    <Outcome.HOLDS: 'holds'>
    >>> Check("exponent", "networks", 0.02, 0.05, low=-0.1, high=0.1).outcome
    <Outcome.UNDECIDED: 'undecided'>
    """

    name: str
    source: str
    value: float
    error: float | None = None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))  # not NumPy's own kind
        object.__setattr__(self, "error", None if self.error is None else float(self.error))

    @property
    def outcome(self) -> Outcome:
        """Whether the number is inside, outside, or too uncertain to tell."""
        margin = 0.0 if self.error is None else SIGNIFICANT * self.error
        if math.isnan(self.value) or math.isnan(margin):
            return Outcome.UNDECIDED
        if self.low < self.value - margin and self.value + margin < self.high:
            return Outcome.HOLDS
        outside = self.value + margin < self.low or self.value - margin > self.high
        return Outcome.FAILS if outside or self.error is None else Outcome.UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A statement, the numbers on which it stands or falls, and their bounds.

    Attributes
    ----------
    text
        The statement, in words.
    bound
        What the numbers must do for it to hold, and why just that.
    checks
        The numbers; all of them must be inside their bounds.
    also
        More numbers, which decide nothing.
    why
        What to make of it where it does not hold.
    ours
        Whether the statement is not the paper's.
    """

    text: str
    bound: str
    checks: tuple[Check, ...]
    also: str = ""
    why: str = ""
    ours: bool = False

    @property
    def outcome(self) -> Outcome:
        """It holds if all numbers do, and fails if one does."""
        found = {check.outcome for check in self.checks}
        if Outcome.FAILS in found:
            return Outcome.FAILS
        return Outcome.UNDECIDED if Outcome.UNDECIDED in found or not found else Outcome.HOLDS

    @property
    def measured(self) -> str:
        """All numbers, in words."""
        groups = itertools.groupby(self.checks, lambda check: check.name)
        said = [f"{name}: {', '.join(_sourced(check) for check in checks)}" for name, checks in groups]
        return "; ".join([*said, self.also] if self.also else said)

    @property
    def remark(self) -> str:
        """What to make of it, unless it holds."""
        return "" if self.outcome is Outcome.HOLDS else self.why

    def document(self) -> dict[str, Any]:
        """Return it as it stands in claims.json."""
        return {
            "text": self.text,
            "bound": self.bound,
            "measured": self.measured,
            "outcome": str(self.outcome),
            "why": self.remark,
            "ours": self.ours,
            "checks": [
                {
                    "name": check.name,
                    "source": check.source,
                    "value": check.value,
                    "error": check.error,
                    "low": check.low,
                    "high": check.high,
                    "outcome": str(check.outcome),
                }
                for check in self.checks
            ],
        }


def _sourced(check: Check) -> str:
    return f"{quantity(check.value, check.error)} ({check.source})"


def quantity(value: float, error: float | None = None) -> str:
    """Write a number with its error, both to the second digit of the error.

    Examples
    --------
    >>> quantity(0.60123, 0.0081), quantity(-2.5e-7), quantity(-0.0002, 0.0014), quantity(0.5, float("nan"))
    ('0.6012 ± 0.0081', '−2.5e-07', '−0.0002 ± 0.0014', '0.5 ± ?')
    """
    if error is None or error == 0:
        text = f"{value:.3g}"
    elif not math.isfinite(error) or not math.isfinite(value):
        text = f"{value:.3g} ± ?"
    elif abs(value) >= 1e5 or error < 1e-4:
        text = f"{value:.3g} ± {error:.1e}"
    else:
        digits = max(0, 1 - math.floor(math.log10(error)))
        text = f"{value:.{digits}f} ± {error:.{digits}f}"
    return text[0].replace("-", "−") + text[1:]
