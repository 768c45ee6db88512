"""The sharpness of the training loss over training, from theory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.device import find_device
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._geometry.operators import OPERATORS, STARTS, Rows, Tridiagonal, lanczos, rows_needed
from deeplinear._geometry.rates import limit, rate_factors
from deeplinear._geometry.spectrum import End, Ritz, end, lowest, ritz
from deeplinear._geometry.visit import MOST_LOOKS, Stop, check_range, visit
from deeplinear._problem.problem import Problem, check_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_TIMES = 10
"""Times that are looked at unless others are asked for."""


@dataclass(frozen=True, eq=False)
class Sharpness(Drawn):
    """Eigenvalues of the Hessian of the training loss, or of the tangent kernel, at some steps of training.

    They are those of F H, with H the matrix of second derivatives in the units of the learning rate and F the factors
    on the rates of the weight layers: a step of plain descent is stable along an eigenvector whose eigenvalue is below
    2 / lr. Values that are not known, as after a divergence, are nan.

    Attributes
    ----------
    problem
        What was solved.
    operator
        ``"hessian"`` or ``"kernel"``.
    times
        The steps, shape (n,).
    largest, lowest
        Ends of the spectrum, shape (n,).
    largest_error, lowest_error
        How far off these may be, shape (n,); infinite with fewer than 8 vectors, which give only a bound. Directions of
        negative curvature have little weight as seen from a gradient, so that ``lowest_error`` is often much larger,
        and several times as many vectors are needed for as many digits. The lowest eigenvalue never is above the lowest
        Ritz value.
    edge
        Upper end of the continuous part of the spectrum, shape (n,); the largest eigenvalue itself if none stands
        beyond it, and nan if there is no continuous part.
    outliers
        For each step, the eigenvalues beyond it that stand alone, largest first.
    limit
        Largest eigenvalue at which a step does not overshoot, shape (n,): 2 / lr, 2 (1 + momentum) / lr, and so on;
        nan where the update rule has none: SAM, schedule-free descent, and Muon with momentum or several outputs,
        whose steps mix gradients. Otherwise Muon has that of normalised descent.
    ritz_values, ritz_weights, residuals
        What the iteration found, largest first, with weights as seen from its starting vector, shape (n, vectors). A
        residual is how far from a Ritz value the nearest eigenvalue can be.
    curvature_unit
        Factor that turns eigenvalues into raw units, those of ``1/(2P) sum Delta^2`` with respect to the weights
        themselves, times the width N_L; infinite in the lazy limit, and at a richness whose square is no number.
    start
        The gradient with which the iteration began, ``"first"`` or ``"now"``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=40
    ... )
    >>> found = dl.sharpness(problem, at=[0, 20, 39])
    >>> print(found)
    sharpness of MLP depth 2, 40 steps: 15.6 at step 0, 15.1 at step 39 (edge of a bulk); steps overshoot above 40
    >>> print(found.largest.round(1), found.lowest.round(1))
    [15.6 14.5 15.1] [-3.7 -0.4 -0.2]
    """

    problem: Problem
    operator: str
    times: NDArray[np.int64] = field(repr=False)
    largest: Array = field(repr=False)
    largest_error: Array = field(repr=False)
    lowest: Array = field(repr=False)
    lowest_error: Array = field(repr=False)
    edge: Array = field(repr=False)
    outliers: tuple[tuple[float, ...], ...] = field(repr=False)
    limit: Array = field(repr=False)
    ritz_values: Array = field(repr=False)
    ritz_weights: Array = field(repr=False)
    residuals: Array = field(repr=False)
    curvature_unit: float = field(repr=False)
    start: str = "first"

    def __str__(self) -> str:
        name = "sharpness" if self.operator == "hessian" else "largest eigenvalue of the tangent kernel"
        text = f"{name} of {self.problem.summary}: {self.largest[0]:.3g} at step {self.times[0]}"
        if len(self.times) > 1:
            text += f", {self.largest[-1]:.3g} at step {self.times[-1]}"
        text += f" ({self.kinds[-1]})"
        if np.isfinite(self.limit[-1]):
            text += f"; steps overshoot above {self.limit[-1]:.3g}"
        return text

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the largest eigenvalue is at each step, in words."""

        def kind(value: float, error: float, alone: tuple[float, ...]) -> str:
            if np.isnan(value):
                return "not known after a divergence, or without a gradient"
            if np.isinf(error):
                return "a lower bound; use more vectors"
            return "stands alone" if alone else "edge of a bulk"

        return tuple(map(kind, self.largest, self.largest_error, self.outliers))

    def density(self, step: int, eigenvalues: Array, width: float | None = None) -> Array:
        """Return the density of the spectrum as seen from the gradient, smoothed, at some eigenvalues.

        Parameters
        ----------
        step
            One of ``times``.
        eigenvalues
            Where to evaluate it, any shape.
        width
            Standard deviation of the Gaussians that represent the Ritz values; by default what their number resolves,
            the range over the number of vectors.
        """
        index = self._index(step)
        values, weights = self.ritz_values[index], self.ritz_weights[index]
        known = np.isfinite(values)
        spread = np.ptp(values[known]) / known.sum() if width is None else width
        spread = spread or max(abs(values[known][0]), 1.0) / 100.0
        z = (np.asarray(eigenvalues)[..., None] - values[known]) / spread
        density: Array = (weights[known] * np.exp(-0.5 * z**2)).sum(axis=-1) / (spread * np.sqrt(2.0 * np.pi))
        return density

    def plot_density(self, steps: int | Iterable[int] | None = None, ax: "Axes | None" = None) -> "Figure":
        """Draw the density of the spectrum at some steps, as seen from where the iteration began."""
        from deeplinear._plots.density import plot_density

        return plot_density(self, steps, ax)

    def _index(self, step: int) -> int:
        found = np.flatnonzero(self.times == step)
        if not found.size:
            raise Refusal("step", step, f"one of {self.times.tolist()}")
        return int(found[0])


