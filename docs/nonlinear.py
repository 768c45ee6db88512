"""How far the linear theory helps nonlinear networks: the tables and the picture of the page on it.

    python docs/nonlinear.py        (about twelve minutes on one core; needs PyTorch and scikit-learn)

trains ReLU and GELU networks on handwritten digits at many rates, and writes their losses to ``nonlinear.json``, from
which tables and picture are made. An interrupted run resumes where it stopped; delete the file to measure anew.
"""

import functools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from deeplinear._plots.style import log_axis, new_figure, save_figure, styled
from deeplinear._plots.transfer import lr_axis

Array = NDArray[np.float64]
Table = list[list[str]]

RESULTS, PAGE = Path(__file__).with_suffix(".json"), "findings-nonlinear.md"
WIDTHS = (64, 128, 256, 512, 1024)
ACTIVATIONS = {"linear": 1.0, "relu": math.sqrt(2.0), "gelu": 1.534}
"""Activations, and the factor on initial weights that makes up for what they take: 1 / sqrt(E[phi(z)^2])."""

NAMES = {"linear": "linear", "relu": "ReLU", "gelu": "GELU", "mup": "muP", "ntk": "NTK"}

_WIDE = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5)
FACTORS = {"linear": (-1.0, 0.0, 1.0, 2.0), "relu": _WIDE, "gelu": _WIDE}
"""Powers of 2 of the rates that are tried, in units of theory's best one."""

SEEDS, STEPS, BATCH, DEPTH = (0, 1, 2), 100, 32, 2
UNSTABLE = 1.0
"""A loss that counts as unstable: nothing was learned, or worse."""

LOOKS = (0, 1, 2, 3, 5, 8, 13, 20, 32, 50, 71, 99)
"""Steps at which the loss is looked at, where all of the curve is wanted."""

FITTED, FITS = (64, 128), ("digits", "power law")
"""Widths whose curves are fitted, to predict the largest; and what the fit takes for the data."""

CASES = [("labels", "mup", WIDTHS), ("labels", "ntk", WIDTHS), ("linear fit", "mup", (64, 256, 1024))]
"""Target, parameterization and widths."""


@functools.cache
def digits(target: str) -> tuple[Array, Array]:
    """Return pixels, and whether the digit is even (1) or odd (-1), or the least-squares fit of that to the pixels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = images - images.mean(axis=0)
    x = x / np.sqrt((x**2).sum(axis=1).mean())  # so that the eigenvalues sum to 1
    y = np.where(labels % 2 == 0, 1.0, -1.0)
    y = y - y.mean()
    return x, y if target == "labels" else x @ np.linalg.lstsq(x, y, rcond=None)[0]


@functools.cache
def spectrum(target: str) -> dl.Spectrum:
    """Return what theory knows of the digits."""
    return dl.Spectrum.from_data(*digits(target))


@functools.cache
def batches(target: str) -> Any:
    """Return batches of rows, of some problem with these data."""
    import deeplinear.torch as pytorch

    return pytorch.data(problem(target, "mup", WIDTHS[0], 1.0), data=digits(target))


def problem(target: str, parameterization: str, width: int, lr: float, activation: str = "linear") -> dl.Problem:
    """Return what is trained: two hidden layers, fresh batches of 32."""
    gain = ACTIVATIONS[activation]
    scale = None if gain == 1.0 else {"hidden": gain, "readout": gain}
    network = dl.MLP(DEPTH, width, parameterization=parameterization, centered=True, init_scale=scale)
    return dl.Problem(network, spectrum(target), dl.OnlineSGD(BATCH), dl.GradientDescent(lr), STEPS)


def train(case: dl.Problem, target: str, activation: str, seed: int, looks: tuple[int, ...]) -> list[float]:
    """Train one network on rows of the digits; return its mean squared errors over all rows at some steps."""
    import torch

    import deeplinear.torch as pytorch

    nonlinearity = None if activation == "linear" else getattr(torch.nn.functional, activation)
    module = pytorch.network(case, seed=seed, activation=nonlinearity).float()
    optimizer = pytorch.optimizer(case, module)
    data = replace(batches(target), problem=case, seed=seed)
    everything = pytorch.Batch(*(each.float() for each in data.test()))
    losses = []
    for step, batch in enumerate(data):
        x, y, _ = (each.float() for each in batch)
        if step in looks:
            with torch.no_grad():
                losses.append((module(everything.x) - everything.y).square().mean().item())
        optimizer.zero_grad()
        (module(x) - y).square().sum(1).mean().div(2).backward()
        optimizer.step()
    return [round(loss, 5) if math.isfinite(loss) else math.inf for loss in losses]


def measure() -> dict[str, Any]:
    """Return theory's best rates and the losses of all networks, by a name; what is on file is not measured again."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"seconds": 0.0}
    for name, compute in _work(found):
        if name not in found:
            start = time.process_time()
            found[name] = compute()
            found["seconds"] = round(found["seconds"] + time.process_time() - start, 1)
            RESULTS.write_text(json.dumps(found, indent=0))
    return found


