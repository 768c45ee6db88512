"""How well laws of learning-rate schedules predict runs that they were not fitted to.

    nice python benchmarks/runs.py FOLDER

FOLDER has curves as CSV files ``SIZE-SCHEDULE.csv`` with columns step, lr and loss, nine or so of each model size; the
project ships none. Every choice of three runs of a size is fitted, and predicts the others. What is chosen (constants
of the law with the norm, the width of bands) is chosen on the other sizes. Writes ``runs.md`` beside this file.

The multi-power law is that of Luo et al. (arXiv 2503.12811), written from its formula:

    L = L0 + A (S_W + S_1(t))^-alpha - B sum_k (eta_{k-1} - eta_k) (1 - (1 + C eta_k^-gamma S_k(t))^-beta) ,

with S_k(t) the sum of rates from step k to t, and S_W that of the warm-up.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from deeplinear import fit_runs
from deeplinear._runs.law import NORM, PLAIN, Law
from deeplinear._runs.read import read_runs
from deeplinear._runs.run import Run
from deeplinear._runs.solve_law import Data, solve_law

HERE = Path(__file__).parent
WARMUP = 2160
CHOICE = 3
WIDEST = 8.0
"""Largest logarithm of a parameter of the laws below, in their units."""

CONSTANTS = ((0.07, 0.3), (0.04, 0.3), (0.12, 0.3), (0.07, 0.15), (0.07, 0.6))
"""Decay and growth of the norm that are chosen on other sizes: per thousand steps at 3e-4. The first are those of the
library."""

Array = np.ndarray[Any, Any]


def law_of(decay: float, growth: float) -> Law:
    return Law(("b", "c"), decay=decay * 1e-3 / 3e-4, growth=growth * 1e-3 / 3e-4**2)


CANDIDATES = {f"{decay} {growth}": law_of(decay, growth) for decay, growth in CONSTANTS}


def fitted_curve(curve: Callable[[Array], list[Array]], data: Data, starts: Sequence[Array]) -> Array:
    """Fit a law that is given as curves of all runs, as a function of its parameters, with Huber's loss."""
    weights = [np.sqrt(each / each.sum()) for each in data.counts]
    scale = 0.004 * data.span / np.sqrt(np.mean([len(each) for each in data.losses]))

    def residuals(place: Array) -> Array:
        parts = zip(curve(place), data.losses, weights, strict=True)
        return np.nan_to_num(np.concatenate([(law - loss) * weight for law, loss, weight in parts]), nan=1e3)

    options = {"bounds": (-WIDEST, WIDEST), "x_scale": "jac", "loss": "soft_l1", "f_scale": scale, "max_nfev": 150}
    found = [least_squares(residuals, start, **options) for start in starts]
    return min(found, key=lambda each: each.cost).x


class MultiPower:
    """The multi-power law on the stretches of runs; parameters enter by their logarithms.

    Rates are in units of the largest and steps in thousands, so that all parameters are of order one or ten.
    """

    STARTS = tuple(np.log([2.8, 1.0, 0.5, 0.3, speed, beta, 0.5]) for speed, beta in ((4.0, 1.0), (30.0, 0.4)))

    def __init__(self, data: Data, runs: Sequence[Run]) -> None:
        self.parts = []
        for column, run in enumerate(runs):
            used = data.paths.lengths[:, column] > 0
            lengths = data.paths.lengths[used, column] / 1000.0
            rates = data.paths.rates[used, column] / data.reference
            sums = np.concatenate([[0.0], np.cumsum(lengths * rates)])
            ends = np.concatenate([[0.0], np.cumsum(lengths)])
            later = np.flatnonzero(1000.0 * ends[:-1] >= run.rises)  # stretches after the warm-up
            later = later[later > 0]
            drops = rates[later - 1] - rates[later]
            total = sums[data.paths.places[column] + 1]  # at the two steps of each average
            since = np.maximum(total[..., None] - sums[later], 0.0)
            self.parts.append((total, drops, rates[later], since))

    def __call__(self, place: Array) -> list[Array]:
        low, scale, alpha, gain, _, beta, gamma = np.exp(place)
        curves = []
        for total, drops, rates, since in self.parts:
            grown = np.log(np.maximum(since, 1e-12)) + place[4] - gamma * np.log(np.maximum(rates, 1e-6))
            kept = -np.expm1(-beta * np.logaddexp(0.0, grown))
            at = low + scale * total**-alpha - gain * (kept * drops * (since > 0)).sum(axis=2)
            curves.append(at.mean(axis=1))
        return curves


