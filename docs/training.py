"""What comes out of training programs: the tables and pictures of the page on it.

    python docs/training.py [names of tables]        (half an hour on one core for all of them)

measures each table anew, or those that are named, writes it into ``findings-training.md``, between two comments, and
draws the picture of the same name from the same numbers. Networks have the seeds 0, 1, 2, ...
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import deeplinear as dl
from deeplinear._plots.style import new_figure, save_figure, styled

Table = list[list[str]]

IMAGES = Path(__file__).parent / "images"

# --- whether the best rate transfers --------------------------------------------------------------------------

OTHER = {"width": 0.1, "depth": 0.03}
"""Rate of the weights that Muon leaves to gradient descent, held fixed while its own is sought."""

RULES: dict[str, Any] = {
    "gradient descent": dl.GradientDescent(dl.schedules.linear(1.0)),
    "clipped at 1.5": dl.GradientDescent(dl.schedules.linear(1.0), clip=1.5),
    "normalised, global": dl.NormalizedDescent(dl.schedules.linear(1.0), per="global"),
    "normalised by layer": dl.NormalizedDescent(dl.schedules.linear(1.0)),
    "Muon": dl.Muon(dl.schedules.linear(1.0), momentum=0.9),
}
"""Update rules whose rates fall linearly to zero; the factor on these rates is what is sought."""

NETWORKS, DIM = 16, 80
"""Number of networks at each rate, and their input dimension."""


def staircase(network: dl.MLP | dl.ResNet, optimizer: Any, steps: int = 40) -> dl.Problem:
    """Return a problem with fresh batches of D, whose directions are of five kinds.

    From one kind to the next the variance is a quarter and the share in the target a half, so that no rate learns all
    of them in time.
    """
    variance, share = 0.25 ** np.arange(5), 0.5 ** np.arange(5)
    variance, share = variance / variance.mean(), share / share.mean()
    data = dl.Spectrum(variance, share / variance, multiplicity=[0.2] * 5, proportional=True, noise=0.1)
    return dl.Problem(network, data, dl.OnlineSGD(1.0), optimizer, steps)


def best_rates(problem: dl.Problem, over: str, values: Sequence[float]) -> dl.Transfer:
    """Return the best rates of theory and networks; those of Muon are half as large, since they take long."""
    if isinstance(problem.optimizer, dl.Muon):
        other = dl.GradientDescent(dl.schedules.linear(OTHER[over]))
        problem = replace(problem, optimizer=replace(problem.optimizer, other=other))
    lrs = dl.optimal_lr(problem).lr * np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    dim = DIM // 2 if isinstance(problem.optimizer, dl.Muon) else DIM
    return dl.transfer(problem, over, values, lrs=lrs, experiment={"dim": dim, "seeds": NETWORKS})


def percent(value: float) -> str:
    """Write a regret."""
    return "diverges" if math.isinf(value) else f"{value:.1%}".replace("%", " %")


def row_of(found: dl.Transfer) -> list[str]:
    """Write the best rates, their exponents, the loss at the last value and what it costs to keep the first rate."""
    measured = found.experiment
    assert measured is not None
    rates = ", ".join(f"{lr:.3g}" for lr in found.lr)
    cost = f"{percent(found.regret[-1])} ({percent(measured.regret[-1])})"
    return [
        rates,
        f"{found.exponent:.2f} ± {found.exponent_error:.2f}",
        f"{measured.exponent:.2f} ± {measured.exponent_error:.2f}".replace("± inf", "(not bounded)"),
        f"{found.optima[-1].loss:.4f}",
        cost,
    ]


SHOWN = (0.2, 5.0)
"""Relative rates that pictures show; intervals that reach further are cut."""


LOSS_TICKS = (0.02, 0.03, 0.05, 0.06, 0.07, 0.08, 0.1, 0.15)
"""Losses that pictures name."""


def draw_rates(ax: Axes, found: Mapping[str, dl.Transfer]) -> None:
    """Draw best rates over values, relative to that of the first: lines are theory, points are networks."""
    for name, each in found.items():
        measured = each.experiment
        assert measured is not None
        (line,) = ax.plot(each.values, each.lr / each.lr[0], label=name, linewidth=1.2)
        # Intervals that no rate bounds end at 0 or inf.
        low, high = (np.clip(end, measured.lr / 9, measured.lr * 9) for end in (measured.lr_low, measured.lr_high))
        bars = np.stack([measured.lr - low, high - measured.lr]) / each.lr[0]
        color = line.get_color()
        ax.errorbar(each.values, measured.lr / each.lr[0], bars, fmt="o", color=color, markersize=3, linewidth=0.8)
    first = next(iter(found.values()))
    ax.set(
        xscale="log",
        yscale="log",
        xlabel=first.over,
        ylabel=f"best rate, over that of {first.over} {first.values[0]:g}",
    )
    ax.set_xticks(first.values, [f"{value:g}" for value in first.values])
    ax.set_yticks([0.2, 0.5, 1.0, 2.0, 5.0], ["0.2", "0.5", "1", "2", "5"])
    ax.minorticks_off()
    ax.set_ylim(*SHOWN)


def draw_losses(ax: Axes, found: Mapping[str, dl.Transfer]) -> None:
    """Draw losses of theory at the best rates, less the label noise."""
    for name, each in found.items():
        noise = each.problem.data.noise**2
        ax.plot(
            each.values,
            [optimum.loss - noise for optimum in each.optima],
            "o-",
            label=name,
            linewidth=1.2,
            markersize=3,
        )
    first = next(iter(found.values()))
    ax.set(xscale="log", yscale="log", xlabel=first.over, ylabel="test loss at the best rate, less label noise")
    ax.set_xticks(first.values, [f"{value:g}" for value in first.values])
    low, high = ax.get_ylim()
    ticks = [tick for tick in LOSS_TICKS if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def draw_transfer(name: str, found: Mapping[str, dl.Transfer]) -> None:
    """Draw best rates and losses side by side."""
    with styled():
        figure = new_figure(7.2, 3.4)
        left, right = figure.subplots(1, 2)
        draw_rates(left, found)
        draw_losses(right, found)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=6)
        save_figure(figure, IMAGES / f"training-{name}.png")


WIDTHS = [0.5, 1.0, 2.0, 4.0]

HEAD = ["best rates", "exponent of theory", "of networks", "loss", "cost of keeping the first rate (networks)"]


def widths() -> Table:
    """Return best rates over width."""
    network = dl.MLP(2, 1.0, centered=True)
    found = {name: best_rates(staircase(network, rule), "width", WIDTHS) for name, rule in RULES.items()}
    standard = dl.MLP(2, 1.0, parameterization="standard", centered=True)
    found["gradient descent, standard"] = best_rates(staircase(standard, RULES["gradient descent"]), "width", WIDTHS)
    draw_transfer("widths", found)
    return [["rule", *HEAD], *([name, *row_of(each)] for name, each in found.items())]


def depths() -> Table:
    """Return best rates over depth, of residual networks with either rule for branches."""
    found = {}
    for power, name in ((0.5, "depth-muP"), (1.0, "CompleteP")):
        network = dl.ResNet(4, 1.0, centered=True, branch_scaling=power)
        for rule in ("gradient descent", "normalised, global", "normalised by layer", "Muon"):
            found[f"{rule}, {name}"] = best_rates(staircase(network, RULES[rule]), "depth", [4, 8, 16])
    draw_transfer("depths", found)
    return [["rule", *HEAD], *([name, *row_of(each)] for name, each in found.items())]


# --- CompleteP and depth-muP ----------------------------------------------------------------------------------

BRANCHES = {"depth-muP": 0.5, "CompleteP": 1.0}
DEPTHS = [4, 8, 16, 32]


def movement(solution: dl.Solution) -> tuple[float, float]:
    """Return the mean squared gain of all branches, C_g of the first layer over that of the last, at start and end."""
    Cg = solution.gradient_correlation
    return float(Cg[0, 0, 0] / Cg[-1, 0, 0]), float(Cg[0, -1, -1] / Cg[-1, -1, -1])


BRANCH_RATES = 0.02 * 2 ** (np.arange(17) / 4)


def branches() -> Table:
    """Return losses and gains at one rate over depth, up to infinite depth, and the best rate of a grid."""
    what = ("loss", "networks", "gain", "best rate", "its loss")
    table = [["depth", *(f"{name}: {each}" for name in BRANCHES for each in what)]]
    curves: dict[tuple[str, str], list[float]] = {}
    for depth in [*DEPTHS, math.inf]:
        row = ["infinite" if depth == math.inf else str(depth)]
        for name, power in BRANCHES.items():
            network = dl.ResNet(depth, 1.0, centered=True, branch_scaling=power)
            problem = staircase(network, dl.GradientDescent(dl.schedules.linear(0.04)))
            solution = dl.solve(problem)
            start, end = movement(solution)
            measured = "" if depth == math.inf else final_of(problem, 24, DIM)
            rules = [dl.GradientDescent(dl.schedules.linear(lr)) for lr in BRANCH_RATES.tolist()]
            losses = [each.test_loss[-1] for each in dl.solve([staircase(network, rule) for rule in rules])]
            best = int(np.argmin(losses))
            row += [f"{solution.test_loss[-1]:.4f}", measured, f"{start:.2f} to {end:.2f}"]
            row += [f"{BRANCH_RATES[best]:.3f}", f"{losses[best]:.4f}"]
            curves[name, row[0]] = losses
        table.append(row)
    with styled():
        figure = new_figure(7.2, 2.8)
        for ax, name in zip(figure.subplots(1, 2, sharey=True), BRANCHES, strict=True):
            for index, depth in enumerate([*map(str, DEPTHS), "infinite"]):
                losses = np.array(curves[name, depth])
                shown = losses < 0.3
                ax.plot(BRANCH_RATES[shown], losses[shown], color=f"C{index}", label=f"depth {depth}", linewidth=1.2)
            ax.set(xscale="log", xlabel="largest learning rate", title=name)
            ax.set_xticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
            ax.minorticks_off()
        figure.axes[0].set(ylabel="test loss")
        figure.axes[0].legend()
        save_figure(figure, IMAGES / "training-branches.png")
    return table


def final_of(problem: dl.Problem, networks: int, dim: int | None = None, task: int | None = None) -> str:
    """Write the last test loss of networks, on one task or the last, with its standard error."""
    experiment = dl.simulate(problem, dim, networks, record="losses")
    losses = experiment.test_loss if task is None else experiment.task_loss[:, task]
    mean, error = losses[:, -1].mean(), losses[:, -1].std(ddof=1) / math.sqrt(networks)
    return f"{mean:.4f} ± {error:.4f}"


# --- forgetting -----------------------------------------------------------------------------------------------

FINE_TUNING: dict[str, Any] = {"width": 1.0, "richness": 1.0, "overlap": 0.5, "samples": 0.5}
"""What stays the same while one of them is changed."""

FORGETTING: dict[str, list[float]] = {
    "width": [0.25, 1.0, 4.0, 16.0],
    "richness": [0.1, 1.0, 2.0, 4.0],
    "overlap": [-0.5, 0.0, 0.5, 0.9],
    "samples": [0.1, 0.25, 0.5, 1.0, 2.0, 4.0],
}


def fine_tuning(width: float, richness: float, overlap: float, samples: float) -> dl.Problem:
    """Return 60 steps on 4 D examples of one task, and 60 on some examples of another."""
    return dl.Problem(
        network=dl.MLP(2, width, richness, centered=True),
        data=dl.Isotropic(0.1),
        sampling=dl.FullBatch(4.0),
        optimizer=dl.GradientDescent(0.03),
        steps=120,
        phases=(dl.Phase(60), dl.Phase(60, target_overlap=overlap, sampling=dl.FullBatch(samples))),
    )


def forgetting() -> Table:
    """Return losses on both tasks before and after fine-tuning."""
    table = [
        ["what is changed", "value", "old task before", "after", "networks", "new task before", "after", "networks"]
    ]
    curves = {}
    for name, values in FORGETTING.items():
        problems = [fine_tuning(**(FINE_TUNING | {name: value})) for value in values]
        solved = dl.solve(problems)
        for value, problem, each in zip(values, problems, solved, strict=True):
            old, new = each.task_loss
            networks = [final_of(problem, 24, 100, task) for task in (0, 1)]
            losses = [f"{old[60]:.4f}", f"{old[-1]:.4f}", networks[0], f"{new[60]:.4f}", f"{new[-1]:.4f}", networks[1]]
            table.append([name, f"{value:g}", *losses])
        curves[name] = [(each.task_loss[0][-1], each.task_loss[1][-1]) for each in solved]
    with styled():
        figure = new_figure(7.2, 2.4)
        for ax, (name, losses) in zip(figure.subplots(1, 4, sharey=True), curves.items(), strict=True):
            for label, curve in zip(("old task", "new task"), zip(*losses, strict=True), strict=True):
                ax.plot(FORGETTING[name], curve, "o-", label=label, linewidth=1.2, markersize=3)
            units = {"width": "width N/D", "samples": "samples P/D"}
            ax.set(xlabel=units.get(name, name), xscale="linear" if name == "overlap" else "log")
        figure.axes[0].set(ylabel="test loss after fine-tuning")
        figure.axes[0].legend()
        save_figure(figure, IMAGES / "training-forgetting.png")
    return table


# --- random features ------------------------------------------------------------------------------------------

FROZEN = {"input": 0.0, "hidden": 0.0}


def features() -> Table:
    """Return losses with all weights trained, and with the readout alone, each at its best rate with a margin."""
    trained = {"all weights": None, "readout alone": FROZEN}
    head = [f"{name}: {what}" for name in trained for what in ("best rate", "loss", "networks")]
    table = [["samples", "width", *head]]
    curves: dict[tuple[float, str], list[float]] = {}
    widths = [0.25, 1.0, 4.0, 16.0]
    for samples in (0.5, 2.0):
        for width in widths:
            row = [f"{samples:g}", f"{width:g}"]
            for name, factors in trained.items():
                network, sampling = dl.MLP(2, width, centered=True), dl.FullBatch(samples)
                rule = dl.GradientDescent(0.03, layer_lr=factors)
                best = dl.optimal_lr(dl.Problem(network, dl.Isotropic(0.3), sampling, rule, steps=60))
                rule = dl.GradientDescent(best.safe_lr, layer_lr=factors)
                problem = dl.Problem(network, dl.Isotropic(0.3), sampling, rule, steps=60)
                row += [f"{best.safe_lr:.3g}", f"{best.safe_loss:.4f}", final_of(problem, 24, 100)]
                curves.setdefault((samples, name), []).append(best.safe_loss)
            table.append(row)
    with styled():
        figure = new_figure(4.2, 2.8)
        ax = figure.subplots()
        for (samples, name), losses in curves.items():
            style = {"color": "C0" if samples < 1 else "C1", "linestyle": "-" if trained[name] is None else "--"}
            ax.plot(
                widths, losses, marker="o", label=f"{name}, P/D = {samples:g}", linewidth=1.2, markersize=3, **style
            )
        ax.set(xscale="log", xlabel="width N/D", ylabel="test loss at the best rate with a margin")
        ax.set_xticks(widths, [f"{width:g}" for width in widths])
        ax.minorticks_off()
        ax.legend()
        save_figure(figure, IMAGES / "training-features.png")
    return table


# --- averages, schedules, schedule-free -----------------------------------------------------------------------

AVERAGES = (dl.EMA(0.9), dl.EMA(0.97), dl.TailMean(0.5))
NOISY_RATES = [0.005, 0.01, 0.02, 0.04, 0.08]


def noisy(optimizer: Any) -> dl.Problem:
    """Return a problem whose loss is limited by the noise of its batches."""
    return dl.Problem(dl.MLP(2, 2.0, centered=True), dl.Isotropic(0.5), dl.OnlineSGD(0.25), optimizer, steps=150)


def averages() -> Table:
    """Return losses of last weights, of averages, with a schedule and without one."""
    names = ["last weights", "EMA 0.9", "EMA 0.97", "mean of last half", "rate falls to zero", "schedule-free"]
    table = [["rate", *names, "networks: last", "networks: last half"]]
    curves = []
    for lr in NOISY_RATES:
        problem = noisy(dl.GradientDescent(lr))
        constant = dl.solve(problem, averages=AVERAGES)
        rules = [dl.GradientDescent(dl.schedules.linear(lr)), dl.ScheduleFree(lr)]
        others = [each.test_loss[-1] for each in dl.solve([noisy(rule) for rule in rules])]
        curves.append([constant.test_loss[-1], *constant.averaged_test_loss[:, -1], *others])
        networks = dl.simulate(problem, 100, 24, averages=AVERAGES, record="losses")
        measured = [
            f"{losses.mean():.4f} ± {losses.std(ddof=1) / math.sqrt(24):.4f}"
            for losses in (networks.test_loss[:, -1], networks.averaged_test_loss[:, -1, -1])
        ]
        table.append([f"{lr:g}", *(f"{loss:.4f}" for loss in curves[-1]), *measured])
    with styled():
        figure = new_figure(4.2, 2.8)
        ax = figure.subplots()
        for name, curve in zip(names, zip(*curves, strict=True), strict=True):
            ax.plot(NOISY_RATES, curve, "o-", label=name, linewidth=1.2, markersize=3)
        ax.set(xscale="log", xlabel="learning rate", ylabel="test loss after 150 steps")
        ax.set_xticks(NOISY_RATES, [f"{lr:g}" for lr in NOISY_RATES])
        ax.minorticks_off()
        ax.legend()
        save_figure(figure, IMAGES / "training-averages.png")
    return table


# --- SAM ------------------------------------------------------------------------------------------------------

RADII = [0.0, 0.05, 0.1, 0.2, 0.4]


def sharpness_aware() -> Table:
    """Return losses after training and at the best step, over the radius, for few, many and fresh examples."""
    kinds = {f"{samples:g} D examples": dl.FullBatch(samples) for samples in (0.5, 1.0, 2.0)}
    kinds |= {"fresh batches of D/2": dl.OnlineSGD(0.5)}
    table = [["data", "radius", "train loss", "test loss", "networks", "lowest test loss", "at step"]]
    curves: dict[str, list[float]] = {}
    for name, sampling in kinds.items():
        for rho in RADII:
            rule = dl.SAM(0.06, rho) if rho else dl.GradientDescent(0.06)
            problem = dl.Problem(dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.5), sampling, rule, steps=40)
            found = dl.solve(problem)
            losses = [f"{found.train_loss[-1]:.4f}", f"{found.test_loss[-1]:.4f}", final_of(problem, 24, 100)]
            table.append([name, f"{rho:g}", *losses, f"{found.test_loss.min():.4f}", str(found.test_loss.argmin())])
            curves.setdefault(name, []).append(float(found.test_loss[-1]))
    with styled():
        figure = new_figure(4.2, 2.8)
        ax = figure.subplots()
        for name, losses in curves.items():
            ax.plot(RADII, np.array(losses) / losses[0], "o-", label=name, linewidth=1.2, markersize=3)
        ax.axhline(1.0, color="k", linewidth=0.6)
        ax.set(xlabel="radius", ylabel="test loss, over that of gradient descent")
        ax.legend()
        save_figure(figure, IMAGES / "training-sharpness-aware.png")
    return table


TABLES = {each.__name__: each for each in (widths, depths, branches, forgetting, features, averages, sharpness_aware)}
"""Measurement of each table."""

if __name__ == "__main__":
    from measured import write

    for name in sys.argv[1:] or TABLES:
        write(name, TABLES[name](), "findings-training.md", "training")
