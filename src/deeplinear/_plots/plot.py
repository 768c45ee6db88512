"""One door for all pictures: what is given decides what is drawn."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deeplinear._comparison.compare import Comparison
from deeplinear._comparison.coordinates import CoordinateCheck
from deeplinear._comparison.finite_size import FiniteSize
from deeplinear._comparison.same_problem import checked_experiment
from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._fit.result import Fit
from deeplinear._geometry.landscape import Landscape
from deeplinear._geometry.sharpness import Sharpness
from deeplinear._geometry.weight_spectra import WeightSpectra
from deeplinear._learning_rate import MaxStableLr, OptimalLr
from deeplinear._planning.batch import CriticalBatch
from deeplinear._planning.optimum import Optimum
from deeplinear._planning.plan import Plan
from deeplinear._planning.schedule import OptimalSchedule
from deeplinear._planning.transferred import Transfer
from deeplinear._plots.coordinates import plot_coordinates
from deeplinear._plots.finite_size import plot_finite_size
from deeplinear._plots.fit import plot_fit
from deeplinear._plots.geometry import plot_landscape, plot_sharpness, plot_weight_spectra
from deeplinear._plots.loss import plot_comparison, plot_experiment, plot_solution, plot_solutions
from deeplinear._plots.planning import plot_critical_batch, plot_optimum, plot_plan, plot_schedule
from deeplinear._plots.rates import plot_max_stable_lr, plot_optimal_lr
from deeplinear._plots.runs import plot_forecast, plot_run_schedule, plot_runs_fit
from deeplinear._plots.sensitivity import plot_sensitivity
from deeplinear._plots.sweep import is_sweep, plot_sweep
from deeplinear._plots.transfer import plot_transfer
from deeplinear._runs.result import Forecast, RunsFit
from deeplinear._runs.schedule import RunSchedule
from deeplinear._theory.sensitivity import Sensitivity
from deeplinear._theory.solution import Solution

Draw = Callable[[Any, Axes | None], Figure]

_PICTURES: dict[type, Draw] = {
    Solution: plot_solution,
    Ensemble: plot_experiment,
    Measured: plot_experiment,
    Comparison: lambda result, ax: plot_comparison(result.theory, result.experiment, result, ax),
    Transfer: plot_transfer,
    Sensitivity: plot_sensitivity,
    Fit: plot_fit,
    Sharpness: plot_sharpness,
    Landscape: plot_landscape,
    WeightSpectra: plot_weight_spectra,
    CoordinateCheck: plot_coordinates,
    FiniteSize: plot_finite_size,
    CriticalBatch: plot_critical_batch,
    OptimalLr: plot_optimal_lr,
    MaxStableLr: plot_max_stable_lr,
    OptimalSchedule: plot_schedule,
    Optimum: plot_optimum,
    Plan: plot_plan,
    RunsFit: plot_runs_fit,
    Forecast: plot_forecast,
    RunSchedule: plot_run_schedule,
}
"""The picture of each kind of result."""

_DRAWN = f"a {', '.join(kind.__name__ for kind in _PICTURES)}, or the data set of a sweep"


KINDS = ("loss", "kernel")


def plot(result: Any, experiment: Any = None, *more: Any, kind: str = "loss", ax: Axes | None = None) -> Figure:
    """Draw a result, theory and experiment together, or several theories over each other.

    Theory is dashed, networks are solid with their standard error as a band. Axes and fonts fit a column of a paper;
    ``figure.savefig("picture.pdf")`` saves the figure.

    Parameters
    ----------
    result
        What ``solve``, ``simulate``, ``measured``, ``compare``, ``finite_size``, ``coordinate_check``, ``transfer``,
        ``sensitivity``, ``fit``, ``sharpness``, ``landscape``, ``weight_spectra``, ``optimal_lr``, ``max_stable_lr``,
        ``optimal_schedule``, ``optimal``, ``critical_batch``, ``plan``, ``fit_runs`` or ``sweep`` returned. For a
        sweep, the test loss at the last step is drawn against its last field, a curve for each value of the other. A
        list stands for all that it holds: ``plot([a, b])`` is ``plot(a, b)``.
    experiment
        Beside a ``Solution``: an ``Ensemble``, ``measured`` curves, or what ``measured`` takes, drawn with it; or
        another ``Solution``.
    more
        Further solutions. Each is labelled by what its problem does not share with all of the others.
    kind
        Of solutions: ``"loss"``, or ``"kernel"`` for their effective tangent kernels.
    ax
        Axes to draw into: then only the main panel is drawn, without a title. A new figure by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ValueError
        If there is no picture for such a result.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=21
    ... )
    >>> theory, logged = dl.solve(problem), dl.measured(test_loss=[2.2, 0.9, 0.6, 0.5, 0.45], steps=5)
    >>> [ax.get_ylabel() for ax in dl.plot(theory, logged).axes]
    ['mean squared residual', 'deviation (%)']
    """
    if isinstance(result, list | tuple) and result:
        return plot(*result, *(each for each in (experiment, *more) if each is not None), kind=kind, ax=ax)
    if checks.word("kind", kind, KINDS) != "loss":
        solutions = [each for each in (result, experiment, *more) if each is not None]
        return plot_solutions(_solutions(*solutions, where="for its kernel"), ax, kind)
    if more or (isinstance(result, Solution) and isinstance(experiment, Solution)):
        return plot_solutions(_solutions(result, experiment, *more), ax)
    if experiment is not None:
        return plot_comparison(result, checked_experiment(result, experiment), ax=ax)
    for known, draw in _PICTURES.items():
        if isinstance(result, known):
            return draw(result, ax)
    if is_sweep(result):
        return plot_sweep(result, ax)
    raise Refusal("result", result, _DRAWN, got=type(result).__name__)


def _solutions(*results: Any, where: str = "as all are where more than two are drawn") -> list[Solution]:
    """Refuse anything but solutions."""
    for result in results:
        if not isinstance(result, Solution):
            raise Refusal("result", result, f"a Solution, {where}", got=type(result).__name__)
    return list(results)
