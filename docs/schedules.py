"""The best schedule of lazy networks on power laws against published forms: the table and the picture of the page.

    python docs/schedules.py        (two minutes on one core)

A lazy, infinitely wide network is a linear model, whose errors along the modes of the data follow a recursion with one
number for each mode. So the rate of every step can be free for thousands of steps, with gradients by a reverse sweep.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from deeplinear._plots.style import new_figure, save_figure, styled

Array = NDArray[np.float64]
Table = list[list[str]]

IMAGES = Path(__file__).parent / "images"
CAPACITY, BATCH, NOISE = 1.5, 4.0, 1.0
TASKS = {"easy": 1.5, "easy, near the border": 0.5, "hard": 0.2}
"""Source exponents; the border between easy and hard is at 1 - 1 / capacity, a third."""
HORIZONS = (16, 64, 256, 1024, 4096)
FITTED = (0.1, 0.9)
"""Parts of the run that are left, between which the exponent of the decay is fitted."""
FIRST = 2
"""Updates at the start that do not count for the peak: on a hard task the very first may overshoot all others."""
COLORS = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#D55E00")


@dataclass(frozen=True)
class Lazy:
    """Modes of a power law, those far out in bins of equal ones.

    Attributes
    ----------
    eigenvalues, power, count
        Eigenvalue of each bin, sum of the squared target weights in it, and number of modes, shape (bins,).
    batch, noise
        Examples at every step, and the variance of the label noise.
    """

    eigenvalues: Array
    power: Array
    count: Array
    batch: float
    noise: float

    def loss(self, rates: Array) -> tuple[float, Array]:
        """Return the loss above the noise after the last step, and its derivatives with respect to all rates."""
        lam, many = self.eigenvalues, self.count * self.eigenvalues
        errors, seen = [self.power.astype(rates.dtype)], []
        for rate in rates:
            seen.append(lam @ errors[-1] + self.noise)
            errors.append((1.0 - rate * lam) ** 2 * errors[-1] + rate**2 / self.batch * seen[-1] * many)
        slopes, back = np.empty_like(rates), lam
        for t in range(len(rates) - 1, -1, -1):
            noise, kept = many @ back, 1.0 - rates[t] * lam
            slopes[t] = 2.0 * (rates[t] / self.batch * noise * seen[t] - back @ (lam * kept * errors[t]))
            back = kept**2 * back + lam * (rates[t] ** 2 / self.batch * noise)
        return lam @ errors[-1], slopes


def lazy(source: float, capacity: float = CAPACITY, batch: float = BATCH, noise: float = NOISE) -> Lazy:
    """Return a power law with a thousand million modes: the first 128 alone, the others in 400 bins."""
    edges = np.unique(np.concatenate([np.arange(1, 129), np.floor(np.geomspace(128, 1e9, 401))]))
    count = np.diff(edges)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
    eigenvalues = middle**-capacity
    return Lazy(eigenvalues, count * middle ** -(1 + capacity * source) / eigenvalues, count, batch, noise**2)


def best_rates(problem: Lazy, start: Array) -> tuple[Array, float]:
    """Return the rates that leave the least loss, all of them free, and that loss."""

    def height(logs: Array) -> tuple[float, Array]:
        rates = np.exp(logs)
        loss, slopes = problem.loss(rates)
        return float(np.log(loss)), slopes * rates / loss

    options = {"maxiter": 400, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-9}
    found = minimize(height, np.log(start), jac=True, method="L-BFGS-B", options=options)
    return np.exp(found.x), float(np.exp(found.fun))


def horizons(problem: Lazy, updates: tuple[int, ...] = HORIZONS) -> list[tuple[Array, float]]:
    """Return the best rates at every horizon, each found from that of the one before."""
    found, rates = [], np.full(updates[0], 0.5)
    for number in updates:
        places, before = ((np.arange(n) + 0.5) / n for n in (number, len(rates)))
        rates, loss = best_rates(problem, np.interp(places, before, rates))
        found.append((rates, loss))
    return found


def best_linear(problem: Lazy, updates: int) -> float:
    """Return the least loss with a rate that falls on a straight line to zero."""
    shape = 1.0 - np.arange(updates) / updates
    found = minimize_scalar(
        lambda log: float(np.log(problem.loss(np.exp(log) * shape)[0])), bounds=(-5.0, 0.7), options={"xatol": 1e-3}
    )
    return float(np.exp(found.fun))


def peak_of(rates: Array) -> float:
    """Return the largest rate but those of the first updates, of which the best is a matter of its own."""
    return float(rates[FIRST:].max())


def decay(rates: Array) -> float:
    """Return the exponent of the decay: the slope of log(rate) against log(what is left of the run)."""
    left = 1.0 - np.arange(len(rates)) / len(rates)
    inside = (left > FITTED[0]) & (left < FITTED[1])
    return float(np.polyfit(np.log(left[inside]), np.log(rates[inside]), 1)[0])


def published(source: float) -> tuple[str, str]:
    """Return the exponents of the peak and of the decay of an easy task in arXiv 2602.06797; none of a hard one."""
    if source < 1 - 1 / CAPACITY:
        return "0", "-"
    peak = -(source - 1 + 1 / CAPACITY) / (source + 1 / CAPACITY)
    return f"{peak:.3f}", f"{2 * CAPACITY - 1:g}"


def rows(task: str, updates: tuple[int, ...] = HORIZONS) -> tuple[Table, list[Array]]:
    """Return the rows of a task, and its schedules."""
    problem = lazy(TASKS[task])
    found = horizons(problem, updates)
    peaks = np.array([peak_of(rates) for rates, _ in found])
    moved = np.diff(np.log(peaks)) / np.diff(np.log(updates))
    exponents = ["-", *(f"{each:.3f}" for each in moved)]
    table: Table = []
    for number, (rates, loss), peak, exponent in zip(updates, found, peaks, exponents, strict=True):
        low = float((rates < 0.5 * peak).mean())
        cells = [f"{peak:.4f}", exponent, f"{decay(rates):.2f}", f"{low:.3f}"]
        gain = 1 - loss / best_linear(problem, number)
        table.append([task, f"{TASKS[task]:g}", str(number), *cells, f"{100 * gain:.1f} %", f"{loss:.4f}"])
    table.append([task, f"{TASKS[task]:g}", "published", "", *published(TASKS[task]), "", "", ""])
    return table, [rates for rates, _ in found]


def lazy_schedules() -> Table:
    """Return what the best schedules look like, beside the published exponents, and draw them."""
    header = ["task", "source", "updates", "peak", "exponent of the peak", "exponent of the decay"]
    table, schedules = [[*header, "part below half the peak", "gain on linear", "loss above noise"]], {}
    for task in TASKS:
        found, schedules[task] = rows(task)
        table += found
        print(*found, sep="\n", flush=True)
    draw(schedules)
    return table


def draw(schedules: dict[str, list[Array]]) -> None:
    """Draw the best rates over training, each in units of its peak."""
    with styled():
        figure = new_figure(8.2, 2.9)
        axes = figure.subplots(1, len(schedules), sharey=True)
        for ax, (task, found) in zip(axes, schedules.items(), strict=True):
            for rates, color in zip(found, COLORS, strict=True):
                at = (np.arange(len(rates)) + 0.5) / len(rates)
                ax.plot(at, rates / peak_of(rates), color=color, linewidth=1.5, label=f"{len(rates)}")
            ax.plot([0, 1], [1, 0], color="black", linewidth=1.0, linestyle=(0, (1, 1)))
            ax.set(xlabel="part of the run", title=f"{task}: source {TASKS[task]:g}", xlim=(0, 1), ylim=(0, 1.25))
        axes[0].set_ylabel("best rate / its peak")
        axes[2].legend(title="updates", loc="lower left")
        save_figure(figure, IMAGES / "lazy-schedules.png")


if __name__ == "__main__":
    from measured import write

    write("lazy_schedules", lazy_schedules(), "findings-horizon.md", "schedules")
