r"""Gaussian matrices that are drawn only where they are looked at.

A matrix W of independent N(0, 1) entries that is applied to k vectors is known by k numbers in each row and column.
It is kept as W Q for orthonormal directions Q that it was applied to, and W^T U for those of its transpose. For W x,
split x = Q c + r e with a unit vector e orthogonal to Q. Given all that is known, W e is distributed as

    W e = U (W^T U)^T e + (1 - U U^T) xi ,      xi fresh from N(0, 1)

and then (e, W e) is known as well. W^T y is the mirror image. So this is the matrix itself in distribution, not an
approximation. Training adds outer products of vectors that the matrix was applied to, and these are combinations of
U and Q: with u_s and q_s their coordinates,

    W(t) = d W + scale sum_s a_s (U u_s) (Q q_s)^T

**When a direction counts as spent.** Training converges, and vectors become combinations of earlier ones. x is made
orthogonal to Q twice, which leaves e orthogonal to rounding as long as r stands out from the rounding errors of x. If
r <= SPENT |x|, there is no new direction, and W x loses a part SPENT of it at most: the same kind of error as
rounding, a few hundred times as large. The same rule ends the search once all n directions are known, so a run may be
longer than a layer is wide; it then costs more than explicit matrices would.

**What a seed means.** The direction e of a vector that is new by a part r is known to rounding errors over r, and what
is drawn for it belongs to it as it was found. So another library or device may find another network, as likely as the
first, that differs from it by 1e-16 / r, and by more as training goes on; on one device a seed gives the same bits.
"""

from typing import NamedTuple

from deeplinear._core.arrays import Array, namespace, zeros
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.spaces import Space

SPENT = 1e-13
"""Part of a vector outside all known directions, below which it has no new direction."""


class _Side:
    """Directions that a matrix was applied to from one side: rows, shape (networks, columns, coordinates)."""

    def __init__(self, space: Space, other: Space, columns: int) -> None:
        self.space = space
        self.directions = space.draws.zeros(columns, space.coordinates)
        self.images = other.draws.zeros(columns, other.coordinates)
        self.count = 0

    @property
    def known(self) -> Array:
        """The directions so far."""
        return self.directions[:, : self.count]

    @property
    def known_images(self) -> Array:
        """What the matrix makes of them."""
        return self.images[:, : self.count]

    def fill(self, directions: Array, images: Array) -> None:
        """Take these for the first directions and their images, in the first coordinates of both spaces."""
        self.count = directions.shape[1]
        self.directions[:, : self.count, : directions.shape[2]] = directions
        self.images[:, : self.count, : images.shape[2]] = images


class Transposed(NamedTuple):
    """A matrix from its other side."""

    matrix: "Revealed"

    def __matmul__(self, y: Array) -> Array:
        return self.matrix.apply(y, transposed=True)


