"""Every step of a run, with the past condensed.

The rows of a step follow from earlier ones, exactly as in the dense method. Every ``BLOCK_NODES`` steps the past is
looked at: two neighbouring blocks of it become one where the last rows lose nothing by that (see
``_time/history.py``). The number of rows then grows with the logarithm of time, and a step takes about as long late in
training as early. Where rows oscillate in a way that no polynomial follows, steps stay as they are and the run is a
dense one.
"""

import math

import numpy as np

from deeplinear._core import memory
from deeplinear._core.arrays import Array, computing
from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._equations.coefficients import Coefficients, coefficients, row_set, structure
from deeplinear._equations.filler import Filler
from deeplinear._equations.rules import Evaluation
from deeplinear._equations.system import Equations, Values
from deeplinear._equations.training import Training, growing_weights
from deeplinear._equations.two_time import Room
from deeplinear._equations.weights import WeightLayers
from deeplinear._problem.problem import Problem
from deeplinear._rules.traits import traits_within
from deeplinear._solvers.base import Overlaps, Unresolved
from deeplinear._solvers.condensed.pairs import Pairs
from deeplinear._solvers.condensed.remainder import LastRows
from deeplinear._solvers.condensed.replicas import Replicas
from deeplinear._solvers.rounding import DEPENDS, DIED_OUT, LOSS_FLOOR, amplification
from deeplinear._time.history import BLOCK_NODES, Block, Condensation, condensation, joined

_ROOM, _GROWTH = 232, 1.5
"""Times for which there is room at first, and how many times as much there is when it is used up."""

PART = 2.5e-3
"""Part of a row that may be left out, in units of the tolerance. What is left out of a row is orthogonal to all that is
smooth, so that losses feel its square, and errors are far smaller where training is stable. But what alternates feels
all of it, and a burst of instability makes much of little. Fewer rows would hardly be faster."""

_MARGIN = 16
"""What is left out of one function at one time counts in all that training makes of it later. Where rates jump or ramp
into an instability, true errors were up to a hundred times the largest part of a row that was left out, amplified."""

_UNEQUAL = 4
"""Largest ratio of the lengths of two blocks that become one, so that no part of the past is condensed often."""

_KEPT = ("error", "residual", "kernel", "bias", "width", "data")
"""Values at equal times that are kept of every step."""


