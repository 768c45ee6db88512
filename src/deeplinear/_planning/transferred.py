"""The result of a transfer: how the best value of a field moves, what it costs to keep it, and a verdict."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.drawn import Drawn
from deeplinear._core.words import in_three_decimals
from deeplinear._learning_rate.measured import MeasuredOptima
from deeplinear._planning.axes import Axis
from deeplinear._planning.verdict import Evidence, Named, judge
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import factors_in_words, in_words

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Transfer(Drawn):
    """How the best learning rate, or another field, depends on the size of a model, and what it costs to keep it.

    ``verdict`` says whether it transfers, in words.

    Attributes
    ----------
    problem
        The problem from which all other fields come.
    field
        What is followed: ``"lr"``, or another field.
    over, values
        The field that is changed and its values, shape (values,); ``inf`` is an infinite width or depth.
    objective
        ``"test"`` or ``"train"`` loss.
    tried, loss
        Values of the field that is followed (for a schedule of rates, factors) and the loss at the last step, shapes
        (tried,) and (values, tried); ``inf`` where training diverges, ``nan`` where an infinite depth was not resolved.
    best
        Best value of each model, shape (values,).
    optima
        More about it: an ``OptimalLr`` for each value, or an ``OptimalValue`` of another field.
    local_exponents
        d log(best) / d log(value) at each value, exactly, by implicit differentiation; ``nan`` where the field that is
        changed is not continuous (depth, steps) or infinite, where the optimum is at a bound, and where it or an
        infinite depth is not resolved. For momentum and other fractions below one it is the exponent of 1 / (1 - best),
        the number of steps that they remember.
    jumps
        Pairs of neighbouring values between which the best value switches to another minimum of the loss. Across these
        the exponent says little.
    exponent, exponent_error
        Slope of log(best) against log(value) by least squares, and its standard error from the scatter about the line:
        how far the optima are from a power law. They are exact, so there is no sampling error. ``nan`` where an optimum
        is at a bound.
    kept_loss
        Loss of each value with what is best for the smallest one, shape (values,); label noise and all.
    regret
        Relative extra loss of each value with what is best for the smallest one, shape (values,): 0.1 is 10 % more
        than at its own optimum, both minus ``label_noise``; ``inf`` where training diverges, ``nan`` where an infinite
        depth was not resolved, or the loss of an optimum depends on rounding errors. The search for the optimum stops
        at minima within 0.1 % of the least loss, noise included: where noise is nearly all of it, the regret can be off
        by as much of the noise.
    experiment
        The same from finite networks, or ``None``.
    label_noise
        What the regret leaves out, since nothing can lower it: the noise of test labels; 0 for the train loss.
    """

    problem: Problem
    field: str
    over: str
    values: Array
    objective: str
    tried: Array = dataclasses.field(repr=False)
    loss: Array = dataclasses.field(repr=False)
    best: Array
    optima: tuple[Any, ...] = dataclasses.field(repr=False)
    local_exponents: Array
    jumps: tuple[tuple[float, float], ...]
    exponent: float
    exponent_error: float
    kept_loss: Array
    regret: Array
    experiment: MeasuredOptima | None = None
    label_noise: float = 0.0

    @property
    def lr(self) -> Array:
        """Optimal learning rate of each value, shape (values,), where the learning rate is what is followed."""
        return self._of_rate("lr", self.best)

    @property
    def lrs(self) -> Array:
        """Learning rates of the curves, shape (tried,), where the learning rate is what is followed."""
        return self._of_rate("lrs", self.tried)

    @property
    def verdict(self) -> str:
        """Whether what is best for the smallest value also works for the others, in words; empty if there are none.

        Two things count. The exponent and the range of the optima say whether they move, and where they will be for
        still larger models: up to 0.1 either way, and within 10 % of what this exponent explains, they stay. The regret
        says what it costs not to follow: up to 5 % more loss, above the label noise, is cheap, and so is a thousandth
        of all the loss. A value transfers if it is cheap to keep, even where a better one moves away from it.
        """
        # Where many values are equally good to rounding, the one that was found says nothing.
        exponent = self.exponent if self._is_resolved else math.nan
        known = Evidence(
            (exponent, exponent),
            (self.regret, self.regret),
            self.jumps,
            self.binding,
            self._range(self.best),
            (self.kept_loss, np.array([optimum.loss for optimum in self.optima])),
            self.label_noise,
        )
        return judge(self._named, self.values, known)

    @property
    def axis(self) -> Axis:
        """The field that is followed, with the range of the curves and the coordinate in which these are drawn."""
        return Axis(self.field, float(self.tried[0]), float(self.tried[-1]))

    @property
    def binding(self) -> tuple[str, ...]:
        """For each value ``"low"`` or ``"high"`` where the optimum is at a bound, else empty; rates have no bounds."""
        return tuple(each.binding for each in self.optima)

    @property
    def measured_verdict(self) -> str:
        """The same for the networks, which settle only what their intervals settle; empty without an experiment.

        They judge what was found to be best at the smallest value, however well that is known. Its own regret there is
        zero by construction and does not count.
        """
        measured = self.experiment
        if measured is None:
            return ""
        exponent = (measured.exponent_low, measured.exponent_high)
        return judge(
            self._named,
            self.values,
            Evidence(
                exponent,
                (measured.regret_low, measured.regret_high),
                bounds=measured.binding,
                range=self._range(measured.best),
                label_noise=self.label_noise,
            ),
        )

    @property
    def field_in_words(self) -> str:
        """What is followed, as tables call it: the rates of a schedule by their common factor."""
        return in_words(self.problem, self.field)

    @property
    def factors(self) -> list[str]:
        """A line that says what factors on a schedule multiply; none where there are none."""
        return factors_in_words(self.problem) if self.field == "lr" else []

    @property
    def laws(self) -> list[str]:
        """The power laws of the optima, of theory and of networks, in words; none from one value."""
        lines = []
        if math.isfinite(self.exponent) and not self.jumps and self._is_resolved:
            lines.append(f"optimal {self._quantity} ~ {self.over}^{in_three_decimals(self.exponent)}")
            if math.isfinite(self.exponent_error):
                lines[0] += f", scatter about this law ± {self.exponent_error:.3f}"
        if self.experiment is not None and math.isfinite(self.experiment.exponent):
            low, high = self.experiment.exponent_low, self.experiment.exponent_high
            lines.append(
                f"measured {self._quantity} ~ {self.over}^{self.experiment.exponent:.3f} ({low:.3f} to {high:.3f})"
            )
        return lines

    def to_xarray(self) -> "xr.Dataset":
        """Return curves and optima with named axes; the problem is in the attributes, as TOML."""
        import xarray as xr  # slow to import

        dims, at = (self.over, self.field), self.over
        variables: dict[str, Any] = {
            "loss": (dims, self.loss),
            f"optimal_{self.field}": (at, self.best),
            "optimal_loss": (at, [optimum.loss for optimum in self.optima]),
            "curvature": (at, [optimum.curvature for optimum in self.optima]),
            **self._where(at),
            "local_exponent": (at, self.local_exponents),
            "kept_loss": (at, self.kept_loss),
            "regret": (at, self.regret),
        }
        attrs = {
            "problem": self.problem.to_toml(),
            "objective": self.objective,
            "exponent": self.exponent,
            "exponent_error": self.exponent_error,
            "verdict": self.verdict,
        }
        if self.experiment is not None:
            variables["measured_loss"] = ((*dims, "seed"), self.experiment.loss)
            variables |= {f"measured_{name}": (at, each) for name, each in self.experiment.of_each_value.items()}
            attrs |= {f"measured_{name}": each for name, each in self.experiment.of_all_values.items()}
            attrs["measured_verdict"] = self.measured_verdict
        return xr.Dataset(variables, {self.over: self.values, self.field: self.tried}, attrs)

    def __str__(self) -> str:
        measured, name = self.experiment, f"optimal {self.field_in_words}"
        width = max(13, len(name) + 2)
        kept = self.kept_in_words
        room = len(kept) + 2
        header = f"{self.over:>8}{name:>{width}}{f'{self.objective} loss':>13}{kept:>{room}}{'exponent':>10}"
        lines = [header + (f"{f'measured {self.field_in_words} (95 %)':>30}{'regret (95 %)':>24}" if measured else "")]
        for index, (value, optimum) in enumerate(zip(self.values, self.optima, strict=True)):
            line = f"{value:8.3g}{self.best[index]:{width}.4g}{optimum.loss:13.4g}"
            line += f"{self.loss_in_words(index):>{room}}{self._local(index):>10}"
            if measured:
                line += f"  {measured.best_in_words(index):>28}  {measured.regret_in_words(index):>22}"
            lines.append(f"{line}  optimum {place}" if (place := self.place(index)) else line)
        lines += [*self.factors, *self.laws]
        lines += [f"{'theory: ' if measured else ''}{self.verdict}"] if self.verdict else []
        lines += [f"networks: {self.measured_verdict}"] if self.measured_verdict else []
        return "\n".join(lines)

    @property
    def kept_in_words(self) -> str:
        """What tables call the loss of each value with what is best for the smallest one."""
        return f"loss at {self.best[int(np.argmin(self.values))]:.4g}"

    def loss_in_words(self, index: int) -> str:
        """Write the loss of a value with what is best for the smallest one."""
        loss = self.kept_loss[index]
        return "unknown" if math.isnan(loss) else "diverges" if math.isinf(loss) else f"{loss:.4g}"

    def _local(self, index: int) -> str:
        """Write a local exponent, which there is none of where sizes are whole numbers, as depths are."""
        exponent = self.local_exponents[index]
        return in_three_decimals(exponent) if math.isfinite(exponent) else "-"

    def place(self, index: int) -> str:
        """Say where the optimum of a value is, if that is special: at the edge of stability, at a bound, or lost."""
        return str(self.optima[index].place)

    @property
    def _is_resolved(self) -> bool:
        """Whether every optimum is, and rounding errors have not grown into its loss."""
        return all(each.is_resolved and not each.is_lost for each in self.optima)

    def _where(self, at: str) -> dict[str, Any]:
        """Whether optima are at the edge of stability, or at a bound, as a variable."""
        if self.field != "lr":
            return {"binding": (at, list(self.binding))}
        return {"at_edge": (at, [each.at_edge for each in self.optima])}

    @property
    def _quantity(self) -> str:
        """What power laws are laws of."""
        return self.field_in_words if self.axis.quantity == self.field else self.axis.quantity

    def _of_rate(self, name: str, values: Array) -> Array:
        if self.field != "lr":
            raise AttributeError(f"this transfer follows {self.field} and has no {name}: see best and tried")
        return values

    @property
    def _named(self) -> Named:
        what, law = "rate" if self.field == "lr" else self.field.replace("_", " "), self.axis.quantity
        return Named(self.over, what, "" if law == self.field else law, f"{self.objective} loss")

    def _range(self, best: Array) -> float:
        """Ratio of the largest to the least optimum, of what power laws are laws of; 1 where one is at a bound."""
        free = self.axis.free
        with np.errstate(divide="ignore"):
            logs = [free.coordinate(float(each)) for each in best[np.isfinite(self.values)]]
        range_ = float(np.exp(np.ptp(logs)))
        return range_ if math.isfinite(range_) else 1.0
