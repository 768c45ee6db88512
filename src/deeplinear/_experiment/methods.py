"""How the matrices of finite networks are kept, what that costs, and which way is chosen.

``"explicit"`` keeps every entry. ``"lazy"`` draws Gaussian matrices only where training looks at them, and
``"reduced"`` keeps besides only those coordinates of neurons, samples and inputs that can be told apart. All three
train the same networks in distribution, and the reduced way never costs more than the lazy one.

Costs are counted here, with a few rates that were measured on one core (``benchmarks/sections/exact.py`` measures what
they predict, which is right within a factor of two or three). They are fixed, so that the choice, and with it what a
seed means, depends on the problem alone; memory decides only where the quickest way does not fit.
"""

from dataclasses import dataclass

import numpy as np

from deeplinear._experiment.ensemble import CORRELATIONS, LOSSES
from deeplinear._experiment.revealed_network import coordinates
from deeplinear._experiment.sizes import Sizes
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem

EXPLICIT, LAZY, REDUCED, AUTO = "explicit", "lazy", "reduced", "auto"

METHODS = (AUTO, EXPLICIT, LAZY, REDUCED)
"""What may be asked for."""

_PASS = 0.6e-9
"""Seconds to multiply and add one number of a matrix."""

_DRAW = 10e-9
"""Seconds to draw a Gaussian number."""

_ENTRY = 30e-9
"""Seconds to draw one coordinate of a direction and of its image, beside the products."""

_LOOK = 60e-6
"""Seconds of overhead of one product with a revealed matrix, shared by the networks that are trained together."""

_STEP = 60e-6
"""Seconds of overhead of one step with explicit matrices."""

_QUICK = 0.5
"""Seconds that one network may take before explicit matrices, which need no argument to be trusted, are given up."""

_TOGETHER = 64
"""Most networks that are trained together on the processor: more gain nothing."""

_CACHE = 32e6
"""Bytes that networks trained together should not exceed, to stay within a processor's cache."""

_SUPPLIES = 8 * 20_480
"""Bytes of random numbers that each network has in stock."""

_LARGEST = {EXPLICIT: 1e10, LAZY: 1e4, REDUCED: 1e4}
"""Size of the function at initialisation up to which it can be subtracted: rounding changes losses by 1e-5 or less.
Directions of which new ones differ by little more than rounding are known less closely."""

_BOOKKEEPING = 2000
"""Bytes, about, that each seed takes while it waits for its turn: its number and its place in the queue."""


@dataclass(frozen=True)
class Need:
    """What one network needs.

    Attributes
    ----------
    seconds
        On one core.
    in_flight
        Bytes while it is trained.
    result
        Bytes of what is kept of it.
    """

    seconds: float
    in_flight: int
    result: int

    def together(self, seeds: int, workers: int) -> int:
        """Return how many networks are best trained as one batch on the processor."""
        return max(1, min(_TOGETHER, int(_CACHE // self.in_flight), -(-seeds // workers)))


@dataclass(frozen=True)
class Counts:
    """The numbers that costs are counted from.

    Attributes
    ----------
    problem, sizes, finite
        What is trained, its counts, and the modes of its inputs.
    record
        What is kept.
    """

    problem: Problem
    sizes: Sizes
    finite: Modes
    record: str

    @property
    def n(self) -> int:
        """T C: rows of a correlation, and products with a matrix from one side."""
        return self.problem.steps * self.sizes.outputs

    @property
    def result_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is kept of one seed."""
        depth = self.problem.network.layers
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(LOSSES, (self.problem.steps,))
        if self.record == "all":
            layers: dict[str, tuple[int, ...]] = {"feature_correlation": (depth + 1,), "gradient_correlation": (depth,)}
            shapes |= {name: (*layers.get(name, ()), self.n, self.n) for name in CORRELATIONS}
        return shapes

    def least_richness(self, method: str) -> float:
        """Least richness of a network whose function can be told from the one at initialisation, if that is subtracted.

        What is learned is of order one, and the function at initialisation of order 1 / richness.
        """
        network = self.problem.network
        return float(np.sqrt(network.initial_variance)) / _LARGEST[method] if network.centered else 0.0

    def resolves(self, method: str) -> bool:
        """Whether what is learned does not drown in rounding errors."""
        return self.problem.network.richness >= self.least_richness(method)

    def need(self, method: str) -> Need:
        """Return what one network needs if its matrices are kept in this way."""
        results = sum(int(np.prod(shape)) for shape in self.result_shapes.values())
        kept = coordinates(self.problem, self.sizes, self.finite, reduced=method == REDUCED)
        sites = 2 * kept.dim + 2 * sum(kept.widths) + kept.samples if self.record == "all" else 0
        seconds, numbers = (self._explicit if method == EXPLICIT else self._revealed)(kept)
        supplies = 0 if method == EXPLICIT else _SUPPLIES
        in_flight = 8 * (numbers + self.n * sites + results) + supplies
        return Need(seconds + self.n**2 * sites * _PASS, in_flight, 8 * results + _BOOKKEEPING)

    def _explicit(self, kept: Sizes) -> tuple[float, int]:
        """Seconds without the correlations, and numbers that are stored."""
        steps, momentum = self.problem.steps, bool(self.problem.optimizer.momentum)
        weights = sum(a * b for a, b in zip((kept.dim, *kept.widths), (*kept.widths, kept.outputs), strict=True))
        data = kept.samples * kept.dim
        drawings = steps if self.problem.sampling.fresh else 1
        passes = steps * ((5 if momentum else 3) * weights + 2 * data)
        seconds = _STEP * steps + _PASS * passes + _DRAW * (weights + drawings * data)
        return seconds, weights * (2 if momentum else 1) + data + 2 * kept.samples * kept.outputs

    def _revealed(self, kept: Sizes) -> tuple[float, int]:
        """Likewise. A product with a matrix reads its directions and images on both sides five times over."""
        ends = sum(a + b for a, b in zip((kept.dim, *kept.widths[:-1]), kept.widths, strict=True))
        layers, stored = len(kept.widths), self.n * 2 * ends + len(kept.widths) * 2 * self.n**2
        passes, entries = 5 * self.n**2 * ends, self.n * ends
        if self.problem.sampling.drawn:
            layers, entries = layers + 1, entries + self.n * (kept.dim + kept.samples)
            looks = self.sizes.outputs if self.problem.sampling.fresh else self.n
            passes += 5 * self.n * looks * (kept.dim + kept.samples)
            stored += 2 * looks * (kept.dim + kept.samples)
        stored += 8 * (kept.dim + max(kept.widths)) * kept.outputs + 6 * kept.samples * kept.outputs  # fields of a step
        overhead = 2 * self.n * layers * _LOOK / min(_TOGETHER, max(1.0, _CACHE / (8 * stored)))
        return overhead + _PASS * passes + _ENTRY * entries, stored


def choose(counts: Counts, available: float) -> str:
    """Choose how matrices are kept: explicitly where that is quick, else the quickest way of those that fit.

    Parameters
    ----------
    counts
        What is trained.
    available
        Memory in bytes.
    """
    able = [EXPLICIT, REDUCED] if counts.resolves(REDUCED) else [EXPLICIT]
    needs = {method: counts.need(method) for method in able}
    fitting = {method: need for method, need in needs.items() if need.in_flight <= available} or needs
    if EXPLICIT in fitting and needs[EXPLICIT].seconds <= _QUICK:
        return EXPLICIT
    return min(fitting, key=lambda method: fitting[method].seconds)