class CondensedRun:
    """Solution of one problem, step by step.

    Parameters
    ----------
    problem, tolerance
        What is solved, and the relative error of the losses.
    most_rows
        Times times outputs that are kept at most; beyond this many the run is given up.
    pairs
        Where functions of two times are taken down, if they are wanted.
    replicas
        Whether overlaps of replicas are wanted.

    Attributes
    ----------
    equations
        Every two-time function, with rows for the nodes of the past and for the last steps.
    blocks
        Blocks of the past, oldest first.
    most_left_out
        Largest part of a row that was lost when two blocks became one.
    amplified
        How much errors of one step have grown, at most.
    error
        Estimate of the relative error of the losses: what is left out, as far as it was amplified afterwards; but not
        from ``lost_at`` on.
    diverged_at, rounding_at, lost_at
        Steps, -1 for never: where training diverged, where rounding errors had grown into the losses, and where what
        was left out had, which comes before it.
    count, largest
        Times that are kept, and the most that were kept at once.
    """

    def __init__(
        self,
        problem: Problem,
        tolerance: float,
        most_rows: float = math.inf,
        *,
        pairs: Pairs | None = None,
        replicas: bool = False,
    ) -> None:
        self.problem, self.tolerance, self._most_rows = problem, tolerance, most_rows
        self._pairs, self._replicas = pairs, Replicas() if replicas else None
        self.blocks: list[Block] = []
        self.most_left_out, self.amplified, self.error, self.largest = 0.0, 1.0, 0.0, 0
        self.diverged_at = self.rounding_at = self.lost_at = -1
        self._outputs = problem.data.outputs
        self.count = self._done = 0  # and steps that are done
        self._kept: list[Values] = []
        self._rows: LastRows | None = None  # that were looked at last
        self._subsampling = coefficients([problem], 0, 1).subsampling
        # Weights that decay by one rule for good do not grow again, and in a centered network, which is known by its
        # difference from the initial one, rounding errors would grow in their place.
        rule, centered = problem.optimizer, problem.network.centered
        decays = traits_within(rule, problem.steps).decays
        self._may_come_back = decays and (rule.changes_in_time or rule.is_own) and not centered
        self._allocate(_room(problem.steps))

    def fill(self, progress: Progress | None = None) -> None:
        """Take all steps; stop early if training diverges."""
        self._fill(progress)
        if self.lost_at >= 0 and self.rounding_at < 0:
            raise Unresolved(
                f"training is unstable for a while: errors have grown {self.amplified:.1g} times and exceed the "
                f"tolerance from step {self.lost_at} of {self.problem.steps}; lower lr"
            )
        if self.lost_at >= 0:
            self.rounding_at = self.lost_at

    def _fill(self, progress: Progress | None) -> None:
        steps, (rule,) = self.problem.steps, self.equations.c.structure.rules
        with computing(self.equations.c.gamma0):
            for step in range(steps):
                if self.count == self.equations.c.structure.steps:
                    self._make_room()
                evaluation = Evaluation(rule, step, 0, self.count)
                self._subsample(step)
                self._training.place(evaluation)
                self._fill_rows(self.count, self.count + 1)
                self._training.learn(evaluation, self.equations)
                self.count += 1
                if self._replicas is not None:
                    self._replicas.fill(self.equations, row_set(self.equations.c, self.count - 1))
                if self._pairs is not None and step == self._pairs.next:
                    self._pairs.take(self.equations, self.blocks, self.count)
                if (step + 1) % BLOCK_NODES == 0 or step + 1 == steps:
                    self._look_back(step + 1)
                    if progress is not None:
                        progress(step + 1, steps)
                if self.diverged_at >= 0:
                    return

    @property
    def times_done(self) -> int:
        """Times that are kept of those before a divergence, which is among the last steps."""
        return self.count if self.diverged_at < 0 else self.count - (self._done - self.diverged_at)

    def values(self) -> Values:
        """Values at equal times of all steps that were taken."""
        parts = {name: np.concatenate([getattr(each, name) for each in self._kept], axis=1) for name in _KEPT}
        return self._kept[0]._replace(**parts)

    @property
    def overlaps(self) -> Overlaps:
        """Overlaps of replicas, if these were asked for, at all steps that were taken."""
        assert self._replicas is not None
        values = self.values()
        return Overlaps(values.error, *self._replicas.overlaps(), values.bias)

    def _subsample(self, step: int) -> None:
        """Let the batch of a step be drawn with the strength that is its own."""
        strength = self._subsampling
        self.equations.data.subsampling[:, self.count] = strength[:, step if strength.shape[1] > 1 else 0]

    def _look_back(self, done: int) -> None:
        """Keep the values of the last steps, and condense the past."""
        start, self._done, new = self._done, done, done - self._done
        times = slice(self.count - new, self.count)
        self._kept.append(self.equations.values(times))
        diverges = self.equations.diverges(times)[0]
        if diverges.any():
            self.diverged_at = start + int(diverges.argmax())
        self._watch_rounding(times, start)
        self.largest = max(self.largest, self.count)
        if new == BLOCK_NODES:
            self.blocks.append(Block(start, BLOCK_NODES))
            self._condense()
        if self.count * self._outputs > self._most_rows:
            raise Unresolved(
                f"at step {done} of {self.problem.steps} the past still takes {self.count} times, because training "
                "oscillates or its schedule is rough; lower lr, momentum or steps, or raise tolerance"
            )

    def _watch_rounding(self, times: slice, start: int) -> None:
        """Note how much errors of single steps are amplified, and from where on losses depend on them."""
        whole = np.concatenate([each.weights for each in self.blocks] + [np.ones(times.stop - times.start)])
        end = times.stop - times.start if self.diverged_at < 0 else self.diverged_at - start
        amplified = amplification(self.equations, times, 1.0 / whole)[0, :end]
        # Where a loss that has died out counts for more, it does so by no more than the ratio of the two.
        may_depend = amplified.real.max(initial=0.0) * DIED_OUT > DEPENDS * LOSS_FLOOR
        if self.rounding_at < 0 and may_depend:
            depends = amplification(self.equations, times, 1.0 / whole, DIED_OUT)[0, :end].real > DEPENDS
            if depends.any():
                self.rounding_at = start + int(depends.argmax())
        self.amplified = max(self.amplified, float(amplified.real.max(initial=1.0)))
        errors = self.most_left_out * np.maximum(1.0 / PART, _MARGIN * amplified.real)
        lost = errors > self.tolerance
        if self.lost_at < 0:
            if lost.any():
                self.lost_at = start + int(lost.argmax())
            self.error = max(self.error, float(errors[~lost].max(initial=0.0)))

    # The past --------------------------------------------------------------------------------------------

    def _condense(self) -> None:
        """Let neighbouring blocks be one, newest first, but not the last, nor the first, in which time 0 is."""
        allowed = PART * self.tolerance
        left = self._left() if self._may_come_back else None
        rows = self._rows = LastRows(self.equations.room, self._outputs, self.count, allowed, self._rows, left)
        for index in range(len(self.blocks) - 3, 0, -1):
            first, second = self.blocks[index : index + 2]
            longer, shorter = max(first.length, second.length), min(first.length, second.length)
            if longer > _UNEQUAL * shorter:
                continue
            for alternates in (False, True):
                block = joined(first, second, alternates)
                if block is None:
                    continue
                how = condensation(first, second, block, index * BLOCK_NODES)
                left_out = rows.left_out(how)
                if left_out <= allowed:
                    self._replace(how)
                    rows.condense(how)
                    self.blocks[index : index + 2] = [block]
                    self.most_left_out = max(self.most_left_out, left_out)
                    self.error = max(self.error, left_out / PART)
                    break

    def _left(self) -> Array:
        """Part of the initial kernel that is left at each time that is kept, at most 1: products of all weights."""
        kernel = np.abs(self.equations.chain.kernel()[0, : self.count].real)
        left: Array = np.fmin(1.0, kernel / kernel[0])  # 1 where there is no kernel
        return left

    def _replace(self, how: Condensation) -> None:
        """Let fewer times stand for some."""
        self.equations.room.condense(how, self._outputs, self.count)
        self._training.condense(how, self.count)
        self.count -= how.replaced - len(how.values)

    # Storage ---------------------------------------------------------------------------------------------

    def _allocate(self, size: int) -> None:
        """Make room for a number of times."""
        shape = structure(self.problem, 0, size)
        needed = system.memory(shape, complex_numbers=self.problem.is_complex)
        needed *= 1 if self._replicas is None else 2
        memory.require(needed, "solving", "lower steps or outputs, or raise tolerance")
        c = coefficients([self.problem], 0, size)
        room = Room(shape.size, c.gamma0, system.kept(shape))
        self._training = Training([self.problem], c, room, row_by_row=True)
        self.equations = _equations(c, self._training.layers, room)
        self._fill_rows = Filler(self.equations, self.equations.fill, _recorded)
        if self._replicas is not None:
            self._replicas.begin(self.equations)

    def _make_room(self) -> None:
        """Take other equations with room for more times, and copy everything there."""
        before, training, size = self.equations, self._training, self.equations.c.structure.steps
        self._allocate(_room(self.problem.steps, size))
        before.room.copy_to(self.equations.room)
        self._training.go_on(training)


