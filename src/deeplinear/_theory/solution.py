"""The answer of the theory for one problem."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks, memory
from deeplinear._core.cached import cached_property
from deeplinear._core.drawn import Drawn
from deeplinear._core.refusal import Refusal
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.depth_nodes import Nodes
from deeplinear._equations.neurons import sample_sites
from deeplinear._equations.observables import matrices, two_time
from deeplinear._problem.problem import Problem
from deeplinear._rules.rule import Rule
from deeplinear._solvers.base import Answer, Overlaps, Run, Solver
from deeplinear._theory.decomposition import Decomposition, VarianceDecomposition
from deeplinear._time.axis import TimeAxis

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from deeplinear._theory.status import Status, cut, cut_both, end_of
from deeplinear._theory.written import CURVES, SETS, read, written

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution(Drawn):
    """Predicted curves and two-time functions of one problem.

    Two-time functions have axes of length n = T C, time-major over (time, output): entry
    (t C + c, t' C + c') belongs to output c at time t and output c' at time t'. They are built when
    first asked for. In long runs with a condensed past they are known only at some steps, ``pair_times``, whose number
    takes the place of T here. If training diverges, everything from that step on is ``inf`` and ``status`` says so.

    A file from ``save`` has everything. A pickle, which is how a solution comes back from another process, is small: it
    has the curves, and only those two-time functions that were asked for before. The others are solved again when
    they are needed.

    Attributes
    ----------
    problem
        What was solved.
    axis
        The times of all values, and what they say about the steps in between.
    test_loss, train_loss
        Mean squared residual on new examples and on the training set, summed over outputs, shape (T,).
    kernel
        Effective tangent kernel: mean eigenvalue of the matrix that takes the data signal h_0(t) to the
        change of the prediction, per unit of learning rate, averaged over outputs; depth + 1 in a lazy
        network. Shape (T,).
    decomposition
        Bias, width, data and label noise, as in the paper.
    averaged_test_loss
        Test losses of averages of the weights that were asked for, shape (averages, T).
    task_loss
        Test losses on the tasks of all phases, where there is more than one, shape (phases, T).
    status
        Whether training diverged, and when.
    solver
        The configuration that finds the same solution again.
    stats
        A report: the ``method``, the ``seconds`` it took and the size of the ``batch`` that was solved together; at
        infinite depth also the number of ``depth_nodes`` and the ``depth_error`` that was found; with panels the number
        of ``nodes``, the ``lengths`` of the panels in steps (1 is a single step), the ``tolerance`` that was asked for
        and an estimate of the relative ``error`` of the losses. That error is relative to the loss at each time, or to
        ``error_floor`` times the initial loss where that is larger. Coarse steps have the same entries except
        ``lengths``, and the number of ``exact`` steps that come first; with a condensed past ``nodes`` is the largest
        number of times that were kept at once. ``rounding_at`` is there if ``status`` has it; ``error`` is then that of
        the losses before that step, in which rounding errors have grown to less than 1e-5.

    Examples
    --------
    >>> import deeplinear as dl
    >>> solution = dl.solve(dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5
    ... ))
    >>> solution
    Solution(MLP depth 2, 5 steps: test loss 2 -> 0.784, completed)
    >>> solution.feature_correlation.shape
    (3, 5, 5)
    """

    problem: Problem
    axis: TimeAxis
    test_loss: Array
    train_loss: Array
    kernel: Array
    decomposition: Decomposition
    status: Status
    solver: Solver
    stats: dict[str, Any]
    averaged_test_loss: Array = field(default_factory=lambda: np.zeros((0, 0)))
    task_loss: Array = field(default_factory=lambda: np.zeros((0, 0)))
    _matrices: Mapping[str, Array] = field(repr=False, default_factory=dict)  # read from a file
    _run: tuple[Run, int] | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        losses = f"test loss {self.test_loss[0]:.3g} -> {self.test_loss[-1]:.3g}"
        return f"Solution({self.problem.summary}: {losses}, {self.status})"

    def __eq__(self, other: object) -> bool:
        """Return True for a solution of the same problem with the same times, status and curves, to the last bit."""
        if not isinstance(other, Solution):
            return NotImplemented
        same_problem = self.problem == other.problem or self.problem.to_toml() == other.problem.to_toml()
        known = (self.axis, self.status) == (other.axis, other.status)
        return same_problem and known and all(map(np.array_equal, self._curves(), other._curves()))

    def __hash__(self) -> int:
        return hash((self.axis, self.status))

    def _curves(self) -> list[Array]:
        names = (*CURVES, *SETS)
        return [*(getattr(self, name) for name in names), *vars(self.decomposition).values()]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the filled equations behind, which are the matrices of a whole batch, or of a device."""
        return {name: value for name, value in vars(self).items() if name != "_solved"} | {"_run": None}

    def __copy__(self) -> "Solution":
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Solution":
        """Copy everything but the filled equations, to which nobody writes any more."""
        names = [each.name for each in fields(self) if each.name != "_run"]
        copies = {name: copy.deepcopy(getattr(self, name), memo) for name in names}
        return Solution(**copies, _run=self._run)

    @property
    def times(self) -> NDArray[Any]:
        """Steps t = 0 .. T-1, each before its update, shape (T,).

        For runs solved by panels or coarse steps these are the real-valued times of their nodes, and T then means their
        number; ``at`` has the losses at any step.
        """
        return self.axis.times

    @property
    def pair_times(self) -> NDArray[Any]:
        """Times at whose pairs two-time functions are known, shape (n / C,).

        These are ``times``, unless a long run was solved with a condensed past: then up to 200 of its steps.
        """
        return self.axis.pair_times

    def at(self, step: Any) -> "xr.Dataset":
        """Return the losses at one step, or at several.

        Parameters
        ----------
        step
            A whole number from 0 to T-1, or an array of them.

        Returns
        -------
        xarray.Dataset
            ``test_loss`` and ``train_loss``, with the steps along ``time`` if there are several.

        Examples
        --------
        >>> import deeplinear as dl
        >>> network, optimizer = dl.MLP(depth=1, width=1.0), dl.GradientDescent(0.01)
        >>> problem = dl.Problem(network, dl.Isotropic(noise=0.5), dl.FullBatch(4.0), optimizer, steps=2000)
        >>> dl.solve(problem).at([100, 1999]).test_loss.values.round(3)
        array([0.492, 0.333])
        """
        import xarray as xr  # slow to import

        steps = np.asarray(step)
        last = self.problem.steps - 1
        whole = steps.dtype.kind in "iuf" and bool((steps == np.floor(steps)).all())
        if not whole or steps.ndim > 1 or steps.size == 0 or steps.min() < 0 or steps.max() > last:
            raise Refusal("step", step, f"whole numbers from 0 to {last}")
        numbers = np.atleast_1d(steps).astype(np.int64)
        ended = np.inf if self.status.diverged_at is None else self.status.diverged_at
        known = numbers < ended
        losses = {}
        for name, least in (("test_loss", _label_noise(self.problem, numbers)), ("train_loss", np.zeros(len(numbers)))):
            values = np.full(len(numbers), np.inf)
            values[known] = self.axis.at(getattr(self, name), numbers[known])
            losses[name] = ("time", np.maximum(values, least))
        dataset = xr.Dataset(losses, {"time": numbers})
        return dataset.isel(time=0) if steps.ndim == 0 else dataset

    @cached_property
    def feature_correlation(self) -> Array:
        """C_h^l, correlation of the forward fields of layers 0 .. L, shape (L + 1, n, n)."""
        return self._matrix("feature_correlation")

    @cached_property
    def gradient_correlation(self) -> Array:
        """C_g^l, correlation of the backward fields of layers 1 .. L, shape (L, n, n)."""
        return self._matrix("gradient_correlation")

    @cached_property
    def error_correlation(self) -> Array:
        """C_v, correlation of the errors in weight space, shape (n, n)."""
        return self._matrix("error_correlation")

    @cached_property
    def residual_correlation(self) -> Array:
        """C_Delta, correlation of the residuals on the training samples, shape (n, n)."""
        return self._matrix("residual_correlation")

    @cached_property
    def feature_response(self) -> Array:
        """R_hr^l, response of the forward field to the backward source of its layer, shape (L + 1, n, n)."""
        return self._matrix("feature_response")

    @cached_property
    def gradient_response(self) -> Array:
        """R_gu^l, response of the backward field to the forward source of its layer, shape (L, n, n)."""
        return self._matrix("gradient_response")

    @cached_property
    def error_response(self) -> Array:
        """R_vu, response of the errors to noise in the data signal, shape (n, n)."""
        return self._matrix("error_response")

    @cached_property
    def residual_response(self) -> Array:
        """R_Delta, response of the residuals to the errors, shape (n, n)."""
        return self._matrix("residual_response")

    def _matrix(self, name: str) -> Array:
        outputs, ended = self.problem.data.outputs, end_of(self.pair_times, self.status)
        if name in self._matrices:
            return cut_both(self._matrices[name], ended, outputs)
        if not self.axis.has_two_time:
            raise ValueError(f'{self.solver.name} steps have no {name}: solve with method="dense"')
        run, index = self._solved
        is_deep, nodes = self.problem.network.depth == math.inf, self._depth_nodes
        layers = matrices(nodes if is_deep else self.problem.network.layers, [name])
        memory.require(
            3 * 8 * layers * (len(self.times) * outputs) ** 2,
            f"{name} of {layers} layers",
            "lower depth, steps or outputs",
        )
        return cut_both(two_time(run.equations, index, name), ended, outputs)

    @property
    def _depth_nodes(self) -> int:
        return self.solver.depth_nodes or 0

    @property
    def layer_time(self) -> Array | None:
        """Positions of the nodes that stand for layers at infinite depth, from 0 to 1 along the layers; else None."""
        if self.problem.network.depth < math.inf:
            return None
        return Nodes(self._depth_nodes, None).position

    @cached_property
    def variance(self) -> VarianceDecomposition:
        """The exact analysis of variance, from the overlaps of networks that share only part of their randomness."""
        self._check_rules("the analysis of variance", lambda rule: rule.averaging is not None)
        overlaps, index = self._overlaps
        outputs, ended = self.problem.data.outputs, end_of(self.times, self.status)

        def curve(rows: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):  # after a divergence
                return cut(rows[index].reshape(-1, outputs).sum(axis=-1), ended, len(self.times))

        same, same_data, same_init, bias = map(curve, overlaps)
        with np.errstate(invalid="ignore"):  # inf - inf beyond a divergence
            interaction = same - same_init - same_data + bias  # eq-variance
            variances = [same_init - bias, same_data - bias, interaction]
        # What rounding makes negative is zero.
        initialization, data, interaction = (cut(np.maximum(part, 0.0), ended, len(part)) for part in variances)
        return VarianceDecomposition(bias, initialization, data, interaction, self.decomposition.label_noise)

    @property
    def _overlaps(self) -> tuple[Overlaps, int]:
        """Overlaps of replicas, and which problem of their batch this is."""
        with one_blas_thread():
            overlaps = self.solver.overlaps(self.problem)
        if overlaps is not None:
            return overlaps, 0
        run, index = self._solved
        return run.overlaps, index

    def sample_sites(self, count: int, seed: int = 0) -> "xr.Dataset":
        """Draw neurons: independent samples of the fields h_l(t) and g_l(t) of every hidden layer.

        In the limit, each neuron of a layer follows an independent copy of one Gaussian process over
        training time. The fields h and g that are drawn together belong to the same neuron.

        Parameters
        ----------
        count
            Number of neurons to draw in each layer.
        seed
            Seed of the random numbers.

        Returns
        -------
        xarray.Dataset
            ``h`` and ``g`` with dimensions (sample, gradient_layer, time), and output for several outputs.
        """
        if self.status.diverged:
            raise ValueError(f"neurons cannot be drawn: training {self.status}")
        if not self.axis.has_every_pair:
            raise ValueError('neurons can be drawn only if every step was solved: solve with method="dense"')
        self._check_rules("drawing neurons", lambda rule: rule.traits.looks > 1 or bool(rule.traits.orthogonal))
        run, index = self._solved
        return sample_sites(run.equations, index, checks.whole("count", count), seed)

    def _check_rules(self, what: str, excludes: Callable[[Rule], bool]) -> None:
        """Refuse what is not known of weights that some update rules make."""
        for rule in (stage.optimizer for stage in self.problem.stages):
            if excludes(rule):
                allowed = f"another one for {what}"
                raise Refusal("optimizer", rule, allowed, got=type(rule).__name__)

    @cached_property
    def _solved(self) -> tuple[Run, int]:
        """The filled equations, of which a file holds only part and a pickle nothing: then solve again."""
        if self._run is not None:
            return self._run
        if not self.axis.has_two_time:
            raise ValueError(f'this cannot be computed from {self.solver.name} steps: solve with method="dense"')
        with one_blas_thread():
            (answer,) = self.solver.of_two_times.solve([self.problem])
        if answer.run is None:
            kept = f'method="{self.solver.name}" does not keep what is needed here'
            raise ValueError(f'{kept}: solve with method="dense"')
        return answer.run, answer.index

    def plot(self, ax: "Axes | None" = None, *, experiment: Any = None, kind: str = "loss") -> "Figure":
        """Draw the losses and the parts of the test loss over time, or theory with experiment, or the kernel.

        Parameters
        ----------
        ax
            Axes to draw the losses into; a new figure by default.
        experiment
            An ``Ensemble``, ``measured`` curves, or what ``measured`` takes, to draw theory over it.
        kind
            ``"loss"``, or ``"kernel"`` for the effective tangent kernel.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which has ``savefig``.
        """
        from deeplinear._plots.plot import plot  # drawing is slow to import, and not always wanted

        return plot(self, experiment, kind=kind, ax=ax)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the curves as columns of a table, with the steps as its index; needs nothing but pandas.

        Examples
        --------
        >>> import deeplinear as dl
        >>> network, optimizer = dl.MLP(depth=1, width=1.0), dl.GradientDescent(0.1)
        >>> problem = dl.Problem(network, dl.Isotropic(noise=0.5), dl.FullBatch(4.0), optimizer, steps=3)
        >>> dl.solve(problem).to_dataframe().round(3).loc[2, ["test_loss", "kernel"]].to_dict()
        {'test_loss': 1.125, 'kernel': 1.789}
        """
        import pandas as pd  # slow to import

        curves = {name: getattr(self, name) for name in CURVES} | vars(self.decomposition)
        curves |= {f"{name}_{row}": each for name in SETS for row, each in enumerate(getattr(self, name))}
        return pd.DataFrame(curves, pd.Index(self.times, name="step"))

    def to_xarray(self) -> "xr.Dataset":
        """Return every observable with named axes; the problem is in the attributes, as TOML."""
        return written(self).to_xarray()

    def save(self, path: str | Path) -> None:
        """Write everything to a NetCDF file, ``.nc``, which ``Solution.load`` and ``xarray`` open."""
        written(self).write(path)

    @classmethod
    def load(cls, path: str | Path) -> "Solution":
        """Read a file that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is of another kind, incomplete or damaged.
        """
        return cls(**read(path))

    @classmethod
    def of(cls, problem: Problem, answer: Answer) -> "Solution":
        """Make a solution from what a solver found; what rounding makes negative is zero, or label noise."""
        curves = answer.curves.map(lambda curve: np.maximum(curve, 0.0))
        noise = _label_noise(problem, answer.axis.times)
        return cls(
            problem=problem,
            axis=answer.axis,
            test_loss=np.maximum(curves.test_loss, noise),
            train_loss=curves.train_loss,
            kernel=curves.kernel,
            decomposition=Decomposition(curves.bias, curves.width, curves.data, noise),
            status=Status(answer.diverged_at, answer.rounding_at),
            solver=answer.solver,
            stats=answer.stats,
            averaged_test_loss=answer.averaged_test_loss,
            task_loss=answer.task_loss,
            _matrices=answer.matrices,
            _run=None if answer.run is None else (answer.run, answer.index),
        )


def _label_noise(problem: Problem, times: NDArray[Any]) -> Array:
    """Part of the test loss that is the noise of the labels, which may change from phase to phase, at some times."""
    noise: Array = problem.label_noise
    if len(noise) == 1:
        return np.full(len(times), noise[0])
    phase = np.searchsorted([stage.start for stage in problem.stages], times, side="right") - 1
    return noise[phase]
