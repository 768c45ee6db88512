"""A law fitted to training runs, and what it says about others."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.cached import cached_property
from deeplinear._core.drawn import Drawn
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import counted
from deeplinear._runs.path import Paths
from deeplinear._runs.resample import Resampled
from deeplinear._runs.run import Run, rates_of
from deeplinear._runs.schedule import SHAPES, RunSchedule, Search, find_schedule
from deeplinear._runs.solve_law import Data, Fitted
from deeplinear._runs.warn import about_rates, about_runs

Array = NDArray[np.float64]

_WORDS = {
    "L0": "irreducible loss",
    "A": "amplitude",
    "N": "noise",
    "b": "source",
    "c": "cutoff",
    "q": "decay of noise",
    "p": "power of rate",
}
"""What the letters of the law are called."""

_NOW = 0.1
"""Decay of a run that is stopped, as a fraction of the steps so far."""


@dataclass(frozen=True, eq=False)
class Forecast(Drawn):
    """Losses of a run that was not made.

    Attributes
    ----------
    steps
        Steps at which the loss is given.
    loss, low, high
        Loss, and the ends of its 90 % band, which is one of whole runs: errors along a run go together.
    warnings
        What to know before relying on it.
    """

    steps: NDArray[np.int64]
    loss: Array
    low: Array
    high: Array
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        last = f"loss {self.loss[-1]:.4g} ({self.low[-1]:.4g} to {self.high[-1]:.4g}) at step {self.steps[-1]}"
        return "\n".join([last, *self.warnings])


@dataclass(frozen=True)
class Stopping:
    """What it costs to stop a run that was to go on.

    Attributes
    ----------
    at, steps
        Step at which it may stop, and number of steps that it was to have.
    now
        Loss at that step, without a decay.
    decayed
        Loss if the rate decays from there within a tenth of the steps so far, and then stops.
    finished
        Loss after all steps, with the best WSD schedule.
    """

    at: int
    steps: int
    now: float
    decayed: float
    finished: float

    @property
    def cost(self) -> float:
        """Loss that is given away by a decay now."""
        return self.decayed - self.finished

    def __str__(self) -> str:
        return (
            f"step {self.at}: loss {self.now:.4g}; {self.decayed:.4g} with a decay over {self.at // 10} more steps; "
            f"{self.finished:.4g} at step {self.steps}. Stopping now costs {self.cost:.4f}"
        )


@dataclass(frozen=True, eq=False)
class RunsFit(Drawn):
    """What ``fit_runs`` found; printed, it is a table.

    Attributes
    ----------
    runs
        The runs that were fitted.
    law
        ``"plain"`` or ``"norm"``.
    fitted
        The law with its parameters.
    held_out
        Mean absolute error in the loss of each run, predicted by a fit to the others; nan for one run.
    rms
        Root mean square residual of each run.
    """

    runs: tuple[Run, ...]
    law: str
    fitted: Fitted = field(repr=False)
    data: Data = field(repr=False)
    resampled: Resampled = field(repr=False)

    @property
    def band(self) -> float:
        """Half width of the 90 % band of a new run."""
        return self.resampled.band

    @property
    def score(self) -> float:
        """Mean error of runs that were left out; of a single run, its residual."""
        errors = self.resampled.held_out if len(self.runs) > 1 else np.array(list(self.rms.values()))
        return float(np.mean(errors))

    @property
    def values(self) -> dict[str, float]:
        """Parameters: irreducible loss, amplitude, noise, source, cutoff, and the others of the law."""
        letters = ("L0", "A", "N", *self.fitted.law.shape)
        return {_WORDS[letter]: self.fitted.values[letter] for letter in letters}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Least and largest value of each parameter among fits to some of the runs."""
        found = [each.values for each in self.resampled.fits] or [self.fitted.values]
        letters = ("L0", "A", "N", *self.fitted.law.shape)
        return {_WORDS[each]: (min(v[each] for v in found), max(v[each] for v in found)) for each in letters}

    @property
    def held_out(self) -> dict[str, float]:
        """Mean absolute error of each run, predicted from the others."""
        return dict(zip((run.name for run in self.runs), self.resampled.held_out, strict=True))

    @cached_property
    def rms(self) -> dict[str, float]:
        """Root mean square residual of each run, as it was fitted."""
        found = zip(self.runs, self.fitted.losses(self.data.paths), self.data.losses, strict=True)
        return {run.name: float(np.sqrt(np.mean((law - loss) ** 2))) for run, law, loss in found}

    @property
    def peak(self) -> float:
        """The largest learning rate of all runs."""
        return max(run.peak for run in self.runs)

    @property
    def warmup(self) -> int:
        """Steps until the rate is at its peak, the most of all runs."""
        return max(run.rises for run in self.runs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the runs do not tell."""
        return about_runs(self.runs, self.ranges)

    def predict(self, lr: Any, steps: Any, warmup: int = 0) -> Any:
        """Return losses at some steps of a run that was not made.

        Parameters
        ----------
        lr
            The learning rate, in any of the forms that ``Run`` takes.
        steps
            Steps at which the loss is wanted, rising; or one number, for the loss after so many steps.
        warmup
            As ``Run`` has it.

        Returns
        -------
        numpy.ndarray or float
            Losses at these steps, or the last one.
        """
        found = self.forecast(lr, steps, warmup)
        return float(found.loss[-1]) if np.ndim(steps) == 0 else found.loss

    def forecast(self, lr: Any, steps: Any, warmup: int = 0) -> Forecast:
        """Return what ``predict`` does, with 90 % bands and warnings."""
        at = _steps(steps)
        rates = rates_of(lr, at, warmup)
        loss = self.fitted.losses(Paths.of([rates], [at]))[0]
        half = self.band
        return Forecast(at, loss, loss - half, loss + half, about_rates(self.runs, rates))

    def best_schedule(
        self,
        steps: int,
        shape: str = "free",
        *,
        peak: float | None = None,
        warmup: int | None = None,
        monotone: bool = True,
    ) -> RunSchedule:
        """Find the schedule with the lowest loss after so many steps.

        Parameters
        ----------
        steps
            Number of steps.
        shape
            ``"free"``, ``"wsd"``, ``"cosine"``, ``"linear"`` or ``"constant"``. The decay and the last rate of a named
            shape are found.
        peak, warmup
            Largest rate and steps until it is reached; those of the runs by default. The law cannot choose between
            peaks: what it says about them is less than its error.
        monotone
            Let a free schedule never rise after its warm-up.
        """
        steps = checks.whole("steps", steps, at_least=10)
        shape = checks.word("shape", shape, SHAPES)
        peak = self.peak if peak is None else checks.positive("peak", peak)
        warmup = min(self.warmup, steps // 10) if warmup is None else checks.whole("warmup", warmup, at_least=0)
        if warmup >= steps:
            raise Refusal("warmup", warmup, f"below steps ({steps})")
        search = Search(self.fitted, steps, peak, warmup)
        schedule, rates, compared = find_schedule(search, shape, monotone=checks.flag("monotone", monotone))
        found = self.forecast(rates, [steps])
        begun = np.flatnonzero(rates < 0.98 * peak)
        begun = begun[begun >= warmup]
        return RunSchedule(
            lr=rates,
            loss=float(found.loss[-1]),
            low=float(found.low[-1]),
            high=float(found.high[-1]),
            shape=shape,
            compared=compared,
            decay_begins=int(begun[0]) if begun.size else steps,
            schedule=schedule,
            warnings=found.warnings,
        )

    def stopping(self, at: int, steps: int, *, peak: float | None = None, warmup: int | None = None) -> Stopping:
        """Say what it costs to stop a run at its peak rate at one step, instead of finishing so many."""
        at = checks.whole("at", at, at_least=10)
        steps = checks.whole("steps", steps, at_least=at + 1)
        finished = self.best_schedule(steps, "wsd", peak=peak, warmup=warmup)
        top = float(finished.lr.max())
        begun = np.concatenate([finished.lr[: self.warmup], np.full(max(at - self.warmup, 0), top)])[:at]
        fall = np.linspace(1.0, 0.0, max(int(_NOW * at), 1), endpoint=False)
        return Stopping(
            at=at,
            steps=steps,
            now=self.predict(begun, at),
            decayed=self.predict(np.concatenate([begun, top * fall]), at + len(fall)),
            finished=finished.loss,
        )

    def __str__(self) -> str:
        lines = [f"{self.law} law, {counted(len(self.runs), 'run')}"]
        lines.append(f"{'parameter':18}{'value':>10}   among fits to some of the runs")
        for name, value in self.values.items():
            low, high = self.ranges[name]
            shown = f"{low:.4g} to {high:.4g}" if self.resampled.fits else "one fit only"
            lines.append(f"{name:18}{value:10.4g}   {shown}")
        lines.append(f"{'run':24}{'residual':>10}{'held out':>10}")
        for run in self.runs:
            error = self.held_out[run.name]
            shown = "-" if math.isnan(error) else f"{error:.4f}"
            lines.append(f"{run.name:24}{self.rms[run.name]:10.4f}{shown:>10}")
        lines.append(f"90 % band of a new run: ± {self.band:.2g}")
        return "\n".join([*lines, *self.warnings])


def _steps(steps: Any) -> NDArray[np.int64]:
    if np.ndim(steps) == 0:
        return np.array([checks.whole("steps", steps)])
    found = np.asarray(steps)
    if found.ndim != 1 or not found.size or not np.all(np.diff(found) > 0) or found[0] < 0:
        raise Refusal("steps", steps, "a number of steps, or steps that rise")
    return found.astype(np.int64)