def _work(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for target, parameterization, widths in CASES:
        for width in widths:
            case = (target, parameterization, width)
            yield _name(*case), functools.partial(_theory, *case)
            for activation, factors in FACTORS.items():
                for power in factors:
                    for seed in SEEDS:
                        lr = found[_name(*case)]["lr"] * 2.0**power
                        looks = LOOKS if power == 0 else LOOKS[-1:]
                        job = functools.partial(train, problem(*case, lr, activation), target, activation, seed, looks)
                        yield _name(*case, activation, power, seed), job
    for activation in ACTIVATIONS:
        for data in FITS:
            yield _name("fit", activation, data), functools.partial(_fit, found, activation, data)


def _theory(target: str, parameterization: str, width: int) -> dict[str, Any]:
    best = dl.optimal_lr(problem(target, parameterization, width, 1.0))
    curve = dl.solve(problem(target, parameterization, width, best.lr)).test_loss
    return {"lr": best.lr, "loss": best.loss, "curve": [round(float(curve[step]), 5) for step in LOOKS]}


def _fit(found: dict[str, Any], activation: str, data: str) -> dict[str, Any]:
    """Fit the curves of narrow networks at theory's best rates, and predict the widest: best rate, and loss there."""
    free = ["noise", "richness", *(["source", "capacity"] if data == "power law" else [])]
    problems, curves = [], []
    for width in FITTED:
        given = problem("labels", "mup", width, found[_name("labels", "mup", width)]["lr"])
        problems.append(replace(given, data=dl.Spectrum.power_law(1.5, 1.0, noise=0.2)) if len(free) > 2 else given)
        losses = [found[_name("labels", "mup", width, activation, 0.0, seed)] for seed in SEEDS]
        curves.append(dl.measured(steps=LOOKS, test_loss=np.array(losses)))
    fitted = dl.fit(curves, problems, free)
    predicted = dl.optimal_lr(fitted.problem.replace(width=WIDTHS[-1]))
    values = {name: float(f"{value:.3g}") for name, value in fitted.values.items()}
    return {"values": values, "chi2": fitted.chi2_per_dof, "lr": predicted.lr, "loss": float(predicted.loss)}


def _name(*words: Any) -> str:
    return " ".join(map(str, words))


# --- tables and the picture -----------------------------------------------------------------------------------


def final(found: dict[str, Any], case: tuple[Any, ...], activation: str) -> Array:
    """Mean final loss over seeds at each rate, shape (rates,); inf where a network diverged."""
    return np.array(
        [np.mean([found[_name(*case, activation, power, seed)][-1] for seed in SEEDS]) for power in FACTORS[activation]]
    )


def best(found: dict[str, Any], case: tuple[Any, ...], activation: str) -> tuple[float, float]:
    """Best rate in units of theory's, the lowest point of a parabola through three losses, and the lowest loss."""
    losses, powers = final(found, case, activation), np.array(FACTORS[activation])
    least = int(np.argmin(losses))
    if not 0 < least < len(losses) - 1 or not losses[least + 1] < UNSTABLE:
        raise ValueError(f"the best rate of {_name(*case, activation)} is not between rates that were tried")
    near = slice(least - 1, least + 2)
    a, b, _ = np.polyfit(powers[near], np.log(losses[near]), 2)
    return 2.0 ** float(-b / (2 * a)), float(losses[least])


def rates(found: dict[str, Any]) -> Table:
    """Return best rates and losses at every width, of theory and networks."""
    table = [["target", "parameterization", "width", "theory: best rate", "loss"]]
    for activation in ACTIVATIONS:
        table[0] += [f"{NAMES[activation]}: best rate / theory's", "lowest loss", "loss at theory's rate"]
    for target, parameterization, widths in CASES:
        for width in widths:
            case = (target, parameterization, width)
            theory = found[_name(*case)]
            row = [target, NAMES[parameterization], str(width)]
            row += [f"{theory['lr']:.2f}", f"{theory['loss']:.3f}"]
            for activation in ACTIVATIONS:
                ratio, loss = best(found, case, activation)
                at_theory = final(found, case, activation)[list(FACTORS[activation]).index(0)]
                row += [f"{ratio:.1f}", f"{loss:.3f}", f"{at_theory:.3f}"]
            table.append(row)
    return table


def transfer(found: dict[str, Any]) -> Table:
    """Return how best rates move with width, and what is lost at width 1024 if only width 64 was searched.

    Either its best rate is kept, or the factor between its best rate and theory's.
    """
    law, kept = "exponent of the best rate in the width", "extra loss at width 1024:"
    table = [["target", "parameterization", "network", law, f"{kept} rate of width 64", "its factor on theory's rate"]]
    for target, parameterization, widths in CASES:
        cases = [(target, parameterization, width) for width in widths]
        theory = np.array([found[_name(*case)]["lr"] for case in cases])
        words = [target, NAMES[parameterization]]
        table.append([*words, "theory", f"{_slope(widths, theory):.2f}", _kept_by_theory(cases, theory), "0 %"])
        for activation in ACTIVATIONS:
            ratios = np.array([best(found, case, activation)[0] for case in cases])
            costs = [
                _kept(found, cases[-1], activation, ratio) for ratio in (ratios[0] * theory[0] / theory[-1], ratios[0])
            ]
            table.append([*words, NAMES[activation], f"{_slope(widths, theory * ratios):.2f}", *costs])
    return table


def _slope(widths: tuple[int, ...], values: Array) -> float:
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


def _kept_by_theory(cases: list[tuple[Any, ...]], lrs: Array) -> str:
    kept, own = (dl.solve(problem(*cases[-1], float(lr))).test_loss[-1] for lr in (lrs[0], lrs[-1]))
    return _percent(kept / own - 1)


def _kept(found: dict[str, Any], case: tuple[Any, ...], activation: str, ratio: float) -> str:
    """Extra loss at a rate in units of theory's, from the logarithms of losses at rates beside it."""
    powers, losses = np.array(FACTORS[activation], float), final(found, case, activation)
    if not powers[0] <= math.log2(ratio) <= powers[-1]:
        return "not measured"
    with np.errstate(over="ignore"):
        there = np.exp(np.interp(math.log2(ratio), powers, np.log(losses)))
    return _percent(there / losses.min() - 1)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if math.isfinite(value) else "diverges"


def leaving(found: dict[str, Any]) -> Table:
    """Return where the curve of a network at theory's best rate leaves that of theory."""
    table = [["target", "parameterization", "width", *(NAMES[activation] for activation in ACTIVATIONS)]]
    for target, parameterization, widths in CASES:
        for width in (widths[0], widths[-1]):
            case = (target, parameterization, width)
            theory = np.array(found[_name(*case)]["curve"])
            row = [target, NAMES[parameterization], str(width)]
            for activation in ACTIVATIONS:
                off = np.abs(curve(found, case, activation) / theory - 1) > 0.1
                row.append(f"step {LOOKS[int(np.argmax(off))]}" if off.any() else "never")
            table.append(row)
    return table


def predictions(found: dict[str, Any]) -> Table:
    """Return what a fit to narrow networks predicts for the widest, beside what that does."""
    head = ["network", "data in the fit", "fitted", "chi^2 per degree of freedom"]
    table = [[*head, "best rate: predicted", "measured", "loss there: predicted", "measured"]]
    case = ("labels", "mup", WIDTHS[-1])
    for activation in ACTIVATIONS:
        ratio, loss = best(found, case, activation)
        for data in FITS:
            fit = found[_name("fit", activation, data)]
            values = ", ".join(f"{name} {value:.2g}" for name, value in fit["values"].items())
            row = [NAMES[activation], data, values, f"{fit['chi2']:.0f}", f"{fit['lr']:.2f}"]
            table.append([*row, f"{ratio * found[_name(*case)]['lr']:.2f}", f"{fit['loss']:.3f}", f"{loss:.3f}"])
    return table


def curve(found: dict[str, Any], case: tuple[Any, ...], activation: str) -> Array:
    """Mean loss over seeds at theory's best rate, shape (looks,)."""
    return np.mean([found[_name(*case, activation, 0.0, seed)] for seed in SEEDS], axis=0)


def draw(found: dict[str, Any]) -> None:
    """Draw loss against rate at the smallest width (dotted) and the largest."""
    colors = {"linear": "#00204D", "relu": "#C2570C", "gelu": "#2A8A5B"}
    with styled():
        figure = new_figure(9.6, 3.2)
        axes = figure.subplots(1, 3)
        for ax, (target, parameterization, widths) in zip(axes, CASES, strict=True):
            for width, line in ((widths[0], ":"), (widths[-1], "-")):
                case = (target, parameterization, width)
                theory = found[_name(*case)]
                marker = {"marker": "*", "markersize": 9 if width == widths[-1] else 6, "color": "black", "zorder": 5}
                star = "theory's best" if width == widths[-1] else None
                ax.plot(theory["lr"], theory["loss"], linestyle="none", label=star, **marker)
                for activation, color in colors.items():
                    lrs = theory["lr"] * 2.0 ** np.array(FACTORS[activation])
                    losses = final(found, case, activation)
                    losses = np.where(losses < UNSTABLE, losses, np.nan)
                    label = NAMES[activation] if width == widths[-1] else None
                    ax.plot(lrs, losses, line, color=color, marker="o", markersize=3, linewidth=1.3, label=label)
            ax.set_xscale("log")
            log_axis(ax)
            lr_axis(ax)
            words = NAMES[parameterization]
            ax.set(xlabel="learning rate", title=f"{target}, {words}")
        axes[0].set_ylabel(f"loss after {STEPS} steps")
        axes[2].legend(loc="upper left")
        save_figure(figure, Path(__file__).parent / "images" / "nonlinear.png")


TABLES = {each.__name__: each for each in (rates, transfer, leaving, predictions)}

if __name__ == "__main__":
    import torch
    from measured import write

    torch.set_num_threads(1)
    with one_blas_thread():
        results = measure()
    for name, table in TABLES.items():
        write(name, table(results), PAGE, "nonlinear")
    draw(results)
