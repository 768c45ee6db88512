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
from deeplinear._learning_rate.optimal import optimal_lr
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.budget import Envelope, envelope, training_cost
from deeplinear._planning.frontier import Frontier, frontier
from deeplinear._planning.kept import solve_kept
from deeplinear._problem.edit import field_names, get_field, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, rate_of

Array = NDArray[np.float64]

OVER = ("width", "steps", "batch", "depth", "samples")

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of a problem's own value that are tried unless values are given."""

_BUDGETS = 9
"""Budgets of the frontier for each factor of ten."""

_RATES = 24
"""Rates that a model is solved at, about."""


_CLOSE = 1.1
"""How much more loss than the best a model may have at the rates of the ladder for its rate to be searched."""

_SHOWN = 5
"""Models that are left out which are printed."""

_SAME = 1e-12
"""Relative difference of a budget from a cost that is rounding."""


@dataclass(frozen=True, eq=False)
class Plan(Drawn):
    """What a budget is best spent on, and how that changes with the budget.

    Attributes
    ----------
    problem
        The best problem within the budget, with its learning rate, which is searched as by ``optimal_lr``.
    values
        Its values of the fields that were free, which are on the grid.
    loss, cost
        Its loss at the last step, and what it costs.
    compute
        The budget.
    grid
        Values that were tried for each field except the number of steps.
    horizons
        Every number of updates, from one to the longest run, shape (horizons,).
    losses, costs, lrs
        Loss with the best constant rate of the ladder, cost, and that rate, for every model after every number of
        updates, shape (values of the first field, ..., horizons).
    frontier
        What is best at every budget up to this one, between values of the grid, with exponents. If the budget pays for
        every run that was tried, the last one is what the best of them costs.
    runs
        The best run of the grid at each budget of the frontier: its ``"loss"``, ``"cost"`` and ``"lr"``, and its value
        of each field, as in ``values``; shape (budgets,) each. The last one is ``problem``, and the rates of the others
        come from the ladder.
    left_out
        Models of the grid that are impossible, in words, with the reason; their losses and costs are ``inf``.
    unit
        Unit of costs, in words; empty where ``cost`` was given.
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
    runs: Mapping[str, Array] = field(repr=False)
    left_out: tuple[str, ...] = field(repr=False)
    unit: str = field(repr=False)
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
        lr, spent = float(self.problem.optimizer.rates(1)[0]), f"{self.cost:.4g} of {self.compute:.4g} {self.unit}"
        best = [f"{name} {value:.4g}" for name, value in self.values.items() if name != "steps"]
        chosen = ", ".join([*best, f"{self.problem.steps - 1} updates", f"lr {lr:.4g}"])
        lines = [f"{self.objective} loss {self.loss:.4g} for {spent.rstrip()}: {chosen}"]
        if math.isfinite(self.epochs):
            lines.append(f"which is {self.epochs:.3g} passes over the data")
        for name, (exponent, error) in self.frontier.exponents.items():
            what = {"loss": "loss above noise", "steps": "updates"}.get(name, name)
            if math.isfinite(exponent):
                lines.append(f"best {what} ~ compute^{exponent:.3f}, scatter about this law ± {error:.3f}")
        return "\n".join([*lines, *self._ends()])

    def _ends(self) -> list[str]:
        """Lines that say where the best run is at an end of what was tried."""
        tried = {name: each for name, each in self.grid.items() if len(each) > 1}
        ends = [name for name, each in tried.items() if self.values[name] in (each[0], each[-1])]
        found = ", ".join(f"{name} {self.values[name]:g}" for name in ends)
        lines = [f"the best model is at an end of the grid ({found}): try more values"] if ends else []
        if len(self.horizons) > 1 and self.problem.steps - 1 == self.horizons[-1]:
            lines.append("the best run is the longest that was tried: try more steps")
        if self.compute >= self.costs[np.isfinite(self.costs)].max():
            lines.append("the budget pays for every run that was tried: try more steps or larger values")
        shown = self.left_out[:_SHOWN]
        more = [f"and {len(self.left_out) - _SHOWN} more"] if len(self.left_out) > _SHOWN else []
        return lines + [f"left out: {each}" for each in [*shown, *more]]


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
    losses give what is best at each budget, and the exponents with which it grows. The rates of the models that come
    closest to the best within the whole budget are then searched among all rates, and the best of these runs is the
    answer. Values that do not go together, such as a batch larger than the data set, are left out.

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
        What a problem costs, a positive number; by default ``training_cost``, the operations of training its network.
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
    if not callable(cost):
        raise Refusal("cost", cost, "a function of a problem")
    last = problem.steps - 1
    horizons = np.arange(1, last + 1) if "steps" in names else np.array([last])
    models, left_out = _models(problem, grid)
    costs = np.array([_costs(each, horizons, cost) for each in models])
    least, most = (float(end(costs[np.isfinite(costs)])) for end in (np.min, np.max))
    if compute < least:
        raise Refusal("compute", compute, f"at least {least:.4g}, the cost of the cheapest run")
    counter = Counter(read_progress(progress), _RATES * len(models), scale=problem.steps)
    excess = Excess.of(problem, objective)
    with searching_on(device):
        found = iter(_solved([each for each in models if each is not None], excess, objective, store, counter))
        none = Envelope(np.full(problem.steps, np.inf), np.full(problem.steps, np.nan))
        every_model = [none if each is None else next(found) for each in models]
        losses, lrs = (np.array([getattr(each, name)[horizons] for each in every_model]) for name in ("losses", "lrs"))
        every = _Runs(models, horizons, losses, lrs, costs)
        chosen, loss, spent = every.best(compute, objective)
    counter.end()
    budgets = _budgets(least, compute if compute < most else spent)
    full = (*(len(each) for each in grid.values()), len(horizons))
    above = np.maximum(losses - excess.label_noise, excess.rounding).reshape(full)
    runs = [every.within(budget, names) for budget in budgets[:-1]]
    runs.append({"loss": loss, "cost": spent, "lr": rate_of(chosen), **_fields(names, chosen)})
    return Plan(
        problem=chosen,
        values=_fields(names, chosen),
        loss=loss,
        cost=spent,
        compute=compute,
        grid=grid,
        horizons=horizons,
        losses=losses.reshape(full),
        costs=costs.reshape(full),
        lrs=every.lrs.reshape(full),
        frontier=frontier(grid, horizons.astype(float), above, costs.reshape(full), budgets),
        runs={name: np.array([run[name] for run in runs]) for name in runs[0]},
        left_out=left_out,
        unit="" if cost is not training_cost else "D^3 operations" if problem.data.own_dim is None else "operations",
        label_noise=excess.label_noise,
        objective=objective,
    )


def _models(problem: Problem, grid: Mapping[str, Array]) -> tuple[list[Problem | None], tuple[str, ...]]:
    """Return the models of a grid, None for impossible ones, and what these are, in words."""
    models: list[Problem | None] = []
    left_out, refusal = [], None
    for each in itertools.product(*_plain(grid)):
        try:
            models.append(replace(problem, dict(zip(grid, each, strict=True))))
        except Refusal as refused:
            models.append(None)
            values, refusal = " and ".join(f"{name} {value:g}" for name, value in zip(grid, each, strict=True)), refused
            left_out.append(f"{values}, as {refused}")
    if refusal is not None and len(left_out) == len(models):
        raise refusal
    return models, tuple(left_out)


def _costs(model: Problem | None, horizons: NDArray[np.int64], cost: Callable[[Problem], float]) -> Array:
    """What a model costs at every horizon; inf if it is impossible."""
    if model is None:
        return np.full(len(horizons), np.inf)
    return np.array([checks.positive("cost", cost(replace(model, {"steps": int(t) + 1}))) for t in horizons])


def _solved(
    models: list[Problem], excess: Excess, objective: str, store: str | Path | None, counter: Counter
) -> list[Envelope]:
    """Solve every model that is not in the store, if there is one."""

    def solve(model: Problem) -> Envelope:
        counter.expect(_RATES)
        return envelope(model, excess, counter.advance)

    return list(map(solve, models)) if store is None else solve_kept(models, objective, Path(store), solve)


@dataclass(frozen=True, eq=False)
class _Runs:
    """All models, after all numbers of updates.

    Attributes
    ----------
    models, horizons
        The models, None for impossible ones, and the numbers of updates.
    losses, lrs, costs
        Loss at the best rate of the ladder, that rate, and what the run costs, each of shape (models, horizons).
    """

    models: list[Problem | None]
    horizons: NDArray[np.int64]
    losses: Array
    lrs: Array
    costs: Array

    def best(self, compute: float, objective: str) -> tuple[Problem, float, float]:
        """Best run within the budget, its loss and its cost, after a search of the rates of all that come close."""
        affordable = np.where(self.costs <= compute, self.losses, np.inf)
        least, found = affordable.min(), []
        for model, losses in enumerate(affordable):
            horizon = int(np.argmin(losses))
            if losses[horizon] <= _CLOSE * least:
                run = replace(self._run(model, horizon), {"lr": float(self.lrs[model, horizon])})
                found.append((*_with_best_rate(run, float(losses[horizon]), objective), self.costs[model, horizon]))
        best, loss, cost = min(found, key=lambda each: each[1])
        return best, loss, float(cost)

    def within(self, compute: float, names: Sequence[str]) -> dict[str, float]:
        """Loss, cost, rate and fields of the best run of the grid within a budget."""
        affordable = np.where(self.costs <= compute * (1 + _SAME), self.losses, np.inf)
        at = model, horizon = divmod(int(np.argmin(affordable)), len(self.horizons))
        loss, cost, lr = (float(each[at]) for each in (self.losses, self.costs, self.lrs))
        return {"loss": loss, "cost": cost, "lr": lr, **_fields(names, self._run(model, horizon))}

    def _run(self, model: int, horizon: int) -> Problem:
        chosen = self.models[model]
        assert chosen is not None  # as its loss is finite
        return replace(chosen, {"steps": int(self.horizons[horizon]) + 1})


def _budgets(least: float, most: float) -> Array:
    """Budgets of the frontier, from that of the cheapest run on."""
    return np.geomspace(least, most, max(3, round(_BUDGETS * math.log10(most / least)) + 1))


def _with_best_rate(run: Problem, loss: float, objective: str) -> tuple[Problem, float]:
    """Return a run at its best rate with its loss; as it is, where no better rate is found."""
    try:
        best = optimal_lr(run, objective=objective)
    except ArithmeticError:
        return run, loss
    return (replace(run, {"lr": best.lr}), best.loss) if best.loss < loss else (run, loss)


def _fields(names: Sequence[str], problem: Problem) -> dict[str, float]:
    return {name: float(get_field(problem, name)) for name in names}


def _checked(problem: Any, over: Any, values: Any) -> tuple[tuple[str, ...], dict[str, Array]]:
    """Refuse what cannot be planned; return the names, and the values of all but the number of steps."""
    check(problem)
    if has_schedule(problem):
        raise Refusal("lr", problem.optimizer.lr, "one number, as every horizon has its own", got="a schedule")
    if values is not None and not isinstance(values, Mapping):
        raise Refusal("values", values, "a dictionary of lists of numbers by name of the field")
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
