"""Sizes of activations and of their updates against the width of a network: what was found, in numbers and words."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import ComparedByValue
from deeplinear._core.drawn import Drawn
from deeplinear._core.words import counted

Array = NDArray[np.float64]

STABLE = 0.25
"""Power of the width up to which a size counts as stable: parameterizations differ by powers of a half."""


@dataclass(frozen=True, eq=False)
class Sizes(ComparedByValue):
    """Sizes and updates at all widths.

    Attributes
    ----------
    size, update
        Root mean square per neuron of each field and of its update, shape (widths, fields).
    size_error, update_error
        Standard errors over networks, likewise; ``None`` for theory.
    """

    size: Array
    update: Array
    size_error: Array | None = None
    update_error: Array | None = None


@dataclass(frozen=True, eq=False)
class CoordinateCheck(ComparedByValue, Drawn):
    """Sizes of activations and of their updates against the width of a network.

    Printed, it is a table; ``verdict`` says in words whether sizes are stable.

    Attributes
    ----------
    widths
        In the units of the problem, or as a factory takes them, shape (widths,).
    step
        Number of steps after which the sizes were taken.
    names
        The fields. For a problem: h1 .. hL, the activations along the signal that drives training, and what the learned
        part of the weights adds to them; g1 .. gL, gradients of the function with respect to activations, and their
        change; and the change of the function f. For a module: the names of its layers.
    predicted
        What theory says; ``None`` for modules.
    measured
        What networks do; ``None`` if none were trained.
    powers
        Powers of the width with which sizes and updates grow, shape (2, fields): by theory between networks 64 and 128
        times as wide as the widest; of modules, and where training diverges there, in the wider half of the widths.
    power_errors
        Their standard errors over seeds, likewise; zero for theory.
    """

    widths: Array
    step: int
    names: tuple[str, ...]
    predicted: Sizes | None = field(repr=False)
    measured: Sizes | None = field(repr=False)
    powers: Array = field(repr=False)
    power_errors: Array = field(repr=False)

    @property
    def diverges_at(self) -> float | None:
        """Smallest of the widths at which training diverges; None if there is none."""
        updates = (self.predicted or self.measured).update  # type: ignore[union-attr]  # there is one of them
        wrong = ~np.isfinite(updates).all(axis=1)
        return float(self.widths[wrong][0]) if wrong.any() else None

    @property
    def stable(self) -> bool | None:
        """Whether all sizes and updates keep their size, up to powers of 0.25; None if networks leave it open."""
        if self.diverges_at is not None:
            return False
        margin = 2 * self.power_errors
        known = ~np.isnan(self.powers)
        if (np.abs(self.powers) - margin > STABLE)[known].any():
            return False
        return True if (np.abs(self.powers) + margin <= STABLE)[known].all() else None

    @property
    def verdict(self) -> str:
        """Whether sizes are stable across width, in words."""
        if self.diverges_at is not None:
            return f"not stable: training diverges at width {_width(self.diverges_at)}"
        sign = {None: 1, True: 0, False: -1}[self.stable]  # what may be large, what is, or what is for sure
        large = np.abs(self.powers) + sign * 2 * self.power_errors
        kind, which = np.unravel_index(np.nanargmax(np.round(large, 2)), large.shape)
        what = f"the {('size', 'update')[kind]} of {self.names[which]}"
        law = f"width^{_power(self.powers[kind, which])}"
        if self.predicted is None:
            law += f" (± {self.power_errors[kind, which]:.2f})"
        if self.stable is None:
            return f"undecided: {what} goes as {law}; train more networks"
        if not self.stable:
            return f"not stable: {what} goes as {law}"
        where = "in the limit of wide networks" if self.predicted is not None else "in the wider half"
        return f"stable: {where} no size or update moves faster than width^{_power(abs(self.powers[kind, which]))}"

    @property
    def largest_deviation(self) -> float:
        """Largest difference between networks and theory, in standard errors; nan unless there are both."""
        if self.predicted is None or self.measured is None:
            return math.nan
        pairs = [("size", "size_error"), ("update", "update_error")]
        with np.errstate(invalid="ignore", divide="ignore"):
            each = [
                np.abs(getattr(self.measured, name) - getattr(self.predicted, name)) / getattr(self.measured, error)
                for name, error in pairs
            ]
        return float(np.nanmax(np.where(np.isfinite(each), each, np.nan)))

    def __str__(self) -> str:
        lines = [f"after {counted(self.step, 'step')}".ljust(22) + "".join(f"{name:>12}" for name in self.names)]
        for what in ("size", "update"):
            for index, width in enumerate(self.widths):
                lines += self._rows(what, index, f"{what} at width {_width(width)}")
            powers = self.powers[("size", "update").index(what)]
            lines.append(f"power of the {what}".ljust(22) + "".join(_number(round(each, 2) + 0.0) for each in powers))
        lines.append(self.verdict)
        if not math.isnan(self.largest_deviation):
            lines.append(f"networks: largest deviation from theory {self.largest_deviation:.1f} standard errors")
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self, what: str, index: int, title: str) -> list[str]:
        both = [("", self.predicted), ("  networks", self.measured)]
        rows = [(name, getattr(each, what)[index]) for name, each in both if each is not None]
        titles = [title if position == 0 else name for position, (name, _) in enumerate(rows)]
        return [f"{label:<22}" + "".join(map(_number, values)) for label, (_, values) in zip(titles, rows, strict=True)]


def _width(value: float) -> str:
    return f"{value:g}" if value == round(value) else f"{value:.3g}"


def _power(value: float) -> str:
    """Write a power to two digits, without the sign of a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def _number(value: float) -> str:
    return ("" if math.isnan(value) else f"{value:.4g}").rjust(12)
