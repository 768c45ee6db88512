"""How the matrices of finite networks are kept, what that costs, and which way is chosen.

``"explicit"`` keeps every entry. ``"lazy"`` draws Gaussian matrices only where training looks at them, and
``"reduced"`` keeps besides only those coordinates of neurons, samples and inputs that can be told apart. All three
train the same networks in distribution, and the reduced way never costs more than the lazy one.

Costs are counted here, with a few rates that were measured on one core (``benchmarks/sections/exact.py`` measures what
they predict, which is right within a factor of two or three). They are fixed, so that the choice, and with it what a
seed means, depends on the problem alone; memory decides only where the quickest way does not fit.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deeplinear._core.dataset import CORRELATIONS, FIELDS, LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.averages import kept_copies
from deeplinear._experiment.curvature import POSITIONS, Curvature
from deeplinear._experiment.data_sets import DataTotals, data_totals
from deeplinear._experiment.ensemble import LINES, SINGULAR, SPECTRA
from deeplinear._experiment.revealed_network import Looks, coordinates
from deeplinear._experiment.singular_values import steps_needed
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._problem.data import Modes
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._rules.rule import Orthogonal, Rule
from deeplinear._rules.traits import traits_within

EXPLICIT, LAZY, REDUCED, AUTO = "explicit", "lazy", "reduced", "auto"

METHODS = (AUTO, EXPLICIT, LAZY, REDUCED)
"""What may be asked for."""

PASS = 0.6e-9
"""Seconds to multiply and add one number of a matrix."""

_DRAW = 10e-9
"""Seconds to draw a Gaussian number."""

_ENTRY = 30e-9
"""Seconds to draw one coordinate of a direction and of its image, beside the products."""

_LOOK = 60e-6
"""Seconds of overhead of one product with a revealed matrix, shared by the networks that are trained together."""

_PRODUCT = 0.08e-9
"""Seconds to multiply and add two numbers in a product of large matrices."""

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
    averages
        Averages of the weights whose losses are.
    curvature
        Curvature that is measured, if any.
    """

    problem: Problem
    sizes: Sizes
    finite: Modes
    record: str = "losses"
    averages: tuple[Average, ...] = ()
    curvature: Curvature | None = None

    @classmethod
    def of(cls, problem: Problem, dim: int | None) -> "Counts":
        """Count for networks with ``dim`` inputs, of which the losses alone are kept."""
        return cls(problem, sizes_of(problem, dim), problem.data.finite(dim))

    @property
    def probes(self) -> int:
        """Passes both ways that measure the curvature."""
        return 0 if self.curvature is None else self.curvature.passes

    @property
    def methods(self) -> tuple[str, ...]:
        """Ways in which matrices may be kept: orthogonal steps, and sizes of what a rule keeps, need every entry."""
        traits = [stage.optimizer.traits for stage in self.problem.stages]
        return (EXPLICIT,) if any(each.orthogonal or each.past for each in traits) else (EXPLICIT, LAZY, REDUCED)

    def check(self, method: str) -> None:
        """Refuse a way in which matrices may not be kept."""
        if method not in (AUTO, *self.methods):
            allowed = " or ".join(map(repr, (AUTO, *self.methods)))
            raise Refusal("method", method, allowed, rest=": orthogonal steps (Muon) need every entry")

    @property
    def n(self) -> int:
        """T C: rows of a correlation, and products with a matrix from one side."""
        return self.problem.steps * self.sizes.outputs

    @property
    def result_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is kept of one seed."""
        depth = self.problem.network.layers
        steps, phases = self.problem.steps, len(self.problem.stages)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(LOSSES, (steps,))
        shapes |= {"averaged_test_loss": (len(self.averages), steps), "task_loss": (phases if phases > 1 else 0, steps)}
        if self.curvature is not None:
            shapes |= dict.fromkeys(SPECTRA, (len(self.curvature.at), self.curvature.vectors))
            if count := self.curvature.singular_values:
                shapes[SINGULAR] = (len(self.curvature.at), depth, count)
            if self.curvature.line:
                shapes |= dict.fromkeys(LINES, POSITIONS.shape)
        if self.record == "all":
            for name in CORRELATIONS:
                first = FIELDS[name].first_layer
                layers = () if first is None else (depth + 1 - first,)
                shapes[name] = (*layers, self.n, self.n)
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

    def kept(self, method: str) -> Sizes:
        """Return the numbers of coordinates that fields have if matrices are kept in this way."""
        averages = len(self.averages)
        return coordinates(self.problem, self.sizes, self.finite, averages, self.probes, reduced=method == REDUCED)

    def need(self, method: str) -> Need:
        """Return what one network needs if its matrices are kept in this way."""
        results = sum(math.prod(shape) for shape in self.result_shapes.values())
        kept = self.kept(method)
        sites = 2 * kept.dim + 2 * sum(kept.widths) + kept.samples if self.record == "all" else 0
        seconds, numbers = (self._explicit if method == EXPLICIT else self._revealed)(kept)
        supplies = 0 if method == EXPLICIT else _SUPPLIES
        in_flight = 8 * (numbers + self.n * sites + results) + supplies
        return Need(seconds + self.n**2 * sites * PASS, in_flight, 8 * results + _BOOKKEEPING)

    def _explicit(self, kept: Sizes) -> tuple[float, int]:
        """Seconds without the correlations, and numbers that are stored."""
        shapes = list(zip((kept.dim, *kept.widths), (*kept.widths, kept.outputs), strict=True))
        weights, steps = sum(a * b for a, b in shapes), self.problem.steps
        seconds, most = _STEP * steps + _DRAW * weights, 0
        for stage in self.problem.stages:
            passes, buffers = _rule_cost(stage.optimizer, stage.of)
            seconds += PASS * stage.steps * weights * (passes + 3 * len(self.averages))
            most = max(most, buffers * weights)
            if stage.optimizer.orthogonal is not None:
                products, room = _orthogonal_cost(stage.optimizer.orthogonal, shapes[:-1])
                seconds, most = seconds + _PRODUCT * stage.steps * products, max(most, weights + room)
        seconds += 2 * PASS * weights * self.probes
        samples = 0
        for data in self._data:
            looks = 2 * self.probes + sum(data.asked)
            drawings = data.summed if data.fresh else data.largest
            seconds += kept.dim * (PASS * looks * data.summed / data.steps + _DRAW * drawings)
            samples = max(samples, data.largest)
        copies = 1 + sum(kept_copies(average, steps) for average in self.averages)
        return seconds, copies * weights + most + samples * (kept.dim + 2 * kept.outputs)

    def _revealed(self, kept: Sizes) -> tuple[float, int]:
        """Likewise. A product with a matrix reads its directions and images on both sides five times over."""
        looks, outputs = Looks.of(self.problem, len(self.averages), self.probes), self.sizes.outputs
        ends = sum(a + b for a, b in zip((kept.dim, *kept.widths[:-1]), kept.widths, strict=True))
        layers, gradients = len(kept.widths), looks.gradients
        both = outputs * (looks.gradients + looks.probes + looks.evaluations)
        stored = both * ends + layers * outputs * gradients * both
        products, passes, entries = both * layers, 5 * (both / 2) ** 2 * ends, both / 2 * ends
        most = 0
        for data in self._data:
            if data.drawn:
                sites, alive = kept.dim + kept.samples, outputs * sum(data.looks)
                turns = data.steps if data.fresh else 1
                products += turns * alive
                passes, entries = passes + turns * 5 * (alive / 2) ** 2 * sites, entries + turns * alive / 2 * sites
                most = max(most, alive * sites)
        copies = 1 + sum(kept_copies(average, self.problem.steps) for average in self.averages)
        stored += most + copies * layers * (1 + gradients) + (copies - 1) * kept.widths[-1] * outputs
        stored += 8 * (kept.dim + max(kept.widths)) * outputs + 6 * kept.samples * outputs  # fields of a step
        if self.curvature is not None and self.curvature.singular_values:
            turns, more, room = self._singular(self.curvature, kept, both)
            products, passes, stored = products + turns, passes + more, stored + room
        overhead = products * _LOOK / min(_TOGETHER, max(1.0, _CACHE / (8 * stored)))
        return overhead + PASS * passes + _ENTRY * entries, stored

    def _singular(self, wanted: Curvature, kept: Sizes, known: int) -> tuple[int, float, int]:
        """Products that finding singular values of revealed matrices takes, what these read, and what one matrix needs.

        In a step of the iteration, each of two products reads directions and images nine times over, all in all.
        """
        products, passes, most = 0, 0.0, 0
        ends, sizes = (kept.dim, *kept.widths), (self.sizes.dim, *self.sizes.widths)
        for held, pair in zip(pairwise(ends), pairwise(sizes), strict=True):
            steps = steps_needed(min(pair), wanted.singular_values)
            looks = (steps + 1) * len(wanted.at)
            corners = [min(size, known + looks) for size in pair]
            products += 2 * looks
            passes += 9 * steps * len(wanted.at) * (known / 2 + looks) * sum(corners) / 2
            most = max(most, (known + 2 * looks + 2 * steps) * sum(corners) + 2 * known * (sum(held) + known))
        return products, passes, most

    @property
    def _data(self) -> list[DataTotals]:
        return data_totals(self.problem, self.sizes.unit, self.probes)


def _rule_cost(optimizer: Rule, steps: int) -> tuple[int, int]:
    """Passes over all weights in a step, and copies of them that are kept beside them."""
    traits = traits_within(optimizer, steps)
    kept = len(traits.keeps)
    return 3 + 2 * kept + 4 * (traits.looks - 1 + traits.elsewhere), kept + traits.elsewhere


def _orthogonal_cost(rule: Orthogonal, shapes: list[tuple[int, int]]) -> tuple[int, int]:
    """Multiplications of a step, and numbers that it holds for a while: two matrices and three small ones."""
    sizes = [sorted(shape) for shape in shapes[0 if rule.input else 1 :]]
    products = sum(rule.iterations * (2 * few * few * many + few**3) for few, many in sizes)
    return products, max((3 * few * many + 3 * few * few for few, many in sizes), default=0)


def choose(counts: Counts, available: float) -> str:
    """Choose how matrices are kept: explicitly where that is quick, else the quickest way of those that fit.

    Parameters
    ----------
    counts
        What is trained.
    available
        Memory in bytes.
    """
    able = [method for method in (EXPLICIT, REDUCED) if method in counts.methods]
    able = [method for method in able if method == EXPLICIT or counts.resolves(method)]
    needs = {method: counts.need(method) for method in able}
    fitting = {method: need for method, need in needs.items() if need.in_flight <= available} or needs
    if EXPLICIT in fitting and needs[EXPLICIT].seconds <= _QUICK:
        return EXPLICIT
    return min(fitting, key=lambda method: fitting[method].seconds)
