"""The result of a simulation: observables of many trained networks."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import keep
from deeplinear._core.dataset import (
    CORRELATIONS,
    FIELDS,
    LOSSES,
    check_curve,
    from_dataset,
    labelled,
    reading,
    write_dataset,
)
from deeplinear._core.drawn import Drawn
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._experiment.curvature import POSITIONS, Curvature
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average, averages_from_json, averages_to_json

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

MORE_LOSSES = ("averaged_test_loss", "task_loss")

SPECTRA = ("ritz_values", "ritz_weights")
SINGULAR = "singular_values"
LINES = ("line_train_loss", "line_test_loss")

_KIND = "deeplinear.Ensemble"


def _nothing() -> Array:
    return np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class Ensemble(Drawn):
    """Observables of finite networks, one row per seed.

    Times run over t = 0 .. T-1, each before its update. Correlations have two axes of length
    n = T C, time-major over (time, output): entry (t C + c, t' C + c') belongs to output c at time
    t and output c' at time t'. They are ``None`` where only losses were recorded. From the step
    ``diverged_at`` on, a seed's losses are ``inf`` and its correlations ``nan``.

    Attributes
    ----------
    problem
        What was trained.
    dim
        Input dimension D of the networks.
    seeds
        The seeds, in the order of the leading axis.
    times
        Steps, shape (T,).
    test_loss
        Mean squared residual on new samples, summed over outputs, shape (seed, T).
    train_loss
        The same on the training set (on the fresh batch, in online training), shape (seed, T).
    feature_correlation
        h_l(t) . h_l(t') / N_l for l = 0 .. L, shape (seed, L + 1, n, n). N_0 is D, or 1 where the data are
        dimension-free.
    gradient_correlation
        g_l(t) . g_l(t') / N_l for l = 1 .. L, shape (seed, L, n, n).
    error_correlation
        v(t) . v(t') / N_0, each direction weighted by the variance of the data along it, shape (seed, n, n).
    residual_correlation
        Delta(t) . Delta(t') / P, shape (seed, n, n). In online training, zero between different
        times; with unlimited data, the average over one sample seen at all times.
    diverged_at
        First step at which a seed's loss has blown up, -1 if none, shape (seed,).
    stats
        ``seconds`` spent, number of ``seeds`` and ``workers``.
    method
        How matrices were kept: ``"explicit"``, ``"lazy"`` or ``"reduced"``; see ``simulate``.
    inputs
        What networks were trained on: ``"gaussian"`` samples with the spectrum of the problem, or ``"rows"`` of a data
        set.
    averages
        Averages of the weights that were asked for.
    averaged_test_loss
        Test loss of each of them on the task of the present phase, shape (seed, averages, T).
    task_loss
        Test loss of the weights at every step on the target of each phase, label noise of that phase included, shape
        (seed, phases, T); (seed, 0, T) where there is only one phase.
    curvature
        Which curvature was measured, if any.
    ritz_values, ritz_weights
        Eigenvalues that Lanczos's iteration from the gradient found, largest first, in units in which plain descent is
        stable below 2 / lr, and their weights as seen from the gradient; shape (seed, steps measured, vectors), nan
        where there are fewer. None where nothing was measured.
    singular_values
        Largest singular values of each weight matrix but the readout, over the root of its fan-in, shape
        (seed, steps measured, L, count); None where they were not asked for.
    line_train_loss, line_test_loss
        Losses at 25 positions from 0 to 1 of the straight line between the weights of the first and the last step
        measured, shape (seed, 25); None where they were not asked for.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5
    ... )
    >>> experiment = dl.simulate(problem, dim=20, seeds=3)
    >>> experiment.mean("test_loss").shape, experiment.standard_error("feature_correlation").shape
    ((5,), (3, 5, 5))
    >>> experiment.to_xarray().gradient_correlation.dims
    ('seed', 'gradient_layer', 'time', 'time_prime')
    """

    problem: Problem
    dim: int
    seeds: tuple[int, ...]
    times: NDArray[np.int64] = field(repr=False)
    test_loss: Array = field(repr=False)
    train_loss: Array = field(repr=False)
    feature_correlation: Array | None = field(repr=False)
    gradient_correlation: Array | None = field(repr=False)
    error_correlation: Array | None = field(repr=False)
    residual_correlation: Array | None = field(repr=False)
    diverged_at: NDArray[np.int64] = field(repr=False)
    stats: dict[str, float] = field(repr=False)
    method: str = "explicit"
    inputs: str = "gaussian"
    averages: tuple[Average, ...] = ()
    averaged_test_loss: Array = field(default_factory=_nothing, repr=False)
    task_loss: Array = field(default_factory=_nothing, repr=False)
    curvature: Curvature | None = None
    ritz_values: Array | None = field(default=None, repr=False)
    ritz_weights: Array | None = field(default=None, repr=False)
    singular_values: Array | None = field(default=None, repr=False)
    line_train_loss: Array | None = field(default=None, repr=False)
    line_test_loss: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in MORE_LOSSES:
            if not getattr(self, name).size:
                keep(self, **{name: np.empty((len(self.seeds), 0, len(self.times)))})

    def __eq__(self, other: object) -> bool:
        """Return True for networks that were trained in the same way and did the same, to the last bit."""
        if not isinstance(other, Ensemble):
            return NotImplemented
        if self.problem != other.problem and self.problem.to_toml() != other.problem.to_toml():
            return False
        names = [each.name for each in fields(self) if each.name not in ("problem", "stats")]
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        return all(
            np.array_equal(one, two, equal_nan=True)
            if isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
            else one is two or one == two
            for one, two in pairs
        )

    def __hash__(self) -> int:
        return hash((self.dim, self.seeds, self.method))

    @property
    def has_only_losses(self) -> bool:
        """Whether nothing but the losses of the weights was recorded."""
        has_correlations = any(getattr(self, name) is not None for name in CORRELATIONS)
        has_more_losses = any(getattr(self, name).size for name in MORE_LOSSES)
        return not (has_correlations or has_more_losses or self.curvature is not None)

    def __repr__(self) -> str:
        network = f"{type(self.problem.network).__name__} depth {self.problem.network.depth}"
        first, last = self.test_loss[:, 0].mean(), self.test_loss[:, -1].mean()
        size = f"{len(self.seeds)} networks of dim {self.dim}, method={self.method!r}"
        # A spectrum may be that of somebody's data, which then only has the covariance of what was trained on.
        may_be_real = self.inputs != "gaussian" or self.problem.data.dimension_free
        size += f", inputs={self.inputs!r}" if may_be_real else ""
        return f"Ensemble({network}, {self.problem.steps} steps, {size}: mean test loss {first:.3g} -> {last:.3g})"

    def mean(self, name: str) -> Array:
        """Average one observable over seeds; ``inf`` or ``nan`` where some seed diverged."""
        mean: Array = self._values(name).mean(axis=0)
        return mean

    def standard_error(self, name: str) -> Array:
        """Standard error of ``mean(name)``; ``nan`` where some seed diverged, or if there is only one seed."""
        return standard_error(self._values(name))

    def to_xarray(self) -> "xr.Dataset":
        """Label every axis; with several outputs n is split into (time, output).

        Dimensions are seed, time, time_prime, layer (0 .. L), gradient_layer (1 .. L), average and phase where there
        are any, and with several outputs output and output_prime. The problem is in the attributes, as TOML.
        """
        values = {name: getattr(self, name) for name in (*LOSSES, *MORE_LOSSES, *CORRELATIONS)}
        dataset = labelled(
            {name: value for name, value in values.items() if value is not None and value.size},
            times=self.times,
            depth=self.problem.network.layers,
            outputs=self.problem.data.outputs,
            seeds=self.seeds,
            attrs={
                "kind": _KIND,
                "problem": self.problem.to_toml(),
                "dim": self.dim,
                "method": self.method,
                "inputs": self.inputs,
                "averages": averages_to_json(self.averages),
                "stats": json.dumps(self.stats),
            },
        ).to_xarray()
        meaning = {"long_name": "first step beyond bounds, -1 if none"}
        dataset = dataset.assign(diverged_at=("seed", self.diverged_at, meaning))
        if self.curvature is None:
            return dataset
        meaning = {"long_name": "what Lanczos's iteration found, largest first"}
        dims = ("seed", "measured_time", "vector")
        spectra = {name: (dims, getattr(self, name), meaning) for name in SPECTRA}
        measured = dataset.assign(spectra).assign_coords(measured_time=list(self.curvature.at))
        if self.singular_values is not None:
            meaning = {"long_name": "largest singular values of weights over the root of the fan-in"}
            axes = ("seed", "measured_time", "weight_layer", "number")
            measured = measured.assign({SINGULAR: (axes, self.singular_values, meaning)})
        if self.line_train_loss is not None:
            meaning = {"long_name": "loss along the line between the first and the last step measured"}
            lines = {name: (("seed", "position"), getattr(self, name), meaning) for name in LINES}
            measured = measured.assign(lines).assign_coords(position=POSITIONS)
        return measured.assign_attrs(curvature=self.curvature.operator, curvature_start=self.curvature.start)

    def save(self, path: str | Path) -> None:
        """Write everything to a NetCDF file, ``.nc``, which ``Ensemble.load`` and ``xarray`` open."""
        write_dataset(path, self.to_xarray())

    @classmethod
    def load(cls, path: str | Path) -> "Ensemble":
        """Read a file that ``save`` wrote.

        Raises
        ------
        ValueError
            If the file is of another kind, incomplete or damaged.
        """
        needed = ("seed", "time", *LOSSES, "diverged_at")
        others = ("measured_time", *SPECTRA, SINGULAR, *LINES)
        with reading(path, _KIND, ("problem", "dim", "stats"), needed, others) as dataset:
            arrays = {name: from_dataset(dataset, name) for name in (*LOSSES, *CORRELATIONS)}
            arrays |= {name: from_dataset(dataset, name) for name in MORE_LOSSES if name in dataset}
            ensemble = cls(
                problem=Problem.from_toml(dataset.attrs["problem"]),
                dim=checks.whole("dim", dataset.attrs["dim"]),
                seeds=tuple(int(seed) for seed in dataset["seed"].values),
                times=dataset["time"].values,
                **arrays,  # type: ignore[arg-type]  # losses are there
                diverged_at=dataset["diverged_at"].values,
                stats=dict(json.loads(dataset.attrs["stats"])),
                method=str(dataset.attrs.get("method", "explicit")),  # as those were that say nothing
                inputs=checks.word("inputs", dataset.attrs.get("inputs", "gaussian"), ("gaussian", "rows")),
                averages=averages_from_json(dataset.attrs.get("averages", "[]")),
                **_read_spectra(dataset),
            )
            ensemble._check_values()
            return ensemble

    def _check_values(self) -> None:
        """Refuse values from a file that cannot be those of networks."""
        steps, times, ended = self.problem.steps, self.times, self.diverged_at
        seeds, layers = len(self.seeds), self.problem.network.layers
        if len(times) != steps or not np.array_equal(times, np.arange(steps)):
            raise Refusal("time", times, f"the steps from 0 to {steps - 1}", got="others")
        if ended.shape != (seeds,) or (ended < -1).any() or (ended >= steps).any():
            raise Refusal("diverged_at", ended, f"a step below {steps} of each of {seeds} networks, or -1")
        known = times < np.where(ended < 0, steps, ended)[:, None]
        for name in LOSSES:
            check_curve(name, getattr(self, name), known.shape, known)
        sets = {"averaged_test_loss": len(self.averages), "task_loss": len(self.problem.stages)}
        for name in MORE_LOSSES:
            if getattr(self, name).size:
                check_curve(name, getattr(self, name), (seeds, sets[name], steps), known[:, None])
        count = steps * self.problem.data.outputs
        for name in CORRELATIONS:
            values, shape = getattr(self, name), (seeds, *FIELDS[name].leading(layers), count, count)
            if values is not None and values.shape != shape:
                raise Refusal(name, values.shape, f"of shape {shape}", got=f"{values.shape}")

    def _values(self, name: str) -> Array:
        geometry = (*SPECTRA, SINGULAR, *LINES)
        known = (*LOSSES, *MORE_LOSSES, *CORRELATIONS, *geometry)
        if name not in known:
            raise Refusal("name", name, f"one of {', '.join(known)}")
        values: Array | None = getattr(self, name)
        if values is None:
            how = "curvature=Curvature(...)" if name in geometry else "record='all'"
            text = f"{name} was not recorded; simulate with {how}"
            raise Refusal("name", name, "an observable that was recorded", text=text)
        return values


def _read_spectra(dataset: "xr.Dataset") -> dict[str, Any]:
    """Return what a file has of the curvature."""
    if "curvature" not in dataset.attrs:
        return {}
    values = {name: np.asarray(dataset[name].values) for name in SPECTRA}
    steps = [int(step) for step in dataset["measured_time"].values]
    count = 0
    if SINGULAR in dataset:
        values[SINGULAR] = np.asarray(dataset[SINGULAR].values)
        count = values[SINGULAR].shape[-1]
    has_line = LINES[0] in dataset
    values |= {name: np.asarray(dataset[name].values) for name in LINES if has_line}
    operator, start = dataset.attrs["curvature"], dataset.attrs["curvature_start"]
    wanted = Curvature(steps, values[SPECTRA[0]].shape[-1], operator, count, start, has_line)
    return {"curvature": wanted, **values}