class Revealed:
    """A Gaussian matrix that is drawn where it is looked at.

    Parameters
    ----------
    rows, columns
        The spaces that it maps to and from.
    looks
        Number of vectors that it will be applied to, at most.
    transposed_looks
        Likewise for its transpose; as many unless given.

    Attributes
    ----------
    shape
        Number of rows and columns of the matrix, not of coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from deeplinear._core.device import CPU
    >>> from deeplinear._experiment.draws import Draws
    >>> space = Space(Draws([np.random.default_rng(0)], CPU), [50])
    >>> matrix, x, y = Revealed(space, space, looks=1), space.gaussian(1), space.gaussian(1)
    >>> np.allclose(y.mT @ (matrix @ x), (matrix.mT @ y).mT @ x)
    True
    """

    def __init__(self, rows: Space, columns: Space, looks: int, transposed_looks: int | None = None) -> None:
        self.shape = (rows.size, columns.size)
        self._right = _Side(columns, rows, looks)
        self._left = _Side(rows, columns, looks if transposed_looks is None else transposed_looks)

    def __matmul__(self, x: Array) -> Array:
        return self.apply(x, transposed=False)

    @property
    def mT(self) -> Transposed:
        """The transpose."""
        return Transposed(self)

    def apply(self, x: Array, *, transposed: bool) -> Array:
        """Return the product with vectors x of shape (networks, coordinates, C)."""
        near, far = self.sides(transposed)
        coordinates = self.look(near, far, x)
        product: Array = near.known_images.mT @ coordinates
        return product

    def sides(self, transposed: bool) -> tuple[_Side, _Side]:
        """Return the side that vectors come from, and the other."""
        return (self._left, self._right) if transposed else (self._right, self._left)

    def look(self, near: _Side, far: _Side, x: Array) -> Array:
        """Return x in coordinates along the known directions, after those that it adds, shape (networks, k, C)."""
        start, columns = near.count, x.shape[-1]
        coordinates = zeros((x.shape[0], start + columns, columns), x)
        for column in range(columns):
            along, rest = self._reveal(near, far, x[..., column : column + 1])  # eq-revealed
            coordinates[:, : start + column, column] = along
            coordinates[:, start + column, column] = rest
        return coordinates

    def bases(self) -> tuple[Array, Array]:
        """Orthonormal bases of what is known of both spaces, rows and columns, each (networks, coordinates, k).

        They hold the directions that the matrix was applied to from one side, and what it made of those from the other.
        """
        right, left = self.sides(transposed=False)
        xp = namespace(right.known)
        both = [xp.concat([one.known, other.known_images], axis=1) for one, other in ((left, right), (right, left))]
        rows, columns = (xp.linalg.qr(each.mT)[0] for each in both)
        return rows, columns

    def continued(self, bases: tuple[Array, Array], draws: Draws, looks: int) -> "Revealed":
        """Return the same matrix in other coordinates, the first of which are along these bases of what is known.

        So many more vectors may be looked at from each side, and as many drawn in each space, whatever the sizes of
        the spaces are.
        """
        right, left = self.sides(transposed=False)
        spaces = []
        for side, basis in zip((left, right), bases, strict=True):
            spaces.append(Space(draws, [side.space.size], basis.shape[-1] + looks))
            spaces[-1].reserve(basis.shape[-1])
        matrix = Revealed(spaces[0], spaces[1], right.count + looks, left.count + looks)
        rows, columns = bases
        matrix._right.fill(right.known @ columns, right.known_images @ rows)
        matrix._left.fill(left.known @ rows, left.known_images @ columns)
        return matrix

    def _reveal(self, near: _Side, far: _Side, x: Array) -> tuple[Array, Array]:
        """Add the direction of one vector; return its coordinates along earlier ones, and along the new one."""
        xp, known = namespace(x), near.known
        first = known @ x
        rest = x - known.mT @ first
        second = known @ rest
        rest -= known.mT @ second
        length = _norm(rest)
        is_new = length > SPENT * _norm(x)
        rest *= is_new / xp.where(is_new, length, xp.ones_like(length))
        image = self._unseen(far, rest)
        image += far.known.mT @ (far.known_images @ rest - far.known @ image)
        near.directions[:, near.count] = rest[..., 0]
        near.images[:, near.count] = (image * is_new)[..., 0]
        near.count += 1
        return (first + second)[..., 0], (length * is_new)[..., 0, 0]

    def _unseen(self, far: _Side, direction: Array) -> Array:
        """Draw what the matrix makes of a new direction, outside the known directions of the other side."""
        return far.space.gaussian(1)


