"""What a whole sweep would cost, before it is started."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from deeplinear._core.device import CPU
from deeplinear._core.words import in_bytes, in_time
from deeplinear._cost.estimate import Cost, batch_overhead, fitting, simulation_seconds, solve_seconds, too_large
from deeplinear._cost.model import numbers_per_step, work_of
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.sizes import sizes_of
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Work
from deeplinear._solvers.dense import Dense
from deeplinear._sweep.plan import LARGEST_BATCH, Plan
from deeplinear._theory.curves import worth_batching

_MEASURED = 6
"""Most kinds of points that are measured; the others are scaled from the nearest of these."""


@dataclass(frozen=True)
class SweepCost:
    """What a sweep would take.

    Attributes
    ----------
    points
        Number of points that are valid.
    theory, experiment
        Seconds from start to end, and bytes of all processes together; None for what is not computed.
    workers
        Number of processes.
    available
        Memory available now, in bytes.

    Examples
    --------
    >>> print(SweepCost(1000, Cost(20.0, 10**8), None, workers=2, available=10**9))
    1000 points on 2 processes; theory: 20.0 s, 100.0 MB; fits into the 1.0 GB available
    """

    points: int
    theory: Cost | None
    experiment: Cost | None
    workers: int
    available: int

    @property
    def fits(self) -> bool:
        """Whether there is memory for as many points at a time as there are processes."""
        return not self.too_large

    @property
    def too_large(self) -> list[str]:
        """What does not fit: ``"theory"`` or ``"experiment"``, of which one runs after the other, or both."""
        costs = {"theory": self.theory, "experiment": self.experiment}
        return [name for name, cost in costs.items() if too_large(self.available, **{name: cost})]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"fits": self.fits}

    def __str__(self) -> str:
        costs = {"theory": self.theory, "experiment": self.experiment}
        parts = [f"{name}: {in_time(cost.seconds)}, {in_bytes(cost.bytes)}" for name, cost in costs.items() if cost]
        fits = f"{fitting(self.too_large)} into the {in_bytes(self.available)} available"
        return "; ".join([f"{self.points} points on {self.workers} processes", *parts, fits])


@dataclass(frozen=True)
class _Kind:
    """Points of equal cost: how many, what the cost is in proportion to, how to measure it, and its memory."""

    count: int
    work: float
    seconds: Callable[[], float]
    bytes: int


def estimate_sweep(plan: Plan, workers: int) -> SweepCost:
    """Estimate the cost of a sweep: what each kind of point takes, times how many there are.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=100
    ... )
    >>> cost = estimate_sweep(Plan.read(problem, {"lr": np.geomspace(0.001, 0.1, 500), "width": [1, 2]}, True, None), 2)
    >>> cost.points, cost.theory.seconds > 0.1, cost.experiment
    (1000, True, None)
    """
    problems = list(plan.problems.values())
    theory = _total(_theory_kinds(problems), workers) if plan.theory else None
    experiment = None
    if plan.experiment is not None:
        kinds = _experiment_kinds(problems, plan.experiment)
        experiment = _total(kinds, workers) if kinds else None
    return SweepCost(len(problems), theory, experiment, workers, CPU.available())


def _total(kinds: list[_Kind], workers: int) -> Cost:
    kinds = sorted(kinds, key=lambda kind: kind.work)
    measured = np.unique(np.linspace(0, len(kinds) - 1, min(_MEASURED, len(kinds))).round().astype(int))
    rates = {index: kinds[index].seconds() / kinds[index].work for index in measured.tolist()}
    seconds = 0.0
    for index, kind in enumerate(kinds):
        nearest = min(rates, key=lambda other: abs(other - index))
        seconds += kind.count * kind.work * rates[nearest]
    processes = min(workers, sum(kind.count for kind in kinds))
    return Cost(seconds / processes, processes * max(kind.bytes for kind in kinds))


def _theory_kinds(problems: list[Problem]) -> list[_Kind]:
    groups: dict[tuple[str, Work], list[Problem]] = {}
    for problem in problems:
        groups.setdefault(work_of(problem), []).append(problem)
    kinds = []
    for (method, work), members in groups.items():
        first = members[0]
        together = min(len(members), worth_batching(first, LARGEST_BATCH)) if method == Dense.name else 1

        def seconds(first: Problem = first, together: int = together, work: Work = work) -> float:
            alone = solve_seconds(first)
            shared = batch_overhead(first, together) - alone(1) if together > 1 else 0.0
            return work.passes * (alone(work.shape.steps) + work.shape.steps * shared)

        amount = work.passes * work.bytes * work.shape.steps
        kinds.append(_Kind(len(members), amount, seconds, work.bytes * together))
    return kinds


def _experiment_kinds(problems: list[Problem], experiment: dict[str, Any]) -> list[_Kind]:
    groups: dict[tuple[Any, int], list[Problem]] = {}
    for problem in problems:
        try:
            groups.setdefault((sizes_of(problem, experiment["dim"]), problem.steps), []).append(problem)
        except ValueError:  # this point cannot be simulated, as its infinite width
            continue
    kinds = []
    for (sizes, steps), members in groups.items():
        asked = Simulation.read(members[0], sizes.dim, experiment["seeds"], 1, "losses")
        work = float(numbers_per_step(sizes)) * steps
        kinds.append(_Kind(len(members), work, partial(simulation_seconds, asked), asked.memory))
    return kinds
