"""Update rules as they act on real weights, in place.

A rule hands sums of weights, gradients and what it keeps. These are summed up where they are stored, in one or two
passes over the memory that they go to: gradients have rank C, and are added without a copy. To a rule, weights are
whatever arrays it is given: the matrices themselves, or coefficients of gradients.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet, proxy

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace
from deeplinear._experiment.in_place import add, add_outer, copied
from deeplinear._experiment.network import Outer
from deeplinear._rules.binding import Bound, Units, numbers_of
from deeplinear._rules.rule import Look, Rule
from deeplinear._rules.traits import Traits, traits_of
from deeplinear._rules.vectors import Memory, Part, Vector, factor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of X, X X^T X and (X X^T)^2 X in an iteration."""


@dataclass(frozen=True)
class Gradient:
    """Minus the gradient at one evaluation.

    Attributes
    ----------
    outers
        G_0 .. G_L, as they act on the weights: outer products, or whole matrices.
    squares
        Their squared norms over N_L, shape (L + 1,) or (networks, L + 1), when asked for.
    """

    outers: Sequence[Outer | Array]
    squares: Callable[[], Array]


class _Stored(Part):
    """Arrays of all layers, None where they are zero."""

    __slots__ = ("arrays",)

    def __init__(self, arrays: list[Any], base: int) -> None:
        super().__init__(base, WeakSet())
        self.arrays = arrays


class _Gradient(Part):
    """A gradient, with the width that squares are divided by."""

    __slots__ = ("gradient",)

    def __init__(self, gradient: Gradient) -> None:
        super().__init__()
        self.gradient = gradient


