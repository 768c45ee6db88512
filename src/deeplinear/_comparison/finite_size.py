"""What finite size does: how far the mean of networks is from the limit, and how much they scatter about it.

Networks are drawn exactly in reduced coordinates, at a cost that does not depend on their size. In these coordinates a
network is a smooth function of independent unit noises, each of which counts as 1/sqrt(D). So to leading order

    a network  =  limit + (linear in the noises) / sqrt(D) + (quadratic in them) / D

and the mean of a network and its mirror image, whose noises have the opposite sign, has no linear term: from pairs, a
shift of order 1/D is found to the same relative accuracy at any size, while the mean of independent networks would
drown it in their scatter.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.dataset import CORRELATIONS, LOSSES
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import percent
from deeplinear._experiment.methods import REDUCED
from deeplinear._experiment.simulate import train_all
from deeplinear._experiment.simulation import Simulation
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._theory.solve import solve

Array = NDArray[np.float64]

_ROUNDING = 1e-9
"""Values below this fraction of the largest one are put down to rounding."""

FIRST_SEED = 2**62
"""Seeds of the draws begin here, so that a prediction shares no network with the experiment that it is compared to."""


@dataclass(frozen=True, eq=False)
class SizeEffect:
    """What finite size does to one observable; all arrays have its shape and its units.

    Attributes
    ----------
    theory
        Its value in the limit.
    shift, shift_error
        Mean over networks minus theory, and the standard error of that. Networks that diverge do not count; not finite
        if all do, and from the step at which theory diverges.
    scatter, scatter_error
        Standard deviation between networks (between seeds), and its standard error, likewise.
    median
        Median over all networks, infinite where most have diverged.
    """

    theory: Array
    shift: Array
    shift_error: Array
    scatter: Array
    scatter_error: Array
    median: Array

    @property
    def relative_shift(self) -> Array:
        """``shift`` over theory; theory below 1e-9 of its largest value is rounding, and counts as that much."""
        return self._over_scale(self.shift)

    @property
    def relative_shift_error(self) -> Array:
        """``shift_error`` over theory, likewise."""
        return self._over_scale(self.shift_error)

    @property
    def relative_scatter(self) -> Array:
        """``scatter`` over theory, likewise."""
        return self._over_scale(self.scatter)

    def _over_scale(self, values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # nan after a divergence
            return values / self._scale

    @property
    def _scale(self) -> Array:
        size = np.abs(self.theory)
        return np.maximum(size, max(_ROUNDING * size.max(where=np.isfinite(size), initial=0.0), np.finfo(float).tiny))


@dataclass(frozen=True, eq=False)
class FiniteSize(Drawn):
    """Mean shift and scatter of networks of one size, as ``finite_size`` found them.

    Attributes
    ----------
    problem, dim
        What is trained, and the input dimension of the networks.
    pairs
        Number of networks that were drawn, each with its mirror image.
    diverged
        Fraction of them that diverged.
    effects
        What size does to each observable, by the names of ``Ensemble``; losses have shape (T,).
    """

    problem: Problem
    dim: int
    pairs: int
    diverged: float
    effects: Mapping[str, SizeEffect] = field(repr=False)

    def __getitem__(self, name: str) -> SizeEffect:
        """Look up an observable, such as ``"test_loss"``."""
        if name not in self.effects:
            raise KeyError(f"{name!r} is not among {', '.join(self.effects)}")
        return self.effects[name]

    @property
    def deviation(self) -> float:
        """Largest relative shift of a loss over all steps; infinite where theory or a network diverged."""
        shifts = np.abs([self[name].relative_shift for name in LOSSES])
        return float(shifts.max()) if np.isfinite(shifts).all() and not self.diverged else math.inf

    def seeds_needed(self, accuracy: float, name: str = "test_loss") -> float:
        """Return how many networks of this size it takes for their mean to be within a fraction of theory.

        With so many, shift and standard error of the mean together are below ``accuracy`` times theory at every
        step. The number is infinite if the shift alone is larger, or some networks diverge, so that only larger ones
        help.

        Parameters
        ----------
        accuracy
            Relative, positive.
        name
            One of the losses.

        Examples
        --------
        >>> import deeplinear as dl
        >>> problem = dl.Problem(
        ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=10
        ... )
        >>> small, large = (dl.finite_size(problem, dim) for dim in (100, 10**6))
        >>> small.seeds_needed(0.001), large.seeds_needed(0.001) < 10
        (inf, True)
        """
        accuracy = checks.positive("accuracy", accuracy)
        effect = self[checks.word("name", name, LOSSES)]
        room = accuracy - np.abs(effect.relative_shift)
        if self.diverged or not (room > 0).all():  # also where it is not a number
            return math.inf
        return max(1, math.ceil(float(((effect.relative_scatter / room) ** 2).max())))

    @property
    def size(self) -> str:
        """What networks were drawn, in words."""
        diverged = f", of which {percent(self.diverged)} diverge" if self.diverged else ""
        return f"networks of input dimension {self.dim}, from {self.pairs} pairs{diverged}"

    def summary(self) -> str:
        """Shift and scatter of the losses at the last step, as plain text."""
        return "\n".join([self.size, *(f"{name.replace('_', ' ')}: {self._words(name)}" for name in LOSSES)])

    def _words(self, name: str) -> str:
        effect = self[name]
        unit = abs(effect.theory[-1]) / 100 or 1.0
        if not np.isfinite(effect.theory[-1]):
            return "theory diverges"
        with np.errstate(over="ignore", invalid="ignore"):
            away = (effect.median[-1] - effect.theory[-1]) / unit
            shift, error, scatter = (each[-1] / unit for each in (effect.shift, effect.shift_error, effect.scatter))
        median = f"median {away:+.2g} % from theory; the others: " if math.isfinite(away) else "the others: "
        if not np.isfinite(scatter):
            return "all networks diverge" if self.diverged == 1.0 else "most networks diverge"
        rest = f"mean {shift:+.2g} % (± {error:.1g} %) from theory, scatter {scatter:.2g} %"
        return f"{median}{rest}" if self.diverged else rest

    def __str__(self) -> str:
        return self.summary()


def finite_size(
    problem: Problem,
    dim: int | None = None,
    *,
    pairs: int = 128,
    record: str = "losses",
    workers: int | None = None,
    progress: Progress | bool | None = None,
) -> FiniteSize:
    """Predict how far networks of finite size are from theory: the shift of their mean, and their scatter.

    Networks are drawn in reduced coordinates, which is exact, in pairs of mirror images, whose mean has a scatter
    of order 1/D like the shift itself: its relative error hardly depends on ``dim``, which may have any value. Theory
    is solved once; where it is solved to a tolerance (long runs), the shift is known no better than that.

    Parameters
    ----------
    problem, dim, workers, progress
        As for ``simulate``.
    pairs
        Number of networks, each with its mirror image, at least 2. Standard errors fall as its root.
    record
        ``"losses"``, or ``"all"`` to include every correlation, unless theory was solved on nodes in time.

    Raises
    ------
    ValueError
        If an argument is not allowed, or the problem has infinite width or takes orthogonal steps (``Muon``).
    MemoryError
        Before anything is drawn, if the memory available is not enough.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=4, width=0.7, centered=True), dl.GradientDescent(0.02)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.Population(), optimizer, steps=40)
    >>> found = dl.finite_size(problem, dim=10**5, pairs=64)
    >>> coefficient = 10**5 * found["test_loss"].relative_shift[-1]  # of 1/D
    >>> bool(20 < coefficient < 40)
    True
    """
    pairs = checks.whole("pairs", pairs, at_least=2)
    check_problem(problem)
    if any(stage.optimizer.traits.orthogonal for stage in problem.stages):
        why = ": networks are drawn in reduced coordinates, and orthogonal steps look at every entry of a matrix"
        raise Refusal("optimizer", problem.optimizer, "a rule without orthogonal steps", got="Muon", rest=why)
    chosen = range(FIRST_SEED, FIRST_SEED + pairs)
    asked = Simulation.read(problem, dim, chosen, workers, record, REDUCED)
    total = 2 * pairs * problem.steps

    tell = read_progress(progress)

    def report(before: int) -> Progress | None:
        return tell and (lambda done, half: tell(before + done, total))

    plain, diverged = train_all(asked, report(0))
    mirror, also = train_all(replace(asked, mirrored=True), report(total // 2))
    ends = np.stack([diverged, also]) >= 0
    return FiniteSize(
        problem=problem,
        dim=asked.counts.sizes.dim,
        pairs=pairs,
        diverged=float(ends.mean()),
        effects={
            name: _effect(values, plain[name], mirror[name], ends) for name, values in _limit(problem, plain).items()
        },
    )


def _limit(problem: Problem, wanted: Collection[str]) -> dict[str, Array]:
    """Return what theory says of the observables that are wanted, at every step."""
    theory, every = solve(problem), np.arange(problem.steps)
    found = {name: theory.at(every)[name].values for name in LOSSES}
    if theory.axis.has_every_pair:
        found |= {name: getattr(theory, name) for name in CORRELATIONS if name in wanted}
    return found


def _effect(theory: Array, plain: Array, mirror: Array, diverged: NDArray[np.bool_]) -> SizeEffect:
    """Shift and scatter from the pairs of which neither diverged, shape (pairs, ...)."""
    rest = ~diverged.any(axis=0)
    values = np.concatenate([plain, mirror])
    with np.errstate(invalid="ignore"):  # inf - inf, where most have diverged
        median = np.median(np.where(np.isnan(values), math.inf, values), axis=0)
    median = np.where(np.isnan(median), math.inf, median)
    shift, shift_error, scatter, scatter_error = np.full((4, *theory.shape), math.nan)
    if rest.sum() > 1:
        shift, shift_error, scatter, scatter_error = _moments(theory, plain[rest], mirror[rest])
    return SizeEffect(theory, shift, shift_error, scatter, scatter_error, median)


def _moments(theory: Array, plain: Array, mirror: Array) -> tuple[Array, Array, Array, Array]:
    """Shift of the mean and scatter, each with its error."""
    root = math.sqrt(len(plain))
    with np.errstate(
        invalid="ignore", over="ignore", divide="ignore"
    ):  # where theory diverged, or networks are about to
        middle = (plain + mirror) / 2
        mean = middle.mean(axis=0)
        squares = ((plain - mean) ** 2 + (mirror - mean) ** 2) / 2
        scatter = np.sqrt(squares.mean(axis=0))
        scatter_error = np.where(scatter > 0, squares.std(axis=0, ddof=1) / (2 * root * scatter), 0.0)
        return mean - theory, middle.std(axis=0, ddof=1) / root, scatter, scatter_error
