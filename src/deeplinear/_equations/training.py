"""Weights in training, row by row: what update rules make of the initial weights and of the gradients so far.

A row is an evaluation of the network, where a rule looks for a gradient. Rules that do not ask for the size of anything
are run ahead of the equations; the others are run along with them, and receive a gradient when its row is filled. The
squared size of a gradient is

    |G|^2 = gamma0^2 C_g^{l+1}(t, t) C_h^l(t, t)

for weight layer l, and its product with an earlier one is that at (t, s).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, computing, namespace, to_numpy, zeros
from deeplinear._core.refusal import Refusal
from deeplinear._equations.aside import Aside
from deeplinear._equations.coefficients import Coefficients, coefficients, row_set
from deeplinear._equations.forms import Form, Gradient, Kept, Matrices, as_weights, initial, summed
from deeplinear._equations.orthogonal import first_felt, newton_schulz
from deeplinear._equations.rules import Evaluation, Stretch, orthogonal_layers
from deeplinear._equations.two_time import Room, shorten
from deeplinear._equations.weights import GrowingWeights, WeightLayers
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._rules.binding import Bound, numbers_of
from deeplinear._rules.numbers import Numbers
from deeplinear._rules.rule import Look, Rule
from deeplinear._rules.traits import Traits, traits_of
from deeplinear._rules.vectors import Memory, Part, Vector
from deeplinear._time.history import Condensation
from deeplinear._time.propagator import plain_responses

if TYPE_CHECKING:
    from deeplinear._equations.system import Equations

_WEIGHTS = "weights"

_FEW = 2**15
"""Numbers at a time which a device needs longer to start on than NumPy to compute."""

Step = Generator[Look, Vector, Vector]


class Taken(NamedTuple):
    """What a rule does in a step, or in many at once: where it looks, the new weights, and what it keeps."""

    looks: list[Vector]
    weights: Vector
    kept: Mapping[str, Any]


class Course:
    """The rule of a phase for a batch of problems.

    Parameters
    ----------
    problems, number
        The problems, and which of their phases.
    stretch
        What their rules share.
    """

    def __init__(self, problems: Sequence[Problem], number: int, stretch: Stretch, kind: type, like: Array) -> None:
        stages = [problem.stages[number] for problem in problems]
        self.stretch, self.steps = stretch, stages[0].of
        each = [
            numbers_of(stage.optimizer, stage.of, problem.network.hidden_matrices, problem.units)
            for problem, stage in zip(problems, stages, strict=True)
        ]
        self._rule, self._problems, self._each, self._kind, self._like = stages[0].optimizer, problems, each, kind, like
        self._bound = Bound(self._rule, each, kind, like)
        self.traits: Traits = traits_of(self._rule, self._bound.zeros)
        self._steps_differ = False

    def time(self, step: int) -> int:
        """Number of a step among those of the rule."""
        return step - self.stretch.start + self.stretch.since

    def at(self, step: int) -> Rule:
        """Return the rule at a step."""
        return self._bound.at(self.time(step))

    def at_unit_rates(self, step: int) -> Rule:
        """Return the rule at a step with rates of 1 and without momentum or weight decay."""
        t, each = self.time(step), []
        for problem, one in zip(self._problems, self._each, strict=True):
            now = {name: values[t if len(values) > 1 else 0][None] for name, values in one.items()}
            for path, part in self._rule.parts.items():
                before = f"{path}." if path else ""
                now[f"{before}lr"] = problem.units(part)[0][None]
                now |= {
                    before + name: np.zeros((1, 1)) for name in ("momentum", "weight_decay") if before + name in now
                }
            each.append(now)
        return Bound(self._rule, each, self._kind, self._like).at(0)

    def ahead(self, spaces: "list[Training]") -> Iterator[tuple[Taken, int | None]]:
        """Run the rule without gradients, all steps at once where it does not ask which step it is.

        Yields what it does in each step, and the place of the step among those that stand together. The only one of the
        ``spaces`` may be replaced on the way.
        """
        times = range(self.stretch.since, self.stretch.since + self.stretch.stop - self.stretch.start)
        kept: dict[str, Any] = spaces[0].parts
        for t in times:
            taken = spaces[0].run(self._bound.at(t), kept, t)
            yield taken, None
            kept = {
                name: Kept(name, value.base) if isinstance(value, Vector) else value
                for name, value in taken.kept.items()
            }
            if together := self._together(spaces[0], kept, range(t + 1, times.stop)):
                for index in range(times.stop - t - 1):
                    yield together, index
                return

    def _together(self, space: "Training", kept: Mapping[str, Any], times: range) -> Taken | None:
        """Run all of some steps at once; None where the rule treats them differently, or there are none."""
        if not times or self.traits.counts or (times.start > 1 and self._steps_differ):
            return None
        try:
            t = Numbers(beside(np.arange(times.start, times.stop, dtype=float)[None, None], self._like))
            return space.run(self._bound.over(slice(times.start, times.stop)), kept, t)
        except (Refusal, TypeError, AttributeError):
            self._steps_differ = True
            return None

    def plain_rates(self, space: "Training") -> Any:
        """Return the rates of a rule that does no more than to step along gradients, None if it does."""
        stretch = self.stretch
        if self.traits.keeps or self.traits.elsewhere or self.traits.looks > 1:
            return None
        since = stretch.since
        taken = self._together(space, {}, range(since, since + stretch.stop - stretch.start))
        if taken is None:
            return None
        terms = {type(part): each for part, each in taken.weights.terms.items()}
        whole, rest = terms.pop(Kept, (0, None))
        if whole != 1 or rest is not None or not terms.keys() <= {Gradient}:
            return None
        whole, rest = terms.get(Gradient, (0, 0.0))
        return float(whole) if rest is None else rest + whole if whole else rest


class Training:
    """Weights of a batch of problems in training, as the space in which their rules act.

    Attributes
    ----------
    layers
        The weights as the equations read them. All rows are known from the start unless a rule looks at gradients, or
        they are to be filled row by row.
    aside
        Weights that are only looked at.
    gains
        Where they are asked for, what a step with rates of 1 and without momentum adds of the last gradient, (layers,).
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
        self._me: Training = proxy(self)  # of which vectors are, that it holds itself
        self._spaces = [self._me]
        self._growing = growing_weights(c, room)
        self.layers: WeightLayers = self._growing.layers
        kind = complex if any(problem.is_complex for problem in problems) else float
        self._firsts = list(dict.fromkeys(s.groups))
        self._matrices = orthogonal_layers(s.rules, len(s.groups))
        self._kept: dict[str, Form] = {}
        self._numbers: dict[str, Any] = {}  # that rules keep
        self.aside = Aside(averages, problems[0].steps, c, self._growing, self._matrices)
        self.gains: NDArray[np.float64] | None = None
        self._begun = self._planned = -1  # steps at which the rule began that is followed, and that it was run for
        self._plan: Iterator[tuple[Taken, int | None]] = iter(())  # of a rule that is run ahead
        self._taken: tuple[Taken, int | None]
        self._step: tuple[Step, Memory] | None = None  # that is being taken, of a rule that is run along
        self._look: Vector | None = None
        self._last_row = 0
        self._equations: Equations | None = None
        self._products: dict[tuple[int, bool], Array] = {}
        self._masks: dict[tuple[str, ...], Array] = {}
        self.is_open = row_by_row or any(stretch.traits.runs_along for stretch in s.rules)
        is_ahead = not self.is_open and not self.aside.is_needed
        is_small = is_ahead and len(self._firsts) * c.batch * s.steps <= _FEW
        like = np.zeros(0, kind) if is_small else c.gamma0
        self._courses = {
            stretch.start: Course(problems, number, stretch, kind, like) for number, stretch in enumerate(s.rules)
        }
        self._weights = initial(len(self._firsts), c.batch, s.steps, like)
        if is_ahead:
            with computing(c.gamma0):  # rates that no training bears overflow here already
                self._fill_all()

    # The steps -------------------------------------------------------------------------------------------------------

    def _fill_all(self) -> None:
        """Fill the rows of rules that do not look at gradients, all at once."""
        s, like = self._c.structure, self._weights.numbers
        rates = [course.plain_rates(self._me) for course in self._courses.values()]
        if all(each is not None for each in rates):
            xp = namespace(like)
            shape, known = (len(self._firsts), self._c.batch), []
            for course, each in zip(self._courses.values(), rates, strict=True):
                of_groups = each if isinstance(each, float) or len(each) == 1 else each[self._firsts]
                steps = course.stretch.stop - course.stretch.start
                known.append(xp.broadcast_to(of_groups + xp.zeros_like(like[..., :1]), (*shape, steps)))
            a = plain_responses(known[0] if len(known) == 1 else xp.concat(known, axis=-1))
            numbers = zeros((*shape, s.steps, 2 + s.steps), a)
            numbers[..., 1], numbers[..., 2:] = 1.0, a
            self._growing.append(0, _placed(xp.moveaxis(numbers, 2, 0), self._c.gamma0))
            return
        history = zeros((s.steps, *self._weights.numbers.shape), like)
        row = 0
        for course in self._courses.values():
            if not course.stretch.since:
                self._kept, self._numbers = {}, {}
            for taken, at in course.ahead(self._spaces):
                for number in range(course.stretch.evaluations):
                    history[row + number] = as_weights(self._summed(taken.looks[number], at, row)).numbers
                self._commit(course, taken.weights, taken.kept, at, row)
                row += course.stretch.evaluations
        self._growing.append(0, _placed(history, self._c.gamma0))

    @property
    def parts(self) -> dict[str, Any]:
        """What the rule has kept: a part for each vector, and numbers."""
        return {name: Kept(name, form.base) for name, form in self._kept.items()} | self._numbers

    def run(self, rule: Rule, kept: Mapping[str, Any], t: Any) -> Taken:
        """Run a step of a rule without gradients, given what it has kept."""
        memory = self._memory(kept)
        step, looks = rule.step(self._vector(Kept(_WEIGHTS, 1)), memory, t), []
        try:
            look = next(step)
            while True:
                looks.append(look.weights)
                look = step.send(self._vector(Gradient(len(looks) - 1)))  # counted from the first row of the step
        except StopIteration as stop:
            return Taken(looks, stop.value, memory.kept)

    def place(self, evaluation: Evaluation) -> None:
        """Let the weights be those of an evaluation."""
        if not self.is_open and not self.aside.is_needed:
            return
        self._begin(evaluation)
        if evaluation.number == 0 and self._step is None:
            course = self._courses[evaluation.rule.start]
            if not course.traits.runs_along:
                if self._planned != evaluation.step:  # a row that is taken back is placed again
                    self._planned, self._taken = evaluation.step, next(self._plan)
            else:
                memory = self._memory(self.parts)
                now = course.at(evaluation.step)
                self._step = now.step(self._vector(Kept(_WEIGHTS, 1)), memory, course.time(evaluation.step)), memory
                self._look = next(self._step[0]).weights
        self._fill(evaluation.row, self._seen(evaluation))

    def _seen(self, evaluation: Evaluation) -> Form:
        """Weights at which a gradient is wanted."""
        if self._step is None:
            taken, at = self._taken
            return as_weights(self._summed(taken.looks[evaluation.number], at, evaluation.row - evaluation.number))
        look = self._look
        assert look is not None
        if evaluation.number and self._c.structure.branches_vanish:
            # Hidden gradients that vanish beside the others move their weights as little up the slope.
            still = Numbers(self.mask(("input", "readout")))
            own: dict[Part, tuple[int, Any]] = {}
            moved: dict[Part, tuple[int, Any]] = {}
            for part, each in look.terms.items():
                (moved if isinstance(part, Gradient) else own)[part] = each
            look = Vector(self._me, own) + still * Vector(self._me, moved)
        return as_weights(self._summed(look))

    def note(self, evaluation: Evaluation) -> None:
        """Let the weights of a step wait for being looked at, if some are to be."""
        if self.aside.is_needed and not evaluation.number:
            self._begin(evaluation)
            self.aside.add(evaluation, self._weights)

    def learn(self, evaluation: Evaluation, equations: "Equations") -> None:
        """Take what follows an evaluation: another look, or the step."""
        if not self.is_open and not self.aside.is_needed:
            return
        course = self._courses[evaluation.rule.start]
        if self._step is None:
            if evaluation.number + 1 == evaluation.rule.evaluations:
                taken, at = self._taken
                self._commit(course, taken.weights, taken.kept, at, evaluation.row - evaluation.number)
            return
        self._equations, self._last_row = equations, evaluation.row
        step, memory = self._step
        if self._c.structure.probed and evaluation.rule.evaluations == 1 and course.traits.runs_along:
            self._probe(evaluation, course)
        try:
            self._look = step.send(self._vector(Gradient(evaluation.row))).weights
        except StopIteration as stop:
            self._commit(course, stop.value, memory.kept, None, 0)
            self._step = self._look = self._equations = None
            self._products = self._products if course.traits.past else {}

    def _probe(self, evaluation: Evaluation, course: Course) -> None:
        """Note what a step with rates of 1 and without momentum adds of the last gradient."""
        gradient = Gradient(evaluation.row)
        step = course.at_unit_rates(evaluation.step).step(
            self._vector(Kept(_WEIGHTS, 1)), self._memory(self.parts), course.time(evaluation.step)
        )
        next(step)
        try:
            step.send(self._vector(gradient))
        except StopIteration as stop:
            form = self._summed(stop.value)
            added = form.numbers[..., 2 + evaluation.row]
            gains = [added[self._firsts.index(group)] for group in self._c.structure.groups]
            for layer, X in form.X.items():
                known = self._weights.X.get(layer)
                before = 0.0 if known is None or known.shape[-1] < X.shape[-1] else known[:, -1, -1]
                gains[layer] = gains[layer] + X[:, -1, -1] - before
            self.gains = np.array([float(to_numpy(each).real[0]) for each in gains])

    def _begin(self, evaluation: Evaluation) -> None:
        """Let a rule that begins start from the weights that the one before has come to."""
        if evaluation.step != evaluation.rule.start or evaluation.number or self._begun == evaluation.step:
            return
        self._begun = evaluation.step
        if not evaluation.rule.since:
            self._kept, self._numbers = {}, {}
        self._plan = self._courses[evaluation.rule.start].ahead(self._spaces)

    def _commit(self, course: Course, weights: Vector, kept: Mapping[str, Any], at: int | None, row: int) -> None:
        """Take the weights that a step returns, and what the rule keeps."""
        forms = {
            name: self._summed(kept[name], at, row)
            for name in course.traits.keeps
            if isinstance(kept.get(name), Vector)
        }
        self._numbers = {name: value for name, value in kept.items() if not isinstance(value, Vector)}
        self._weights = as_weights(self._summed(weights, at, row))
        self._kept = forms

    def _memory(self, kept: Mapping[str, Any]) -> Memory:
        """Return the memory of a rule, given what it has kept."""
        return Memory({name: self._vector(each) if isinstance(each, Kept) else each for name, each in kept.items()})

    def _vector(self, part: Part) -> Vector:
        return Vector(self._me, {part: (1, None)})

    def _summed(self, vector: Vector, at: int | None = None, row: int = 0) -> Form:
        """Sum up a vector; gradients of rules that are run ahead are counted from a row."""
        return summed(vector, self._kept | {_WEIGHTS: self._weights}, self._firsts, self._weights, at, row)

    def _fill(self, row: int, weights: Form) -> None:
        """Fill a row with weights."""
        self._growing.append(row, weights.numbers[None], weights.X)  # eq-rows

    # A past that is known by fewer numbers ---------------------------------------------------------------------------

    def condense(self, how: Condensation, end: int) -> None:
        """Let the gradients of some of the first ``end`` rows be known by fewer numbers, their moments."""
        every = {id(form.numbers): form.numbers for form in (self._weights, *self._kept.values())}  # some may be one
        for numbers in every.values():
            shorten(numbers[..., 2:], how, how.moments, end)
        self._products = {}

    def go_on(self, before: "Training") -> None:
        """Continue where other weights of the same problems have come to, which have room for fewer rows."""

        def longer(form: Form) -> Form:
            numbers = zeros(self._weights.numbers.shape, form.numbers)
            numbers[..., : form.numbers.shape[-1]] = form.numbers
            return Form(form.base, numbers)

        self._kept = {name: longer(form) for name, form in before._kept.items()}
        self._weights, self._numbers = longer(before._weights), before._numbers
        self._begun, self._planned, self._plan = before._begun, before._planned, before._plan
        self._spaces = before._spaces
        self._spaces[0] = self._me

    # What rules ask for ----------------------------------------------------------------------------------------------

    def mask(self, layers: tuple[str, ...]) -> Array:
        """1 for layers that are among those named, and 0 for the rest, shape (layers, 1)."""
        if layers not in self._masks:
            count = len(self._c.structure.groups)
            roles = ["input", *["hidden"] * (count - 2), "readout"]
            values = np.array([[float(role in layers)] for role in roles])
            like = self._weights.numbers
            self._masks[layers] = namespace(like).astype(beside(values, like), like.dtype)
        return self._masks[layers]

    def stored(self, name: str, vector: Vector) -> None:
        """Sums are kept as they are until the step is over."""

    def products(self, one: Part, other: Part) -> Array:
        """Inner products of two parts by layer, shape (layers, batch)."""
        if isinstance(one, Gradient) and isinstance(other, Gradient):
            if one.row == other.row:
                return self._products_with(one.row, alone=True)[..., -1]
            early, late = sorted((one.row, other.row))
            return self._products_with(late)[..., early]
        if isinstance(one, Gradient):
            one, other = other, one
        if not isinstance(one, Kept) or not isinstance(other, Kept | Gradient):
            raise Refusal("step", None, "", text="the size of an orthogonal step is known: that of initial weights")
        row = self._last_row
        a = self._learned(one)[..., : row + 1]
        if isinstance(other, Gradient):
            product: Array = (a * self._products_with(other.row)[..., : row + 1]).sum(-1)
            return product
        b, total = self._learned(other), 0.0 * a[..., 0]
        for late in range(row + 1):
            products = self._products_with(late)
            total = total + a[..., late] * (b[..., : late + 1] * products).sum(-1)
            total = total + b[..., late] * (a[..., :late] * products[..., :late]).sum(-1)
        return total

    def _learned(self, part: Kept) -> Array:
        """Numbers of all gradients in something that a rule has kept, by layer, shape (layers, batch, times)."""
        form = self._kept[part.name] if part.name != _WEIGHTS else self._weights
        if bool((form.numbers[..., 1] != 0).any()) or form.X:
            raise Refusal(
                "step",
                None,
                "",
                text="this rule has no limit of large networks: the size of what is left of initial weights grows "
                "without bound beside that of gradients",
            )
        groups = [self._firsts.index(group) for group in self._c.structure.groups]
        learned: Array = form.numbers[groups][..., 2:]
        return learned

    def _products_with(self, row: int, *, alone: bool = False) -> Array:
        """Products of the gradient of a row with those up to it, or itself, by layer, shape (layers, batch, times)."""
        assert self._equations is not None
        if (row, alone) not in self._products:
            eq, count = self._equations, len(self._c.structure.groups)
            products = eq.inner_products(row, alone=alone)
            if len(products) < count:  # one stands for all hidden layers, which are alike
                products = [products[0], *[products[1] / (count - 2)] * (count - 2), products[-1]]
            self._products[row, alone] = namespace(products[0]).stack(products)
        return self._products[row, alone]

    def orthogonal(self, vector: Vector, iterations: int) -> Part:
        """Take matrices through iterations of Newton and Schulz."""
        assert self._equations is not None
        eq, blocks = self._equations, {}
        form, outputs = self._summed(vector), self._c.structure.outputs
        rows = row_set(self._c, self._last_row)
        for layer in self._matrices:
            m = form.numbers[self._firsts.index(layer)][:, 2 : 3 + self._last_row]
            if not bool((m != 0).any()) and layer not in form.X:
                continue
            if layer in form.X:
                raise Refusal(
                    "step", None, "", text="orthogonal steps of what has been made of orthogonal steps are not known"
                )
            m = m if outputs == 1 else namespace(m).repeat(m, outputs, axis=-1)
            above, below = eq.fields_around(layer, rows.stop)
            felt = slice(first_felt(m), rows.stop)
            size = _inverse(eq.gradient_factor(layer))
            blocks[layer] = (
                felt,
                newton_schulz(m[:, felt], above[:, felt, felt], below[:, felt, felt], iterations, size),
            )
        return Matrices(blocks)