class Steps:
    """A rule that takes steps in place, as the space in which it acts.

    Parameters
    ----------
    rule
        The rule.
    weights
        Those that count, C-ordered arrays; losses are theirs.
    steps
        Number of steps of its schedules.
    units
        Units of its rates; 1 unless given.
    width
        N_L, by which inner products are divided.

    Attributes
    ----------
    weights
        As given, and changed by every step.
    evaluated
        Where the rule wants a gradient; the weights themselves, unless it says otherwise.
    kept, bases, numbers
        What the rule has kept: arrays of all layers, how often these hold the initial weights, and numbers.
    """

    def __init__(
        self, rule: Rule, weights: list[Array], steps: int, units: Units | None = None, width: int | None = None
    ) -> None:
        self._me: Steps = proxy(self)  # of which vectors are, that it holds itself
        ones = np.ones(len(weights))
        numbers = numbers_of(rule, steps, len(weights) - 2, units or (lambda _: (ones, ones)))
        self._bound = Bound(rule, [numbers], float, np.zeros(0))
        self.traits: Traits = traits_of(rule, self._bound.zeros)
        self.weights: list[Array] = weights
        self.evaluated: list[Array] = weights
        self.kept: dict[str, list[Any]] = {}
        self.numbers: dict[str, Any] = {}
        self.bases: dict[str, int] = {}
        self._width = width or int(weights[-1].shape[-2])
        self._parts: dict[str, _Stored] = {}
        self._step: Generator[Look, Vector, Vector] | None = None
        self._memory = Memory({})
        self._moved: list[tuple[Array, Any, Any]] = []  # weights that have been moved up a gradient, and are to go back
        self._place: list[Array] = []

    def begin(self, t: int) -> None:
        """Begin step t of the rule, up to where it wants a gradient."""
        self._own = self._part(_Stored(self.weights, 1))
        kept = {name: self._part(_Stored(arrays, self.bases[name])) for name, arrays in self.kept.items()}
        self._parts = {name: next(iter(vector.terms)) for name, vector in kept.items()}  # type: ignore[misc]
        self._memory = Memory(kept | self.numbers)
        self._step = self._bound.at(t).step(self._own, self._memory, t)
        self._look(next(self._step))

    def receive(self, gradient: Gradient) -> bool:
        """Take the gradient, up to where another one is wanted, and return True; or to the end of the step."""
        assert self._step is not None
        self._go_back()
        vector = self._part(_Gradient(gradient))
        try:
            look = self._step.send(vector)
        except StopIteration as stop:
            self._step = None
            self._end(stop.value)
            return False
        self._look(look)
        return True

    def step(self, t: int, gradient: Gradient) -> None:
        """Take the weights from step t of the rule to t + 1, of a rule that looks once, at the weights."""
        self.begin(t)
        self.receive(gradient)

    # Weights ---------------------------------------------------------------------------------------------------------

    def _look(self, look: Look) -> None:
        """Bring weights to where a gradient is wanted."""
        vector = look.weights
        (own,) = self._own.terms
        rest = [part for part in vector.terms if part is not own]
        whole, more = vector.terms.get(own, (0, None))
        self.evaluated = self.weights
        near = whole == 1 and more is None and all(isinstance(part, _Gradient) for part in rest)
        if near and not self.traits.elsewhere:
            for part in rest:
                assert isinstance(part, _Gradient)
                for layer, each in enumerate(part.gradient.outers):
                    number = _of(vector.terms[part], layer)
                    self._moved.append((self.weights[layer], each, number))
                    _add(self.weights[layer], each, number)
            return
        if not self._place:
            self._place = [copied(weight) for weight in self.weights]
        self._sum(vector, self._place)
        self.evaluated = self._place

    def _go_back(self) -> None:
        for weight, each, number in self._moved:
            _add(weight, each, -number)
        self._moved = []

    def _end(self, weights: Vector) -> None:
        """Take the weights that a step returns."""
        self._sum(weights, self.weights)
        self.numbers = {name: each for name, each in self._memory.kept.items() if not isinstance(each, Vector)}
        self._memory, self._parts = Memory({}), {}

    def stored(self, name: str, vector: Vector) -> None:
        """Sum up what the rule keeps, in the place of what it kept under this name, unless that is still in use."""
        if name not in self.traits.keeps:
            return
        part = self._parts.get(name)
        if part is not None and vector.is_just(part):
            return
        others = [holder for holder in part.holders or () if holder is not vector] if part is not None else []
        arrays: list[Any] = [None] * len(self.weights)
        if part is not None and not others:
            arrays = part.arrays
        base = vector.base
        self._sum(vector, arrays)
        self.kept[name], self.bases[name] = arrays, base
        self._parts[name] = made = _Stored(arrays, base)
        vector.terms = {made: (1, None)}
        made.holders = WeakSet([vector])

    def _sum(self, vector: Vector, target: list[Any]) -> None:
        """Sum up a vector into arrays, which may be those of one of its parts."""
        for layer in range(len(target)):
            keep: Any = 0.0
            others: list[tuple[Any, Any]] = []
            for part, each in vector.terms.items():
                number = _of(each, layer)
                if isinstance(part, _Stored):
                    array = part.arrays[layer]
                    if array is target[layer] and array is not None:
                        keep = number
                    elif array is not None and not _is_zero(number):
                        others.append((array, number))
                elif isinstance(part, _Gradient) and not _is_zero(number):
                    others.insert(0, (part.gradient.outers[layer], number))
            if target[layer] is None:
                if not others:
                    continue
                target[layer] = namespace(self.weights[layer]).zeros_like(self.weights[layer])
            elif not others and _is_one(keep):
                continue
            for index, (array, number) in enumerate(others or [(None, 0.0)]):
                _add(target[layer], array, number, keep if index == 0 else 1.0)

    def _part(self, part: Part) -> Vector:
        return Vector(self._me, {part: (1, None)})

    # What rules ask for ----------------------------------------------------------------------------------------------

    def mask(self, layers: tuple[str, ...]) -> NDArray[np.float64]:
        """1 for layers that are among those named, and 0 for the rest, shape (layers, 1)."""
        roles = ["input", *["hidden"] * (len(self.weights) - 2), "readout"]
        return np.array([[float(role in layers)] for role in roles])

    def products(self, one: Part, other: Part) -> Array:
        """Inner products of two parts by layer, over the last width, shape (layers, networks or 1)."""
        if one is other and isinstance(one, _Gradient):
            squares = one.gradient.squares()
            return squares[:, None] if squares.ndim == 1 else squares.T
        found = []
        for layer in range(len(self.weights)):
            first, second = (
                part.gradient.outers[layer] if isinstance(part, _Gradient) else part.arrays[layer]  # type: ignore[attr-defined]
                for part in (one, other)
            )
            found.append(_inner(first, second, self.weights[layer]) / self._width)
        stacked: Array = namespace(found[0]).stack(found)
        return stacked[:, None] if stacked.ndim == 1 else stacked

    def orthogonal(self, vector: Vector, iterations: int) -> Part:
        """Take each matrix through iterations of Newton and Schulz: of norm 1 at first, then of the initial size."""
        arrays: list[Any] = [None] * len(self.weights)
        only = next(iter(vector.terms))
        if isinstance(only, _Stored) and vector.is_just(only):
            arrays = list(only.arrays)
        else:
            self._sum(vector, arrays)
        made = [None if each is None else each.shape[-2] ** 0.5 * orthogonal(each, iterations) for each in arrays]
        return _Stored(made, 0)


