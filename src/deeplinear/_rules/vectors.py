"""What an update rule handles: weights of all layers, gradients, and sums of them.

A vector is a sum of parts, each times a number for every layer. The parts are what a step begins with, the weights and
what the rule has kept, the gradients that it has asked for, and what functions of matrices have made. Nothing is summed
up before the step is over, when whoever runs the rule stores the result: theory as responses to initial weights and
gradients, networks in the place of the memory that it goes to. So a rule is written once, and costs what its sums cost.

The number in front of a part is an exact whole number and a rest: in ``weights + c * (other - weights)`` the weights
count 1 - c, of which the 1 is never added to c. So theory knows by how much weights differ from their initial values
however small that is.
"""

from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakSet

from deeplinear._core.arrays import Array
from deeplinear._core.refusal import Refusal
from deeplinear._rules.numbers import Numbers, Scalar, plus, sqrt, times

LAYERS = ("input", "hidden", "readout")


class Part:
    """A part that vectors are sums of.

    Attributes
    ----------
    base
        How many times it holds the initial weights, but for what it has lost of them: 1 for weights.
    holders
        The vectors that it is in, where these are counted.
    """

    __slots__ = ("base", "holders")

    def __init__(self, base: int = 0, holders: "WeakSet[Vector] | None" = None) -> None:
        self.base: int = base
        self.holders: WeakSet[Vector] | None = holders


class Space(Protocol):
    """What whoever runs a rule knows of parts."""

    def products(self, one: Part, other: Part) -> Array:
        """Inner products of two parts by layer, over the last width, of shape (layers, ...)."""

    def orthogonal(self, vector: "Vector", iterations: int) -> Part:
        """Take each matrix through iterations of Newton and Schulz: of norm 1 at first, then of the initial size."""

    def mask(self, layers: tuple[str, ...]) -> Array:
        """1 for layers that are among those named, and 0 for the rest, of shape (layers, ...)."""

    def stored(self, name: str, vector: "Vector") -> None:
        """Take down that a rule keeps a vector under a name."""


Terms = Mapping[Part, tuple[int, Any]]


