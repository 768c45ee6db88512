"""The answer of the theory for one problem."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks, memory
from deeplinear._core.arrays import finite, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._core.dataset import from_dataset, read_dataset, reading, to_dataset, write_dataset
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.coefficients import coefficients, structure
from deeplinear._equations.depth_nodes import Nodes
from deeplinear._equations.neurons import sample_sites
from deeplinear._equations.system import Equations
from deeplinear._problem.problem import Problem
from deeplinear._solvers.dense import Dense, dense_memory
from deeplinear._solvers.panels.solver import Panels
from deeplinear._time.grid import Grid

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_KIND = "deeplinear.Solution"

CURVES = ("test_loss", "train_loss", "kernel")
PARTS = ("bias", "width", "data", "label_noise")
MATRICES = (
    "feature_correlation",
    "gradient_correlation",
    "error_correlation",
    "residual_correlation",
    "feature_response",
    "gradient_response",
    "error_response",
    "residual_response",
)


@dataclass(frozen=True)
class Status:
    """How training went: completed, or diverged at a step.

    Attributes
    ----------
    diverged_at
        Step at which the loss has left all bounds, None if it does not.
    rounding_at
        Step from which on the losses depend on rounding, None if they do not: training has become unstable, after what
        could have grown was trained away, so that rounding errors grow in its place. In exact arithmetic
        the losses leave their smooth course later or not at all, and in finite networks at another step.

    Examples
    --------
    >>> print(Status(diverged_at=12))
    diverged at step 12: lower the learning rate
    >>> print(Status(rounding_at=640))
    completed, with rounding errors grown into the losses from step 640: lower the learning rate
    """

    diverged_at: int | None = None
    rounding_at: int | None = None

    @property
    def diverged(self) -> bool:
        """Whether the loss left all bounds (10^12 times its initial value) before the last step."""
        return self.diverged_at is not None

    def __str__(self) -> str:
        how = "completed" if self.diverged_at is None else f"diverged at step {self.diverged_at}"
        if self.rounding_at is not None:
            how += f", with rounding errors grown into the losses from step {self.rounding_at}"
            return f"{how}: lower the learning rate"
        return how if self.diverged_at is None else f"{how}: lower the learning rate"


@dataclass(frozen=True)
class Decomposition:
    """The paper's parts of the test loss, each of shape (T,); they sum to it.

    Attributes
    ----------
    bias
        What is left of the target when all randomness is averaged out.
    width
        Variance due to the random initial weights as they pass through the first layer.
    data
        Variance due to the finite data set or batch, label noise in it included.
    label_noise
        The noise of the test labels themselves.
    """

    bias: Array
    width: Array
    data: Array
    label_noise: Array


@dataclass(frozen=True)
class VarianceDecomposition:
    """The exact analysis of variance of the test loss, each part of shape (T,); they sum to it.

    Attributes
    ----------
    bias
        Loss of the prediction averaged over initialisations and data sets.
    initialization
        Variance over initialisations of the prediction averaged over data sets.
    data
        Variance over data sets (and batches) of the prediction averaged over initialisations.
    interaction
        What is left: variance that averaging over either removes.
    label_noise
        The noise of the test labels themselves.
    """

    bias: Array
    initialization: Array
    data: Array
    interaction: Array
    label_noise: Array

    def ensemble_loss(self, members: int) -> Array:
        """Test loss of the mean prediction of ``members`` networks trained on one data set, shape (T,)."""
        averaged = (self.initialization + self.interaction) / checks.whole("members", members)
        loss: Array = self.bias + self.data + averaged + self.label_noise
        return loss


@dataclass(frozen=True, eq=False)
class Solution:
    """Predicted curves and two-time functions of one problem.

    Two-time functions have axes of length n = T C, time-major over (time, output): entry
    (t C + c, t' C + c') belongs to output c at time t and output c' at time t'. They are built when
    first asked for. If training diverges, everything from that step on is ``inf`` and ``status`` says so.

    A file from ``save`` has everything. A pickle, which is how a solution comes back from another process, is small: it
    has the curves, and of the two-time functions those that were asked for before; the others are solved again when
    they are asked for.

    Attributes
    ----------
    problem
        What was solved.
    times
        Steps t = 0 .. T-1, each before its update, shape (T,); or, solved by panels or coarse steps, the real-valued
        times of their nodes, T of them from here on. ``at`` has the losses at any step.
    test_loss, train_loss
        Mean squared residual on new examples and on the training set, summed over outputs, shape (T,).
    kernel
        Effective tangent kernel: mean eigenvalue of the matrix that takes the data signal h_0(t) to the
        change of the prediction, per unit of learning rate, averaged over outputs; depth + 1 in a lazy
        network. Shape (T,).
    decomposition
        Bias, width, data and label noise, as in the paper.
    status
        Whether training diverged, and when.
    stats
        ``method``, ``seconds`` and size of the ``batch`` that was solved together; at infinite depth also
        the number of ``depth_nodes`` and the ``depth_error`` that was found; with panels the number of
        ``nodes``, the ``lengths`` of the panels in steps (1 is a single step), the ``tolerance`` that was asked
        for and an estimate of the relative ``error`` of the losses. That error is relative to the loss at each time, or
        to ``error_floor`` times the initial loss where that is larger. With coarse steps the same but for the lengths,
        and how many ``exact`` steps come first. ``rounding_at`` is there if ``status`` has it.

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
    times: NDArray[Any]
    test_loss: Array
    train_loss: Array
    kernel: Array
    decomposition: Decomposition
    status: Status
    stats: dict[str, Any]
    _matrices: Mapping[str, Array] = field(repr=False, default_factory=dict)  # read from a file
    _solver: tuple[Dense | Panels, int] | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        network = f"{type(self.problem.network).__name__} depth {self.problem.network.depth}"
        losses = f"test loss {self.test_loss[0]:.3g} -> {self.test_loss[-1]:.3g}"
        return f"Solution({network}, {self.problem.steps} steps: {losses}, {self.status})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the solver behind, which has the matrices of a whole batch, or of a device."""
        return {name: value for name, value in vars(self).items() if name != "_solved"} | {"_solver": None}

    def __copy__(self) -> "Solution":
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Solution":
        """Copy everything but the solver, to which nobody writes any more."""
        names = [each.name for each in fields(self) if each.name != "_solver"]
        copies = {name: copy.deepcopy(getattr(self, name), memo) for name in names}
        return Solution(**copies, _solver=self._solver)

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
        >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.01)
        >>> problem = dl.Problem(network, dl.Isotropic(noise=0.5), dl.FullBatch(2.0), optimizer, steps=10**5)
        >>> dl.solve(problem).at([100, 99_999]).test_loss.values.round(3)
        array([0.602, 0.5  ])
        """
        import xarray as xr  # slow to import

        steps = np.asarray(step)
        last = self.problem.steps - 1
        whole = steps.dtype.kind in "iuf" and bool((steps == np.floor(steps)).all())
        if not whole or steps.ndim > 1 or steps.size == 0 or steps.min() < 0 or steps.max() > last:
            raise ValueError(f"step must be whole numbers from 0 to {last}, got {step!r}")
        numbers = np.atleast_1d(steps).astype(np.int64)
        ended = np.inf if self.status.diverged_at is None else self.status.diverged_at
        losses = {}
        for name in ("test_loss", "train_loss"):
            values = np.full(len(numbers), np.inf)
            known = numbers < ended
            curve = getattr(self, name)
            if "lengths" in self.stats:
                grid = Grid(self.stats["lengths"])
                values[known] = grid.interpolation(numbers[known]) @ np.where(np.isfinite(curve), curve, 0.0)
            elif "exact" in self.stats:
                exact = self.stats["exact"]
                early = numbers < exact
                values[early] = curve[numbers[early]]
                values[~early] = spline(self.times[exact - 1 :], curve[exact - 1 :])(numbers[~early])
            else:
                values[known] = curve[numbers[known]]
            losses[name] = ("time", np.maximum(values, 0.0))
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
        if name in self._matrices:
            return self._matrices[name]
        if not self._has_matrices:
            raise ValueError(f'coarse steps have no {name}: solve with method="dense"')
        solver, index = self._solved
        outputs = self.problem.data.outputs
        layers = 1 if name.startswith(("error", "residual")) else _layers_of(self.problem, self.stats)
        memory.require(
            3 * 8 * layers * (len(self.times) * outputs) ** 2,
            f"{name} of {layers} layers",
            "lower depth, steps or outputs",
        )
        return _cut_both(_BUILD[name](_equations(solver), index), _end(self.times, self.status), outputs)

    @property
    def _has_matrices(self) -> bool:
        return self.stats.get("method") != "coarse"

    @property
    def layer_time(self) -> Array | None:
        """Position in (0: layer 1, 1: last layer) of the nodes that stand for layers at infinite depth, else None."""
        if self.problem.network.depth < math.inf:
            return None
        return Nodes(self.stats["depth_nodes"], None).position

    @cached_property
    def variance(self) -> VarianceDecomposition:
        """The exact analysis of variance, from the overlaps of networks that share only part of their randomness."""
        solver, index = self._solved
        overlaps = solver.overlaps
        outputs, ended = self.problem.data.outputs, _end(self.times, self.status)

        def curve(rows: Array) -> Array:
            return _cut(_over_outputs(rows[index], outputs), ended)

        same = curve(_equations(solver).curves.error)
        bias, same_data, same_init = map(curve, (overlaps.independent, overlaps.same_data, overlaps.same_init))
        with np.errstate(invalid="ignore"):  # inf - inf beyond a divergence
            interaction = same - same_init - same_data + bias
            variances = [same_init - bias, same_data - bias, interaction]
        # What rounding makes negative is zero.
        initialization, data, interaction = (_cut(np.maximum(part, 0.0), ended) for part in variances)
        return VarianceDecomposition(bias, initialization, data, interaction, self.decomposition.label_noise)

    def sample_sites(self, count: int, seed: int = 0) -> "xr.Dataset":
        """Draw neurons: independent samples of the fields h_l(t) and g_l(t) of every hidden layer.

        In the limit, each neuron of a layer follows an independent copy of one Gaussian process over
        training time; its layer's fields h and g belong together.

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
            raise ValueError(f"sites cannot be drawn: training {self.status}")
        solver, index = self._solved
        if isinstance(solver, Panels):
            raise ValueError('sites can be drawn at every step only: solve with method="dense"')
        return sample_sites(solver, index, checks.whole("count", count), seed)

    @cached_property
    def _solved(self) -> tuple[Dense | Panels, int]:
        """The solver's own matrices, of which a file holds only part and a pickle none: then solve again."""
        if self._solver is not None:
            return self._solver
        if not self._has_matrices:
            raise ValueError('coarse steps do not resolve this: solve with method="dense"')
        solver: Dense | Panels
        nodes = self.stats.get("depth_nodes", 0)
        with one_blas_thread():
            if self.stats.get("method") == "panels":
                solver = Panels(self.problem, self.stats["tolerance"], nodes)
            else:
                needed = dense_memory(structure(self.problem, nodes), 1)
                memory.require(needed, "solving again what was not kept", "free some memory")
                solver = Dense(coefficients([self.problem], nodes))
            solver.run()
        return solver, 0

    def plot(self) -> "Figure":
        """Draw the losses over time; returns a matplotlib figure, which has ``savefig``."""
        from deeplinear._plots.loss import plot_solution  # drawing is slow to import, and not always wanted

        return plot_solution(self)

    def to_xarray(self) -> "xr.Dataset":
        """Return every observable with named axes; the problem stands in the attributes, as TOML."""
        matrices = MATRICES if self._has_matrices else ()
        values = {name: getattr(self, name) for name in (*CURVES, *matrices)}
        values |= {name: getattr(self.decomposition, name) for name in PARTS}
        return to_dataset(
            values,
            times=self.times,
            depth=len(self.gradient_correlation) if matrices else 0,
            outputs=self.problem.data.outputs,
            layer_time=self.layer_time,
            attrs={
                "kind": _KIND,
                "problem": self.problem.to_toml(),
                "diverged_at": -1 if self.status.diverged_at is None else self.status.diverged_at,
                "stats": json.dumps(self.stats),
            },
        )

    def save(self, path: str | Path) -> None:
        """Write everything to a NetCDF file, which ``Solution.load`` and ``xarray`` open."""
        write_dataset(path, self.to_xarray())

    @classmethod
    def load(cls, path: str | Path) -> "Solution":
        """Read a file that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is another one, is not complete or has been damaged.
        """
        dataset = read_dataset(path, _KIND)
        with reading(path, dataset, ("problem", "diverged_at", "stats"), ("time", *CURVES, *PARTS)):
            names = (*CURVES, *PARTS, *MATRICES)
            arrays = {name: array for name in names if (array := from_dataset(dataset, name)) is not None}
            diverged_at, stats = int(dataset.attrs["diverged_at"]), dict(json.loads(dataset.attrs["stats"]))
            return cls(
                problem=Problem.from_toml(dataset.attrs["problem"]),
                times=dataset["time"].values,
                test_loss=arrays["test_loss"],
                train_loss=arrays["train_loss"],
                kernel=arrays["kernel"],
                decomposition=Decomposition(**{name: arrays[name] for name in PARTS}),
                status=Status(None if diverged_at < 0 else diverged_at, stats.get("rounding_at")),
                stats=stats,
                _matrices={name: arrays[name] for name in MATRICES if name in arrays},
            )

    @classmethod
    def from_solver(cls, problem: Problem, solver: Dense | Panels, index: int, stats: dict[str, Any]) -> "Solution":
        """Take one problem out of a solved batch."""
        step = int(solver.diverged_at[index])
        status = Status(None if step < 0 else step, stats.get("rounding_at"))
        times = solver.grid.times if isinstance(solver, Panels) else np.arange(problem.steps)
        ended, equations = _end(times, status), _equations(solver)
        outputs, curves = problem.data.outputs, equations.curves
        noise = np.full(len(times), outputs * problem.data.noise**2)

        def curve(rows: Array) -> Array:
            """Sum over outputs; what rounding makes negative is zero."""
            return _cut(np.maximum(_over_outputs(rows[index], outputs), 0.0), ended)

        test_loss = curve(curves.error) + noise
        train_loss = test_loss
        if equations.train_losses is not None:
            train_loss = _cut(np.maximum(equations.train_losses[index], 0.0), ended)

        return cls(
            problem=problem,
            times=times,
            test_loss=test_loss,
            train_loss=train_loss,
            kernel=_cut(np.maximum(curves.kernel[index], 0.0), ended),
            decomposition=Decomposition(curve(curves.bias), curve(curves.width), curve(curves.data), noise),
            status=status,
            stats=stats,
            _solver=(solver, index),
        )