class Power:
    """L0 + A tau^-b."""

    STARTS = (np.log([2.6, 1.0, 0.5]), np.log([3.0, 1.0, 0.5]))

    def __init__(self, data: Data, runs: Sequence[Run]) -> None:
        self.totals = [part[0] for part in MultiPower(data, runs).parts]

    def __call__(self, place: Array) -> list[Array]:
        low, scale, power = np.exp(place)
        return [(low + scale * total**-power).mean(axis=1) for total in self.totals]


def runs_of(folder: Path) -> dict[str, list[Run]]:
    """Runs of each size."""
    found: dict[str, list[Run]] = {}
    for path in sorted(folder.glob("*-*.csv")):
        size = path.stem.partition("-")[0]
        found.setdefault(size, []).extend(read_runs(path, warmup=WARMUP))
    return dict(sorted(found.items(), key=lambda item: float(item[0].rstrip("MBK"))))


def errors(curves: Sequence[Array], data: Data) -> list[list[float]]:
    """Mean absolute, root mean square and last error of each run."""
    found = []
    for law, loss, count in zip(curves, data.losses, data.counts, strict=True):
        off, weight = law - loss, count / count.sum()
        found.append([float(weight @ np.abs(off)), float(np.sqrt(weight @ off**2)), float(off[-1])])
    return found


def measured(runs: Sequence[Run], data: Data, chosen: tuple[int, ...]) -> dict[str, Any]:
    """Fit every law to some runs, and return its errors in all of them."""
    some = data[chosen]
    fits = {"plain": solve_law(PLAIN, some), "norm": solve_law(NORM, some)}
    start = fits["norm"]
    fits |= {name: solve_law(law, some, start=start) for name, law in list(CANDIDATES.items())[1:]}
    found: dict[str, Any] = {name: errors(fit.losses(data.paths), data) for name, fit in fits.items()}
    found["chosen"] = [runs[index].name for index in chosen]
    found["values"] = {name: fits[name].values for name in ("plain", "norm")}
    found["held_out"] = []
    for left in chosen:
        rest = [index for index in chosen if index != left]
        fit = solve_law(NORM, data[rest], start=start)
        found["held_out"] += errors(fit.losses(data[[left]].paths), data[[left]])
    for name, kind in (("multi-power", MultiPower), ("power", Power)):
        fitted, everywhere = kind(some, [runs[index] for index in chosen]), kind(data, runs)
        found[name] = errors(everywhere(fitted_curve(fitted, some, kind.STARTS)), data)
    return found


def measure(folder: Path, first: int | None) -> dict[str, Any]:
    """Measure every size."""
    results: dict[str, Any] = {}
    for size, runs in runs_of(folder).items():
        data = Data.of(runs)
        choices = list(itertools.combinations(range(len(runs)), CHOICE))[:first]
        results[size] = {
            "names": [run.name for run in runs],
            "last": [float(each[-1]) for each in data.losses],
            "steps": [int(run.steps[-1]) for run in runs],
            "span": data.span,
            "choices": [measured(runs, data, chosen) for chosen in choices],
            "best": best_schedule(runs),
        }
        print(size, {law: f"{held_out(results[size], law).mean():.4f}" for law in LAWS}, flush=True)
    return results


STANDARD = ("constant_24000", "cosine_24000", "wsdcon_9")
LENGTH = 24_000


def best_schedule(runs: Sequence[Run]) -> dict[str, float]:
    """Return what a fit to three usual runs calls best, and the gap between two schedules, predicted and measured."""
    named = {run.name.partition("-")[2]: run for run in runs}
    fit = fit_runs([named[name] for name in STANDARD], law="norm")
    best = fit.best_schedule(LENGTH)
    found = {"holds": best.decay_begins / LENGTH, "end": best.lr[-1] / best.lr.max()}
    found |= {name: loss - best.loss for name, loss in best.compared.items()}
    cosine, wsd = named["cosine_24000"], named["wsd_20000_24000"]
    found["measured gap"] = float(cosine.loss[-1] - wsd.loss[-1])
    found["predicted gap"] = float(fit.predict(cosine.rates, cosine.steps)[-1] - fit.predict(wsd.rates, wsd.steps)[-1])
    return found