def _of(term: tuple[int, Any], layer: int) -> Any:
    """The number of a layer: a float, or one of each network."""
    number = factor(*term)
    if isinstance(number, float | int):
        return float(number)
    own = number[layer if len(number) > 1 else 0]
    return float(own[0]) if isinstance(own, np.ndarray) and own.shape == (1,) else own


def _is_zero(number: Any) -> bool:
    return isinstance(number, float) and number == 0.0


def _is_one(number: Any) -> bool:
    return isinstance(number, float) and number == 1.0


def _add(matrix: Array, other: Any, number: Any, keep: Any = 1.0) -> None:
    """Replace ``matrix`` by ``keep * matrix + number * other``, in place; numbers may be those of each network."""
    if not isinstance(keep, float):
        matrix *= keep[..., None, None] if matrix.ndim > 2 else keep[0]
        keep = 1.0
    if other is None:
        matrix *= keep
    elif isinstance(other, Outer):
        if not isinstance(number, float):
            other, number = other.times(number if matrix.ndim > 2 else number[0]), 1.0
        add_outer(matrix, other, number, keep)
    elif isinstance(number, float):
        add(matrix, other, number, keep)
    else:
        add(matrix, (number[..., None, None] if matrix.ndim > 2 else number[0]) * other, 1.0, keep)


def _inner(one: Any, other: Any, like: Array) -> Any:
    """Sum of products of the entries of two matrices, each an array, an outer product, or None for zero."""
    xp = namespace(like)
    if one is None or other is None:
        return 0.0 * xp.sum(like, axis=(-2, -1))
    if isinstance(one, Outer) and isinstance(other, Outer):
        pairs = (one.left.mT @ other.left) * (one.right.mT @ other.right)
        return one.scale * other.scale * xp.sum(pairs, axis=(-2, -1))
    if isinstance(other, Outer):
        one, other = other, one
    if isinstance(one, Outer):
        return one.scale * xp.sum(one.left * (other @ one.right), axis=(-2, -1))
    return xp.sum(one * other, axis=(-2, -1))


def orthogonal(matrix: Array, iterations: int) -> Array:
    """Return a matrix of Frobenius norm 1 along ``matrix`` after iterations of Newton and Schulz; zero stays zero.

    Examples
    --------
    >>> import numpy as np
    >>> orthogonal(np.diag([1.0, 0.5]), iterations=5).round(2)
    array([[0.69, 0.  ],
           [0.  , 1.11]])
    """
    xp = namespace(matrix)
    norm = xp.sqrt(xp.sum(matrix * matrix, axis=(-2, -1), keepdims=True))
    x: Array = matrix / xp.where(norm > 0, norm, xp.ones_like(norm))
    a, b, c = NEWTON_SCHULZ
    is_tall = x.shape[-2] > x.shape[-1]
    for _ in range(iterations):
        gram = x.mT @ x if is_tall else x @ x.mT
        polynomial = b * gram + c * (gram @ gram)
        x = a * x + (x @ polynomial if is_tall else polynomial @ x)
    return x