def sharpness(
    problem: Problem,
    at: int | Iterable[int] | None = None,
    vectors: int = 16,
    *,
    operator: str = "hessian",
    start: str = "first",
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Sharpness:
    """Predict the largest and lowest eigenvalues of the Hessian of the training loss over training.

    The loss is the one that training descends: the mean over the whole training set, or over the distribution where
    data are unlimited or every batch is fresh. The Hessian is applied to directions that begin with a gradient, by
    Lanczos's iteration, inside the theory: every product is one more evaluation of the network in its equations.
    Each direction takes four of these (five for the tangent kernel), so the cost is that of four times ``vectors``
    steps at every time asked for.

    Parameters
    ----------
    problem
        What is trained. Every step up to the last one of ``at`` is solved.
    at
        Step or steps to look at, from 0 to ``problem.steps - 1``; ten of them, evenly spaced, by default.
    vectors
        Number of directions, 2 or more. Eigenvalues that stand alone are found to many digits with a dozen; the end of
        a continuous spectrum is extrapolated from those found. With 16 the largest eigenvalue is off by about 1e-4 of
        the range of the spectrum, and the lowest by 5e-4; the errors that are stated are about 1e-3 and 8e-3.
    operator
        ``"hessian"``, or ``"kernel"`` for the tangent kernel, the part of the Hessian that does not change sign.
    start
        ``"first"``: directions begin with the first gradient of training, which sees all of the spectrum.
        ``"now"``: with the gradient at that step, which hardly sees directions that have been learned, and is lost
        in rounding once training has converged; it shows where the gradient is.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where the equations are then solved.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in evaluations of the network.

    Raises
    ------
    ValueError
        If an argument is not allowed.
    MemoryError
        Before anything is solved, if the matrices do not fit into the memory available.

    See Also
    --------
    max_stable_lr : The largest rate at which a whole run is stable.

    Examples
    --------
    In the lazy limit the Hessian is the kernel (2 for one hidden layer) times the covariance of the samples, whose
    spectrum ends at (1 + sqrt(1/samples))^2:

    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width="infinite", parameterization="ntk", centered=True),
    ...     dl.Isotropic(0.3), dl.FullBatch(4.0), dl.GradientDescent(0.1), steps=10,
    ... )
    >>> print(dl.sharpness(problem, at=9).largest.round(2), 2 * (1 + 0.5) ** 2)
    [4.5] 4.5
    """
    steps = read_steps(problem, at)
    vectors = checks.whole("vectors", vectors, at_least=2)
    checks.word("operator", operator, tuple(OPERATORS))
    checks.word("start", start, STARTS)
    found: dict[int, tuple[Tridiagonal, float]] = {}

    def look(stop: Stop) -> None:
        rows = Rows(
            stop.extension,
            rate_factors(problem, stop.step, stop),
            problem.network.branch_rate(own_size=False),
            start=start,
        )
        check_range(problem, rows.product(rows.start, rows.start))
        matrix, _ = lanczos(rows, operator, vectors)
        check_range(problem, *matrix)
        found[stop.step] = (matrix, limit(problem, stop.step, stop))

    end_at = visit(
        problem, steps, rows_needed(operator, vectors), look, read_progress(progress), device=find_device(device)
    )
    good = {step: each for step, each in found.items() if end_at < 0 or step < end_at}
    return replace(_result(problem, operator, steps, vectors, good), start=start)


def _result(
    problem: Problem, operator: str, steps: Sequence[int], vectors: int, found: dict[int, tuple[Tridiagonal, float]]
) -> Sharpness:
    """Read the spectra off the matrices that were found."""
    tops = [End(np.nan, np.nan, np.nan, np.nan, ())] * len(steps)
    bottoms = np.full((2, len(steps)), np.nan)
    every = np.full((3, len(steps), vectors), np.nan)
    limits = np.full(len(steps), np.nan)
    for index, step in enumerate(steps):
        if step in found and len(found[step][0].diagonal):
            matrix, limits[index] = found[step]
            every[:, index, : len(matrix.diagonal)] = Ritz(*ritz(matrix))
            tops[index], bottoms[:, index] = end(matrix), lowest(matrix)
    if operator == "kernel":
        bottoms[0] = np.maximum(bottoms[0], 0.0)  # it has no negative eigenvalues
    gamma0 = np.float64(problem.network.gamma0)
    with np.errstate(over="ignore", divide="ignore"):
        unit = 1.0 / gamma0 / gamma0
    return Sharpness(
        problem=problem,
        operator=operator,
        times=np.array(steps),
        largest=np.array([each.value for each in tops]),
        largest_error=np.array([each.error for each in tops]),
        lowest=bottoms[0],
        lowest_error=bottoms[1],
        edge=np.array([each.edge for each in tops]),
        outliers=tuple(each.outliers for each in tops),
        limit=limits,
        ritz_values=every[0],
        ritz_weights=every[1],
        residuals=every[2],
        curvature_unit=float(unit),
    )


def read_steps(problem: Any, at: Any) -> list[int]:
    """Return the steps to look at, in order."""
    check_problem(problem)
    if at is None:
        return sorted({round(step) for step in np.linspace(0, problem.steps - 1, _TIMES)})
    each = checks.listed("at", at, MOST_LOOKS) if isinstance(at, Iterable) else [at]
    steps = sorted({checks.whole("at", step, at_least=0) for step in each})
    if not steps or steps[-1] >= problem.steps:
        raise Refusal("at", at, f"one or more steps from 0 to {problem.steps - 1}")
    return steps
