"""Names for the axes of results: the same observables of theory and experiment get the same labels."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeplinear._core import memory
from deeplinear._core.build import version
from deeplinear._core.files import is_intact, sealed, write_atomically
from deeplinear._core.refusal import Refusal

if TYPE_CHECKING:
    import h5py
    import xarray as xr

Array = NDArray[np.float64]


_FIRST_LAYERS = {"layer": 0, "gradient_layer": 1}
"""Axes of layers, each of which ends with layer L, by where they begin; the input side is 0."""


class _Field(NamedTuple):
    meaning: str
    times: int
    layers: str | None = None
    is_symmetric: bool = False

    @property
    def first_layer(self) -> int | None:
        """Number of the first layer; None where there are no layers."""
        return _FIRST_LAYERS.get(self.layers or "")

    def leading(self, layers: int) -> tuple[int, ...]:
        """Shape of the axes before times, in a network with this many hidden layers."""
        return () if self.first_layer is None else (layers + 1 - self.first_layer,)


FIELDS: dict[str, _Field] = {
    "test_loss": _Field("test loss", 1),
    "train_loss": _Field("train loss", 1),
    "averaged_test_loss": _Field("test loss of averaged weights", 1, "average"),
    "task_loss": _Field("test loss on the target of each phase", 1, "phase"),
    "feature_correlation": _Field("correlation of the forward fields", 2, "layer", is_symmetric=True),
    "gradient_correlation": _Field("correlation of the backward fields", 2, "gradient_layer", is_symmetric=True),
    "error_correlation": _Field("correlation of the errors in weight space", 2, is_symmetric=True),
    "residual_correlation": _Field("correlation of the residuals on the training samples", 2, is_symmetric=True),
    "feature_response": _Field("response of the forward fields", 2, "layer"),
    "gradient_response": _Field("response of the backward fields", 2, "gradient_layer"),
    "error_response": _Field("response of the errors in weight space", 2),
    "residual_response": _Field("response of the residuals", 2),
    "kernel": _Field("effective tangent kernel over time", 1),
    "bias": _Field("bias part of the test loss", 1),
    "width": _Field("width part of the test loss", 1),
    "data": _Field("data part of the test loss", 1),
    "label_noise": _Field("label noise part of the test loss", 1),
}
"""Observables that can be labelled: what each is, its number of time axes, its layer axis, and of functions of two
times whether they are symmetric; the others are causal."""

OF_TWO_TIMES = tuple(name for name, field in FIELDS.items() if field.times == 2)
CORRELATIONS = tuple(name for name in OF_TWO_TIMES if FIELDS[name].is_symmetric)

_OF_PAIRS = {"time": "pair_time", "time_prime": "pair_time_prime"}
"""Axes of functions of two times that are known at other times than curves."""

LOSSES = ("test_loss", "train_loss")
"""The losses that theory and networks both have."""


Axes = tuple[str, ...]
Variables = dict[str, tuple[Axes, NDArray[Any], dict[str, str]]]


@dataclass(frozen=True)
class Labelled:
    """Arrays with names for their axes: what a data set of xarray has, which takes longer to load than many a solve.

    Attributes
    ----------
    variables, coords
        Axes, numbers and attributes of observables, and of what stands along their axes.
    attrs
        Attributes of all.
    """

    variables: Variables
    coords: Variables
    attrs: dict[str, Any]

    def to_xarray(self) -> "xr.Dataset":
        """Return the same as a data set."""
        import xarray as xr  # slow to import

        return xr.Dataset(self.variables, self.coords, self.attrs)

    def write(self, path: str | Path) -> None:
        """Write a result file (``.nc``), the same that xarray would, as ``write_dataset`` does."""
        needed = sum(values.nbytes for _, values, _ in self.variables.values())
        _write(path, needed, self._as_netcdf)

    def _as_netcdf(self) -> io.BytesIO:
        import h5netcdf  # slow to import

        content = io.BytesIO()
        with h5netcdf.File(content, "w") as file:
            every = self.coords | self.variables
            file.dimensions = {
                dim: n for axes, values, _ in every.values() for dim, n in zip(axes, values.shape, strict=True)
            }
            along = {name: set(axes) for name, (axes, _, _) in self.coords.items() if axes != (name,)}
            for name, (axes, values, attributes) in every.items():
                missing = np.nan if values.dtype.kind == "f" else None
                variable = file.create_variable(name, axes, values.dtype, data=values, fillvalue=missing)
                variable.attrs.update(attributes)
                beside = [coord for coord, dims in along.items() if dims <= set(axes) and coord != name]
                if beside:
                    variable.attrs["coordinates"] = " ".join(beside)
            file.attrs.update(self.attrs)
        return content


def labelled(
    values: Mapping[str, ArrayLike],
    *,
    times: Array | NDArray[np.int64],
    depth: int,
    pair_times: Array | NDArray[np.int64] | None = None,
    outputs: int = 1,
    seeds: Sequence[int] | None = None,
    layer_time: Array | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Labelled:
    """Label observables.

    Parameters
    ----------
    values
        Arrays by name, each of shape ([seed,] [layer,] time) or ([seed,] [layer,] n, n) with
        n = times * outputs, time-major. The names are those of ``FIELDS``.
    times
        Steps at which the observables are given.
    depth
        Number L of hidden layers.
    pair_times
        Steps at whose pairs functions of two times are given, if these are others.
    outputs
        Number C of outputs. With more than one, n is split into the axes time and output.
    seeds
        Seeds along the leading axis; ``None`` if there is no such axis.
    layer_time
        At infinite depth, where along the chain each of the ``depth`` nodes stands; becomes a coordinate.
    attrs
        Attributes of the data set; the version of the package is added.

    Returns
    -------
    Labelled
        With dimensions among seed, layer (0 .. L), gradient_layer (1 .. L), average, phase, time, output,
        time_prime and output_prime; pair_time and pair_time_prime in place of two times where pairs have their own.

    Examples
    --------
    >>> found = labelled({"feature_correlation": np.ones((3, 4, 4))}, times=np.arange(4), depth=2)
    >>> found.to_xarray().feature_correlation.dims
    ('layer', 'time', 'time_prime')
    """
    variables: Variables = {}
    own_pairs = pair_times is not None and not np.array_equal(pair_times, times)
    of_pairs = times if pair_times is None else pair_times
    for name, value in values.items():
        dims = _dims(name, outputs, seeds is not None)
        array, is_pair = np.asarray(value), FIELDS[name].times == 2
        leading, count = array.shape[: array.ndim - FIELDS[name].times], len(of_pairs if is_pair else times)
        split = (count, outputs) * 2 if "output" in dims else (count,) * FIELDS[name].times
        dims = tuple(_OF_PAIRS.get(dim, dim) for dim in dims) if own_pairs and is_pair else dims
        variables[name] = dims, array.reshape(leading + split), {"long_name": FIELDS[name].meaning}
    coordinates = {
        "seed": (np.array(seeds), "seed"),
        **{axis: (np.arange(first, depth + 1), "layer") for axis, first in _FIRST_LAYERS.items()},
        "time": (times, "training step"),
        "output": (np.arange(outputs), "output"),
        "time_prime": (times, "training step"),
        "pair_time": (of_pairs, "training step of a pair"),
        "pair_time_prime": (of_pairs, "training step of a pair"),
        "output_prime": (np.arange(outputs), "output"),
        "average": (np.arange(_length(variables, "average")), "average of the weights"),
        "phase": (np.arange(_length(variables, "phase")), "phase of training"),
    }
    used = {dim for dims, _, _ in variables.values() for dim in dims}
    coords: Variables = {
        dim: ((dim,), np.asarray(values), {"long_name": text})
        for dim, (values, text) in coordinates.items()
        if dim in used
    }
    if layer_time is not None:
        meaning = {"long_name": "layer time, 0 at layer 1 and 1 at the last layer"}
        coords["layer_time"] = ("gradient_layer",), np.asarray(layer_time), meaning
    return Labelled(variables, coords, {**(attrs or {}), "deeplinear_version": version()})


def _length(variables: Variables, dim: str) -> int:
    """Length of a dimension that some variables have, 0 if none has it."""
    lengths = [array.shape[dims.index(dim)] for dims, array, _ in variables.values() if dim in dims]
    return max(lengths, default=0)


def from_dataset(dataset: "xr.Dataset", name: str) -> Array | None:
    """Return one observable in the shape that ``labelled`` was given, ``None`` if it is not there."""
    if name not in dataset:
        return None
    variable = dataset[name]
    allowed = [_dims(name, outputs, "seed" in variable.dims) for outputs in (1, 2)]
    of_steps = {of_pair: dim for dim, of_pair in _OF_PAIRS.items()}
    if tuple(of_steps.get(str(dim), dim) for dim in variable.dims) not in allowed:
        raise Refusal(name, variable.dims, f"the axes {' or '.join(map(str, allowed))}", verb="have")
    array = np.asarray(variable.values, dtype=np.float64)
    if "output" not in variable.dims:
        return array
    n = array.shape[-2] * array.shape[-1]
    return array.reshape(*array.shape[:-4], n, n)


def _dims(name: str, outputs: int, seeded: bool) -> tuple[str, ...]:
    field = FIELDS[name]
    per_time = [["time"], ["time_prime"]] if outputs == 1 else [["time", "output"], ["time_prime", "output_prime"]]
    axes = ["time"] if field.times == 1 else [dim for dims in per_time for dim in dims]
    return tuple((["seed"] if seeded else []) + ([field.layers] if field.layers else []) + axes)


def write_dataset(
    path: str | Path, dataset: "xr.Dataset", encoding: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Write a result file (``.nc``), whole or not at all, with a seal by which ``reading`` knows it."""
    _write(path, dataset.nbytes, lambda: as_netcdf(dataset, encoding))


