"""Problems of ``make fuzz``: random ones over every feature, extremes among them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._equations.system import matrices_read
from deeplinear._solvers.choose import Choice

MOST_TRAFFIC = 2e11
"""Bytes that solving a problem may go through, or else it is drawn again with half as many steps: some 20 s."""


class Draw:
    """Random choices, extremes among them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_in(self, count: int) -> bool:
        return not self.rng.integers(count)

    def among(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: float, high: float) -> float:
        """A number of four digits, even over decades."""
        return float(f"{10 ** self.rng.uniform(math.log10(low), math.log10(high)):.4g}")

    def size(self, extremes: bool) -> float:
        return self.between(1e-6, 1e6) if extremes else self.between(0.3, 4.0)

    def network(self, depth_limit: int) -> dl.MLP | dl.ResNet:
        extreme = self.one_in(8)
        richness = self.between(1e-300, 1e-3) if self.one_in(6) else self.between(0.1, 3.0)
        richness = self.between(3.0, 1e6) if self.one_in(12) else richness
        options: dict[str, Any] = {
            "richness": richness,
            "parameterization": self.among("mup", "ntk"),
            "centered": bool(self.rng.integers(2)) or richness < 1e-100,
        }
        if self.one_in(2):
            depth = int(self.rng.integers(1, min(6, depth_limit) + 1))
            widths = [self.size(extreme) for _ in range(depth)]
            return dl.MLP(depth, self.among("infinite", widths, widths[0], widths[0], widths[0]), **options)
        depth = self.among(*range(1, 9), 32, 300, 10**4, 10**9, math.inf)
        depth = depth if depth <= depth_limit else self.among(1, 2, 3)
        branch = self.among(0.0, self.between(0.1, 2.0), self.between(0.1, 2.0), self.between(2.0, 4.5))
        scaling = "none" if depth <= 8 and self.one_in(4) else "depth-mup"
        width = self.among("infinite", self.size(extreme), self.size(extreme), self.size(extreme))
        return dl.ResNet(depth, width, branch=branch, branch_scaling=scaling, **options)

    def data(self) -> dl.Isotropic | dl.Spectrum:
        noise = self.among(0.0, 0.0, 0.1, 0.5, self.between(1e-8, 1e4))
        outputs = int(self.rng.integers(2, 4)) if self.one_in(5) else 1
        factor = self.rng.normal(size=(outputs, outputs)).round(2)
        gram = factor @ factor.T * self.among(0.0, 1.0, 1.0, 1.0)
        if self.one_in(2):
            return dl.Isotropic(noise, gram.tolist() if outputs > 1 else None)
        if self.one_in(4):
            modes = self.among(None, int(self.rng.integers(1, 30)))
            return dl.Spectrum.power_law(self.between(1.05, 4.0), self.between(0.1, 20.0), modes=modes, noise=noise)
        count = int(self.rng.integers(1, 6))
        spread = self.among(1.0, 1.0, 8.0)
        values = [self.among(0.0, 1.0, *[self.between(10**-spread, 2.0)] * 4) for _ in range(count)]
        power = np.array([self.among(0.0, *[self.between(10**-spread, 2.0)] * 4) for _ in range(count)])
        target = power if outputs == 1 else power[:, None, None] * gram
        proportional = bool(self.rng.integers(2))
        share = self.rng.dirichlet(np.full(count, 2.0)) if proportional else self.rng.integers(1, 9, count)
        return dl.Spectrum(values, target, share, proportional, noise)

    def sampling(self, data: dl.Isotropic | dl.Spectrum) -> Any:
        size = self.size(self.one_in(8)) * (50.0 if data.dimension_free else 1.0)
        small = data.dimension_free and data.outputs == 1 and self.one_in(3)
        return self.among(
            dl.Population(),
            dl.FullBatch(size),
            dl.OnlineSGD(size, small_batch=small),
            dl.MultiPassSGD(size, self.among(1.0, self.between(0.01, 1.0)) * size),
        )

    def optimizer(self, steps: int, scale: float) -> dl.GradientDescent:
        momentum = self.among(0.0, 0.0, 0.5, 0.9, 0.999)
        rate = self.between(1e-4, 0.3) * (1 - momentum) * scale
        if self.one_in(10):
            rate = self.between(1e-12, 1e12)
        step = np.arange(steps)
        schedules = (
            np.where(step < steps // 2, rate, 10 * rate),
            rate * (step + 1) / steps,
            rate * (1 + np.cos(2 * np.pi * step / max(steps // 3, 1))) / 2,
            np.where(self.rng.random(steps) < 0.5, 0.0, rate),
            np.zeros(steps),
        )
        return dl.GradientDescent(
            lr=[float(each) for each in self.among(*schedules)] if self.one_in(4) else rate,
            momentum=momentum,
            nesterov=momentum > 0 and self.one_in(3),
            weight_decay=self.among(0.0, 0.0, 0.0, self.between(1e-12, 1.0), self.between(1.0, 100.0)),
        )


def until_allowed(draw: Callable[[], dl.Problem]) -> dl.Problem:
    """Draw until nothing is refused: not every rule goes with every network and phase."""
    while True:
        try:
            return draw()
        except ValueError as error:
            if " must " not in str(error):
                raise


class DrawOfRules(Draw):
    """Random choices among every update rule, schedule, initial scale and phase."""

    def problem(self) -> dl.Problem:
        """Draw a problem until one is not refused."""
        return until_allowed(self.any_problem)

    def any_problem(self) -> dl.Problem:
        steps = self.among(int(self.rng.integers(1, 9)), int(self.between(9, 60)), int(self.between(60, 300)))
        data = self.data()
        network = self.scaled(self.network(4 if steps > 60 else 8 if steps > 8 or self.one_in(2) else math.inf))
        kernel = float(data.modes.eigenvalues.max()) * (min(network.depth, 16) + 1)
        scale = 2.0 / max(kernel, 1e-3)
        phases = self.phases(steps, data, network, scale) if self.one_in(4) else []
        return dl.Problem(network, data, self.sampling(data), self.rule(network, scale), steps, phases)

    def scaled(self, network: dl.MLP | dl.ResNet) -> dl.MLP | dl.ResNet:
        options: dict[str, Any] = {}
        if self.one_in(3):
            options["parameterization"] = "standard"
        if self.one_in(3):
            options["init_scale"] = self.by_layer(network)
        if network.skip and self.one_in(3):
            options["branch_scaling"] = self.among(0.5, 1.0, 1.0, self.between(0.1, 2.0))
        return replace(network, **options)

    def by_layer(self, network: dl.MLP | dl.ResNet) -> Any:
        """A number for each weight layer, some of them zero or extreme."""

        def number() -> float:
            return float(self.among(0.0, 1.0, self.between(0.1, 3.0), self.between(0.1, 3.0), self.between(1e-6, 1e3)))

        if network.depth <= 8 and self.one_in(3):
            return [number() for _ in range(network.layers + 1)]
        return {name: number() for name in ("input", "hidden", "readout") if self.one_in(2)}

    def series(self, value: float) -> Any:
        """A number, or a schedule that reaches it."""
        warmup = self.among(0.0, 0.0, 0.3, 0.999)
        return self.among(
            *[value] * 4,
            dl.schedules.constant(value, warmup),
            dl.schedules.linear(value, warmup, self.among(0.0, 0.1)),
            dl.schedules.cosine(value, warmup),
            dl.schedules.wsd(value, warmup),
            dl.schedules.power(value, self.between(0.1, 3.0), warmup),
            dl.schedules.piecewise(value, [0.3, 0.6], [self.between(0.01, 3.0), 0.0], 0.0),
        )

    def rule(self, network: dl.MLP | dl.ResNet, scale: float) -> Any:
        """An update rule of any kind."""
        momentum = self.among(0.0, 0.0, 0.5, 0.9)
        rate = self.between(1e-12, 1e12) if self.one_in(10) else self.between(1e-4, 0.3) * (1 - momentum) * scale
        size = self.between(1e-6, 1e6) if self.one_in(6) else self.between(0.01, 3.0)
        common: dict[str, Any] = {
            "momentum": self.series(momentum) if momentum else 0.0,
            "nesterov": momentum > 0 and self.one_in(3),
            "weight_decay": self.among(0.0, 0.0, self.series(self.between(1e-6, 3.0))),
            "layer_lr": self.by_layer(network) if self.one_in(3) else None,
            "layer_decay": self.by_layer(network) if self.one_in(6) else None,
        }
        lr = self.series(rate)
        by = self.among("global", "layer")
        beta = self.among(0.0, 0.5, 0.9, 0.999)
        return self.among(
            lambda: dl.GradientDescent(lr, **common),
            lambda: dl.GradientDescent(lr, clip=size, clip_by=by, **common),
            lambda: dl.NormalizedDescent(lr, by, beta, **common),
            lambda: dl.SAM(lr, size, **common),
            lambda: dl.ScheduleFree(lr, beta, common["layer_lr"]),
            lambda: dl.Muon(
                lr,
                beta,
                beta > 0 and self.one_in(2),
                int(self.rng.integers(1, 6)),
                self.one_in(2),
                self.among(None, dl.GradientDescent(rate, **common)),
            ),
        )()

    def phases(
        self, steps: int, data: dl.Isotropic | dl.Spectrum, network: dl.MLP | dl.ResNet, scale: float
    ) -> list[dl.Phase]:
        """Up to four phases, some of one step."""
        ends = sorted({steps, *(int(end) for end in self.rng.integers(1, steps + 1, 3))})
        return [
            dl.Phase(
                steps=end - begin,
                target_overlap=float(self.among(-1.0, 0.0, 0.5, 1.0)) if begin else 1.0,
                new_samples=not self.one_in(3),
                sampling=self.sampling(data) if self.one_in(4) else None,
                noise=self.among(None, None, 0.0, self.between(1e-3, 1e3)),
                optimizer=self.rule(network, scale) if self.one_in(2) else None,
            )
            for begin, end in zip([0, *ends], ends, strict=False)
        ]


def draw(seed: int) -> dl.Problem:
    """Draw a problem, or raise what its parts refuse."""
    of = Draw(seed)
    if seed % 40 == 39:
        return draw_for_merged_steps(of)
    if seed % 80 == 19:
        return draw_for_panels(of)
    if seed % 4 == 2:
        return DrawOfRules(seed).problem()
    steps = of.among(*[int(of.rng.integers(1, 9))] * 3, *[int(of.between(9, 120))] * 4, int(of.between(120, 400)))
    if of.one_in(30):
        steps = int(of.between(1001, 30_000))
    data = of.data()
    network = of.network(8 if steps > 120 else 32 if steps > 8 and of.one_in(2) else math.inf)
    if network.depth >= 256 and steps > 16 and not of.one_in(6):
        steps = 9 + steps % 8  # every step is swept along the depth, on few nodes and then on more
    sampling = of.sampling(data)
    kernel = float(data.modes.eigenvalues.max()) * (min(network.depth, 16) + 1)
    while True:
        problem = dl.Problem(network, data, sampling, of.optimizer(steps, 2.0 / max(kernel, 1e-3)), steps)
        if steps <= 400 or traffic(problem) <= MOST_TRAFFIC:
            return problem
        steps //= 2


def draw_for_merged_steps(of: Draw) -> dl.Problem:
    """Draw a run long enough for steps to be merged and short enough to solve them all, of which few come by chance."""
    data = of.data()
    network, size = of.network(2), of.size(False) * (50.0 if data.dimension_free else 1.0)
    sampling = of.among(dl.OnlineSGD(size), dl.MultiPassSGD(size, 0.3 * size))
    rate = of.between(1e-5, 0.1) / max(float(data.modes.eigenvalues.max()), 1e-3)
    rule = dl.GradientDescent(rate, weight_decay=of.among(0.0, of.between(1e-6, 0.1)))
    return dl.Problem(network, data, sampling, rule, int(of.between(520, 800)))


def draw_for_panels(of: Draw) -> dl.Problem:
    """Draw a smooth run of more than 1000 steps of which every one can be solved, as hardly any does by chance."""
    data, network, steps = of.data(), of.network(2), int(of.between(1001, 1400))
    size = of.size(False) * (50.0 if data.dimension_free else 1.0)
    sampling = of.among(dl.Population(), dl.FullBatch(size), dl.FullBatch(size))
    kernel = float(data.modes.eigenvalues.max()) * (network.depth + 1)
    rate = of.between(1e-4, 0.1) / max(kernel, 1e-3)
    rule = dl.GradientDescent(
        of.among(rate, rate, dl.schedules.cosine(rate)), weight_decay=of.among(0.0, of.between(1e-6, 0.1))
    )
    problem = dl.Problem(network, data, sampling, rule, steps)
    return problem if traffic(problem, "dense") <= MOST_TRAFFIC else replace(problem, data=dl.Isotropic(0.3))


def traffic(problem: dl.Problem, method: str = "auto") -> float:
    """Bytes that solving a problem goes through, by its estimate, which are the same on every machine."""
    work = Choice(method).solver(problem).estimate(problem)
    return float(work.passes * 8 * matrices_read(work.shape) * work.shape.size**3 / 3)
