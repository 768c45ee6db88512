"""Results of jobs on disk, one file each: nothing is computed twice, and an interruption loses one piece at most."""

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import xarray as xr

from deeplinear._core.dataset import as_netcdf
from deeplinear._core.store import Damaged, Format, Store
from deeplinear._reproduce.jobs import Job, key


def _pack(data: xr.Dataset) -> io.BytesIO:
    packed = {
        str(name): {"zlib": True, "complevel": 6}
        for name, each in data.variables.items()
        if each.ndim and np.prod(each.shape) > 64
    }
    return as_netcdf(data, packed)


def _unpack(content: io.BytesIO) -> xr.Dataset:
    try:
        return xr.load_dataset(content, engine="h5netcdf")
    except MemoryError:
        raise
    except Exception:  # what a foreign file raises depends on where it makes no sense
        raise Damaged from None


DATASETS = Format[xr.Dataset](".nc", _pack, _unpack)


def open_store(folder: Path, jobs: Iterable[Job]) -> Store[xr.Dataset]:
    """Return the results of jobs, as far as there are any."""
    names = [key(job) for job in jobs]
    return Store(folder, folder, folder / ".deeplinear", {name: name for name in names}, DATASETS)


def path(folder: Path, job: Job) -> Path:
    """File of a job's result, whether it is there or not."""
    return folder / f"{key(job)}{DATASETS.suffix}"