def rooms(steps: int, times: float) -> list[int]:
    """Return for how many times there is room, first and whenever it is used up, until so many are kept.

    Examples
    --------
    >>> rooms(1000, 600), rooms(248, 248)
    ([232, 360, 552, 840], [232, 248])
    """
    sizes = [_room(steps)]
    while sizes[-1] < min(times, steps):
        sizes.append(_room(steps, sizes[-1]))
    return sizes


def _room(steps: int, before: int = 0) -> int:
    """Return for how many times there is room in a run, at first or after so many have filled what there was."""
    return min(steps, _spread_over_cache(int(_GROWTH * before) if before else _ROOM))


def _spread_over_cache(size: int) -> int:
    """Return a number of rows, at least this many, whose columns do not compete for the same lines of a cache.

    A row is an odd number of lines long, 8 numbers each; with 256 rows a step took a tenth longer than with 232.
    """
    return 8 * (-(-size // 8) | 1)


def _equations(c: Coefficients, weights: WeightLayers, room: Room) -> Equations:
    """Return equations in which batches are drawn with a strength of their own in each row."""
    equations = Equations(c, weights, room)
    # It is condensed with all else, as the density of what is drawn at a time.
    equations.data.subsampling = room.series((1, c.structure.steps), outputs=c.structure.outputs, is_density=True)
    return equations


def _recorded(c: Coefficients, room: Room) -> Equations:
    return _equations(c, growing_weights(c, room).layers, room)