def _write(path: str | Path, needed: int, make: Callable[[], io.BytesIO]) -> None:
    if Path(path).suffix.lower() != ".nc":
        raise Refusal("path", str(path), ".nc", verb="end in")
    memory.require(needed, f"writing {path}", "free some memory")
    content = make()
    write_atomically(path, lambda temporary: temporary.write_bytes(sealed(content)))


def as_netcdf(dataset: "xr.Dataset", encoding: Mapping[str, Mapping[str, Any]] | None = None) -> io.BytesIO:
    """Return a data set as a file, made in memory: HDF5 takes the process down with it where a disk is full."""
    import h5netcdf  # slow to import
    import xarray as xr

    content = io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        dataset.dump_to_store(xr.backends.H5NetCDFStore(file), encoding=encoding)
    return content


@contextmanager
def reading(
    path: str | Path, kind: str, attributes: Iterable[str], variables: Iterable[str], others: Iterable[str] = ()
) -> Iterator["xr.Dataset"]:
    """Read a result file of the given kind, and refuse it where its content makes no sense in the block.

    Only what is named is read: ``attributes`` and ``variables``, which must be there, observables, and ``others``.
    """
    import xarray as xr  # slow to import

    with Path(path).open("rb") as file:
        intact = is_intact(file)
    if intact is False:
        raise ValueError(
            f"{path} is damaged: its content has changed since it was written; use a copy, or write it again"
        )
    refusal = f"{path} is not a {kind} file"
    try:
        attrs, arrays = _contents(path, dict.fromkeys([*FIELDS, *variables, *others]))
        dataset = xr.Dataset(arrays, attrs=attrs)
    except MemoryError:
        raise
    except Exception as error:  # what a file that is cut off or foreign raises depends on where it makes no sense
        raise ValueError(f"{refusal}, or it is damaged: {error}") from None
    if attrs.get("kind") != kind:
        raise ValueError(f"{refusal}: its kind is {attrs.get('kind')!r}")
    names = {"attribute": attributes, "variable": variables}
    there: dict[str, Mapping[Any, Any]] = {"attribute": attrs, "variable": dataset.variables}
    missing = [f"{what} {name}" for what, each in names.items() for name in each if name not in there[what]]
    has = "; ".join(f"{what}s {', '.join(each)}" for what, each in names.items())
    if missing:
        raise ValueError(f"{path} is not complete: it has no {', no '.join(missing)}; a complete file has the {has}")
    try:
        yield dataset
    except RecursionError:
        raise ValueError(f"{path} cannot be read: its attributes are nested too deeply") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def kind_of(path: str | Path) -> str | None:
    """Return the kind of a result file, None if it is another file."""
    import h5py  # slow to import

    with Path(path).open("rb"):  # one that is not there has an error of its own
        pass
    try:
        with h5py.File(path, "r") as file:
            kind = _attribute(file.attrs, "kind") if "kind" in file.attrs else None
    except Exception:  # what a file that is cut off or foreign raises depends on where it makes no sense
        return None
    return kind if isinstance(kind, str) else None


