"""The data that networks learn from: plain frozen data, no numerics beyond validation."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields, keep
from deeplinear._core.refusal import Refusal

Matrix = tuple[tuple[float, ...], ...]

NOISE = About(
    "Label noise",
    "Standard deviation of the random error in the labels, which no network can learn.",
    symbol=r"\sigma",
    check=checks.non_negative,
    start=0.3,
    usual=(0.0, 2.0),
)
"""The label noise, which all data have."""

_TARGET_GRAM = About(
    "Several outputs",
    "Overlaps of the targets of several outputs, such as 1, 0.2; 0.2, 1; by default there is one output.",
    "matrix",
    allowed="a symmetric, positive semidefinite matrix",
)


@dataclass(frozen=True)
class Modes:
    """A data spectrum in the form the equations take: directions of equal variance, grouped.

    Attributes
    ----------
    eigenvalues
        Variance of the data along each group of directions, shape (modes,).
    target
        Target power of each group, a Gram matrix over the outputs, shape (modes, outputs, outputs).
    weight
        How much each group counts in sums over directions, shape (modes,).
    reach
        Training time, kernel times learning rate summed over steps, up to which the groups stand for the data;
        infinite unless they are fewer than the data have.
    """

    eigenvalues: NDArray[np.float64]
    target: NDArray[np.float64]
    weight: NDArray[np.float64]
    reach: float = math.inf


@dataclass(frozen=True)
class Isotropic:
    """Gaussian inputs x ~ N(0, 1_D) and a linear target with noise, y = w*.x / sqrt(D) + noise * eps.

    Parameters
    ----------
    noise
        Standard deviation of the label noise, zero or above.
    target_gram
        For C outputs the C x C matrix of overlaps w*_c . w*_c' / D, symmetric and positive
        semidefinite. ``None`` is one output with ``|w*|^2 = D``.

    Examples
    --------
    >>> Isotropic(noise=0.3).outputs
    1
    >>> Isotropic(target_gram=[[1.0, 0.2], [0.2, 0.5]]).outputs
    2
    """

    noise: float = field(default=0.0, metadata=NOISE.metadata)
    target_gram: Matrix | None = field(default=None, metadata=_TARGET_GRAM.metadata)
    kind: ClassVar[Kind] = Kind("isotropic", "", "All directions alike")
    dimension_free: ClassVar[bool] = False
    own_dim: ClassVar[None] = None

    @staticmethod
    def counts(proportional: bool) -> bool:
        """Whether sizes beside such data are counts; never, whatever ``proportional`` is."""
        return False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.target_gram is not None:
            keep(self, target_gram=gram_matrix("target_gram", self.target_gram))

    @property
    def outputs(self) -> int:
        """Number C of outputs."""
        return 1 if self.target_gram is None else len(self.target_gram)

    @property
    def modes(self) -> Modes:
        """One group of directions: every direction has variance 1."""
        gram = np.ones((1, 1)) if self.target_gram is None else np.array(self.target_gram)
        return Modes(np.ones(1), gram[None], np.ones(1))

    def modes_within(self, horizon: float, momentum: float) -> Modes:
        """Return the modes that training up to a horizon tells apart: all of them."""
        return self.modes

    def finite(self, dim: int | None) -> Modes:
        """Return the modes of a network with ``dim`` inputs, each with its number of directions as weight."""
        return directions(self.modes, dim)


def directions(modes: Modes, dim: int | None) -> Modes:
    """Share ``dim`` directions among modes whose weights are fractions: rounded, the largest remainders upwards.

    Examples
    --------
    >>> modes = Modes(np.array([2.0, 1.0, 0.5]), np.ones((3, 1, 1)), np.array([0.2, 0.3, 0.5]))
    >>> directions(modes, 11).weight
    array([2., 3., 6.])
    """
    if dim is None:
        raise Refusal("dim", None, "given where sizes are ratios to the input dimension")
    dim = checks.whole("dim", dim)
    exact = dim * modes.weight
    counts = np.floor(exact)
    counts[np.argsort(counts - exact, kind="stable")[: dim - int(counts.sum())]] += 1
    if not counts.all():
        least = int(np.ceil(1 / modes.weight.min()))
        raise Refusal("dim", dim, f"every mode a direction: {least} is enough", verb="give")
    return Modes(modes.eigenvalues, modes.target, counts)


def gram_matrix(name: str, value: Any) -> Matrix:
    """Return value as nested tuples if it is a symmetric positive semidefinite matrix."""
    try:
        gram = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise Refusal(name, value, "a square matrix of numbers") from None
    except OverflowError:
        raise Refusal(name, value, "finite entries", verb="have", got="one that is too large") from None
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not gram.size:
        raise Refusal(name, value, "a square matrix", got=f"shape {gram.shape}")
    if not np.isfinite(gram).all():
        raise Refusal(name, gram.tolist(), "finite entries", verb="have")
    scale = np.abs(gram).max()
    if np.abs(gram - gram.T).max() > 1e-12 * scale:
        raise Refusal(name, gram.tolist(), "symmetric")
    lowest = np.linalg.eigvalsh(gram)[0]
    if lowest < -1e-12 * scale:
        raise Refusal(name, value, "positive semidefinite", got=f"lowest eigenvalue {lowest:.3g}")
    return tuple(tuple(float(entry) for entry in row) for row in gram)
