"""The least loss that a budget buys, over a grid of models each of which can be trained for longer or shorter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.statistics import loglog_slope

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Frontier:
    """What is best at each budget.

    Attributes
    ----------
    compute
        Budgets, increasing, shape (budgets,).
    loss
        Lowest loss at each budget, without the label noise.
    values
        Best value of each field at each budget, shape (budgets,). Between values of the grid, a parabola through the
        logarithms of the three nearest is used. ``"steps"`` are updates, which need not be whole numbers.
    is_inside
        Whether the best can be compared with a smaller and a larger value of every field, and with longer runs, shape
        (budgets,). The exponents are fitted to these.
    notes
        Why it cannot, for each budget; empty where it can.
    exponents
        Exponents of ``"loss"`` and of each field against the budget, with the scatter about the power law as error; nan
        where fewer than three budgets are inside.
    """

    compute: Array
    loss: Array
    values: Mapping[str, Array]
    is_inside: NDArray[np.bool_]
    notes: tuple[str, ...]
    exponents: Mapping[str, tuple[float, float]]


def frontier(grid: Mapping[str, Array], horizons: Array, loss: Array, cost: Array, compute: Array) -> Frontier:
    """Find what is best at each budget.

    Parameters
    ----------
    grid
        Values of each field but the number of steps, in increasing order.
    horizons
        Numbers of updates, increasing, shape (horizons,).
    loss, cost
        Of each model and horizon, shape (values of the first field, .., horizons); losses without label noise, ``inf``
        where a model is impossible, as its cost is.
    compute
        Budgets, shape (budgets,).

    Examples
    --------
    >>> width, steps = np.geomspace(1, 100, 21), np.geomspace(1, 1e4, 81)
    >>> loss = width[:, None] ** -1.0 + steps**-0.5
    >>> found = frontier({"width": width}, steps, loss, width[:, None] * steps, np.geomspace(100, 1e4, 9))
    >>> [round(found.exponents[name][0], 2) for name in ("loss", "width", "steps")]  # -1/3, 1/3, 2/3
    [-0.33, 0.33, 0.67]
    """
    shape = loss.shape[:-1]
    heights = np.log(np.minimum.accumulate(loss, axis=-1)).reshape(-1, len(horizons))
    prices = np.log(cost).reshape(-1, len(horizons))
    rows = [_at(np.log(c), grid, shape, horizons, heights, prices) for c in compute]
    names = [*grid, "steps"]
    values = {name: np.array([row[1][i] for row in rows]) for i, name in enumerate(names)}
    least, notes = np.exp([row[0] for row in rows]), tuple(row[2] for row in rows)
    inside = np.array([not note for note in notes])
    fitted = {"loss": least} | {name: each for name, each in values.items() if len(np.unique(each)) > 1}
    exponents = {
        name: loglog_slope(compute[inside], each[inside]) if inside.sum() > 2 else (np.nan, np.nan)
        for name, each in fitted.items()
    }
    return Frontier(compute, least, values, inside, notes, exponents)


def _at(
    budget: float, grid: Mapping[str, Array], shape: Sequence[int], horizons: Array, heights: Array, prices: Array
) -> tuple[float, list[float], str]:
    """Least log(loss) at a budget, the values that reach it, and why they are not inside the grid, if so."""
    reached = np.array([_interp(budget, price, height) for price, height in zip(prices, heights, strict=True)])
    steps = np.array([_interp(budget, price, np.log(horizons)) for price in prices])
    table, durations = reached.reshape(shape), steps.reshape(shape)
    best = np.unravel_index(int(np.argmin(table)), shape) if shape else ()
    least, log_steps = float(table[best]), float(durations[best])
    longest = np.log(horizons[-1]) if len(horizons) > 1 else np.inf
    values, notes = [], [] if log_steps < longest else ["longest run"]
    for axis, (name, each) in enumerate(grid.items()):
        along = tuple(slice(None) if i == axis else index for i, index in enumerate(best))
        heights_along = table[along]
        durations_along = np.where(durations[along] < longest, durations[along], np.inf)
        is_possible = np.isfinite(prices[:, 0]).reshape(shape)[along]
        note = _note(name, each, heights_along, durations_along, is_possible, int(best[axis]))
        if note:
            notes.append(note)
            values.append(float(each[best[axis]]))
            continue
        place, change, moved = _parabola(np.log(each), heights_along, durations_along, int(best[axis]))
        values.append(float(np.exp(place)))
        least, log_steps = least + change, log_steps + moved
    return least, [*values, float(np.exp(log_steps))], ", ".join(notes)


def _note(name: str, values: Array, heights: Array, durations: Array, is_possible: NDArray[np.bool_], best: int) -> str:
    """Why the best value of a field cannot be compared with its neighbours, if so."""
    if len(values) == 1:
        return ""
    if best == 0:
        return f"smallest {name}"
    if best == len(values) - 1:
        return f"largest {name}"
    for near in (best - 1, best + 1):
        if not is_possible[near]:
            return f"{name} {values[near]:g} is impossible"
        if np.isinf(heights[near]):
            return f"one update at {name} {values[near]:g} costs more"
        if np.isinf(durations[near]):
            return f"{name} {values[near]:g} is at the longest run"
    return ""


def _interp(at: float, price: Array, height: Array) -> float:
    """Height that a budget reaches along a run; inf where it does not pay for the first."""
    return float(np.interp(at, price, height, left=np.inf))


def _parabola(places: Array, heights: Array, durations: Array, best: int) -> tuple[float, float, float]:
    """Place of the minimum near a grid point, how much lower it is, and how log(steps) changes."""
    if len(places) == 1:
        return float(places[0]), 0.0, 0.0
    near = slice(best - 1, best + 2)
    x = places[near] - places[best]
    bend, tilt, _ = np.polyfit(x, heights[near], 2)
    if bend <= 0:
        return float(places[best]), 0.0, 0.0
    at = -tilt / (2 * bend)
    moved = np.polyval(np.polyfit(x, durations[near], 2), at) - durations[best]
    return float(places[best] + at), float(-(tilt**2) / (4 * bend)), float(moved)