def spline(times: NDArray[Any], values: NDArray[Any]) -> Any:
    """Smooth curve through values, as a function of time."""
    from scipy.interpolate import make_interp_spline  # slow to import, and rarely needed

    return make_interp_spline(times, values, k=7)


def _layers_of(problem: Problem, stats: Mapping[str, Any]) -> int:
    """Number of layers, or nodes in layer time, that a two-time function of every layer has."""
    return stats["depth_nodes"] if problem.network.depth == math.inf else problem.network.layers + 1


def _equations(solver: Dense | Panels) -> Equations:
    return solver.equations if isinstance(solver, Panels) else solver


def _residual_correlation(dense: Equations, index: int) -> Array:
    """C_Delta = R_Delta (C_v + sigma^2) R_Delta^T + (R_Delta - 1) draws (R_Delta - 1)^T.

    A residual feels the batches that were drawn before its time, by subsampling / reuse C_Delta(t, t) each.
    """
    c, C0 = dense.c, dense.data_covariances
    s = c.structure
    blocks = np.zeros((s.steps, s.outputs, s.steps, s.outputs))
    blocks[np.arange(s.steps), :, np.arange(s.steps), :] = dense.curves.residual[index]
    equal_times = blocks.reshape(s.size, s.size)
    if C0.noisy and dense.data.RDelta is None:
        return equal_times
    every_time = np.kron(np.ones((s.steps, s.steps)), np.eye(s.outputs))
    direct: Array = to_numpy(C0.Cv[index]) + to_numpy(c.sigma2[index]) * every_time
    if dense.data.RDelta is None:
        return direct
    R = finite(to_numpy(dense.data.RDelta[index]))
    past = R - np.eye(s.size)
    draws = to_numpy(c.subsampling[index]) / to_numpy(c.reuse[index]) * finite(equal_times)
    with np.errstate(over="ignore", invalid="ignore"):  # just before a divergence
        return np.asarray(R @ finite(direct) @ R.T + past @ draws @ past.T)


