"""What to spend a budget on: how wide, how deep, how long, with which batches and how much data."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.device import searching_on
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate import OBJECTIVES
from deeplinear._learning_rate.ladder import check
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.budget import Envelope, envelope, training_cost
from deeplinear._planning.frontier import Frontier, frontier
from deeplinear._planning.kept import solve_kept
from deeplinear._problem.edit import field_names, get_field, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule

Array = NDArray[np.float64]

OVER = ("width", "steps", "batch", "depth", "samples")

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of a problem's own value that are tried unless values are given."""

_PER_FACTOR = 10
"""Horizons for each factor of ten in steps."""

_BUDGETS = 9
"""Budgets of the frontier for each factor of ten."""

_RATES = 24
"""Rates that a model is solved at, about."""


@dataclass(frozen=True, eq=False)
class Plan(Drawn):
    """What a budget is best spent on, and how that changes with the budget.

    Attributes
    ----------
    problem
        The best problem within the budget, with its learning rate.
    values
        Its values of the fields that were free, which are on the grid.
    loss, cost
        Its loss at the last step, and what it costs.
    compute
        The budget.
    grid
        Values that were tried for each field except the number of steps.
    horizons
        Numbers of updates, shape (horizons,).
    losses, costs, lrs
        Loss with the best constant rate, cost, and that rate, for every model after every number of updates, shape
        (values of the first field, ..., horizons).
    frontier
        What is best at every budget up to this one, with exponents.
    label_noise
        Part of the loss that nothing can lower; the losses of the frontier leave it out.
    objective
        ``"test"`` or ``"train"``.
    """

    problem: Problem
    values: Mapping[str, float]
    loss: float
    cost: float
    compute: float
    grid: Mapping[str, Array] = field(repr=False)
    horizons: NDArray[np.int64] = field(repr=False)
    losses: Array = field(repr=False)
    costs: Array = field(repr=False)
    lrs: Array = field(repr=False)
    frontier: Frontier = field(repr=False)
    label_noise: float = field(repr=False)
    objective: str

    @property
    def epochs(self) -> float:
        """How many times the best run goes over its data set; nan where every example is new."""
        sampling, updates = self.problem.sampling, self.problem.steps - 1
        if not sampling.reuse:
            return math.nan
        return float(sampling.keeps(self.problem.steps)[:updates].sum())

    def __str__(self) -> str:
        best = ", ".join(f"{name} {value:.4g}" for name, value in self.values.items())
        lr = float(self.problem.optimizer.rates(1)[0])
        spent = f"{self.cost:.4g} of {self.compute:.4g}"
        lines = [f"{self.objective} loss {self.loss:.4g} for {spent}: {best}, lr {lr:.4g}"]
        if math.isfinite(self.epochs):
            lines.append(f"which is {self.epochs:.3g} times over the data")
        for name, (exponent, error) in self.frontier.exponents.items():
            what = "loss above noise" if name == "loss" else name
            if math.isfinite(exponent):
                lines.append(f"best {what} ~ compute^{exponent:.3f}, scatter about this law ± {error:.3f}")
        if not self.frontier.is_inside[-1]:
            lines.append("the best model is at an end of the grid: try more values")
        return "\n".join(lines)


