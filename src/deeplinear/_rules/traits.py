"""What a rule does in a step, found by running it on weights of four layers that nobody trains."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._rules.binding import bound, fields_of
from deeplinear._rules.numbers import Numbers
from deeplinear._rules.rule import Look, Rule
from deeplinear._rules.vectors import LAYERS, Memory, Part, Vector, factor

_STEPS = 16
"""Steps that are tried: a rule may do some things only now and then."""

_ROLES = ("input", "hidden", "hidden", "readout")


@dataclass(frozen=True)
class Traits:
    """What a rule does in a step.

    Attributes
    ----------
    looks
        How often it wants a gradient.
    elsewhere
        Whether the first of these is taken at other weights than those that count.
    sizes
        Whether it takes norms or inner products, so that weights are not known before gradients are.
    past
        Whether it takes those of what it has kept.
    orthogonal
        Weight layers that take orthogonal steps.
    apart
        Whether weight layers are treated differently.
    keeps
        Names of the vectors that it keeps, and reads again.
    counts
        Whether it keeps numbers, too.
    decays
        Whether anything is left of initial weights but these as they are.
    """

    looks: int
    elsewhere: bool
    sizes: bool
    past: bool
    orthogonal: tuple[str, ...]
    apart: bool
    keeps: tuple[str, ...]
    counts: bool
    decays: bool

    @property
    def runs_along(self) -> bool:
        """Whether it can be run only along with the training, and not ahead of it."""
        return self.sizes or bool(self.orthogonal)


_known: dict[Any, Traits] = {}


def traits_of(rule: Rule, zeros: tuple[str, ...] = ()) -> Traits:
    """Return what a rule does, where some of its numbers are zero, and all others are any."""
    key = (rule.structure, zeros)
    if key not in _known:
        _known[key] = _found(rule, zeros)
    return _known[key]


def traits_within(rule: Rule, steps: int) -> Traits:
    """Return what a rule does in so many steps, given its numbers, some of which may be zero."""
    zeros = (path for path, part, name, form in fields_of(rule) if form != "layers" and _is_zero(part, name, steps))
    return traits_of(rule, tuple(zeros))


def _is_zero(rule: Rule, name: str, steps: int) -> bool:
    value = getattr(rule, name)
    if value is None or isinstance(value, float | int | complex):
        return value is not None and value == 0
    return not rule.values(name, steps).any()


class _Kept(Part):
    """Something that a step begins with."""

    __slots__ = ("left", "name", "there")

    def __init__(self, name: str, base: int, left: NDArray[np.float64], there: NDArray[np.bool_]) -> None:
        super().__init__(base)
        self.name, self.left, self.there = name, left, there


class _Dry:
    """A space without weights, that takes down what is asked of it."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(0)
        self.sizes = self.past = False
        self.orthogonal_layers: set[str] = set()

    def products(self, one: Part, other: Part) -> NDArray[np.float64]:
        self.sizes = True
        self.past = self.past or isinstance(one, _Kept) or isinstance(other, _Kept)
        return self.draw.uniform(0.5, 1.5, (4, 1))

    def orthogonal(self, vector: Vector, iterations: int) -> Part:
        self.orthogonal_layers |= {role for role, one in zip(_ROLES, _there(vector)[:, 0], strict=True) if one}
        return Part()

    def stored(self, name: str, vector: Vector) -> None:
        pass

    def mask(self, layers: tuple[str, ...]) -> NDArray[np.float64]:
        return np.array([[float(role in layers)] for role in _ROLES])


