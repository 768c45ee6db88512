"""Curves that somebody measured, elsewhere and in any form, as an experiment that theory is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.dataset import LOSSES
from deeplinear._core.drawn import Drawn
from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._core.words import counted
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.tables import Columns, Series, Table, is_table, read_all

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

_LAST_STEP = 2**53
_MOST_NUMBERS = 10**7
"""The largest step: floats tell all whole numbers up to this one apart."""


@dataclass(frozen=True, eq=False)
class Measured(Drawn):
    """Loss curves of networks that were trained elsewhere, one row per run, as ``measured`` read them.

    Attributes
    ----------
    times
        Steps at which something was recorded, each before its update: 0 is the network as initialised. Shape (steps,).
    test_loss, train_loss
        Mean squared residual, summed over outputs, shape (seed, steps); ``nan`` where a run has no value, ``inf`` where
        it diverged. All ``nan`` where there is no such curve.
    seeds
        Numbers of the runs.
    dim
        Input dimension of the networks; None if it was not given.
    has_steps
        Whether the steps were given. Otherwise there must be one value for every step of the theory.
    inputs
        What networks were trained on: ``"unknown"``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> dl.measured(test_loss=[[2.1, 1.0, 0.6], [1.9, 1.1, 0.5]], steps=[0, 5, 10])
    Measured(2 runs, steps 0 to 10: test loss at 3 steps)
    """

    times: NDArray[np.int64] = field(repr=False)
    test_loss: Array = field(repr=False)
    train_loss: Array = field(repr=False)
    dim: int | None = None
    has_steps: bool = True
    inputs: str = field(default="unknown", init=False, repr=False)

    # What an Ensemble has, and curves do not.
    problem: ClassVar[None] = None
    has_only_losses: ClassVar[bool] = True

    @property
    def seeds(self) -> tuple[int, ...]:
        """Numbers of the runs, in the order of the leading axis."""
        return tuple(range(len(self.test_loss)))

    @property
    def diverged_at(self) -> NDArray[np.int64]:
        """First step at which a loss of a run is infinite, -1 if none, shape (seed,)."""
        infinite = np.isinf(self.test_loss) | np.isinf(self.train_loss)
        return np.where(infinite.any(axis=1), self.times[infinite.argmax(axis=1)], -1)

    def mean(self, name: str) -> Array:
        """Average a loss over runs at every step of ``times``; ``nan`` where some run has no value."""
        return np.asarray(getattr(self, checks.word("name", name, LOSSES)).mean(axis=0))

    def standard_error(self, name: str) -> Array:
        """Standard error of ``mean(name)``; ``nan`` for one run."""
        return standard_error(getattr(self, checks.word("name", name, LOSSES)))

    def to_xarray(self) -> "xr.Dataset":
        """Return the curves with named axes, seed and time."""
        import xarray as xr  # slow to import

        curves = {name: (("seed", "time"), getattr(self, name)) for name in LOSSES if recorded(self, name)[0].size}
        return xr.Dataset(curves, {"seed": list(self.seeds), "time": self.times})

    def __repr__(self) -> str:
        used = {name: recorded(self, name)[0] for name in LOSSES}
        counts = {name.replace("_", " "): len(times) for name, times in used.items()}
        curves = ", ".join(f"{name} at {counted(count, 'step')}" for name, count in counts.items() if count)
        runs = counted(len(self.seeds), "run")
        times = np.concatenate(list(used.values()))
        return f"Measured({runs}, steps {times.min()} to {times.max()}: {curves})"


def recorded(experiment: Ensemble | Measured, name: str) -> tuple[NDArray[np.int64], Array]:
    """Return the steps at which every run has a value of a loss, and the values, shape (seed, steps)."""
    values: Array = getattr(experiment, name)
    kept = ~np.isnan(values).any(axis=0)
    return experiment.times[kept], values[:, kept]


def measured(
    curves: Any = None,
    /,
    *,
    test_loss: Any = None,
    train_loss: Any = None,
    steps: Any = None,
    dim: int | None = None,
) -> Measured:
    """Take loss curves from anywhere, to compare them with theory, plot them over it, or fit it to them.

    Losses have to be what theory predicts: the mean squared residual with label noise included, summed over outputs,
    without a factor 1/2. PyTorch's ``MSELoss`` is that for one output; for C outputs multiply it by C. Step t is before
    update t, so that step 0 is the network as initialised.

    Parameters
    ----------
    curves
        A table: a dictionary, a pandas DataFrame, the path of a CSV file (an export of Weights & Biases among others),
        of a TensorBoard event file, or of a folder of them, or a pattern such as ``"run*.csv"``. Or a list of these,
        with one or more runs each. Or an array, which is ``test_loss``.
    test_loss, train_loss
        Arrays of shape (steps,) for one run or (runs, steps) for several, or one array for each run. With a table, the
        name of the column or tag, or a list of names, one for each run; columns such as ``test_loss``, ``val_loss`` or
        ``run 3 - train/loss`` are found where neither is named, and ``loss`` is that of training. Either may be
        missing.
    steps
        The step of each value, or one array for each run; a number if every so many steps were recorded. With a table,
        the name of the column, unless it is ``step``, ``iter`` or the like, or the index of a DataFrame. By default
        there is one value for each step.
    dim
        Input dimension of the networks, to know how far networks of this size are expected to be from theory.

    Returns
    -------
    Measured
        What ``compare``, ``plot`` and ``fit`` take. Values that are ``nan`` count as not recorded; a run that diverged
        has ``inf``. Runs may have different lengths. Losses are used at the steps at which every run has a value.

    Raises
    ------
    ValueError
        If there is no loss, values are not numbers or negative, or steps are not whole, or not as many as values.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=41
    ... )
    >>> logged = dl.simulate(problem, dim=100, seeds=8, record="losses").test_loss[:, ::5]  # every five steps
    >>> curves = dl.measured(test_loss=logged, steps=5, dim=100)
    >>> curves
    Measured(8 runs, steps 0 to 40: test loss at 9 steps)
    >>> print(dl.compare(dl.solve(problem), curves).verdict)
    agrees
    >>> dl.measured({"step": [0, 10, 20], "val_loss": [1.0, 0.7, 0.6], "train_loss": [1.0, float("nan"), 0.4]})
    Measured(1 run, steps 0 to 20: test loss at 3 steps, train loss at 2 steps)
    """
    if dim is not None:
        dim = checks.whole("dim", dim)
    sources = list(curves) if _are_sources(curves) else [curves]
    if all(isinstance(each, str | Path) or is_table(each) for each in sources):
        table = _from_tables(sources, Columns(test_loss, train_loss, steps))
        return _assembled(table.series, dim, table.has_steps)
    if curves is not None:
        if test_loss is not None:
            raise Refusal("test_loss", test_loss, "None beside an array of losses", got="both")
        test_loss = curves
    names = ("test_loss" if curves is None else "curves", "train_loss")
    rows = [_rows(name, each) for name, each in zip(names, (test_loss, train_loss), strict=True)]
    given = dict(zip(LOSSES, rows, strict=True))
    series = {name: _with_steps(rows, steps) for name, rows in given.items() if rows}
    if not series:
        raise ValueError("measured needs a curve: test_loss=... or train_loss=..., a table, or the path of a file")
    return _assembled(series, dim, has_steps=steps is not None)


def _are_sources(curves: Any) -> bool:
    """Whether curves are a list of files or tables."""
    return isinstance(curves, list | tuple) and any(isinstance(each, str | Path) or is_table(each) for each in curves)


def _from_tables(sources: list[Any], asked: Columns) -> Table:
    for name, value in asked._asdict().items():
        names = value if name != "steps" and isinstance(value, list | tuple) else [value]
        if value is not None and not (names and all(isinstance(each, str) for each in names)):
            raise Refusal(name, value, "the name of a column, beside a table")
    return read_all(sources, asked)


def _rows(name: str, values: Any) -> list[Array]:
    """One array for each run."""
    if values is None:
        return []
    if isinstance(values, str | Mapping):
        raise Refusal(name, values, "an array of losses, shape (steps,) or (runs, steps)")
    if isinstance(values, Sequence) and len(values) > _MOST_NUMBERS:
        raise Refusal(name, values, f"at most {_MOST_NUMBERS} losses or runs", got=f"{len(values)}")
    try:
        rows = _arrays(values)
    except OverflowError:
        raise Refusal(name, values, "numbers below 1e308", got="a larger one") from None
    if not rows or any(row.ndim != 1 or not row.size for row in rows):
        got = f"shape {np.shape(values)}" if isinstance(values, np.ndarray) else None
        raise Refusal(name, values, "numbers, shape (steps,) or (runs, steps)", got=got)
    return rows


def _arrays(values: Any) -> list[Array]:
    try:
        table = np.asarray(values, dtype=float)
        return list(np.atleast_2d(table)) if table.ndim <= 2 else []
    except (ValueError, TypeError):  # runs of unequal length
        try:
            return [np.asarray(row, dtype=float) for row in values]
        except (ValueError, TypeError):
            return []


def _with_steps(rows: list[Array], steps: Any) -> list[Series]:
    """Say which steps the values of each run belong to."""
    if steps is None or isinstance(steps, int | float | np.number):
        every = 1 if steps is None else checks.whole("steps", steps)
        if every > _LAST_STEP:
            raise Refusal("steps", steps, f"at most {_LAST_STEP}", got="a larger number")
        return [(every * np.arange(len(row), dtype=float), row) for row in rows]
    given = _rows("steps", steps)
    given = given * len(rows) if len(given) == 1 else given
    if len(given) != len(rows):
        raise Refusal("steps", steps, f"given for one run or for each of {len(rows)}", got=f"those of {len(given)}")
    for index, (at, row) in enumerate(zip(given, rows, strict=True)):
        if len(at) != len(row):
            raise Refusal("steps", steps, f"as many as losses ({len(row)} in run {index})", got=f"{len(at)}")
        if len(np.unique(at)) < len(at):
            raise Refusal("steps", steps, "distinct", got=f"the same one twice in run {index}")
    return list(zip(given, rows, strict=True))


def _assembled(series: Mapping[str, Sequence[Series]], dim: int | None, has_steps: bool = True) -> Measured:
    """Put the values of all runs on their common list of steps."""
    runs = max(len(each) for each in series.values())
    for name, each in series.items():
        if len(each) != runs:
            allowed = f"{counted(runs, 'run')}, as the other loss has"
            raise Refusal(name, each, allowed, verb="have", got=counted(len(each), "run"))
        for at, values in each:
            _check(name, at, values)
    used = [at[~np.isnan(values)] for each in series.values() for at, values in each]
    times = np.unique(np.concatenate(used)).astype(np.int64)
    if not times.size:
        raise ValueError("no value was recorded: all are nan")
    losses = {name: np.full((runs, len(times)), np.nan) for name in LOSSES}
    for name, each in series.items():
        for run, (at, values) in enumerate(each):
            known = ~np.isnan(values)
            losses[name][run, np.searchsorted(times, at[known])] = values[known]
    found = Measured(times, losses["test_loss"], losses["train_loss"], dim, has_steps)
    if not any(recorded(found, name)[0].size for name in LOSSES):
        raise ValueError("the runs have no step in common: record them at the same steps, or give them one at a time")
    return found


def _check(name: str, at: Array, values: Array) -> None:
    known = at[~np.isnan(values)]
    wrong = known[(known < 0) | (known != np.round(known)) | ~np.isfinite(known)]
    if wrong.size:
        raise Refusal("steps", float(wrong[0]), "whole numbers, zero or above")
    late = known[known > _LAST_STEP]
    if late.size:
        raise Refusal("steps", float(late[0]), f"at most {_LAST_STEP}")
    negative = values[values < 0]
    if negative.size:
        raise Refusal(name, float(negative[0]), "zero or above")