def responses(problem: Problem) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the responses of each weight layer to its initial value and to gradients, where no sizes are looked at.

    Their shapes are (layers, steps) and (layers, steps, steps).

    Examples
    --------
    >>> import deeplinear as dl
    >>> rule = dl.GradientDescent([0.1, 0.2, 0.3], momentum=0.5)
    >>> d, a = responses(dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), rule, steps=3))
    >>> d[0], a[0]
    (array([1., 1., 1.]), array([[0. , 0. , 0. ],
           [0.1, 0. , 0. ],
           [0.2, 0.2, 0. ]]))
    """
    c = coefficients([problem])
    layers, outputs = Training([problem], c, Room(c.structure.size, c.gamma0)).layers, c.structure.outputs
    count = problem.network.layers + 1
    every = [layers.input, *(layers.below(layer) for layer in range(2, count)), layers.readout]
    d = np.stack([each.d[0, ::outputs] for each in every])
    return d, np.stack([each.a.matrix[0, ::outputs, ::outputs] for each in every])


def growing_weights(c: Coefficients, room: Room) -> GrowingWeights:
    """Return weights whose rows are still to be filled."""
    s = c.structure
    orthogonal = orthogonal_layers(s.rules, len(s.groups))
    return GrowingWeights(room, c.batch, s.groups, s.outputs, s.decays, c.variances, c.rate_factors, orthogonal)


def _placed(values: Array, like: Array) -> Array:
    """Return values of NumPy, or that are there already, in the library and on the device of an array."""
    return beside(values, like) if isinstance(values, np.ndarray) else values  # type: ignore[redundant-expr]


def _inverse(factor: Array) -> Array:
    """1 / factor; nothing where a branch of zero leaves no gradient."""
    xp = namespace(factor)
    inverse: Array = xp.where(
        factor == 0, xp.zeros_like(factor), 1.0 / xp.where(factor == 0, xp.ones_like(factor), factor)
    )
    return inverse