def _found(rule: Rule, zeros: tuple[str, ...]) -> Traits:
    space, draw = _Dry(), np.random.default_rng(1)
    numbers: dict[str, Any] = {}
    for path, part, name, form in fields_of(rule):
        if path in zeros:
            numbers[path] = 0.0
        elif form == "layers":
            numbers[path] = 1
        elif getattr(part, name) is not None:
            numbers[path] = Numbers(draw.uniform(0.3, 0.7, (1, 1)))
    numbers |= {(f"{path}." if path else "") + "fan_in": 1 for path in rule.parts}
    at_rest = bound(rule, numbers)
    weights, kept = _Kept("weights", 1, np.ones((4, 1)), np.ones((4, 1), bool)), dict[str, Any]()
    counts, read, elsewhere, apart, decays, counting = set(), set(), False, False, False, False

    def left(vector: Vector) -> NDArray[np.float64]:
        """Return what is left of the initial weights."""
        total = np.zeros((4, 1))
        for part, each in vector.terms.items():
            if isinstance(part, _Kept):
                total = total + factor(*each) * part.left
        return total

    def differs(vector: Vector) -> bool:
        """Whether numbers differ from layer to layer."""
        every = (np.asarray(rest) for _, rest in vector.terms.values() if rest is not None)
        return any(rest.ndim == 2 and len(rest) > 1 and bool((rest != rest[0]).any()) for rest in every)

    for t in range(_STEPS):
        memory = Memory(
            {name: Vector(space, {each: (1, None)}) if isinstance(each, _Kept) else each for name, each in kept.items()}
        )
        step = at_rest.step(_just(space, weights), memory, t)
        looks: list[Vector] = []
        batches: list[Any] = []
        try:
            look = next(step)
            while True:
                looks.append(_checked(look, rule))
                batches.append(look.batch)
                look = step.send(_just(space, Part()))
        except StopIteration as stop:
            result = stop.value
        except TypeError as error:
            raise Refusal("step", rule, "", text=f"{type(rule).__name__}.step: {error}") from error
        if not isinstance(result, Vector) or not looks:
            allowed = "a generator that yields Look(weights) and returns the new weights"
            raise Refusal(f"{type(rule).__name__}.step", result, allowed, got=f"{len(looks)} looks and {result!r}")
        if any(batch != batches[0] for batch in batches):
            allowed = "the same for all looks of a step, which see the same examples"
            raise Refusal(f"{type(rule).__name__}: batch", batches, allowed)
        counts.add(len(looks))
        (first, *_) = looks
        elsewhere |= not first.is_just(weights)
        for vector in (*looks, result):
            apart |= differs(vector)
            decays |= bool(np.abs(left(vector) - 1.0).max() > 1e-9)
        now: dict[str, Any] = {}
        for name, value in memory.kept.items():
            now[name] = value
            counting |= not isinstance(value, Vector)
            if isinstance(value, Vector):
                apart |= differs(value)
                now[name] = _Kept(name, value.base, left(value), _there(value))
        used = {part.name for vector in (*looks, result, *memory.kept.values()) if isinstance(vector, Vector)
                for part in vector.terms if isinstance(part, _Kept)}  # fmt: skip
        read |= used - {"weights"}
        weights, kept = _Kept("weights", 1, left(result), np.ones((4, 1), bool)), now
    if len(counts) > 1:
        raise Refusal(
            "step", rule, "", text=f"{type(rule).__name__} must look as often in every step, got {sorted(counts)} looks"
        )
    layers = tuple(role for role in LAYERS if role in space.orthogonal_layers)
    return Traits(
        counts.pop(),
        elsewhere,
        space.sizes,
        space.past,
        layers,
        apart or bool(layers),
        tuple(sorted(read)),
        counting,
        decays,
    )


def _just(space: _Dry, part: Part) -> Vector:
    return Vector(space, {part: (1, None)})


def _there(vector: Vector) -> NDArray[np.bool_]:
    """In which layers a vector is other than zero, shape (4, 1)."""
    there = np.zeros((4, 1), bool)
    for part, each in vector.terms.items():
        own = np.broadcast_to(np.asarray(factor(*each), dtype=float), (4, 1)) != 0
        there |= own & part.there if isinstance(part, _Kept) else own
    return there


def _checked(look: Any, rule: Rule) -> Vector:
    """Return the weights of a look."""
    if not isinstance(look, Look) or not isinstance(look.weights, Vector):
        raise Refusal(f"{type(rule).__name__}.step", look, "Look(weights)", verb="yield")
    return look.weights
