"""Weights in training, row by row: what update rules make of the initial weights and of the gradients so far.

A row is an evaluation of the network. Most rules have one in each step, at the weights themselves. With SAM a second
one follows, up the slope: W - rho G / |G|, whose gradient the step takes. A rule without a schedule evaluates gradients
between fast weights z and their mean x, at y = (1 - beta) z + beta x.

Rules that look at the size of gradients scale each by

    clipping      min(1, clip / |G|)
    normalising   1 / sqrt(v / (1 - beta2^(n+1)))     v <- beta2 v + (1 - beta2) |G|^2   after the n-th gradient

with |G|^2 = gamma0^2 C_g^{l+1}(t, t) C_h^l(t, t) for weight layer l, or the sum over all of them. Where weights have
the variance 1 / fan-in, normalising takes the gradients of these, whose squares have the fan-in as a factor.
"""

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, computing, namespace, zeros
from deeplinear._equations.aside import Aside
from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.matrix_track import MatrixTrack
from deeplinear._equations.rules import Evaluation, evaluations, numbers_of, orthogonal_layers
from deeplinear._equations.two_time import Room, shorten
from deeplinear._equations.weights import GrowingWeights, WeightLayers
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._time.history import Condensation
from deeplinear._time.propagator import Track, plain_responses

if TYPE_CHECKING:
    from deeplinear._equations.system import Equations


_FEW = 2**15
"""Numbers at a time which a device needs longer to start on than NumPy to compute."""


