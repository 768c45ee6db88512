"""Problems on which the search for the best learning rate is checked, drawn at random: problem number s by seed s.

Problems from 330 up to 999 have what others do not: schedules of the rate, every update rule, rates by layer, infinite
depth and phases, one of these after another, and some together. They are short, so that brute force is affordable.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import deeplinear as dl
from fuzz_problems import until_allowed

PLAIN = 330
"""Problems of the table with constant rates, numbered from 0."""
PROGRAMS = range(PLAIN, 1000)
"""Numbers of problems with other rules, schedules, phases and depths."""


KINDS = (
    "schedule",
    "schedule",
    "infinite depth",
    "clipped gradients",
    "normalised descent",
    "Muon",
    "schedule-free",
    "SAM",
    "rates by layer",
    "phases",
)
"""What is special to a problem, by the last digit of its number."""


class Draw:
    """Random choices."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def between(self, low: float, high: float) -> float:
        """A number of four digits, even over decades."""
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.4g}")

    def one_in(self, count: int) -> bool:
        return not self.rng.integers(count)

    def among(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]


def draw(seed: int) -> dl.Problem:
    """Draw a problem: any network, data, sampling rule and optimiser; half have momentum, up to 0.97."""
    return _Program(seed).problem() if seed in PROGRAMS else _plain(seed)


def kind(seed: int) -> str:
    """What is special to a problem with another rule, schedule, phases or depth."""
    return KINDS[seed % len(KINDS)]


def _plain(seed: int) -> dl.Problem:
    """Draw a problem with gradient descent at a constant rate."""
    of = Draw(seed, 14)
    rng, between, one_in = of.rng, of.between, of.one_in
    data, in_counts = _data(rng, between, one_in)
    sizes = (20.0, 500.0) if in_counts else (0.25, 8.0)
    options: dict[str, Any] = {
        "richness": between(0.1, 4.0),
        "parameterization": "mup" if in_counts or rng.integers(3) else "ntk",
        "centered": bool(rng.integers(2)),
    }
    depth = int(rng.integers(1, 6))
    width: Any = "infinite" if one_in(6) else between(*sizes)
    steps = int(between(12, 160 / data.outputs))
    if one_in(3):
        depth = int(rng.choice([depth, 8, 12]))
        network: Any = dl.ResNet(depth=depth, width=width, branch=between(0.3, 1.5), **options)
        steps = min(steps, 90)
    else:
        widths = [between(*sizes) for _ in range(depth)]
        network = dl.MLP(depth=depth, width=widths if one_in(6) else width, **options)
    samples, batch = between(*sizes), between(*sizes)
    sampling = (
        dl.Population(),
        dl.FullBatch(samples),
        dl.OnlineSGD(batch),
        dl.MultiPassSGD(samples, min(samples, batch)),
    )[rng.integers(4)]
    momentum = 1 - between(0.03, 0.8) if one_in(2) else 0.0
    rule = dl.GradientDescent(
        lr=between(1e-4, 1.0),
        momentum=momentum,
        nesterov=momentum > 0 and one_in(3),
        weight_decay=between(0.01, 1.0) if one_in(6) else 0.0,
    )
    return dl.Problem(network, data, sampling, rule, steps)


def _data(rng: np.random.Generator, between: Any, one_in: Any) -> tuple[Any, bool]:
    """Draw data, and say whether sizes are counts rather than ratios."""
    noise = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
    outputs = int(rng.integers(2, 4)) if one_in(5) else 1
    factor = rng.normal(size=(outputs, outputs)).round(2)
    gram = factor @ factor.T / outputs if outputs > 1 else None
    match rng.integers(5):
        case 0:
            modes = int(rng.integers(2, 6))
            power = [between(0.1, 2.0) for _ in range(modes)]
            target = power if gram is None else [each * gram for each in power]
            eigenvalues = [between(0.02, 2.0) for _ in range(modes)]
            share = rng.dirichlet(np.full(modes, 2.0))
            return dl.Spectrum(eigenvalues, target, share, proportional=True, noise=noise), False
        case 1:
            modes = int(rng.integers(5, 31))
            return dl.Spectrum.power_law(between(1.2, 2.0), between(0.3, 2.0), modes=modes, noise=noise), True
        case _:
            return dl.Isotropic(noise, None if gram is None else gram.tolist()), False


