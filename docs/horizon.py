"""How the best peak rate moves with the number of updates: the table and the picture of the page on it.

    python docs/horizon.py        (a quarter of an hour on one core)

finds the best peak of each schedule by ``optimal_lr`` at every horizon, on a hard and on an easy task, writes the table
into ``findings-horizon.md``, between two comments, and draws the picture from the same numbers.
"""

import itertools
from pathlib import Path

import numpy as np

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._plots.style import new_figure, save_figure, styled

Table = list[list[str]]

IMAGES = Path(__file__).parent / "images"
HORIZONS = np.array([2, 4, 8, 16, 32, 64, 128, 256])
"""Numbers of updates: two decades."""
LATE = 32
"""The last exponent is fitted from here on."""
TASKS = {"hard": 0.5, "easy": 1.5}
"""Source exponents of the target: below 1 it has no finite norm."""
SHAPES = {
    "constant": dl.schedules.constant,
    "linear": dl.schedules.linear,
    "cosine": dl.schedules.cosine,
    "wsd": dl.schedules.wsd,
}
TICKS = [0.05, 0.1, 0.2, 0.5]
STYLES = {"constant": ("#999999", "o"), "linear": ("#0072B2", "s"), "cosine": ("#E69F00", "D"), "wsd": ("#009E73", "^")}


def problem(source: float, shape: str, updates: int) -> dl.Problem:
    """Return a wide network with small fresh batches on a power law, and a schedule of peak 1."""
    return dl.Problem(
        dl.MLP(1, "infinite", centered=True),
        dl.Spectrum.power_law(capacity=1.5, source=source, noise=0.3),
        dl.OnlineSGD(4.0),
        dl.GradientDescent(SHAPES[shape](1.0)),
        steps=updates + 1,
    )


def best_peaks() -> Table:
    """Return the best peaks over the horizon, and their exponents over all of it and over its end."""
    table = [
        ["task", "schedule", *(f"T = {each}" for each in HORIZONS), "exponent", f"from T = {LATE}", "loss at the last"]
    ]
    found: dict[str, dict[str, list[float]]] = {task: {} for task in TASKS}
    for task, shape in itertools.product(TASKS, SHAPES):
        optima = [dl.optimal_lr(problem(TASKS[task], shape, int(updates))) for updates in HORIZONS]
        peaks = np.array([each.lr for each in optima])
        found[task][shape] = peaks.tolist()
        late = HORIZONS >= LATE
        laws = [loglog_slope(HORIZONS.astype(float), peaks), loglog_slope(HORIZONS[late].astype(float), peaks[late])]
        cells = [f"{peak:.3f}" for peak in peaks] + [f"{slope:.3f} ± {error:.3f}" for slope, error in laws]
        table.append([task, shape, *cells, f"{optima[-1].loss:.4f}"])
        print(table[-1], flush=True)
    draw(found)
    return table


def draw(found: dict[str, dict[str, list[float]]]) -> None:
    """Draw the best peaks over the horizon."""
    with styled():
        figure = new_figure(6.4, 3.0)
        axes = figure.subplots(1, len(found), sharey=True)
        for ax, (task, shapes) in zip(axes, found.items(), strict=True):
            for shape, peaks in shapes.items():
                color, marker = STYLES[shape]
                label = shape.upper() if shape == "wsd" else shape
                ax.plot(HORIZONS, peaks, color=color, marker=marker, markersize=4, linewidth=1.4, label=label)
            ax.set(xscale="log", yscale="log", xlabel="number of updates", title=f"{task} task, source {TASKS[task]:g}")
            ax.set_xticks(HORIZONS, [str(each) for each in HORIZONS])
            ax.set_yticks(TICKS, [f"{each:g}" for each in TICKS])
            ax.minorticks_off()
        axes[0].set_ylabel("best peak rate")
        axes[1].legend(loc="lower left")
        save_figure(figure, IMAGES / "horizon-peaks.png")


if __name__ == "__main__":
    from measured import write

    write("best_peaks", best_peaks(), "findings-horizon.md", "horizon")
