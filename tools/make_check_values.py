"""Make the check values of ``deeplinear check``: answers to a few dozen problems, to 12 digits, by other means.

python tools/make_check_values.py [--measure]

Short runs are solved by the slow reference, which shares no equations with the solvers that it checks, in extended
precision (80 bits). Infinite depth is extrapolated from the reference at 10 finite depths. Long runs are those of lazy
networks, whose losses follow a recursion for each mode of the data, which is iterated in extended precision as well.
The errors of every method on this machine are measured and kept beside those of other machines; with ``--measure``
only they are. Takes ten minutes.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._check_values import VALUES, check, known, machine
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import averages_to_json
from deeplinear._solvers import reference as reference_module
from deeplinear._solvers import reference_rules

STORE = Path(__file__).parents[1] / "src" / "deeplinear" / VALUES
LETTERS = {
    "Ch": "feature_correlation",
    "Cg": "gradient_correlation",
    "Cv": "error_correlation",
    "CDelta": "residual_correlation",
    "Rhr": "feature_response",
    "Rgu": "gradient_response",
    "Rvu": "error_response",
    "RDelta": "residual_response",
}
CURVES = ("test_loss", "train_loss", "kernel")
PARTS = ("bias", "width", "data")
AVERAGES = (dl.EMA(0.8), dl.TailMean(0.5))
DEPTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)

MEAN, TWO_OUTPUTS = dl.Isotropic(0.3), dl.Isotropic(0.2, [[1.0, 0.3], [0.3, 0.5]])
BATCH, ONLINE, SEVERAL = dl.FullBatch(2.0), dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 0.5)
DESCENT = dl.GradientDescent(0.05)
MODES = dl.Spectrum([2.0, 1.0, 0.25], [0.5, 1.0, 2.0], [0.2, 0.3, 0.5], proportional=True, noise=0.3)
COUNTED = dl.Spectrum([4.0, 1.0, 0.1], [1.0, 0.5, 0.2], [1, 3, 20], noise=0.1)


def _short() -> dict[str, Problem]:
    """Runs of a few steps, over every feature that the reference has."""

    def make(
        network: Any = None,
        data: Any = MEAN,
        sampling: Any = BATCH,
        rule: Any = DESCENT,
        steps: int = 8,
        phases: Any = (),
    ) -> Problem:
        return Problem(dl.MLP(2, 1.0) if network is None else network, data, sampling, rule, steps, phases)

    cosine = dl.schedules.cosine(0.08, 0.3)
    layered = {"input": 2.0, "readout": 0.5}
    return {
        "full batch": make(dl.MLP(3, 0.5)),
        "population": make(sampling=dl.Population()),
        "online": make(sampling=ONLINE),
        "several passes": make(sampling=SEVERAL),
        "one hidden layer, wide": make(dl.MLP(1, 4.0)),
        "five hidden layers": make(dl.MLP(5, 1.0), rule=dl.GradientDescent(0.02), steps=6),
        "unequal widths": make(dl.MLP(3, (0.5, 2.0, 1.0))),
        "infinite width": make(dl.MLP(2, "infinite", richness=1.5)),
        "rich": make(dl.MLP(2, 1.0, richness=3.0), rule=dl.GradientDescent(0.01)),
        "nearly lazy, centered": make(dl.MLP(2, 1.0, richness=0.1, centered=True)),
        "NTK": make(dl.MLP(2, 1.0, parameterization="ntk")),
        "standard parameterisation": make(dl.MLP(2, (1.0, 0.5), parameterization="standard")),
        "initial scales": make(dl.MLP(2, 1.0, init_scale={"input": 0.5, "hidden": 1.2, "readout": 0.1})),
        "residual": make(dl.ResNet(3, 1.0), steps=6),
        "residual, undivided branches": make(
            dl.ResNet(3, 1.0, branch=0.6, branch_scaling="none"), sampling=ONLINE, steps=6
        ),
        "residual, branches divided by depth": make(dl.ResNet(3, 0.5, branch_scaling=1.0), sampling=SEVERAL, steps=6),
        "two outputs": make(data=TWO_OUTPUTS, steps=6),
        "two outputs, online": make(data=TWO_OUTPUTS, sampling=ONLINE, steps=6),
        "three modes": make(data=MODES),
        "three modes, online": make(data=MODES, sampling=ONLINE),
        "24 directions": make(dl.MLP(2, 30.0), data=COUNTED, sampling=dl.FullBatch(40.0)),
        "24 directions, several passes": make(dl.MLP(1, 30.0), data=COUNTED, sampling=dl.MultiPassSGD(40.0, 10.0)),
        "momentum": make(rule=dl.GradientDescent(0.03, momentum=0.9)),
        "Nesterov": make(rule=dl.GradientDescent(0.03, momentum=0.8, nesterov=True), sampling=ONLINE),
        "weight decay": make(rule=dl.GradientDescent(0.05, weight_decay=0.2)),
        "schedules": make(rule=dl.GradientDescent(cosine, momentum=dl.schedules.linear(0.9), weight_decay=cosine)),
        "growing batches": make(sampling=dl.OnlineSGD(dl.schedules.linear(1.0, 0.5))),
        "rates by layer": make(rule=dl.GradientDescent(0.05, layer_lr=layered, layer_decay=layered, weight_decay=0.1)),
        "clipping": make(rule=dl.GradientDescent(0.05, clip=0.5)),
        "normalised": make(rule=dl.NormalizedDescent(0.05, "global", 0.9)),
        "normalised by layer": make(rule=dl.NormalizedDescent(0.05, momentum=0.5), sampling=ONLINE),
        "Muon": make(rule=dl.Muon(0.05)),
        "Muon, several passes": make(rule=dl.Muon(0.03, 0.8, True, 3, True), sampling=SEVERAL, steps=6),
        "SAM": make(rule=dl.SAM(0.05, 0.2)),
        "SAM, online": make(rule=dl.SAM(0.05, 0.2), sampling=ONLINE, steps=6),
        "schedule-free": make(rule=dl.ScheduleFree(0.05)),
        "phases": make(phases=[dl.Phase(4), dl.Phase(4, target_overlap=0.5, sampling=ONLINE, noise=0.1)]),
        "phases with rules of their own": make(
            phases=[dl.Phase(3), dl.Phase(5, target_overlap=-1.0, new_samples=False, optimizer=dl.Muon(0.03))]
        ),
        "unstable": make(rule=dl.GradientDescent(2.0), steps=6),
    }


LAZY: dict[str, tuple[Problem, tuple[str, ...]]] = {
    "lazy, 3000 steps": (
        Problem(
            dl.MLP(2, "infinite", parameterization="ntk", centered=True),
            dl.Isotropic(0.3),
            dl.Population(),
            dl.GradientDescent(0.001),
            3000,
        ),
        ("panels", "condensed"),
    ),
    "lazy, modes, 2000 steps": (
        Problem(
            dl.MLP(1, "infinite", parameterization="ntk", centered=True),
            MODES,
            dl.Population(),
            dl.GradientDescent(dl.schedules.cosine(0.01)),
            2000,
        ),
        ("panels", "condensed"),
    ),
    "lazy, online, 3000 steps": (
        Problem(
            dl.MLP(1, "infinite", parameterization="ntk", centered=True),
            dl.Isotropic(0.3),
            dl.OnlineSGD(0.5),
            dl.GradientDescent(0.001),
            3000,
        ),
        ("coarse", "condensed"),
    ),
    "lazy, modes, online, 2000 steps": (
        Problem(
            dl.MLP(2, "infinite", parameterization="ntk", centered=True),
            MODES,
            dl.OnlineSGD(1.0),
            dl.GradientDescent(0.002),
            2000,
        ),
        ("coarse", "condensed"),
    ),
    "lazy, online, 500 steps": (
        Problem(
            dl.MLP(3, "infinite", parameterization="ntk", centered=True),
            MODES,
            dl.OnlineSGD(0.5),
            dl.GradientDescent(0.01),
            500,
        ),
        ("dense", "condensed"),
    ),
}
"""Long runs of lazy networks, and the methods that they are for."""

DEEP = {
    "infinite depth": Problem(dl.ResNet(math.inf, 1.0, branch=0.5), MEAN, BATCH, dl.GradientDescent(0.02), 4),
    "infinite depth, online": Problem(dl.ResNet(math.inf, 1.0, branch=0.5), MEAN, ONLINE, dl.GradientDescent(0.02), 4),
}


class _Wide:
    """NumPy with numbers of 80 bits, for a module that was written without a thought of them."""

    def __init__(self) -> None:
        self.linalg = SimpleNamespace(LinAlgError=np.linalg.LinAlgError, inv=_inverse)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: Any = np.longdouble) -> Any:
        return np.zeros(shape, dtype)

    def ones(self, shape: Any, dtype: Any = np.longdouble) -> Any:
        return np.ones(shape, dtype)

    def eye(self, size: int) -> Any:
        return np.eye(size, dtype=np.longdouble)

    def array(self, values: Any, *options: Any) -> Any:
        array = np.array(values, *options)
        return array.astype(np.longdouble) if array.dtype == np.float64 else array


def _inverse(matrix: Any) -> Any:
    """Invert a matrix by elimination with pivots."""
    size = len(matrix)
    both = np.concatenate([matrix.astype(np.longdouble), np.eye(size, dtype=np.longdouble)], axis=1)
    for column in range(size):
        pivot = column + int(np.abs(both[column:, column]).argmax())
        both[[column, pivot]] = both[[pivot, column]]
        both[column] /= both[column, column]
        factors = both[:, column].copy()
        factors[column] = 0.0
        rows = np.flatnonzero(factors)
        both[rows] -= factors[rows, None] * both[column]
    return both[:, size:]


@contextmanager
def wide() -> Iterator[None]:
    """Let the reference calculate with numbers of 80 bits."""
    modules: list[Any] = [reference_module, reference_rules]
    usual = [module.np for module in modules]
    try:
        for module in modules:
            module.np = _Wide()
        yield
    finally:
        for module, before in zip(modules, usual, strict=True):
            module.np = before


def by_reference(problem: Problem) -> dict[str, Any]:
    """Losses at every step, and functions of two times at the last step and every step."""
    averages = () if any(stage.optimizer.averaging is not None for stage in problem.stages) else AVERAGES
    with wide():
        found = reference_module.reference(problem, averages)
    values = {name: found[name] for name in (*CURVES, *PARTS)}
    if np.isfinite(found["test_loss"]).all():
        values |= {name: found[letter][..., -1, :] for letter, name in LETTERS.items()}
    if averages:
        values["averaged_test_loss"] = found["averaged_test_loss"]
    if len(problem.stages) > 1:
        values["task_loss"] = found["task_loss"]
    return values


def by_extrapolation(problem: Problem) -> dict[str, Any]:
    """Losses at infinite depth: the value at zero of the polynomial in 1 / depth through those of finite depths."""
    found = []
    for depth in DEPTHS:
        with wide():
            found.append(reference_module.reference(problem.replace(depth=depth)))

    def limit(curves: Sequence[Any], depths: Sequence[int]) -> Any:
        x = [1 / np.longdouble(depth) for depth in depths]
        shares = [math.prod(other / (other - own) for other in x if other != own) for own in x]
        return sum(share * curve for share, curve in zip(shares, curves, strict=True))

    values = {}
    for name in ("test_loss", "train_loss"):
        curves = [each[name] for each in found]
        values[name], fewer = limit(curves, DEPTHS), limit(curves[1:], DEPTHS[1:])
        error = float(np.abs(values[name] - fewer).max())
        print(f"    {name}: the last depth changes it by {error:.1e}")
    return values


def by_recursion(problem: Problem) -> dict[str, Any]:
    """Losses of a lazy network: its kernel is depth + 1, and squared errors of modes are multiplied and mixed."""
    modes, wide_ = problem.modes, np.longdouble
    eigenvalues, weight = modes.eigenvalues.astype(wide_), modes.weight.astype(wide_)
    errors, noise = modes.target[:, 0, 0].astype(wide_), wide_(problem.data.noise) ** 2
    rates = (problem.network.depth + 1) * problem.optimizer.rates(problem.steps).astype(wide_)
    one_over_batch = 0 if isinstance(problem.sampling, dl.Population) else 1 / wide_(problem.sampling.batch)
    loss = []
    for rate in rates:
        total = (weight * eigenvalues * errors).sum()
        loss.append(total + noise)
        errors = (1 - rate * eigenvalues) ** 2 * errors + rate**2 * eigenvalues * (total + noise) * one_over_batch
    return {"test_loss": np.array(loss), "train_loss": np.array(loss)}


def written(name: str, problem: Problem, values: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return a problem and its values as the file has them; of long runs some steps."""
    steps = np.arange(problem.steps)
    if len(steps) > 100:
        steps = np.unique([0, *np.geomspace(1, steps[-1], 24).round().astype(int)])
    digits = {
        key: np.vectorize(lambda value: float(f"{value:.11e}") if np.isfinite(value) else None, [object])(
            array[..., steps] if len(steps) < problem.steps else array
        ).tolist()
        for key, array in values.items()
    }
    averages = json.loads(averages_to_json(AVERAGES)) if "averaged_test_loss" in values else []
    return {
        "name": name,
        "problem": problem.to_toml(),
        "methods": list(methods),
        "averages": averages,
        "steps": steps.tolist(),
        "values": digits,
    }


def make() -> list[dict[str, Any]]:
    """Make all values."""
    makers: list[tuple[str, Problem, Callable[[Problem], dict[str, Any]], tuple[str, ...]]] = [
        *((name, problem, by_reference, ("dense",)) for name, problem in _short().items()),
        *((name, problem, by_extrapolation, ("dense",)) for name, problem in DEEP.items()),
        *((name, problem, by_recursion, methods) for name, (problem, methods) in LAZY.items()),
    ]
    found = []
    for name, problem, maker, methods in makers:
        print(name, flush=True)
        found.append(written(name, problem, maker(problem), methods))
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the errors of this machine only")
    options = parser.parse_args()
    document = {"problems": [], "errors": {}} if not STORE.exists() else known()
    if not options.measure:
        if np.finfo(np.longdouble).nmant < 63:
            sys.exit("long doubles of this machine have no more digits than others")
        document["problems"] = make()
        STORE.write_text(json.dumps(document))
    document["errors"][machine()] = {each.method: float(f"{each.error:.1e}") for each in check()}
    STORE.write_text(json.dumps(document, indent=None) + "\n")
    for each in check():
        print(each)


if __name__ == "__main__":
    main()
