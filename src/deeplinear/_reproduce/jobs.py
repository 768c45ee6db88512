"""The work behind the panels, in pieces that are kept one by one: each piece knows its key, its cost and how to run."""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import xarray as xr

import deeplinear as dl
from deeplinear._core.build import version
from deeplinear._core.dataset import LOSSES
from deeplinear._cost.model import (
    bytes_of_networks,
    numbers_of_solving,
    numbers_of_training,
    seconds_of_training,
    work_of,
)

Progress = Callable[[float], object]
"""Called with the fraction of a job that is done."""

_EDGE_RATIO = 2.0 ** (1 / 48)
_EDGE_RATES = _EDGE_RATIO ** np.arange(-48.0, 49.0)
"""Rates at which networks are tried, around the largest stable one of theory: 1.5 % apart, since large networks all
have the same edge, and what the distance of two rates adds to its error does not average out."""

_SEARCH_SOLVES, _EDGE_SOLVES = 60, 40
"""Solutions that the search for an optimum, and for the edge of stability, usually takes."""

_RATES_TRAINED, _RATES_REFINED = 9, 10
"""Rates at which networks are trained for one optimum, less those that diverge at once, and those where it is."""

_BEST = "least mean log loss, rates refined"
"""How the best rate of networks is found; results of another way are not taken for this one."""

_REPEATS, _ENOUGH = 5, 0.5
"""How often something is timed, unless so many seconds are spent on it."""


@dataclass(frozen=True)
class Work:
    """What a job has to do, in numbers to go through (``_reproduce.cost`` has seconds), and bytes that it holds."""

    theory: float = 0.0
    experiment: float = 0.0
    bytes: float = 0.0


class Job(Protocol):
    """One piece of work.

    ``alone`` says that nothing else may run at the same time, since time is what is measured.
    """

    alone: ClassVar[bool]

    @property
    def problem(self) -> dl.Problem:
        """What is solved and trained."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, beside the problem."""

    @property
    def work(self) -> Work:
        """What it takes."""

    def run(self, progress: Progress, device: str) -> xr.Dataset:
        """Do it."""


_DRAWN, _QUICK = 64, 0.5
"""Networks that a comparison draws, if they take no more seconds than this."""


def key(job: Job) -> str:
    """Name of a job's result: what is computed and a fingerprint of all that it depends on."""
    kind = type(job).__name__.lower()
    text = json.dumps([kind, job.problem.to_toml(), job.settings], sort_keys=True)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Train:
    """Solve a problem; train networks too, unless ``dim`` is None, and compare.

    Networks see the first ``dim`` modes of a power law, theory all of them: there no verdict is asked.
    """

    problem: dl.Problem
    dim: int | None
    seeds: int
    alone: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Size of the experiment."""
        return {} if self.dim is None else {"dim": self.dim, "seeds": self.seeds}

    @property
    def work(self) -> Work:
        """Comparing takes two more solutions, and draws networks of the same size unless that takes long."""
        if self.dim is None:
            return Work(numbers_of_solving(self.problem), 0.0, held(self.problem))
        solved, trained = numbers_of_solving(self.problem), numbers_of_training(self.problem, self.dim, self.seeds)
        if self.problem.data.dimension_free:
            return Work(solved, trained, held(self.problem, self.dim, self.seeds))
        if seconds_of_training(self.problem, self.dim, _DRAWN) < _QUICK:
            trained += numbers_of_training(self.problem, self.dim, _DRAWN)
        return Work(
            3 * solved,
            trained,
            held(self.problem, self.dim, self.seeds),
        )

    def run(self, progress: Progress, device: str) -> xr.Dataset:
        """Solve, train, compare."""
        theory = dl.solve(self.problem)
        variables: dict[str, Any] = {name: ("time", getattr(theory, name)) for name in (*LOSSES, "kernel")}
        if self.dim is None:
            return xr.Dataset(variables, {"time": theory.times}, {"verdict": ""})
        networks = dl.simulate(
            self.problem,
            self.dim,
            self.seeds,
            record="losses",
            progress=lambda done, total: progress(done / total),
            device=device,
        )
        for name in LOSSES:
            variables[f"measured_{name}"] = (("seed", "step"), getattr(networks, name).astype(np.float32))
        return xr.Dataset(variables, {"time": theory.times}, {"verdict": _verdict(theory, networks)})


def _verdict(theory: dl.Solution, networks: dl.Ensemble) -> str:
    if theory.problem.data.dimension_free:
        return ""
    found = dl.compare(theory, networks)
    return f"{found.verdict}{' (near the edge of stability)' if found.near_edge else ''}"


@dataclass(frozen=True)
class Tune:
    """Find the optimal learning rate of theory and of networks, whose matrices are kept by a ``method``."""

    problem: dl.Problem
    over: str
    value: float
    lrs: tuple[float, float, int] | None
    dim: int
    seeds: int
    method: str = "auto"
    alone: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Size of the experiment, and what the optimum is differentiated by."""
        settings = {"over": self.over, "value": self.value, "lrs": self.lrs, "dim": self.dim, "seeds": self.seeds}
        method = {} if self.method == "auto" else {"method": self.method}
        return settings | {"best": _BEST} | method

    @property
    def work(self) -> Work:
        """A search, and networks at several rates."""
        rates = self.lrs[2] if self.lrs else _RATES_TRAINED
        trained = (rates + _RATES_REFINED) * numbers_of_training(self.problem, self.dim, self.seeds, self.method)
        solved = _SEARCH_SOLVES * numbers_of_solving(self.problem)
        return Work(solved, trained, held(self.problem, self.dim, self.seeds, self.method))

    def run(self, progress: Progress, device: str) -> xr.Dataset:
        """Search, and train."""
        experiment = {"dim": self.dim, "seeds": self.seeds, "device": device, "method": self.method}
        lrs = None if self.lrs is None else np.geomspace(*self.lrs)
        found = dl.transfer(
            self.problem,
            self.over,
            [self.value],
            lrs=lrs,
            experiment=experiment,
            progress=lambda done, total: progress(min(done / total, 1.0)),
        )
        (optimum,) = found.optima
        assert found.experiment is not None
        (tried,) = found.experiment.searches
        return found.to_xarray().assign(
            {
                "searched_lr": ("search", optimum.lrs),
                "searched_loss": ("search", optimum.losses),
                "tried_lr": ("trial", tried.tried),
                "tried_loss": (("trial", "seed"), tried.losses),
            }
        )