def _residual_response(dense: Equations, index: int) -> Array:
    RDelta = dense.data.RDelta
    return np.eye(dense.c.structure.size) if RDelta is None else to_numpy(RDelta[index]).copy()


def _feature_response(dense: Equations, index: int) -> Array:
    """R_hr of layers 0 .. L; that of a layer to a single step is of order 1 / gamma0, and may leave all bounds."""
    with np.errstate(over="ignore"):
        return np.stack([to_numpy(dense.data.response_to_r0(index)), *_stacked(index, dense.chain.Rhr())])


def _stacked(index: int, layers: Iterable[Array]) -> Array:
    """One problem's matrices of all layers."""
    return np.stack([to_numpy(matrix[index]) for matrix in layers])


_BUILD: dict[str, Callable[[Equations, int], Array]] = {
    "feature_correlation": lambda dense, i: _stacked(i, [dense.data_covariances.Ch, *dense.chain.Ch()]),
    "gradient_correlation": lambda dense, i: _stacked(i, dense.chain.Cg()),
    "error_correlation": lambda dense, i: to_numpy(dense.data_covariances.Cv[i]).copy(),
    "residual_correlation": _residual_correlation,
    "feature_response": _feature_response,
    "gradient_response": lambda dense, i: to_numpy(dense.c.whole_gamma0[i]) * _stacked(i, dense.chain.Rgu_hat()),
    "error_response": lambda dense, i: to_numpy(dense.data.Rvu(i)),
    "residual_response": _residual_response,
}


def _over_outputs(rows: Array, outputs: int) -> Array:
    return np.asarray(rows.reshape(-1, outputs).sum(axis=-1))


def _end(times: NDArray[Any], status: Status) -> int | None:
    """Index of the first time at which training has diverged."""
    return None if status.diverged_at is None else int(np.searchsorted(times, status.diverged_at))


def _cut(series: Array, ended: int | None) -> Array:
    """Set a curve to inf from the divergence on."""
    if ended is not None:
        series = np.array(series)
        series[ended:] = np.inf
    return series


def _cut_both(matrix: Array, ended: int | None, outputs: int) -> Array:
    """Set a two-time function to inf where either time is beyond the divergence."""
    if ended is not None:
        matrix = np.array(matrix)
        start = ended * outputs
        matrix[..., start:, :] = np.inf
        matrix[..., :, start:] = np.inf
    return matrix
