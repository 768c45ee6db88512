"""From a panel and a scale to the jobs that it takes, and from their results back to the panel's."""

from dataclasses import dataclass
from typing import Any

import xarray as xr

from deeplinear._reproduce.jobs import Job
from deeplinear._reproduce.panel import Line, Panel, Size, Study


@dataclass(frozen=True)
class Plan:
    """A panel at one scale: its study, and the jobs of the study's lines, in the same order."""

    panel: Panel
    size: Size
    study: Study
    jobs: tuple[Job, ...]

    @classmethod
    def of(cls, panel: Panel, scale: str) -> "Plan":
        """Lay out what a panel takes."""
        size = panel.sizes[scale]
        study = panel.study.at(size)
        return cls(panel, size, study, study.jobs(size))

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines of the study."""
        return self.study.lines

    def results(self, data: list[xr.Dataset]) -> Any:
        """Bring the results of the jobs into the shape that claims and pictures read."""
        return self.study.gathered(data)