class Weight(Revealed):
    """A weight matrix in training: a Gaussian one, and the outer products that gradients have added.

    Parameters
    ----------
    rows, columns
        The spaces that it maps to and from.
    scale
        Factor of every outer product.
    initial
        Factor of the Gaussian matrix.
    gradients, evaluations
        Number of gradients that will be kept, and of backward passes, each with as many fields as there are outputs.
    probes
        Number of further passes both ways; those from the other side are counted in ``evaluations``.
    outputs
        Number of columns of the fields.

    Attributes
    ----------
    coefficients
        d and a_0 .. a_{gradients - 1}, shape (networks, 1, 1 + gradients), which an optimizer changes in place: to it,
        they are the weights, and gradients are unit vectors.
    """

    def __init__(
        self,
        rows: Space,
        columns: Space,
        *,
        scale: float,
        initial: float,
        gradients: int,
        evaluations: int,
        probes: int,
        outputs: int,
    ) -> None:
        super().__init__(rows, columns, (gradients + probes) * outputs, evaluations * outputs)
        self.coefficients = rows.draws.zeros(1, 1 + gradients)
        self.coefficients[..., 0] = initial
        self._scale, self._outputs, self._gradients = scale, outputs, 0
        # Coordinates q_s and u_s of what the matrix was applied to for each gradient, and of the last such vectors.
        self._used = {
            side: rows.draws.zeros(gradients * outputs, side.directions.shape[-2]) for side in self.sides(False)
        }
        self._last: dict[_Side, Array] = {}

    def apply(self, x: Array, *, transposed: bool) -> Array:
        """Return the product with vectors x of shape (networks, coordinates, C), with the matrix as it is now."""
        near, far = self.sides(transposed)
        coordinates = self.look(near, far, x)
        self._last[near] = coordinates
        product: Array = self.coefficients[..., :1] * (near.known_images.mT @ coordinates)
        if not self._gradients:
            return product
        rows = self._gradients * self._outputs
        overlaps = self._factors(self.coefficients) * (self._used[near][:, :rows, : near.count] @ coordinates)
        learned: Array = far.known.mT @ (self._used[far][:, :rows, : far.count].mT @ overlaps)
        return product + learned

    def keep_gradient(self) -> Array:
        """Let the outer product of the last vectors from both sides be a gradient; return it as a unit vector.

        It is the gradient with respect to ``coefficients``, shape (1 + gradients, 1), as an optimizer is to add it.
        """
        rows = slice(self._gradients * self._outputs, (self._gradients + 1) * self._outputs)
        for side, used in self._used.items():
            used[:, rows, : self._last[side].shape[1]] = self._last[side].mT
        self._gradients += 1
        unit = zeros((self.coefficients.shape[-1], 1), self.coefficients)
        unit[self._gradients] = 1.0
        return unit

    def forget_divergence(self) -> None:
        """Forget looks of each network at vectors that were no longer finite: earlier weights know nothing of them."""
        for side, used in self._used.items():
            finite = namespace(used).isfinite
            known = finite(side.directions).all(axis=-1) & finite(side.images).all(axis=-1)
            side.directions[~known], side.images[~known] = 0.0, 0.0
            used[~finite(used)] = 0.0

    def learned(self, coefficients: Array, bases: tuple[Array, Array]) -> Array:
        """Return what these coefficients make of the gradients, in coordinates along such bases of rows and columns."""
        count = self._gradients * self._outputs
        right, left = self.sides(transposed=False)
        ends = [
            self._used[side][:, :count, : side.count] @ (side.known @ basis)
            for side, basis in zip((left, right), bases, strict=True)
        ]
        product: Array = ends[0].mT @ (self._factors(coefficients) * ends[1])
        return product

    def _factors(self, coefficients: Array) -> Array:
        """Factor of each vector of each gradient, shape (networks, gradients * outputs, 1)."""
        factors = self._scale * coefficients[:, 0, 1 : 1 + self._gradients, None]
        if self._outputs > 1:
            shape = (*factors.shape[:2], self._outputs)
            factors = namespace(factors).broadcast_to(factors, shape)
        return factors.reshape(len(factors), -1, 1)


def _norm(x: Array) -> Array:
    """Length of each vector, (networks, coordinates, 1) to (networks, 1, 1)."""
    length: Array = namespace(x).sqrt(x.mT @ x)
    return length