def plan(
    problem: Problem,
    compute: float,
    over: Iterable[str] = ("width", "steps"),
    *,
    values: Mapping[str, Sequence[float]] | None = None,
    cost: Callable[[Problem], float] = training_cost,
    objective: str = "test",
    store: str | Path | None = None,
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Plan:
    """Find what a budget is best spent on.

    Every model of a grid is solved at a ladder of constant learning rates, each a factor 1.19 from the next, and after
    every number of updates the best of them counts: so every model and every horizon has its own rate. These
    losses give what is best at each budget, and the exponents with which it grows.

    Parameters
    ----------
    problem
        Where all other values come from. Its steps are the longest run; its own learning rate does not matter.
    compute
        The budget, in the units of ``cost``.
    over
        What may be chosen: some of ``"width"``, ``"steps"``, ``"batch"``, ``"depth"`` and ``"samples"``.
    values
        Values to try, by name, for all fields but ``"steps"``; by default a quarter to four times the problem's own.
    cost
        What a problem costs; by default ``training_cost``, the operations of training its network.
    objective
        ``"test"`` or ``"train"`` loss.
    store
        Folder in which solved models are kept. A plan that was interrupted resumes, and plans with other budgets, costs
        and values use what is there. Processes that share the folder, on one machine or on several, share the work: run
        the same call in all of them.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where all problems are then solved.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions; ``total`` is
        a guess until the end.

    Raises
    ------
    ValueError
        If the budget does not pay for a single update of the cheapest model, the problem has a schedule, whose shape
        would depend on the horizon, or the store has something else in it.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=20
    ... )
    >>> found = plan(problem, compute=40.0, values={"width": [0.5, 1.0, 2.0]})
    >>> found.cost <= 40.0
    True
    """
    names, grid = _checked(problem, over, values)
    objective, compute = checks.word("objective", objective, OBJECTIVES), checks.positive("compute", compute)
    last = problem.steps - 1
    horizons = _horizons(last) if "steps" in names else np.array([last])
    shape = tuple(len(each) for each in grid.values())
    models = [replace(problem, dict(zip(grid, each, strict=True))) for each in itertools.product(*_plain(grid))]
    costs = np.array([[cost(replace(each, {"steps": int(t) + 1})) for t in horizons] for each in models])
    if compute < costs.min():
        raise Refusal("compute", compute, f"at least {costs.min():.4g}, the cost of the cheapest run")
    counter = Counter(read_progress(progress), _RATES * len(models), scale=problem.steps)
    excess = Excess.of(problem, objective)

    def solve(model: Problem) -> Envelope:
        counter.expect(_RATES)
        return envelope(model, excess, counter.advance)

    with searching_on(device):
        found = list(map(solve, models)) if store is None else solve_kept(models, objective, Path(store), solve)
    losses = np.array([each.losses[horizons] for each in found])
    lrs = np.array([each.lrs[horizons] for each in found])
    counter.end()
    best = _best(losses, costs, compute)
    chosen = replace(models[best[0]], {"steps": int(horizons[best[1]]) + 1, "lr": float(lrs[best])})
    count = max(3, round(_BUDGETS * math.log10(compute / costs.min())) + 1)
    budgets = np.geomspace(costs.min(), compute, count)
    full = (*shape, len(horizons))
    above = np.maximum(losses - excess.label_noise, excess.rounding).reshape(full)
    return Plan(
        problem=chosen,
        values={name: float(get_field(chosen, name)) for name in names},
        loss=float(losses[best]),
        cost=float(costs[best]),
        compute=compute,
        grid=grid,
        horizons=horizons,
        losses=losses.reshape(full),
        costs=costs.reshape(full),
        lrs=lrs.reshape(full),
        frontier=frontier(grid, horizons.astype(float), above, costs.reshape(full), budgets),
        label_noise=excess.label_noise,
        objective=objective,
    )


def _best(losses: Array, costs: Array, compute: float) -> tuple[int, int]:
    """Model and horizon with the least loss within the budget."""
    affordable = np.where(costs <= compute, losses, np.inf)
    model, horizon = np.unravel_index(int(np.argmin(affordable)), losses.shape)
    return int(model), int(horizon)


def _horizons(last: int) -> NDArray[np.int64]:
    """Numbers of updates, evenly spaced in their logarithm."""
    count = max(2, math.ceil(_PER_FACTOR * math.log10(last)) + 1) if last > 1 else 1
    return np.unique(np.rint(np.geomspace(1, last, count)).astype(int))


def _checked(problem: Any, over: Any, values: Any) -> tuple[tuple[str, ...], dict[str, Array]]:
    """Refuse what cannot be planned; return the names, and the values of all but the number of steps."""
    check(problem)
    if has_schedule(problem):
        raise Refusal("lr", problem.optimizer.lr, "one number, as every horizon has its own", got="a schedule")
    names = tuple(over) if isinstance(over, Iterable) and not isinstance(over, str) else (over,)
    allowed = [name for name in OVER if name in field_names(problem)]
    for name in names:
        checks.word("over", name, allowed)
    if not names or len(set(names)) < len(names):
        raise Refusal("over", list(names), "one or more distinct names")
    given = dict(values or {})
    for name in given:
        if name not in names or name == "steps":
            raise Refusal("values", name, f"given for fields in over other than steps ({', '.join(names)})")
    return names, {name: _values(problem, name, given.get(name)) for name in names if name != "steps"}


def _values(problem: Problem, name: str, given: Any) -> Array:
    """Values of a field that are tried, in increasing order."""
    if given is None:
        own = get_field(problem, name)
        if not isinstance(own, float | int) or math.isinf(own):
            raise Refusal(f"values[{name!r}]", None, f"given where the {name} is not one finite number", got="none")
        given = [factor * own for factor in _FACTORS]
        given = sorted({max(1, round(each)) for each in given}) if name == "depth" else given
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Refusal(f"values[{name!r}]", given, "a sequence of numbers")
    found = np.array([checks.positive(f"values[{name!r}]", each) for each in given])
    if not len(found) or len(np.unique(found)) < len(found):
        raise Refusal(f"values[{name!r}]", list(given), "one or more distinct numbers")
    return np.sort(found)


def _plain(grid: Mapping[str, Array]) -> list[list[float]]:
    return [each.tolist() for each in grid.values()]