def held_out(size: dict[str, Any], law: str, which: int = 0) -> Array:
    """Errors of a law in the runs that were not chosen, shape (choices, runs)."""
    return np.array(
        [
            [each[law][run][which] for run, name in enumerate(size["names"]) if name not in each["chosen"]]
            for each in size["choices"]
        ]
    )


LAWS = ("norm", "plain", "multi-power", "power")
NAMES = {
    "norm": "with the norm of the weights (5 numbers)",
    "plain": "plain: the lazy limit (6)",
    "multi-power": "multi-power law (7)",
    "power": "L0 + A tau^-b (3)",
    "last": "last loss of the fitted run with the most similar length",
}


def page(results: dict[str, Any]) -> str:
    """Write all tables."""
    sizes = list(results)
    lines = [_HEAD, "", _row("law", *(f"{size}: curve" for size in sizes), *(f"{size}: last" for size in sizes))]
    lines.append(_rule(2 * len(sizes) + 1))
    for law in LAWS:
        curves = [f"{held_out(results[size], law).mean():.4f}" for size in sizes]
        ends = [f"{np.abs(held_out(results[size], law, 2)).mean():.4f}" for size in sizes]
        lines.append(_row(NAMES[law], *curves, *ends))
    lines.append(_row(NAMES["last"], *("-" for _ in sizes), *(f"{last_values(results[size]):.4f}" for size in sizes)))
    lines += ["", _CHOSEN, "", _row("reported on", "law", "decay, growth", "curve", "of the library"), _rule(5)]
    for size in sizes:
        others = [each for each in sizes if each != size]
        law = min(("norm", "plain"), key=lambda each: np.mean([held_out(results[at], each).mean() for at in others]))
        best = min(CANDIDATES, key=lambda each: np.mean([_candidate(results[at], each).mean() for at in others]))
        ours, theirs = _candidate(results[size], best).mean(), held_out(results[size], "norm").mean()
        lines.append(_row(size, law, best.replace(" ", ", "), f"{ours:.4f}", f"{theirs:.4f}"))
    lines += ["", _BANDS, "", _row("", *sizes), _rule(len(sizes) + 1)]
    rows: dict[str, list[str]] = {}
    for size in sizes:
        found, ends = results[size], np.abs(held_out(results[size], "norm", 2))
        whole = held_out(found, "norm", 1)
        left = np.array([[each[1] for each in choice["held_out"]] for choice in found["choices"]])
        others = [results[each] for each in sizes if each != size]
        share = np.quantile([np.abs(held_out(each, "norm", 2)) / each["span"] for each in others], 0.9)
        bands = {
            "largest error of a run that was left out": left.max(axis=1),
            "constant from the other two sizes": np.full(len(left), share * found["span"]),
            "of the library": np.maximum(0.01 * found["span"], np.quantile(left, 0.9, axis=1)),
        }
        for name, half in bands.items():
            shown = f"± {half.mean():.4f}: {_share(ends, half)}, {_share(whole, half)}"
            rows.setdefault(name, []).append(shown)
    lines += [_row(name, *shown) for name, shown in rows.items()]
    lines += ["", _WHICH, "", _row("fitted runs", *sizes), _rule(len(sizes) + 1)]
    kinds: dict[str, Callable[[list[str]], bool]] = {
        "with a rate that drops at once": lambda names: any("wsdcon" in name for name in names),
        "with other decays": lambda names: not any("wsdcon" in name for name in names),
        "constant and cosine runs alone": lambda names: not any("wsd" in name for name in names),
        "none longer than 24 000 steps": lambda names: not any("72000" in name for name in names),
    }
    for name, holds in kinds.items():
        rows_of = [[holds(choice["chosen"]) for choice in results[size]["choices"]] for size in sizes]
        means = [
            f"{held_out(results[size], 'norm')[rows].mean():.4f}" for size, rows in zip(sizes, rows_of, strict=True)
        ]
        lines.append(_row(f"{name} ({sum(rows_of[0])})", *means))
    lines += ["", _NUMBERS, "", _row("", *sizes), _rule(len(sizes) + 1)]
    for letter, name in {
        "L0": "irreducible loss",
        "b": "source",
        "A": "amplitude",
        "N": "noise",
        "c": "cutoff",
    }.items():
        for law in ("norm", "plain"):
            values = [np.array([each["values"][law][letter] for each in results[size]["choices"]]) for size in sizes]
            shown = [f"{np.median(each):.3g} ± {_spread(each):.2g}" for each in values]
            lines.append(_row(f"{name}, {law}", *shown))
    lines += ["", _BEST, "", _row("", *sizes), _rule(len(sizes) + 1)]
    best = [results[size]["best"] for size in sizes]
    lines.append(_row("holds the peak until", *(f"{100 * each['holds']:.0f} %" for each in best)))
    lines.append(_row("last rate, of the peak", *(f"{100 * each['end']:.0f} %" for each in best)))
    for name in ("wsd", "cosine", "linear", "constant"):
        lines.append(_row(f"{name}, at its best", *(f"{each[name]:+.4f}" for each in best)))
    for name in ("predicted gap", "measured gap"):
        lines.append(_row(f"{name}, cosine - WSD", *(f"{each[name]:.4f}" for each in best)))
    return "\n".join([*lines, ""])