class _Program(Draw):
    """Another problem with one thing changed, by its number, and by chance a schedule too."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 15)
        self.seed, self.plain = seed, _plain(seed)

    def problem(self) -> dl.Problem:
        """Draw until nothing is refused."""
        return until_allowed(self.any_problem)

    def any_problem(self) -> dl.Problem:
        plain, common = self.plain, self.common()
        steps = max(int(self.between(10, 60 / plain.data.outputs)), 10)
        changes: dict[str, Any] = {"steps": steps}
        lr = self.schedule(plain.optimizer.lr) if self.one_in(3) else plain.optimizer.lr
        match kind(self.seed):
            case "schedule":
                changes["optimizer"] = dl.GradientDescent(self.schedule(plain.optimizer.lr), **common)
            case "infinite depth":
                changes |= {"network": self.without_end(), "steps": steps % 11 + 5}
            case "clipped gradients":
                clips = {"clip": self.between(0.03, 3.0), "clip_by": self.among("global", "layer")}
                changes["optimizer"] = dl.GradientDescent(lr, **clips, **common)
            case "normalised descent":
                by, beta = self.among("global", "layer"), self.among(0.0, 0.5, 0.9, 0.99)
                changes["optimizer"] = dl.NormalizedDescent(lr, by, beta, **common)
            case "Muon":
                changes["optimizer"] = self.orthogonal(lr)
            case "schedule-free":
                changes["optimizer"] = dl.ScheduleFree(lr, self.among(0.0, 0.5, 0.9, 0.98))
            case "SAM":
                changes["optimizer"] = dl.SAM(lr, self.between(0.01, 1.0), **common)
            case "rates by layer":
                changes["optimizer"] = dl.GradientDescent(lr, layer_lr=self.by_layer(), **common)
            case "phases":
                changes |= {"optimizer": dl.GradientDescent(lr, **common), "phases": self.phases(steps)}
        return replace(plain, **changes)

    def common(self) -> dict[str, Any]:
        """Momentum and weight decay as the other problem has them, or as schedules."""
        rule = self.plain.optimizer
        momentum = dl.schedules.linear(rule.momentum, end=0.5) if rule.momentum and self.one_in(5) else rule.momentum
        return {"momentum": momentum, "nesterov": rule.nesterov, "weight_decay": rule.weight_decay}

    def schedule(self, peak: float) -> Any:
        """A schedule of any shape, or a list of numbers that jumps and is zero at times."""
        warmup = self.among(0.0, 0.0, 0.1, 0.5)
        return self.among(
            dl.schedules.constant(peak, self.between(0.05, 0.6)),
            dl.schedules.linear(peak, warmup, self.among(0.0, 0.1)),
            dl.schedules.cosine(peak, warmup, self.among(0.0, 0.1)),
            dl.schedules.wsd(peak, self.among(0.0, 0.1, 0.3), self.between(0.1, 0.6)),
            dl.schedules.power(peak, self.between(0.2, 3.0), warmup),
            dl.schedules.piecewise(peak, [0.3, 0.6], [self.between(0.01, 3.0), self.among(0.0, 0.1, 1.0)], 0.0),
        )

    def without_end(self) -> dl.ResNet:
        """The network with residual branches, and infinite depth."""
        network = self.plain.network
        return dl.ResNet(
            depth=math.inf,
            width=network.width if network.skip else self.plain.network.given_widths[0],
            branch=self.between(0.3, 1.5),
            richness=network.richness,
            parameterization=network.parameterization,
            centered=network.centered,
        )

    def orthogonal(self, lr: Any) -> dl.Muon:
        momentum = self.among(0.0, 0.5, 0.9, 0.95)
        other = dl.GradientDescent(self.between(1e-3, 0.1)) if self.one_in(2) else None
        nesterov = momentum > 0 and self.one_in(2)
        return dl.Muon(lr, momentum, nesterov, int(self.rng.integers(1, 6)), self.one_in(2), other)

    def by_layer(self) -> dict[str, float]:
        """Factors on the rates of layers, one of which may be frozen."""
        names = [name for name in ("input", "hidden", "readout") if self.one_in(2)]
        return {name: self.among(0.0, self.between(0.03, 30.0), self.between(0.03, 30.0)) for name in names}

    def phases(self, steps: int) -> list[dl.Phase]:
        """Two or three phases; one may have a rule of its own, whose rate is not varied."""
        ends = sorted({steps, *(int(end) for end in self.rng.integers(2, steps - 1, self.among(1, 2)))})
        return [
            dl.Phase(
                steps=end - begin,
                target_overlap=float(self.among(-1.0, 0.0, 0.5, 0.9, 1.0)) if begin else 1.0,
                new_samples=not self.one_in(3),
                noise=self.among(None, None, 0.0, self.between(0.1, 1.0)),
                optimizer=dl.GradientDescent(self.between(1e-3, 0.1)) if begin and self.one_in(3) else None,
            )
            for begin, end in zip([0, *ends], ends, strict=False)
        ]