def _contents(path: str | Path, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, tuple[list[str], Array]]]:
    """Return the attributes of a file that are texts or numbers, and these of its variables with their axes."""
    import h5py  # slow to import

    with h5py.File(path, "r") as file:
        attrs = {name: value for name in file.attrs if (value := _attribute(file.attrs, name)) is not None}
        found = {name: own for name in names if name in file and not _is_bare_axis(own := _own(file, name))}
        needed, size = sum(each.nbytes for each in found.values()), Path(path).stat().st_size
        if needed > _MOST_DEFLATED * size:
            raise ValueError(f"it is {size / 1e6:.2g} MB long, and its variables would take {needed / 1e6:.2g} MB")
        memory.require(2 * needed, f"reading {path}", "free some memory")
        return attrs, {name: (_dims_of(each), each[()]) for name, each in found.items()}


_MOST_DEFLATED = 2000
"""Bytes that a byte of a compressed file may stand for; zeros, by gzip, are 1030."""


def _attribute(attributes: "h5py.AttributeManager", name: str) -> str | int | float | None:
    """Return an attribute that is a text or a number; None if it is anything else, such as a long array."""
    if attributes.get_id(name).shape not in ((), (1,)):
        return None
    value = np.asarray(attributes[name]).item()
    return value if isinstance(value, str | int | float) else None


