"""What comes out of sharpness: the tables and pictures of the page on it.

    python docs/sharpness.py [names of tables]        (a few minutes on one core for all of them)

measures each table anew, or those that are named, writes it into ``findings-sharpness.md``, between two comments, and
draws the picture of the same name from the same numbers. Networks have the seeds 0, 1, 2, ...
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

import deeplinear as dl
from deeplinear._plots.style import new_figure, save_figure, styled

Table = list[list[str]]

IMAGES = Path(__file__).parent / "images"

DIM, NETWORKS, VECTORS = 10**5, 4, 16
"""Input dimension and number of networks, and directions that are looked at."""

TRUSTED = 0.02
"""Relative error up to which a sharpness is looked at for the largest one."""

ALTERNATES = 0.02
"""Part of itself by which a sharpness has to go up and down to be said to alternate."""


def problem(optimizer: dl.GradientDescent, steps: int, sampling: Any = None, **network: Any) -> dl.Problem:
    """Return a problem with label noise 0.3: depth 3, width 1, richness 2 and 2 D samples unless others are given."""
    made = dl.MLP(**({"depth": 3, "width": 1.0, "richness": 2.0} | network))
    return dl.Problem(made, dl.Isotropic(0.3), sampling or dl.FullBatch(2.0), optimizer, steps)


class Run(NamedTuple):
    """A run: sharpness over training, train loss, and the largest Ritz values of networks at its last two steps.

    What is said of the end is the mean over two steps, since large rates end in an oscillation whose period is two.

    Samples and neurons are as many as inputs here, so that there is a continuous spectrum always. Where none is found,
    the sharpness counts as not known: the gradient, from which directions start, has then lost nearly all of its weight
    on sharp directions. The largest value, and where the limit is crossed, are those of sharpness known to 2 %.
    """

    found: dl.Sharpness
    train_loss: np.ndarray
    measured: np.ndarray

    @property
    def sharpness(self) -> np.ndarray:
        """Sharpness at the steps looked at, nan where it is not known."""
        return np.where(np.isfinite(self.found.edge), self.found.largest, np.nan)

    @property
    def trusted(self) -> np.ndarray:
        """The same, nan where its error is too large."""
        found = self.found
        return np.where(found.largest_error <= TRUSTED * found.largest, self.sharpness, np.nan)

    @property
    def ritz(self) -> float:
        """Ritz value at the end, nan if it is not known."""
        return float(self.found.ritz_values[-2:, 0].mean()) if np.isfinite(self.last) else np.nan

    @property
    def last(self) -> float:
        """Sharpness at the end, nan if it is not known."""
        return float(self.sharpness[-2:].mean())

    @property
    def crosses(self) -> str:
        """First of the steps looked at where the sharpness is above the limit."""
        above = np.flatnonzero(self.trusted > self.found.limit)
        return str(self.found.times[above[0]]) if above.size else "never"

    @property
    def rises(self) -> str:
        """Step after which the train loss first rises."""
        up = np.flatnonzero(np.diff(self.train_loss) > 0)
        return str(up[0]) if up.size else "never"

    @property
    def highest(self) -> str:
        """Largest sharpness, and its step."""
        at = int(np.nanargmax(self.trusted))
        return f"{self.trusted[at]:.1f} ({self.found.times[at]})"

    @property
    def end(self) -> str:
        """Sharpness at the end, with its error, and by how much it goes up and down if it does."""
        if not np.isfinite(self.last):
            return "not known"
        swing = float(np.ptp(self.sharpness[-2:])) / 2
        goes = f", alternating by {swing:.1f}" if swing > ALTERNATES * self.last else ""
        return f"{self.last:.2f} ± {max(self.found.largest_error[-2:].max(), 0.01):.2f}{goes}"

    @property
    def networks(self) -> str:
        """Mean of networks, with its standard error."""
        each = self.measured.mean(axis=1)
        return f"{each.mean():.2f} ± {each.std(ddof=1) / np.sqrt(len(each)):.2f}"


def closely(steps: int) -> list[int]:
    """Return steps to look at: all of the first, then fewer, all even, and the last two."""
    return sorted({*range(20), *range(20, min(60, steps), 2), *range(60, steps, 6), steps - 2, steps - 1})


def run(each: dl.Problem, at: list[int] | None = None) -> Run:
    """Solve a problem, and train networks on it."""
    found = dl.sharpness(each, at or closely(each.steps), VECTORS)
    curvature = dl.Curvature([each.steps - 2, each.steps - 1], VECTORS)
    multi_pass = isinstance(each.sampling, dl.MultiPassSGD)  # which keeps all samples
    dim = DIM // 100 if multi_pass else DIM
    networks = dl.simulate(each, dim, NETWORKS, record="losses", method="reduced", curvature=curvature)
    assert networks.ritz_values is not None
    train_loss = dl.solve(each).train_loss
    return Run(found, train_loss, networks.ritz_values[:, :, 0])


COLUMNS = ["limit", "highest (at step)", "above the limit from step", "loss first rises after step", "at the end",
           "over the limit", "Ritz value at the end, theory", "networks"]  # fmt: skip


def cells(each: Run) -> list[str]:
    """Write what the tables of runs have in common."""
    found = each.found
    return [
        f"{found.limit[-1]:.1f}", each.highest, each.crosses, each.rises, each.end,
        number(each.last / found.limit[-1]), number(each.ritz), each.networks,
    ]  # fmt: skip


def number(value: float) -> str:
    """Write a number, if it is known."""
    return f"{value:.2f}" if np.isfinite(value) else "not known"


def draw_run(ax: Axes, each: Run, label: str) -> Any:
    """Draw the sharpness over the limit of a run where it is known, late at even steps; return the colour."""
    known = np.isfinite(each.trusted) & ((each.found.times < 20) | (each.found.times % 2 == 0))
    x, y = each.found.times[known], (each.trusted / each.found.limit)[known]
    (line,) = ax.plot(x, y, label=label, linewidth=1.2)
    return line.get_color()


def finish(ax: Axes) -> None:
    """Draw the limit, and name the axes."""
    ax.axhline(1.0, color="k", linewidth=0.8)
    ax.set(xlabel="training step", ylabel="sharpness over its limit")
    ax.set_ylim(0, 1.4 * ax.get_ylim()[1])
    ax.legend(fontsize=6, loc="upper right", ncols=3, handlelength=1.2, columnspacing=0.8)


# --- the edge of stability ------------------------------------------------------------------------------------

EDGE_RATES = (0.01, 0.02, 0.05, 0.06, 0.065, 0.07, 0.08, 0.1, 0.12, 0.14)
EDGE_STEPS = 151


def edge() -> Table:
    """Return sharpness against 2 / lr for rates from small to large, full batch."""
    runs = {lr: run(problem(dl.GradientDescent(lr), EDGE_STEPS)) for lr in EDGE_RATES}
    with styled():
        figure = new_figure(7.2, 2.9)
        left, right = figure.subplots(1, 2)
        for lr, each in runs.items():
            right.plot(each.train_loss, color=draw_run(left, each, f"rate {lr:g}"), linewidth=1.2)
        finish(left)
        right.set(yscale="log", xlabel="training step", ylabel="train loss")
        save_figure(figure, IMAGES / "sharpness-edge.png")
    return [["rate", *COLUMNS], *([f"{lr:g}", *cells(each)] for lr, each in runs.items())]


# --- momentum and batches -------------------------------------------------------------------------------------

RULES: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "momentum 0.5": ({"momentum": 0.5}, (0.1, 0.12, 0.135, 0.148)),
    "momentum 0.9": ({"momentum": 0.9}, (0.005, 0.015, 0.025, 0.035, 0.045)),
    "batches of D/2 of 2 D samples": ({"sampling": dl.MultiPassSGD(2.0, 0.5)}, (0.02, 0.04, 0.06, 0.08, 0.1)),
    "fresh batches of D/2": ({"sampling": dl.OnlineSGD(0.5)}, (0.02, 0.04, 0.06, 0.08, 0.1)),
}
"""Update rules and ways to sample, with their rates."""

RULE_STEPS = 61


def rules() -> Table:
    """Return sharpness against its limit with momentum, and with batches."""
    table = [["", "rate", *COLUMNS]]
    with styled():
        figure = new_figure(7.2, 5.0)
        for ax, (name, (options, rates)) in zip(figure.subplots(2, 2).flat, RULES.items(), strict=True):
            sampling = options.get("sampling")
            for lr in rates:
                rule = dl.GradientDescent(lr, momentum=options.get("momentum", 0.0))
                each = run(problem(rule, RULE_STEPS, sampling))
                table.append([name, f"{lr:g}", *cells(each)])
                draw_run(ax, each, f"rate {lr:g}")
            finish(ax)
            ax.set_title(name)
        save_figure(figure, IMAGES / "sharpness-rules.png")
    return table


# --- what the sharpness depends on ----------------------------------------------------------------------------

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
VALUES: dict[str, dict[str, dict[str, Any]]] = {
    "width, muP": {f"{nu:g}": {"width": nu} for nu in WIDTHS},
    "width, NTK": {f"{nu:g}": {"width": nu, "parameterization": "ntk"} for nu in WIDTHS},
    "depth": {f"{depth}": {"depth": depth} for depth in (1, 2, 3, 4, 6)},
    "richness": {f"{richness:g}": {"richness": richness} for richness in (0.5, 1.0, 2.0, 4.0)},
    "samples, over D": {f"{samples:g}": {"sampling": dl.FullBatch(samples)} for samples in (1.0, 2.0, 4.0, 8.0)},
    "fresh batch, over D": {f"{batch:g}": {"sampling": dl.OnlineSGD(batch)} for batch in (0.125, 0.25, 0.5, 1.0, 2.0)},
}
SLOW = dl.GradientDescent(0.01)
SLOW_STEPS = 121


def sizes() -> Table:
    """Return sharpness at the start and after a fixed time at a small rate, over widths, depths and so on."""
    table = [
        [
            "",
            "value",
            "at first",
            "at the end",
            "change",
            "train loss at the end",
            "Ritz value at the end, theory",
            "networks",
        ]
    ]
    changes: dict[str, list[tuple[float, float]]] = {}
    for name, values in VALUES.items():
        for value, options in values.items():
            each = run(problem(SLOW, SLOW_STEPS, **options), [0, SLOW_STEPS - 2, SLOW_STEPS - 1])
            first, last = each.sharpness[0], each.last
            row = [f"{first:.2f}", each.end, f"{last - first:+.2f}", f"{each.train_loss[-1]:.4f}", number(each.ritz)]
            table.append([name, value, *row, each.networks])
            changes.setdefault(name, []).append((first, last))
    with styled():
        figure = new_figure(7.2, 2.9)
        left, right = figure.subplots(1, 2)
        for name in ("width, muP", "width, NTK"):
            first, last = np.transpose(changes[name])
            (line,) = left.plot(WIDTHS, last, "o-", label=f"{name[7:]}, after training", linewidth=1.2, markersize=3)
            left.plot(
                WIDTHS, first, "o:", label=f"{name[7:]}, at first", color=line.get_color(), linewidth=1.0, markersize=3
            )
            right.plot(WIDTHS, last - first, "o-", label=name[7:], linewidth=1.2, markersize=3)
        for ax, label in ((left, "sharpness"), (right, "by how much training sharpens")):
            ax.set(xscale="log", xlabel="width", ylabel=label, ylim=(0, None))
            ax.set_xticks(WIDTHS, [f"{nu:g}" for nu in WIDTHS])
            ax.minorticks_off()
            ax.legend()
        save_figure(figure, IMAGES / "sharpness-sizes.png")
    return table


TABLES = {each.__name__: each for each in (edge, rules, sizes)}
"""Measurement of each table."""

if __name__ == "__main__":
    from measured import write

    for name in sys.argv[1:] or TABLES:
        write(name, TABLES[name](), "findings-sharpness.md", "sharpness")