class Vector:
    """A sum of parts of all weight layers."""

    __slots__ = ("__weakref__", "space", "terms")
    __array_ufunc__ = None

    def __init__(self, space: Space, terms: Terms) -> None:
        self.space: Space = space
        self.terms: Terms = terms
        for part in terms:
            if part.holders is not None:
                part.holders.add(self)

    @property
    def base(self) -> int:
        """How many times it holds the initial weights, but for what it has lost of them."""
        return sum(whole * part.base for part, (whole, _) in self.terms.items())

    def keep_as(self, name: str) -> None:
        """Take down that a rule keeps it under a name."""
        self.space.stored(name, self)

    def is_just(self, part: Part) -> bool:
        """Whether it is one part as it is."""
        terms = self.terms.get(part)
        return len(self.terms) == 1 and terms is not None and terms[0] == 1 and terms[1] is None

    def only(self, *layers: str) -> "Vector":
        """Return the same in some layers, and zero in the rest: ``"input"``, ``"hidden"``, ``"readout"``."""
        for layer in layers:
            if layer not in LAYERS:
                raise Refusal("layers", layer, " or ".join(map(repr, LAYERS)))
        return self * Numbers(self.space.mask(layers))

    def norms2(self) -> Numbers:
        """Return the squared norm in each weight layer, over the width of the last hidden layer."""
        return self.inners(self)

    def norm2(self) -> Numbers:
        """Return the squared norm over all weights, likewise."""
        return self.norms2().sum()

    def norms(self) -> Numbers:
        """Return the norm in each weight layer, over the root of the width of the last hidden layer."""
        norms: Numbers = sqrt(self.norms2())
        return norms

    def norm(self) -> Numbers:
        """Return the norm over all weights, likewise."""
        norm: Numbers = sqrt(self.norm2())
        return norm

    def inner(self, other: "Vector") -> Numbers:
        """Return the inner product with another vector over all weights, as squared norms are."""
        return self.inners(other).sum()

    def inners(self, other: "Vector") -> Numbers:
        """Return the inner product with another vector in each weight layer."""
        total: Any = None
        for one, (whole, rest) in self.terms.items():
            for two, (whole_too, rest_too) in other.terms.items():
                if one.base or two.base:
                    raise _no_limit(
                        "the size of weights grows without bound beside what they learn: take the size of gradients, "
                        "or of what is made of them"
                    )
                product = times(self.space.products(one, two), times(factor(whole, rest), factor(whole_too, rest_too)))
                total = product if total is None else plus(total, product)
        return Numbers(total if total is not None else 0.0 * self.space.mask(LAYERS))

    def orthogonal(self, iterations: int = 5) -> "Vector":
        """Return the orthogonal part of each matrix, of the size of initial weights.

        A matrix is divided by its Frobenius norm and taken through the iteration of Newton and Schulz,
        X <- 3.4445 X - 4.7750 X X^T X + 2.0315 (X X^T)^2 X.
        """
        return Vector(self.space, {self.space.orthogonal(self, iterations): (1, None)})

    def __add__(self, other: Any) -> "Vector":
        if isinstance(other, float | int) and other == 0:
            return self
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Vector":
        return self._plus(other, -1)

    def __neg__(self) -> "Vector":
        return self * -1

    def __mul__(self, number: Scalar) -> "Vector":
        if isinstance(number, Numbers):
            values: Any = number.values
        elif isinstance(number, float | int | complex):
            if number == 0:
                return Vector(self.space, {})
            if not isinstance(number, complex) and (number == 1 or isinstance(number, int)):
                whole = int(number)
                terms = {
                    part: (whole * w, rest if rest is None else whole * rest) for part, (w, rest) in self.terms.items()
                }
                return Vector(self.space, terms)
            values = number
        else:
            raise _no_limit("products of entries")
        return Vector(self.space, {part: (0, times(factor(*each), values)) for part, each in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, number: Scalar) -> "Vector":
        divided: Vector = self * (1.0 / number)
        return divided

    def _plus(self, other: Any, sign: int) -> "Vector":
        if not isinstance(other, Vector):
            raise _no_limit("adding a number to every entry")
        terms = dict(self.terms)
        for part, (whole, rest) in other.terms.items():
            own, own_rest = terms.get(part, (0, None))
            more = rest if rest is None or sign == 1 else -rest
            both = more if own_rest is None else own_rest if more is None else plus(own_rest, more)
            terms[part] = (own + sign * whole, both)
            if both is None and not terms[part][0]:
                del terms[part]
        return Vector(self.space, terms)

    def __pow__(self, power: Any) -> "Vector":
        raise _no_limit("powers of entries")

    def __abs__(self) -> "Vector":
        raise _no_limit("absolute values of entries")

    def __getitem__(self, key: Any) -> "Vector":
        raise _no_limit("single entries")

    def __bool__(self) -> bool:
        raise _no_limit("whether entries are zero")


def _times(number: int, whole: int, rest: Any) -> tuple[int, Any]:
    return number * whole, rest if rest is None else number * rest


def factor(whole: int, rest: Any) -> Any:
    """Return the number in front of a part as one."""
    return whole if rest is None else whole + rest if whole else rest


def _no_limit(what: str) -> Refusal:
    """Return the error of a rule that asks for what has no meaning in large networks."""
    if not what.startswith("the size"):
        what += (
            " have no closed equations, since entries that were changed one by one are no longer Gaussian: a rule "
            "takes sums and multiples of weights and gradients, inner products, norms, and orthogonal()"
        )
    return Refusal("step", None, "", text=f"this rule has no limit of large networks: {what}")


class Memory:
    """What a rule keeps from step to step, by name: vectors and numbers.

    ``memory.get("velocity", default)`` reads, ``memory.velocity = ...`` writes.
    """

    def __init__(self, kept: Mapping[str, Any]) -> None:
        object.__setattr__(self, "kept", dict(kept))
        object.__setattr__(self, "read", set())

    def get(self, name: str, default: Any = None) -> Any:
        """Return what is kept under a name, or the default where nothing is yet."""
        self.read.add(name)
        return self.kept.get(name, default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.kept:
            raise AttributeError(f"memory has no {name!r} yet: take memory.get({name!r}, default)")
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, Vector | Numbers | float | int):
            allowed = "weights, a gradient, or a number, or what is made of these"
            raise Refusal(f"memory.{name}", value, allowed)
        self.kept[name] = value
        if isinstance(value, Vector):
            value.keep_as(name)
