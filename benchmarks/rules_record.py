"""What update rules can do, and the losses of 300 random problems with each of them: a record to compare changes with.

    python benchmarks/rules_record.py          compare with rules_record.json, and list what differs
    python benchmarks/rules_record.py --keep   write it anew

Losses are those of the first, a middle and the last step, each with the change that one unit in the last place of the
learning rate makes. Those that depend on rounding errors, by the status of the solution, are not compared.
"""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl

RECORD = Path(__file__).parent / "rules_record.json"
PROBLEMS = 300
GRAM = [[1.0, 0.3], [0.3, 0.5]]

Draw = np.random.Generator


def rules(draw: Draw, layers: int, steps: int) -> list[Any]:
    """Draw one rule of every kind, with options by chance."""

    def of(*values: Any) -> Any:
        return values[draw.integers(len(values))]

    def layered() -> Any:
        return of(None, None, {"readout": 0.5, "hidden": 1.5}, draw.uniform(0.2, 2.0, layers).tolist())

    def series(low: float, high: float) -> Any:
        value = float(draw.uniform(low, high))
        return of(value, value, dl.schedules.linear(value, 0.2), dl.schedules.cosine(value), [value] * steps)

    momentum = of(0.0, series(0.1, 0.8))
    common = {
        "momentum": momentum,
        "nesterov": momentum != 0.0 and of(True, False),
        "weight_decay": of(0.0, series(0.05, 0.8)),
        "layer_lr": layered(),
        "layer_decay": layered(),
    }
    lr = series(0.005, 0.05)
    mu, plain = of(0.0, 0.6, 0.95), dl.GradientDescent(lr, **common)
    return [
        dl.GradientDescent(lr),
        plain,
        dl.GradientDescent(lr, clip=float(draw.uniform(0.1, 2.0)), clip_by=of("global", "layer"), **common),
        dl.NormalizedDescent(lr, per=of("global", "layer"), beta2=of(0.0, 0.5, 0.9), **common),
        dl.Muon(lr, mu, mu > 0 and of(True, False), of(1, 3, 5), of(True, False), of(None, plain)),
        dl.ScheduleFree(lr, of(0.0, 0.6, 0.9), common["layer_lr"]),
        dl.SAM(lr, float(draw.uniform(0.02, 0.2)), **common),
    ]


def problem(number: int) -> dl.Problem:
    """Draw a problem; one with every rule in turn."""
    draw = np.random.default_rng([39, number])

    def of(*values: Any) -> Any:
        return values[draw.integers(len(values))]

    depth, steps = int(draw.integers(1, 4)), int(draw.integers(6, 41))
    common = {
        "richness": float(draw.uniform(0.3, 1.5)),
        "parameterization": of("mup", "mup", "ntk", "standard"),
        "centered": of(True, False),
    }
    width = of(float(draw.uniform(0.4, 2.0)), draw.uniform(0.4, 2.0, depth).tolist())
    network = of(
        dl.MLP(depth, width, **common),
        dl.MLP(depth, width, init_scale={"readout": 0.5, "hidden": 1.2}, **common),
        dl.MLP(depth, "infinite", richness=common["richness"]),
        dl.ResNet(depth, float(draw.uniform(0.4, 2.0)), **common),
        dl.ResNet(np.inf, float(draw.uniform(0.4, 2.0)), centered=common["centered"]),
    )
    is_deep = network.depth == np.inf
    data = of(
        dl.Isotropic(0.3),
        dl.Isotropic(0.1, GRAM),
        dl.Spectrum([1.5, 0.4], [1.0, 0.5], multiplicity=[0.3, 0.7], proportional=True, noise=0.3),
    )
    sampling = of(dl.Population(), dl.FullBatch(2.0), dl.OnlineSGD(0.8), dl.MultiPassSGD(2.0, 0.5))

    def rule(kind: int) -> Any:
        while True:
            found = rules(draw, network.layers + 1 if not is_deep else 3, steps)[kind]
            own = [value for each in (found, found.plain) for value in (each.layer_lr, each.layer_decay)]
            by_layer = getattr(found, "per", "") == "layer" or getattr(found, "clip_by", "") == "layer"
            if not (is_deep and (by_layer or any(isinstance(each, tuple) for each in own))):
                return found

    kind = number % 7
    kind = 1 if is_deep and kind == 4 else kind
    if is_deep:
        steps = min(steps, 12)
    first, phases = rule(kind), []
    if draw.random() < 0.15 and not is_deep:
        middle = steps // 2
        second = of(None, dl.GradientDescent(0.02, momentum=0.5), dl.ScheduleFree(0.02), dl.SAM(0.02, 0.1))
        phases = [dl.Phase(middle), dl.Phase(steps - middle, target_overlap=0.5, optimizer=second)]
        if second is not None:
            first = dl.GradientDescent(0.03, clip=0.5) if isinstance(first.lr, tuple) else first
            first = first if first.other is None and not isinstance(first.momentum, tuple) else dl.Muon(0.02, 0.6)
            if isinstance(first.weight_decay, tuple):
                first = dl.NormalizedDescent(0.02)
    return dl.Problem(network, data, sampling, first, steps, phases)


