"""Weights, and what rules keep beside them, as theory knows them: responses to initial weights and to gradients.

    V = n W(0) + sum_s a(s) G(s) + sum_{i, i'} X(i, i') g(i) h(i')^T

with one n and a for every group of layers that train alike. X is there in layers that take orthogonal steps only. Of
weights n - 1 is kept beside n, so that it has all of its digits however small it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplinear._core.arrays import Array, namespace, zeros
from deeplinear._rules.vectors import Part, Vector


@dataclass(eq=False)
class Form:
    """A vector as it is kept.

    Attributes
    ----------
    base
        How often the initial weights are left out of the first number: 1 for weights.
    numbers
        n - base, n, and a at all rows over times: shape (groups, batch, 2 + times).
    X
        By layer, shape (batch, rows, rows) for the first rows.
    """

    base: int
    numbers: Array
    X: dict[int, Array] = field(default_factory=dict)


class Kept(Part):
    """What a step begins with: the weights, or something that the rule has kept."""

    __slots__ = ("name",)

    def __init__(self, name: str, base: int) -> None:
        super().__init__(base)
        self.name = name


class Gradient(Part):
    """The gradient of a row."""

    __slots__ = ("row",)

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


class Matrices(Part):
    """Matrices of coefficients, by layer, each with the rows that it belongs to."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Mapping[int, tuple[slice, Array]]) -> None:
        super().__init__()
        self.blocks = blocks


def initial(groups: int, batch: int, times: int, like: Array) -> Form:
    """Return the initial weights."""
    numbers = zeros((groups, batch, 2 + times), like)
    numbers[..., 1] = 1.0
    return Form(1, numbers)


def summed(
    vector: Vector, kept: Mapping[str, Form], firsts: list[int], like: Form, at: int | None = None, first: int = 0
) -> Form:
    """Sum up a vector.

    Parameters
    ----------
    vector
        The sum.
    kept
        What its parts stand for, by name.
    firsts
        A layer of each group.
    like
        A form of the same shape.
    at
        Which of several steps, where the vector stands for these at once.
    first
        Row that gradients are counted from.
    """
    if len(vector.terms) == 1:
        ((only, (whole, rest)),) = vector.terms.items()
        if isinstance(only, Kept) and whole == 1 and rest is None:
            return kept[only.name]
    total: Any = None
    shift: Any = 0.0
    base, shared = 0, False
    rows: list[tuple[int, Any]] = []
    X: dict[int, Array] = {}
    for part, (whole, rest) in vector.terms.items():
        number = _of_groups(rest, firsts, at)
        both = whole if rest is None else number + whole if whole else number
        if isinstance(part, Kept):
            form = kept[part.name]
            shared = total is None and rest is None and whole == 1
            product = form.numbers if rest is None and whole == 1 else both * form.numbers
            total = product if total is None else total + product
            base += whole * part.base
            shift = shift + number * part.base if rest is not None and part.base else shift
            for layer, matrix in form.X.items():
                _add(X, layer, slice(0, matrix.shape[-1]), _of_layer(whole, rest, layer, at) * matrix)
        elif isinstance(part, Gradient):
            rows.append((first + part.row, both))
        elif isinstance(part, Matrices):
            for layer, (block, matrix) in part.blocks.items():
                _add(X, layer, block, _of_layer(whole, rest, layer, at) * matrix)
    if total is None:
        total = namespace(like.numbers).zeros_like(like.numbers)
    elif shared and (rows or not isinstance(shift, float)):
        total = namespace(total).asarray(total, copy=True)
    for row, number in rows:
        total[..., 2 + row : 3 + row] += number
    if not isinstance(shift, float):
        total[..., :1] += shift
    return Form(base, total, X)


def as_weights(form: Form) -> Form:
    """Return a form with the first number that weights have."""
    if form.base == 1:
        return form
    numbers = namespace(form.numbers).asarray(form.numbers, copy=True)
    numbers[..., 0] += form.base - 1.0
    return Form(1, numbers, form.X)


def _of_groups(rest: Any, firsts: list[int], at: int | None) -> Any:
    """Numbers of groups, shape (groups or 1, batch or 1, 1), of those of layers."""
    if rest is None or isinstance(rest, float | int | complex):
        return rest
    rest = rest if rest.ndim < 3 else rest[..., 0 if rest.shape[-1] == 1 else at]
    return (rest if len(rest) == 1 else rest[firsts])[..., None]


def _of_layer(whole: int, rest: Any, layer: int, at: int | None) -> Any:
    """The number of a layer, shape (batch or 1, 1, 1)."""
    number = _of_groups(rest, [layer], at)
    if number is None or isinstance(number, float | int | complex):
        return whole + (number or 0)
    return whole + number[0][..., None]


def _add(X: dict[int, Array], layer: int, block: slice, matrix: Array) -> None:
    """Add a matrix to a block of that of a layer, which grows as it must."""
    known = X.get(layer)
    if known is None and block.start == 0:
        X[layer] = matrix
        return
    if known is None or known.shape[-1] < block.stop:
        grown = zeros((len(matrix), block.stop, block.stop), matrix)
        if known is not None:
            grown[:, : known.shape[-1], : known.shape[-1]] = known
        X[layer] = known = grown
    known[:, block, block] += matrix