@dataclass(frozen=True)
class Limit:
    """Find the largest stable learning rate of theory and of each network."""

    problem: dl.Problem
    dim: int | None
    seeds: int
    alone: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Size of the experiment."""
        edges = {"edge": "first, and largest"}
        if self.dim is None:
            return edges
        return edges | {"dim": self.dim, "seeds": self.seeds, "rates": _EDGE_RATES.tolist()}

    @property
    def work(self) -> Work:
        """A search, and networks at many rates, half of which diverge soon."""
        trained = 0.0 if self.dim is None else numbers_of_training(self.problem, self.dim, self.seeds)
        return Work(
            _EDGE_SOLVES * numbers_of_solving(self.problem),
            len(_EDGE_RATES) / 2 * trained,
            held(self.problem, self.dim, self.seeds),
        )

    def run(self, progress: Progress, device: str) -> xr.Dataset:
        """Search; then find, for each network, where its train loss has first grown at the end.

        As in theory the edge is that of the first stable interval: the middle between the rate before and that rate.
        """
        found = dl.max_stable_lr(self.problem)
        theory, edge = {"lr": found.lr, "largest_lr": found.largest_lr}, found.lr
        if self.dim is None:
            return xr.Dataset(theory)
        stable = []
        for index, rate in enumerate(edge * _EDGE_RATES):
            problem = self.problem.replace(lr=float(rate))
            losses = dl.simulate(problem, self.dim, self.seeds, record="losses", device=device).train_loss
            stable.append(losses[:, -1] <= losses[:, 0])
            progress((index + 1) / len(_EDGE_RATES))
        below = np.logical_and.accumulate(stable, axis=0).sum(axis=0)  # how many rates lie below the edge
        rates = edge * _EDGE_RATES[0] * _EDGE_RATIO ** (below - 0.5)
        apart = float(np.log(_EDGE_RATIO))
        return xr.Dataset(theory | {"measured_lr": ("seed", rates), "log_lr_apart": apart})


@dataclass(frozen=True)
class Clock:
    """Time a solution ("theory", "panels") or the training of one network ("network")."""

    problem: dl.Problem
    what: str
    dim: int | None
    alone: ClassVar[bool] = True

    @property
    def settings(self) -> dict[str, Any]:
        """What is timed."""
        return {"what": self.what, "dim": self.dim, "method": "explicit"}

    @property
    def work(self) -> Work:
        """Once, for what takes long is not repeated."""
        if self.what == "network":
            return Work(0.0, numbers_of_training(self.problem, self.dim or 1, 1), held(self.problem, self.dim))
        return Work(numbers_of_solving(self.problem), 0.0, held(self.problem))

    def run(self, progress: Progress, device: str) -> xr.Dataset:
        """Return the least of several times, since others are disturbed."""
        seconds = [self._once()]
        while len(seconds) < _REPEATS and sum(seconds) < _ENOUGH:
            seconds.append(self._once())
        return xr.Dataset({"seconds": min(seconds)})

    def _once(self) -> float:
        if self.what == "network":
            # Matrices in full, as the table has them.
            trained = dl.simulate(self.problem, self.dim, 1, workers=1, record="losses", method="explicit")
            return float(trained.stats["seconds"])
        return float(dl.solve(self.problem, method="panels" if self.what == "panels" else "dense").stats["seconds"])


def run(job: Job, progress: Progress, device: str) -> xr.Dataset:
    """Run a job and note how long it took."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* times the input dimension D here")  # panels do mean ratios
        data = job.run(progress, device)
    made = {
        "seconds": time.perf_counter() - start,
        "problem": job.problem.to_toml(),
        "settings": job.settings,
        "version": version(),
    }
    return data.assign_attrs(made=json.dumps(made))


def held(problem: dl.Problem, dim: int | None = None, seeds: int = 1, method: str = "auto") -> float:
    """Bytes of a solution, and of the networks that are trained at the same time."""
    solution = work_of(problem)[1].bytes
    if dim is None:
        return solution
    return solution + bytes_of_networks(problem, dim, min(seeds, os.cpu_count() or 1), method)
