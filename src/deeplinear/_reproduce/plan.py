"""From a panel and a scale to the jobs that it takes, and from their results back to the panel's."""

from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from deeplinear._reproduce.jobs import Clock, Job, Limit, Train, Tune
from deeplinear._reproduce.panel import Line, Panel, Rates, Series, Size, Stability, Timing, Training, chosen
from deeplinear._reproduce.results import Costs, Timed


@dataclass(frozen=True)
class Plan:
    """A panel at one scale: its lines (or series) and their jobs, in the same order."""

    panel: Panel
    size: Size
    lines: tuple[Line, ...]
    jobs: tuple[Job, ...]

    @classmethod
    def of(cls, panel: Panel, scale: str) -> "Plan":
        """Lay out what a panel takes."""
        size, study = panel.sizes[scale], panel.study
        if isinstance(study, Timing):
            lines = tuple(line for series in _series(study, size) for line in series.lines)
            jobs: list[Job] = [
                Clock(line.problem, each.what, each.dim) for each in _series(study, size) for line in each.lines
            ]
            return cls(panel, size, lines, tuple(jobs))
        lines = tuple(line.at(size) for line in chosen(study.lines, size))
        return cls(panel, size, lines, tuple(_job(study, line, size) for line in lines))

    def results(self, data: list[xr.Dataset]) -> Any:
        """Bring the results of the jobs into the shape that claims and pictures read."""
        study = self.panel.study
        if not isinstance(study, Timing):
            make = study.results.make
            return study.results([make(line, each) for line, each in zip(self.lines, data, strict=True)])
        left, timed = list(data), []
        for series in _series(study, self.size):
            count = len(series.lines)
            timed.append(Timed(series, left[:count]))
            left = left[count:]
        return Costs(timed)


def _series(study: Timing, size: Size) -> list[Series]:
    """Return the series, cut to their smallest sizes if the scale says so."""
    return [replace(each, lines=each.lines[: size.curves or len(each.lines)]) for each in study.series]


def _job(study: Training | Rates | Stability, line: Line, size: Size) -> Job:
    dim = size.dim if line.networks else None
    if isinstance(study, Rates):
        return Tune(line.problem, study.over, line.value, study.lrs, size.dim, size.seeds)
    return (Train if isinstance(study, Training) else Limit)(line.problem, dim, size.seeds)
