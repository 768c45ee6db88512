"""Update rules turned into the numbers that stand in the equations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._rules.rule import Orthogonal

Array = NDArray[Any]


@dataclass(frozen=True)
class Rule:
    """What two update rules must share for their problems to be solved as one batch.

    Attributes
    ----------
    start, stop
        Steps from ``start`` up to but not including ``stop`` follow this rule.
    since
        Steps that the same rule has taken in earlier phases; none if it starts afresh.
    nesterov
        Whether momentum looks ahead.
    scales, clips, by_layer
        Whether gradients are divided by their size, whether only if they are large, and whether by that of each layer.
    ascends
        Whether the gradient of a step is taken up the slope, after one at the weights.
    averages
        Whether gradients are taken between the weights and their mean.
    orthogonal
        How some weights take orthogonal steps, without the number that may differ.
    """

    start: int
    stop: int
    since: int
    nesterov: bool
    scales: bool
    clips: bool
    by_layer: bool
    ascends: bool
    averages: bool
    orthogonal: Orthogonal | None

    @property
    def evaluations(self) -> int:
        """Rows of each step: evaluations of the gradient."""
        return 2 if self.ascends else 1

    @property
    def feels_gradients(self) -> bool:
        """Whether weights depend on the size of gradients, so that they are not known beforehand."""
        return self.scales or self.ascends or self.orthogonal is not None


def orthogonal_layers(rules: Sequence[Rule], count: int) -> tuple[int, ...]:
    """Return which of ``count`` weight layers take orthogonal steps in some phase."""
    found = {
        layer
        for rule in rules
        if rule.orthogonal is not None
        for layer in range(0 if rule.orthogonal.input else 1, count - 1)
    }
    return tuple(sorted(found))


def rule_of(stage: Stage) -> Rule:
    """Return the rule of one phase of training."""
    optimizer, scaling, orthogonal = stage.optimizer, stage.optimizer.scaling, stage.optimizer.orthogonal
    return Rule(
        start=stage.start,
        stop=stage.stop,
        since=stage.since,
        nesterov=optimizer.plain.nesterov,
        scales=scaling is not None,
        clips=scaling is not None and scaling.clip is not None,
        by_layer=scaling is not None and scaling.by_layer,
        ascends=optimizer.ascent is not None,
        averages=optimizer.averaging is not None,
        orthogonal=orthogonal and Orthogonal(0.0, orthogonal.nesterov, orthogonal.iterations, orthogonal.input),
    )


def numbers_of(problem: Problem) -> dict[str, Array]:
    """Return the numbers of a problem's rules at every step, each of shape (steps,) or (weight layers, steps).

    ``rate`` and ``decay`` are those of each weight layer, ``momentum`` that of all. The rest is there where the rule of
    some phase has it: ``clip`` (infinite if there is none), ``beta2`` and ``size``, the factor on each layer's squared
    gradients, ``ascent``, ``averaging``, and ``orthogonal_rate``, of each layer, and ``orthogonal_momentum``.
    """
    found: dict[str, list[Array]] = {}
    rules = [stage.optimizer for stage in problem.stages]
    scales, ascends, averages, is_orthogonal = (
        any(getattr(rule, name) is not None for rule in rules)
        for name in ("scaling", "ascent", "averaging", "orthogonal")
    )
    for stage in problem.stages:
        optimizer, plain, steps = stage.optimizer, stage.optimizer.plain, stage.steps
        mine = slice(stage.since, stage.since + steps)
        each = {
            "rate": problem.layer_rates(optimizer)[:, None] * plain.rates(stage.of)[mine],
            "decay": problem.layer_decays(optimizer)[:, None] * plain.decays(stage.of)[mine],
            "momentum": plain.momenta(stage.of)[mine],
        }
        if scales:
            scaling = optimizer.scaling
            each["clip"] = np.full(steps, np.inf if scaling is None or scaling.clip is None else scaling.clip)
            each["beta2"] = np.full(steps, 0.0 if scaling is None else scaling.beta2)
            each["size"] = np.repeat(problem.size_factors(optimizer)[:, None], steps, axis=1)
        if ascends:
            each["ascent"] = np.full(steps, optimizer.ascent or 0.0)
        if averages:
            each["averaging"] = np.full(steps, optimizer.averaging or 0.0)
        if is_orthogonal:
            orthogonal = optimizer.orthogonal
            each["orthogonal_rate"] = problem.orthogonal_rates()[:, None] * optimizer.rates(stage.of)[mine]
            each["orthogonal_momentum"] = np.full(steps, orthogonal.momentum if orthogonal else 0.0)
        for name, values in each.items():
            found.setdefault(name, []).append(values)
    return {name: values[0] if len(values) == 1 else np.concatenate(values, axis=-1) for name, values in found.items()}


def groups_of(problem: Problem, rules: Sequence[Rule]) -> tuple[int, ...]:
    """Return the group of each weight layer: the number of the first layer that trains alike.

    Layers that divide gradients by a size of their own, or take orthogonal steps, are groups of their own.
    """
    factors = [
        each(stage.optimizer) for stage in problem.stages for each in (problem.layer_rates, problem.layer_decays)
    ]
    if any(rule.by_layer or rule.orthogonal for rule in rules):
        return tuple(range(len(factors[0])))
    if problem.network.branches_vanish and any(rule.ascends for rule in rules):
        factors.append(np.array([1.0, 0.0, 1.0]))  # of what a step up the slope moves
    alike = list(zip(*(each.tolist() for each in factors), strict=True))
    return tuple(alike.index(each) for each in alike)


class Evaluation(NamedTuple):
    """A row of the equations: which step it belongs to, its number among those of the step, and in all."""

    rule: Rule
    step: int
    number: int
    row: int


def evaluations(rules: Sequence[Rule]) -> Iterator[Evaluation]:
    """Return the rows of all steps in order."""
    row = 0
    for rule in rules:
        for step in range(rule.start, rule.stop):
            for number in range(rule.evaluations):
                yield Evaluation(rule, step, number, row)
                row += 1
