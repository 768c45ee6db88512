"""Fit the law of schedules to networks that this project trained or solved, where more is known than their losses.

python docs/own_runs.py theory     networks of this library: are source, capacity and label noise recovered?
python docs/own_runs.py trained    networks of docs/train_runs.py: held-out schedules, and the norm of the weights
"""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._runs.law import NORM, PLAIN, Law
from deeplinear._runs.path import Paths
from deeplinear._runs.solve_law import Data, solve_law

FOLDER = Path(__file__).parent / "runs"
FITTED = ("constant_6000", "drop_4000", "cosine_6000")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded(Law):
    """The law with norms of the weights that were recorded, in units of the first one."""

    norms: tuple[tuple[Array, Array], ...] = ()

    def squared_norm(self, paths: Paths) -> Array:
        """Interpolate what was recorded."""
        middles = np.cumsum(paths.lengths, axis=0) - 0.5 * paths.lengths
        return np.stack([np.interp(middles[:, run], *each) for run, each in enumerate(self.norms)], axis=1)


def trained() -> None:
    """Print errors of held-out schedules for each form of the law, and how far the norm it assumes is off."""
    print("| optimizer | law | irreducible | source | as long: curve | last | twice as long: curve | last |")
    print(f"|{'---|' * 8}")
    for kind in ("sgd", "adamw"):
        paths = {path.stem.partition("-")[2]: path for path in sorted(FOLDER.glob(f"{kind}-*.csv"))}
        runs = {name: dl.fit_runs(path, law="plain").runs[0] for name, path in paths.items()}
        norms = {name: _norms(path) for name, path in paths.items()}
        data = Data.of([runs[name] for name in FITTED])
        chosen = tuple(norms[name] for name in FITTED)
        decay, growth = _own_constants(norms["constant_6000"], runs["constant_6000"].peak)
        laws: dict[str, Law] = {
            "plain": PLAIN,
            "norm, constants of the library": NORM,
            f"norm, own constants ({decay:.2g}, {growth:.2g})": Law(("b", "c"), decay=decay, growth=growth),
            "norm as recorded": Recorded(("b", "c"), decay=1.0, growth=1.0, norms=chosen),
        }
        for label, law in laws.items():
            fitted = solve_law(law, data)
            errors: dict[bool, list[list[float]]] = {False: [], True: []}
            for name in runs.keys() - set(FITTED):
                each = Data.of([runs[name]])
                own = law if not isinstance(law, Recorded) else Recorded(law.shape, 1.0, 1.0, (norms[name],))
                columns = own.columns(each.paths, fitted.reference, fitted.shape)[0]
                off = columns @ fitted.linear - each.losses[0]
                errors["12000" in name].append([float(np.abs(off).mean()), float(abs(off[-1]))])
            means = [np.mean(each, axis=0) if each else np.full(2, np.nan) for each in errors.values()]
            cells = [f"{value:.4f}" for each in means for value in each]
            values = fitted.values
            print(f"| {kind} | {label} | {values['L0']:.2f} | {values['b']:.2f} | {' | '.join(cells)} |")


def _norms(path: Path) -> tuple[Array, Array]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    norms = np.array([float(row["squared_norm"]) for row in rows])
    return np.array([float(row["step"]) for row in rows]), norms / norms[0]


def _own_constants(norms: tuple[Array, Array], peak: float) -> tuple[float, float]:
    """Fit kappa and sigma to the norm of the run with a constant rate."""
    steps, values = norms
    rise = np.diff(values) / np.diff(steps)
    middle = 0.5 * (values[1:] + values[:-1])
    design = np.stack([-2.0 * peak * middle, np.full(len(rise), peak**2)], axis=1)
    from scipy.optimize import nnls

    kappa, sigma = nnls(design[5:] * [1.0, 1.0], rise[5:])[0]  # after the warm-up of 300 steps
    return float(kappa), float(sigma)


PROBLEMS = {
    "lazy, source 0.5": (1e-2, 0.5, 0.5),
    "lazy, source 0.3": (1e-2, 0.3, 0.5),
    "rich, source 0.5": (1.0, 0.5, 0.5),
    "very rich, source 0.5": (3.0, 0.5, 0.5),
}
STEPS, RATE, BATCH, CAPACITY = 600, 0.2, 4.0, 1.5


def theory() -> None:
    """Print the parameters that the plain law finds in solutions of this library."""
    share = 0.02
    kinds = {
        "constant": dl.schedules.constant(RATE, share),
        "drop": dl.schedules.piecewise(RATE, [0.6], [0.2], share),
        "cosine": dl.schedules.cosine(RATE, share, end=0.1),
        "held out": dl.schedules.wsd(RATE, share, decay=0.2, end=0.05),
    }
    print("| network | source | fitted | capacity | fitted | label noise | fitted | residual | held out |")
    print(f"|{'---|' * 9}")
    for label, (richness, source, noise) in PROBLEMS.items():
        runs = {}
        for name, schedule in kinds.items():
            problem = dl.Problem(
                dl.MLP(1, "infinite", richness=richness),
                dl.Spectrum.power_law(CAPACITY, source, noise=noise),
                dl.OnlineSGD(BATCH),
                dl.GradientDescent(tuple(schedule.values(STEPS).tolist())),
                steps=STEPS,
            )
            losses = dl.solve(problem).test_loss
            runs[name] = dl.Run(np.arange(1, STEPS), losses[1:], schedule.values(STEPS), name=name)
        fit = dl.fit_runs([runs[name] for name in list(kinds)[:3]], law="plain")
        values, last = fit.values, runs["held out"]
        off = np.abs(fit.predict(last.rates, last.steps) - last.loss)[15:].mean()
        capacity = 1.0 / (2.0 - values["decay of noise"]) if values["decay of noise"] < 2.0 else np.inf
        cells = [source, values["source"], CAPACITY, capacity, noise**2, values["irreducible loss"]]
        residual = max(fit.rms.values())
        print(f"| {label} | {' | '.join(f'{cell:.3g}' for cell in cells)} | {residual:.2g} | {off:.2g} |", flush=True)


if __name__ == "__main__":
    {"theory": theory, "trained": trained}[sys.argv[1]]()