class Training:
    """Weights of a batch of problems in training.

    Attributes
    ----------
    layers
        The weights as the equations read them. All rows are known from the start unless a rule looks at gradients, or
        they are to be filled row by row.
    scales
        What the last gradient of each group was multiplied by, shape (batch, 1), where a rule divides by its size.
    aside
        Weights that are only looked at.
    gains
        The same of groups that have taken an orthogonal step, with the rate: what it added of the last gradient itself.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        c: Coefficients,
        room: Room,
        averages: Sequence[Average] = (),
        *,
        row_by_row: bool = False,
    ) -> None:
        s, self._c = c.structure, c
        each = [numbers_of(problem) for problem in problems]
        self._has_momentum = any(bool(one["momentum"].any()) for one in each)
        self._growing = growing_weights(c, room)
        self.layers: WeightLayers = self._growing.layers
        self._tracks = {group: Track((c.batch,), s.steps, c.gamma0) for group in dict.fromkeys(s.groups)}
        self._means = {group: track.change for group, track in self._tracks.items()}
        self._matrices = {
            group: MatrixTrack(self._growing.X(group), averages) for group in orthogonal_layers(s.rules, len(s.groups))
        }
        self.aside = Aside(averages, problems[0].steps, c, self._growing, self._matrices)
        self._squares: dict[int, Array] = {}  # running means of squared gradients
        self._gradients = 0  # that these have seen
        self.scales: dict[int, Array] | None = None
        self.gains: dict[int, Array] = {}
        self._up: Array | None = None  # how far up the slope the second evaluation of a step is, over |G|
        self.is_open = row_by_row or any(rule.feels_gradients for rule in s.rules)
        kind = complex if any(problem.is_complex for problem in problems) else float
        if self.is_open or self.aside.is_needed:
            self._numbers = {name: beside(_stacked(each, name, kind), c.gamma0) for name in each[0]}
        else:
            with computing(c.gamma0):  # rates that no training bears overflow here already
                self._fill_all(each, kind)

    def _fill_all(self, each: Sequence[Mapping[str, NDArray[Any]]], kind: type) -> None:
        """Fill the rows of rules that do not look at gradients, those of all groups at once."""
        c, s = self._c, self._c.structure
        groups, all_rows = list(self._tracks), slice(0, s.size)
        on_device = len(groups) * c.batch * s.steps > _FEW

        def stacked(name: str) -> Array:
            numbers = _stacked(each, name, kind, groups)
            return beside(numbers, c.gamma0) if on_device else numbers

        rates = stacked("rate")
        momenta, decays = stacked("momentum") if self._has_momentum else None, stacked("decay") if s.decays else None
        if momenta is None and decays is None:
            responses = plain_responses(namespace(rates).moveaxis(rates[..., 0], 0, -1))
            for group, a in zip(groups, responses, strict=True):
                self._growing.append(group, all_rows, zeros((c.batch, s.steps), c.gamma0), _placed(a, c.gamma0))
            return
        track = Track((len(groups), c.batch), s.steps, rates)
        history = zeros((len(groups), c.batch, s.steps, 2 + s.steps), rates)
        for rule, step, _, row in evaluations(s.rules):
            if step == rule.start and not rule.since:
                track.velocity = namespace(track.velocity).zeros_like(track.velocity)
            history[:, :, row] = track.change
            momentum, decay = (None if numbers is None else numbers[step] for numbers in (momenta, decays))
            track.step(row, rates[step], momentum, decay, rule.nesterov)
        for group, of_group in zip(groups, history, strict=True):
            rows = _placed(of_group, c.gamma0)
            self._growing.append(group, all_rows, rows[..., 0], rows[..., 1:-1], rows[..., -1])

    def place(self, evaluation: Evaluation) -> None:
        """Let the weights be those of an evaluation."""
        if self.is_open or self.aside.is_needed:
            self._place(evaluation)

    def condense(self, how: Condensation, end: int) -> None:
        """Let the gradients of some of the first ``end`` rows be known by fewer numbers, their moments."""
        for group, track in self._tracks.items():
            for numbers in (track.change, track.velocity):
                shorten(numbers[:, 1:], how, how.moments, end)
            self._means[group] = track.change  # no mean is kept of rules whose past is condensed

    def go_on(self, before: "Training") -> None:
        """Continue where other weights of the same problems have come to, which have room for fewer rows."""
        for group, track in before._tracks.items():
            known, own = track.change.shape[-1] - 1, self._tracks[group]
            for old, new in ((track.change, own.change), (track.velocity, own.velocity)):
                new[:, :known], new[:, -1] = old[:, :known], old[:, -1]
            self._means[group] = own.change
        self._squares, self._gradients = before._squares, before._gradients

    def note(self, evaluation: Evaluation) -> None:
        """Let the weights of a step wait for being looked at, if some are to be."""
        if self.aside.is_needed and not evaluation.number:
            self._begin(evaluation)
            tracks = {group: track.change for group, track in self._tracks.items()}
            self.aside.add(evaluation, self._means if evaluation.rule.averages else tracks)

    def learn(self, evaluation: Evaluation, equations: "Equations") -> None:
        """Take what follows an evaluation: a step, or one up the slope."""
        if not self.is_open and not self.aside.is_needed:
            return
        if evaluation.rule.ascends and evaluation.number == 0:
            total = _sum(equations.squared_gradients(evaluation.row))
            self._up = self._numbers["ascent"][evaluation.step] * _over_root(total)
            return
        self.scales = scales = self._scales(evaluation, equations) if evaluation.rule.scales else None
        self._step(evaluation, scales)
        if self._matrices:
            self._step_matrices(evaluation, scales, equations)

    def _begin(self, evaluation: Evaluation) -> None:
        """Let a rule that begins start from the weights that the one before has come to."""
        if evaluation.step == evaluation.rule.start and not evaluation.rule.since and not evaluation.number:
            for group, track in self._tracks.items():
                track.change = self._means[group]
                track.velocity = namespace(track.velocity).zeros_like(track.velocity)
            for matrix in self._matrices.values():
                matrix.begin()

    def _place(self, evaluation: Evaluation) -> None:
        self._begin(evaluation)
        where = {group: track.change for group, track in self._tracks.items()}
        if evaluation.rule.averages:
            beta = self._numbers["averaging"][evaluation.step]
            where = {group: (1.0 - beta) * z + beta * self._means[group] for group, z in where.items()}
        if evaluation.number:
            last = zeros((1, 2 + self._c.structure.steps), self._c.gamma0)
            last[:, evaluation.row] = 1.0  # the gradient of the row before
            # Hidden gradients that vanish beside the others move their weights as little up the slope.
            still = {1} if self._c.structure.branches_vanish else set()
            where = {group: w if group in still else w - self._up * last for group, w in where.items()}  # eq-sam
        for matrix in self._matrices.values():
            matrix.look(self._numbers["averaging"][evaluation.step] if evaluation.rule.averages else None)
            if evaluation.number and self._up is not None:
                matrix.shift(row_set(self._c, evaluation.row - 1), -self._up)
        self._fill(evaluation, where)

    def _fill(self, evaluation: Evaluation, where: Mapping[int, Array]) -> None:
        """Fill the row of an evaluation with the weights of each group."""
        outputs, row = self._c.structure.outputs, evaluation.row
        for group, weights in where.items():
            rows = slice(row * outputs, (row + 1) * outputs)
            self._growing.append(group, rows, weights[:, :1], weights[:, None, 1 : 2 + row], weights[:, -1:])  # eq-rows

    def _step(self, evaluation: Evaluation, scales: dict[int, Array] | None) -> None:
        """Take a step along the gradient of an evaluation."""
        rule, step, _, row = evaluation
        rate, decay = self._numbers["rate"][step], self._numbers["decay"][step]
        momentum = self._numbers["momentum"][step] if self._has_momentum else None
        elsewhere = orthogonal_layers([rule], len(self._c.structure.groups)) if rule.orthogonal is not None else ()
        for group, track in self._tracks.items():
            if group not in elsewhere:
                scale = 1.0 if scales is None else scales[group]
                own_decay = decay[group] if self._c.structure.decays else None
                track.step(row, rate[group], momentum, own_decay, rule.nesterov, scale)
            mean, part = self._means[group], _part(evaluation)
            self._means[group] = (1.0 - part) * mean + part * track.change if part < 1 else track.change

    def _step_matrices(self, evaluation: Evaluation, scales: dict[int, Array] | None, equations: "Equations") -> None:
        """Take the step of weights that take orthogonal steps, now or in another phase."""
        rule, step, _, row = evaluation
        rows, number = row_set(self._c, row), {name: values[step] for name, values in self._numbers.items()}
        now = orthogonal_layers([rule], len(self._c.structure.groups))
        for group, matrix in self._matrices.items():
            rate, momentum, decay = number["rate"][group], number["momentum"], number["decay"][group]
            if rule.orthogonal is None or group not in now:
                matrix.step(rows, rate, momentum, decay, rule.nesterov, 1.0 if scales is None else scales[group])
                continue
            above, below = equations.fields_around(group, rows.stop)
            rate = number["orthogonal_rate"][group] * _inverse(equations.gradient_factor(group))
            added = matrix.orthogonal_step(rows, rate, number["orthogonal_momentum"], rule.orthogonal, above, below)
            self.gains[group] = added[:, -1:, -1]
        for matrix in self._matrices.values():
            matrix.average(_part(evaluation))

    def _scales(self, evaluation: Evaluation, equations: "Equations") -> dict[int, Array]:
        """What each group's gradient is multiplied by, shape (batch, 1)."""
        rule, step = evaluation.rule, evaluation.step
        sizes = self._numbers["size"][step]
        squares = equations.squared_gradients(evaluation.row)
        if len(squares) < len(sizes):  # one stands for all hidden layers, which are alike
            sizes = [sizes[0], sizes[1], sizes[-1]]
        squares = [size * square for size, square in zip(sizes, squares, strict=True)]
        each = dict(enumerate(squares)) if rule.by_layer else dict.fromkeys(self._tracks, _sum(squares))
        if rule.clips:
            return {group: _clipped(self._numbers["clip"][step], square) for group, square in each.items()}
        beta2 = self._numbers["beta2"][step]
        if step == rule.start and not rule.since:
            self._squares, self._gradients = {}, 0
        self._gradients += 1
        for group, square in each.items():
            self._squares[group] = beta2 * self._squares.get(group, 0.0) + (1.0 - beta2) * square  # eq-second-moment
        return {group: _over_root(v / (1.0 - beta2**self._gradients)) for group, v in self._squares.items()}


