"""Update rules as stretches of the equations: which rows they take, and which layers train alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._rules.binding import fields_of
from deeplinear._rules.layers import every_layer
from deeplinear._rules.traits import Traits


@dataclass(frozen=True)
class Stretch:
    """What the rules of a phase must share for their problems to be solved as one batch.

    Attributes
    ----------
    start, stop
        Steps from ``start`` up to but not including ``stop`` follow this rule.
    since
        Steps that the same rule has taken in earlier phases; none if it starts afresh.
    structure
        What its numbers leave open.
    traits
        What it does in a step.
    """

    start: int
    stop: int
    since: int
    structure: tuple[Any, ...]
    traits: Traits

    @property
    def evaluations(self) -> int:
        """Rows of each step: evaluations of the gradient."""
        return self.traits.looks


def stretch_of(stage: Stage) -> Stretch:
    """Return the stretch of one phase of training."""
    rule = stage.optimizer
    return Stretch(stage.start, stage.stop, stage.since, rule.structure, rule.traits)


def orthogonal_layers(stretches: Sequence[Stretch], count: int) -> tuple[int, ...]:
    """Return which of ``count`` weight layers take orthogonal steps in some phase."""
    places = {"input": [0], "hidden": range(1, count - 1), "readout": [count - 1]}
    found = {layer for stretch in stretches for role in stretch.traits.orthogonal for layer in places[role]}
    return tuple(sorted(found))


def groups_of(problem: Problem, stretches: Sequence[Stretch]) -> tuple[int, ...]:
    """Return the group of each weight layer: the number of the first layer that trains alike.

    Layers that a rule treats differently are groups of their own.
    """
    factors = []
    for stage in problem.stages:
        for part in stage.optimizer.parts.values():
            factors.append(problem.units(part)[0])
        for _, part, name, form in fields_of(stage.optimizer):
            if form == "layers":
                factors.append(every_layer(name, getattr(part, name), problem.network.hidden_matrices))
    if any(stretch.traits.apart for stretch in stretches):
        return tuple(range(len(factors[0])))
    if problem.network.branches_vanish and any(stretch.traits.looks > 1 for stretch in stretches):
        factors.append(np.array([1.0, 0.0, 1.0]))  # of what a step up the slope moves
    alike = list(zip(*(each.tolist() for each in factors), strict=True))
    return tuple(alike.index(each) for each in alike)


class Evaluation(NamedTuple):
    """A row of the equations: which step it belongs to, its number among those of the step, and in all."""

    rule: Stretch
    step: int
    number: int
    row: int


def evaluations(stretches: Sequence[Stretch]) -> Iterator[Evaluation]:
    """Return the rows of all steps in order."""
    row = 0
    for stretch in stretches:
        for step in range(stretch.start, stretch.stop):
            for number in range(stretch.evaluations):
                yield Evaluation(stretch, step, number, row)
                row += 1