def _candidate(found: dict[str, Any], name: str) -> Array:
    return held_out(found, "norm" if name == next(iter(CANDIDATES)) else name)


def last_values(found: dict[str, Any]) -> float:
    """Mean error of the last loss, taken from the fitted run whose number of steps is nearest."""
    off = []
    for choice in found["choices"]:
        fitted = [index for index, name in enumerate(found["names"]) if name in choice["chosen"]]
        for index in range(len(found["names"])):
            if index not in fitted:
                nearest = min(fitted, key=lambda each: abs(found["steps"][each] - found["steps"][index]))
                off.append(abs(found["last"][nearest] - found["last"][index]))
    return float(np.mean(off))


def _share(off: Array, half: Array) -> str:
    return f"{100 * (off <= half[:, None]).mean():.0f} %"


def _spread(values: Array) -> float:
    """Half the distance between the 16th and the 84th percentile."""
    low, high = np.quantile(values, [0.16, 0.84])
    return float(0.5 * (high - low))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return f"|{'---|' * columns}"


_HEAD = """# Laws of schedules against real training runs

27 runs of Llama-type language models of 25, 100 and 400 million parameters, nine schedules each (24
000 or 72 000 steps; constant, cosine, WSD with two kinds of decay, rates that drop at once), peak
rate 3e-4, from the repository thu-yao-01-luo/MultiPowerLaw (MIT licence, arXiv 2503.12811). They
are not part of this project. Every choice of three of nine runs (84 for each size) is fitted, and
the other six are predicted. Errors are means of absolute errors in nats, over whole curves and of
the last loss. The multi-power law was fitted by the same robust least squares, from two starts.
Tables come from `python benchmarks/runs.py FOLDER`."""
_CHOSEN = """**Choices made on two sizes, reported on the third.** The law is chosen between plain and with the
norm; the constants of the norm among five pairs (per thousand steps at 3e-4; the library has 0.07
and 0.3)."""
_BANDS = """**Bands.** Mean half width, and how often the last loss of an unseen run was within it; then how
often the root mean square error of its curve was. They should be 90 %."""
_WHICH = """**Which runs to fit.** Mean error of held-out curves, with the norm, by what is among the three
(number of such choices)."""
_BEST = """**The best schedule** of 24 000 steps by the law with the norm, fitted to three runs of each size
(constant and cosine of 24 000 steps, one rate that drops at once), how much worse others are, and the
gap between the cosine and the WSD run that were trained."""
_NUMBERS = """**What the numbers are:** medians over the choices of three, ± half the distance between the 16th
and the 84th percentile. With the norm the irreducible loss and the source are determined; amplitude,
noise and cutoff are not, since they can make up for each other. Rates are in units of the peak, steps
in thousands."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="curves to measure with")
    parser.add_argument("--first", type=int, help="only so many choices of each size")
    options = parser.parse_args()
    results = measure(options.folder, options.first)
    (HERE / "runs.md").write_text(page(results))


if __name__ == "__main__":
    main()