def _placed(values: Array, like: Array) -> Array:
    """Return values of NumPy, or that are there already, in the library and on the device of an array."""
    return beside(values, like) if isinstance(values, np.ndarray) else values  # type: ignore[redundant-expr]


def _stacked(
    each: Sequence[Mapping[str, NDArray[Any]]], name: str, kind: type, layers: Any = slice(None)
) -> NDArray[Any]:
    """Return a number of all problems, of some layers if it has any, shape (steps, [weight layers,] batch, 1)."""
    values: NDArray[Any] = np.array([one[name] if one[name].ndim == 1 else one[name][layers] for one in each], kind)
    return np.moveaxis(values, (-1, 0), (0, -1))[..., None]


def growing_weights(c: Coefficients, room: Room) -> GrowingWeights:
    """Return weights whose rows are still to be filled."""
    s = c.structure
    orthogonal = orthogonal_layers(s.rules, len(s.groups))
    return GrowingWeights(room, c.batch, s.groups, s.outputs, s.decays, c.variances, c.rate_factors, orthogonal)


def _part(evaluation: Evaluation) -> float:
    """How much of the weights a step takes into their mean; all where a rule keeps no mean."""
    rule = evaluation.rule
    return 1.0 / (evaluation.step - rule.start + rule.since + 2.0) if rule.averages else 1.0  # eq-schedule-free


def _sum(parts: Iterable[Array]) -> Array:
    """Sum of arrays, of which there is at least one."""
    return functools.reduce(operator.add, parts)


def _over_root(square: Array) -> Array:
    """1 / sqrt(square); nothing where there is no gradient."""
    xp = namespace(square)
    none = square == 0
    root: Array = xp.where(none, xp.zeros_like(square), 1.0 / xp.sqrt(xp.where(none, xp.ones_like(square), square)))
    return root


def _inverse(factor: Array) -> Array:
    """1 / factor; nothing where a branch of zero leaves no gradient."""
    xp = namespace(factor)
    inverse: Array = xp.where(
        factor == 0, xp.zeros_like(factor), 1.0 / xp.where(factor == 0, xp.ones_like(factor), factor)
    )
    return inverse


def _clipped(clip: Array, square: Array) -> Array:
    """min(1, clip / sqrt(square)); numbers may be complex, as in derivatives."""
    xp = namespace(square)
    ratio = clip * _over_root(square)
    large = xp.real(square) > xp.real(clip) ** 2 if xp.isdtype(square.dtype, "complex floating") else square > clip**2
    scale: Array = xp.where(large, ratio, xp.ones_like(ratio))  # eq-clip
    return scale
