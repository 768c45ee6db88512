"""Reading whatever was saved: what is in a file or a folder decides what comes back."""

from pathlib import Path
from typing import TYPE_CHECKING, Union

from deeplinear._core.dataset import kind_of
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._problem.problem import Problem
from deeplinear._sweep.sweep import open_sweep
from deeplinear._theory.solution import Solution

if TYPE_CHECKING:
    import xarray as xr

_KINDS: dict[str | None, type[Solution] | type[Ensemble]] = {
    f"deeplinear.{kind.__name__}": kind for kind in (Solution, Ensemble)
}


def load(path: str | Path) -> Union[Problem, Solution, Ensemble, "xr.Dataset"]:
    """Read what was saved: a problem, a solution, networks, or the results of a sweep.

    Parameters
    ----------
    path
        A file from ``save``, ``.nc`` or ``.toml``, or the folder that was the ``store`` of a sweep.

    Returns
    -------
    Problem, Solution, Ensemble or xarray.Dataset
        Equal to what was saved; of a sweep what ``open_sweep`` returns.

    Raises
    ------
    ValueError
        If the file is something else, incomplete or damaged.

    Examples
    --------
    >>> import tempfile
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dl.solve(problem).save(f"{folder}/theory.nc")
    ...     load(f"{folder}/theory.nc") == dl.solve(problem)
    True
    """
    path = Path(path)
    if path.is_dir():
        return open_sweep(path)
    if path.suffix.lower() == ".toml":
        return Problem.load(path)
    kind = _KINDS.get(kind_of(path))
    if kind is None:
        names = " or ".join(sorted(str(name) for name in _KINDS))
        curves = "; curves of networks from elsewhere, such as a CSV file, are read by measured"
        raise ValueError(f"{path} is no TOML file, no folder of a sweep, and no file of a {names}{curves}")
    return kind.load(path)