def _own(file: "h5py.File", name: str) -> "h5py.Dataset":
    """Return a variable whose numbers stand in the file itself, as they are."""
    import h5py

    link = file.get(name, getlink=True)
    variable = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(variable, h5py.Dataset) or variable.external or variable.is_virtual:
        raise ValueError(f"{name} is not stored in it")
    if variable.dtype.kind not in "iuf" or variable.shape is None or {"scale_factor", "add_offset"} & {*variable.attrs}:
        raise ValueError(f"{name} is not made of plain numbers")
    return variable


def _is_bare_axis(variable: "h5py.Dataset") -> bool:
    """Return True for what a NetCDF file has in place of a coordinate without values."""
    return str(np.asarray(variable.attrs.get("NAME", "")).astype(str)).startswith("This is a netCDF dimension but not")


def _dims_of(variable: "h5py.Dataset") -> list[str]:
    """Names of the axes of a variable: those of a coordinate are its own."""
    scales = [[scale.name for scale in axis.values()] for axis in variable.dims]
    return [each[0].rpartition("/")[2] if each else variable.name.rpartition("/")[2] for each in scales]


def check_curve(name: str, curve: Array, shape: tuple[int, ...], known: NDArray[np.bool_]) -> None:
    """Refuse losses from a file that cannot be any: they are finite where ``known``, and never negative."""
    if curve.shape != shape:
        raise Refusal(name, curve.shape, f"of shape {shape}", got=f"{curve.shape}")
    ahead = np.broadcast_to(known, curve.shape)
    wrong = np.isnan(curve) | (curve < 0) | (ahead & np.isinf(curve))
    if wrong.any():
        allowed = "numbers that are zero or above, and finite up to a divergence"
        raise Refusal(name, curve, allowed, got=f"{curve[wrong][0]:.3g}")
