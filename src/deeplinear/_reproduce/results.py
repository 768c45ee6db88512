"""What was computed for a panel, as its claims and its picture read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope, standard_error
from deeplinear._reproduce.claim import SIGNIFICANT

if TYPE_CHECKING:
    from deeplinear._reproduce.panel import Line, Series
from deeplinear._reproduce.agreement import Agreement, distance, measured_slope, rms_z

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Computed:
    """One line, and what was computed for it."""

    line: "Line"
    data: xr.Dataset

    def number(self, name: str) -> float:
        """Return a result that is one number."""
        return float(self.data[name].item())


class Trained(Computed):
    """Losses from theory, and of each network."""

    @property
    def times(self) -> Array:
        """Steps at which theory is known."""
        return np.asarray(self.data["time"].values, dtype=float)

    @property
    def has_networks(self) -> bool:
        """Whether networks were trained."""
        return "measured_test_loss" in self.data

    def theory(self, name: str = "test_loss") -> Array:
        """Return a curve of theory, at ``times``."""
        return np.asarray(self.data[name].values, dtype=float)

    def networks(self, name: str = "test_loss") -> Array:
        """Losses of all networks, shape (seed, step)."""
        return np.asarray(self.data[f"measured_{name}"].values, dtype=float)

    def mean(self, name: str = "test_loss") -> Array:
        """Mean over networks, at steps 0, 1, 2, ..."""
        return np.asarray(self.networks(name).mean(axis=0))

    def error(self, name: str = "test_loss") -> Array:
        """Standard error of the mean."""
        return standard_error(self.networks(name), axis=0)

    def fit(self, start: float, stop: float, name: str = "test_loss") -> dl.PowerLawFit:
        """Fit a power law of time to theory."""
        return dl.fit_exponent(self.times, self.theory(name), start, stop)

    @property
    def agreement(self) -> Agreement | None:
        """How well theory and networks agree in the test loss."""
        if not self.has_networks:
            return None
        off, z = distance(self.theory(), self.networks()), rms_z(self.theory(), self.mean(), self.error())
        return Agreement(self.line.label, off.value, off.below, z, str(self.data.attrs["verdict"]))


class Tuned(Computed):
    """Loss against learning rate."""

    @property
    def lr(self) -> float:
        """Optimal rate of theory."""
        return self.number("optimal_lr")

    @property
    def measured_lr(self) -> tuple[float, float]:
        """Optimal rate of the networks and its standard error."""
        return self.number("measured_lr"), self.number("measured_lr_error")

    @property
    def measured_interval(self) -> tuple[float, float]:
        """Rates between which that of the networks lies."""
        return self.number("measured_lr_low"), self.number("measured_lr_high")

    @property
    def tried(self) -> tuple[Array, Array]:
        """Rates at which networks were trained to find it, and their losses, shapes (rates,) and (rates, seeds)."""
        return np.asarray(self.data["tried_lr"].values), np.asarray(self.data["tried_loss"].values)

    @property
    def lrs(self) -> Array:
        """Rates at which networks were trained."""
        return np.asarray(self.data["lr"].values)

    @property
    def networks(self) -> Array:
        """Loss of each network at each rate, shape (lr, seed)."""
        return np.asarray(self.data["measured_loss"].values[0])

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """Rates and losses of theory, increasing, those of the search among them."""
        at = np.concatenate([self.lrs, self.data["searched_lr"].values, [self.lr]])
        loss = np.concatenate(
            [self.data["loss"].values[0], self.data["searched_loss"].values, self.data["optimal_loss"].values]
        )
        at, first = np.unique(at, return_index=True)
        return at, loss[first]

    @property
    def agreement(self) -> Agreement:
        """How well theory and networks agree, up to the optimum and somewhat beyond, where networks still train."""
        loss, theory = self.networks, np.asarray(self.data["loss"].values[0])
        use = np.isfinite(loss).all(axis=1) & np.isfinite(theory) & (self.lrs <= self.lr)
        z = rms_z(theory[use], loss[use].mean(axis=1), standard_error(loss[use], axis=1))
        off = distance(theory[use], loss[use].T)
        return Agreement(self.line.label, off.value, off.below, z)


class Edge(Computed):
    """The end of the first interval of stable rates, of theory and of each network."""

    @property
    def lr(self) -> float:
        """End of the first stable interval of theory."""
        return self.number("lr")

    @property
    def largest_lr(self) -> float:
        """Largest stable rate of theory, beyond holes in the stable rates."""
        return self.number("largest_lr")

    @property
    def has_networks(self) -> bool:
        """Whether networks were trained."""
        return "measured_lr" in self.data

    @property
    def measured(self) -> tuple[float, float]:
        """Geometric mean over networks and its standard error, that of rates which are some way apart included."""
        logs = np.log(self.data["measured_lr"].values)
        mean, between = float(np.exp(logs.mean())), self.number("log_lr_apart") / np.sqrt(12)
        return mean, mean * float(np.hypot(standard_error(logs, axis=0), between))

    @property
    def agreement(self) -> Agreement | None:
        """How well the rates agree."""
        if not self.has_networks:
            return None
        mean, error = self.measured
        rates = self.data["measured_lr"].values[:, None]
        z = rms_z(np.array([self.lr]), np.array([mean]), np.array([error]))
        off = distance(np.array([self.lr]), rates)
        return Agreement(self.line.label, off.value, off.below, z)


@dataclass(frozen=True, eq=False)
class Timed:
    """One series: seconds at growing size."""

    series: "Series"
    data: list[xr.Dataset]

    @property
    def sizes(self) -> Array:
        """Values of the field along which the size grows."""
        return np.array([line.value for line in self.series.lines[: len(self.data)]])

    @property
    def seconds(self) -> Array:
        """Seconds at each size."""
        return np.array([float(each["seconds"].item()) for each in self.data])

    @property
    def exponent(self) -> tuple[float, float]:
        """Slope of log(seconds) against log(size) over large sizes, two at least, and its error.

        From so few points the standard error is itself uncertain: it is made as much larger as Student's distribution
        is wider than the normal one, so that as many of them count as significant.
        """
        large = self.sizes >= min(self.series.beyond, self.sizes[-2])
        found, error = loglog_slope(self.sizes[large], self.seconds[large])
        freedom = len(self.sizes[large]) - 2
        if freedom < 1:
            return found, float("nan")
        return found, error * float(stdtrit(freedom, ndtr(SIGNIFICANT)) / SIGNIFICANT)


class Lines:
    """The results of a panel's lines, in their order."""

    make: type[Any]

    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Any:
        return self.lines[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.lines)

    @property
    def values(self) -> Array:
        """The value in which the lines differ."""
        return np.array([each.line.value for each in self.lines])

    @property
    def labels(self) -> list[str]:
        """What the lines are called."""
        return [each.line.label for each in self.lines]

    @property
    def agreements(self) -> list[Agreement]:
        """How well theory and networks agree, line by line."""
        return [each.agreement for each in self.lines if each.agreement is not None]

    def group(self, name: str) -> list[Any]:
        """Lines of one group."""
        return [each for each in self.lines if each.line.group == name]


class Trainings(Lines):
    """Results of ``Training``."""

    make = Trained

    @property
    def trained(self) -> list[Trained]:
        """Those lines of which networks were trained."""
        return [each for each in self.lines if each.has_networks]


class Optima(Lines):
    """Results of ``Rates``."""

    make = Tuned

    @property
    def exponent(self) -> float:
        """Slope of log(lr*) against log(value) in theory."""
        return loglog_slope(self.values, np.array([each.lr for each in self.lines]))[0]

    @property
    def measured_exponent(self) -> tuple[float, float]:
        """The same of networks, and its standard error."""
        lr, error = np.array([each.measured_lr for each in self.lines]).T
        return measured_slope(self.values, lr, error)


class Edges(Lines):
    """Results of ``Stability``."""

    make = Edge


class Costs:
    """Results of ``Timing``."""

    agreements: tuple[Agreement, ...] = ()

    def __init__(self, series: list[Timed]) -> None:
        self.series = series

    def __getitem__(self, label: str) -> Timed:
        return next(each for each in self.series if each.series.label == label)