def losses(number: int) -> list[float]:
    """Test and train losses, and the loss of averaged weights, at the first, a middle and the last step."""
    asked = problem(number)
    averages = [dl.EMA(0.7), dl.TailMean(0.5)] if number % 3 == 0 else []
    solution = dl.solve(asked, method="dense", averages=averages)
    at, known = [0, asked.steps // 2, asked.steps - 1], solution.status.rounding_at
    curves = [solution.test_loss, solution.train_loss, solution.kernel, *solution.averaged_test_loss]
    return [float(curve[step]) if known is None or step < known else math.nan for curve in curves for step in at]


def ulp(number: int, own: list[float]) -> list[float]:
    """How much the losses change by a unit in the last place of every rate."""
    asked = problem(number)
    rate = asked.optimizer
    changed = asked.replace(optimizer=rate.scaled(1.0 + 2.0**-52, asked.steps))
    averages = [dl.EMA(0.7), dl.TailMean(0.5)] if number % 3 == 0 else []
    solution = dl.solve(changed, method="dense", averages=averages)
    at = [0, asked.steps // 2, asked.steps - 1]
    curves = [solution.test_loss, solution.train_loss, solution.kernel, *solution.averaged_test_loss]
    other = [float(curve[step]) for curve in curves for step in at]
    return [abs(a - b) for a, b in zip(own, other, strict=True)]


# What works ----------------------------------------------------------------------------------------------------------

_BY_NAME = {
    "plain": dl.GradientDescent(0.03),
    "momentum": dl.GradientDescent(0.02, momentum=0.5),
    "nesterov": dl.GradientDescent(0.02, momentum=0.5, nesterov=True),
    "decay": dl.GradientDescent(0.03, weight_decay=0.3),
    "schedule": dl.GradientDescent(dl.schedules.cosine(0.05)),
    "layers": dl.GradientDescent(0.03, layer_lr={"readout": 0.0}, weight_decay=0.1, layer_decay={"input": 2.0}),
    "clip": dl.GradientDescent(0.03, clip=0.5),
    "clip by layer": dl.GradientDescent(0.03, clip=0.3, clip_by="layer", momentum=0.5),
    "normalized": dl.NormalizedDescent(0.02, beta2=0.5),
    "normalized global": dl.NormalizedDescent(0.02, per="global"),
    "muon": dl.Muon(0.02),
    "muon input": dl.Muon(0.02, momentum=0.0, input=True, other=dl.GradientDescent(0.05)),
    "schedule-free": dl.ScheduleFree(0.05),
    "SAM": dl.SAM(0.03, 0.05),
    "SAM momentum": dl.SAM(0.02, 0.05, momentum=0.5, weight_decay=0.1),
}
_NETWORKS = {
    "mlp": dl.MLP(2, 1.0),
    "unequal": dl.MLP(3, [1.0, 0.5, 2.0], centered=True),
    "infinitely wide": dl.MLP(2, "infinite"),
    "lazy limit": dl.MLP(2, "infinite", parameterization="ntk"),
    "standard": dl.MLP(2, 0.7, parameterization="standard"),
    "residual": dl.ResNet(3, 1.0),
    "infinitely deep": dl.ResNet(np.inf, 1.0),
}
_SAMPLINGS = [dl.Population(), dl.FullBatch(2.0), dl.OnlineSGD(0.8), dl.MultiPassSGD(2.0, 0.5)]
_METHODS = ("dense", "panels", "coarse", "condensed")


def _questions() -> dict[str, Callable[[dl.Problem], Any]]:
    full = {"dim": 12, "seeds": 2, "workers": 1, "record": "losses"}
    return {
        "reference": lambda p: dl.solve(p, method="reference"),
        "averages": lambda p: dl.solve(p, averages=[dl.EMA(0.5), dl.TailMean(0.5)]),
        "list": lambda p: dl.solve([p, p.replace(lr=p.optimizer.scaled(0.5, p.steps).lr)]),
        "outputs": lambda p: dl.solve(p.replace(data=dl.Isotropic(0.3, GRAM))),
        "phases": lambda p: dl.solve(p.replace(phases=[dl.Phase(4), dl.Phase(4, target_overlap=0.5)])),
        "decomposition": lambda p: dl.solve(p).decomposition(),
        "sensitivity": lambda p: dl.sensitivity(p, "richness"),
        "sensitivity to lr": lambda p: dl.sensitivity(p, "lr"),
        "explicit": lambda p: dl.simulate(p, method="explicit", **full),
        "reduced": lambda p: dl.simulate(p, method="reduced", **full),
        "torch": lambda p: dl.simulate(p, device="torch:cpu", **full),
        "averages of networks": lambda p: dl.simulate(p, averages=[dl.EMA(0.5)], **full),
        "solve on torch": lambda p: dl.solve(p, device="torch:cpu"),
        "optimal_lr": lambda p: dl.optimal_lr(p),
        "max_stable_lr": lambda p: dl.max_stable_lr(p),
        "first_step_growth": lambda p: dl.first_step_growth(p),
        "finite_size": lambda p: dl.finite_size(p, 20, pairs=2, workers=1),
        "sharpness": lambda p: dl.sharpness(p, at=[0, 5]),
        "landscape": lambda p: dl.landscape(p, positions=[0.0, 0.5, 1.0]),
        "weight_spectra": lambda p: dl.weight_spectra(p, at=[0, 5]),
        "coordinate_check": lambda p: dl.coordinate_check(p, [0.5, 1.0]),
        "toml": lambda p: dl.Problem.from_toml(p.to_toml()),
    }


@contextmanager
def _outcome(found: dict[str, str], name: str) -> Iterator[None]:
    """Note an answer as "+" and a refusal as "-"; anything else is a defect and is named."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        found[name] = "+"
    except (ValueError, ArithmeticError, MemoryError):
        found[name] = "-"
    except Exception as error:
        found[name] = type(error).__name__


def abilities() -> dict[str, str]:
    """Say of every combination of rule, network, sampling and method, and of rule and question, if it is answered."""
    found: dict[str, str] = {}
    for rule, optimizer in _BY_NAME.items():
        for network, of_network in _NETWORKS.items():
            for sampling in _SAMPLINGS:
                for method in _METHODS:
                    name = f"{rule}, {network}, {type(sampling).__name__}, {method}"
                    with _outcome(found, name):
                        steps = 70 if method == "coarse" else 6
                        dl.solve(dl.Problem(of_network, dl.Isotropic(0.3), sampling, optimizer, steps), method=method)
        for question, ask in _questions().items():
            with _outcome(found, f"{rule}, {question}"):
                ask(dl.Problem(_NETWORKS["unequal"], dl.Isotropic(0.3), _SAMPLINGS[1], optimizer, 8))
    return found


def packed(found: dict[str, str]) -> dict[str, list[str]]:
    """Return the combinations that are refused; all others are answered."""
    return {"refused": [name for name, outcome in found.items() if outcome != "+"], "all": [str(len(found))]}


def main() -> None:
    """Compare with the record, or keep it."""
    found, able = [losses(number) for number in range(PROBLEMS)], packed(abilities())
    if "--keep" in sys.argv:
        lines = [{"losses": own, "ulp": ulp(number, own)} for number, own in enumerate(found)]
        rows = ",\n".join(json.dumps(line) for line in lines)
        RECORD.write_text(f'{{"abilities": {json.dumps(able)},\n"problems": [\n{rows}\n]}}\n')
        return
    kept = json.loads(RECORD.read_text())
    for name in sorted(set(able["refused"]) ^ set(kept["abilities"]["refused"])):
        print("refused now:" if name in able["refused"] else "answered now:", name)
    worst = 0.0
    for number, (own, before) in enumerate(zip(found, kept["problems"], strict=True)):
        off = deviation(own, before)
        worst = max(worst, off)
        if off > 1.0:
            print(f"problem {number} ({type(problem(number).optimizer).__name__}): {off:.2g} times what is allowed")
    print(f"{PROBLEMS} problems: largest deviation {worst:.2g} times what is allowed")


def deviation(own: list[float], before: dict[str, list[float]]) -> float:
    """Largest deviation from the record in units of 1e-12, or of ten times what a unit of the rate changes."""
    known = ~np.isnan(own)
    now, then, ulp = np.array(own)[known], np.array(before["losses"])[known], np.array(before["ulp"])[known]
    if (np.isfinite(now) != np.isfinite(then)).any():
        return float("inf")
    fine = np.isfinite(then)
    allowed = 1e-12 * np.abs(then[fine]) + 10.0 * ulp[fine]
    return float(np.max(np.abs(now[fine] - then[fine]) / np.maximum(allowed, 1e-300), initial=0.0))


if __name__ == "__main__":
    main()
