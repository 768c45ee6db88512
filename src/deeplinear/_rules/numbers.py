"""The numbers of an update rule: a rate, a momentum, the size of a gradient.

Each is one number, or one for every weight layer, of one problem or of many that are solved together. A rule computes
with them as with plain numbers, but cannot branch on them, since what holds for one problem may not hold for the next:
``minimum``, ``maximum`` and ``where`` stand in the place of ``if``.
"""

import operator
from typing import Any

import numpy as np

from deeplinear._core.arrays import Array, beside, namespace
from deeplinear._core.refusal import Refusal

Scalar = Any
"""A plain number, or ``Numbers``."""


class Numbers:
    """One number, or one of each weight layer, of each problem that is solved or network that is trained.

    A division by zero gives zero: what has no size is not divided.

    Parameters
    ----------
    values
        Shape (weight layers, ...) or (1, ...), with further axes for problems and steps.

    Examples
    --------
    >>> import numpy as np
    >>> norm = Numbers(np.array([4.0, 0.0]))
    >>> (minimum(1.0, 0.5 / norm) * norm).values
    array([0.5, 0. ])
    """

    __slots__ = ("values",)
    __array_ufunc__ = None

    def __init__(self, values: Array) -> None:
        self.values: Array = values

    def sum(self) -> "Numbers":
        """Return the sum over weight layers."""
        xp = namespace(self.values)
        return Numbers(xp.sum(self.values, axis=0, keepdims=True))

    def __bool__(self) -> bool:
        raise Refusal(
            "step",
            self,
            "",
            text="a rule cannot branch on numbers, which may differ from layer to layer and from problem to problem: "
            "use minimum, maximum or where of deeplinear.rules in place of if",
        )

    def __add__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: a + b)

    def __radd__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: b + a)

    def __sub__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: b - a)

    def __mul__(self, other: Scalar) -> Any:
        if isinstance(other, float | int) and other in (0, 1):
            return self if other else 0.0
        return _both(self, other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __pow__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: a**b)

    def __rpow__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: b**a)

    def __truediv__(self, other: Scalar) -> Any:
        return _both(self, other, _divided)

    def __rtruediv__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: _divided(b, a))

    def __neg__(self) -> "Numbers":
        return Numbers(-self.values)

    def __eq__(self, other: object) -> Any:
        return _both(self, other, lambda a, b: _real(a) == _real(b))

    def __ne__(self, other: object) -> Any:
        return _both(self, other, lambda a, b: _real(a) != _real(b))

    def __lt__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: _real(a) < _real(b))

    def __le__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: _real(a) <= _real(b))

    def __gt__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: _real(a) > _real(b))

    def __ge__(self, other: Scalar) -> Any:
        return _both(self, other, lambda a, b: _real(a) >= _real(b))


def sqrt(x: Scalar) -> Any:
    """Return the square root of a number of a rule.

    Examples
    --------
    >>> sqrt(4.0)
    2.0
    """
    return Numbers(namespace(x.values).sqrt(x.values)) if isinstance(x, Numbers) else x**0.5


def where(condition: Any, yes: Scalar, no: Scalar) -> Any:
    """Return one number where a condition on numbers holds, and another where it does not.

    Examples
    --------
    >>> where(2.0 > 1.0, 0.1, 0.2)
    0.1
    """
    if not isinstance(condition, Numbers):
        return yes if condition else no
    holds = condition.values
    one, other = aligned(*(each.values if isinstance(each, Numbers) else each for each in (yes, no)))
    arrays = [each for each in (one, other) if not isinstance(each, float | int | complex)]
    if not arrays:
        one = one + np.zeros(holds.shape)
    elif len(arrays) == 1:
        one, other = (each + 0.0 * arrays[0] for each in (one, other))
    one, holds = aligned(one, holds)
    other, holds = aligned(other, holds)
    return Numbers(namespace(holds).where(holds, *aligned(one, other)))


def minimum(one: Scalar, other: Scalar) -> Any:
    """Return the smaller of two numbers of a rule.

    Examples
    --------
    >>> minimum(0.1, 0.2)
    0.1
    """
    return where(one < other, one, other)


def maximum(one: Scalar, other: Scalar) -> Any:
    """Return the larger of two numbers of a rule.

    Examples
    --------
    >>> maximum(0.1, 0.2)
    0.2
    """
    return where(one > other, one, other)


def times(one: Any, other: Any) -> Any:
    """Multiply values of numbers, of which some may be arrays of NumPy and others tensors."""
    return operator.mul(*aligned(one, other))


def plus(one: Any, other: Any) -> Any:
    """Add values of numbers, likewise."""
    return operator.add(*aligned(one, other))


def aligned(one: Any, other: Any) -> tuple[Any, Any]:
    """Return values of numbers with those of NumPy beside those of PyTorch, if there are both."""
    if (
        isinstance(one, np.ndarray) == isinstance(other, np.ndarray)
        or not hasattr(one, "shape")
        or not hasattr(other, "shape")
    ):
        return one, other
    return (beside(one, other), other) if isinstance(one, np.ndarray) else (one, beside(other, one))


def _both(own: Numbers, other: Scalar, combine: Any) -> Any:
    """Combine the values of a number with those of another, unless that is of a kind that knows numbers itself."""
    if isinstance(other, Numbers):
        return Numbers(combine(*aligned(own.values, other.values)))
    return Numbers(combine(own.values, other)) if isinstance(other, float | int | complex) else NotImplemented


def _divided(a: Any, b: Any) -> Any:
    """A quotient, 0 where the divisor is."""
    if isinstance(b, float | int | complex):
        return a / b
    xp = namespace(b)
    none = b == 0
    quotient = a / xp.where(none, xp.ones_like(b), b)
    return xp.where(none, xp.zeros_like(quotient), quotient)


def _real(x: Any) -> Any:
    return x.real
