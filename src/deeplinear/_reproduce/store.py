"""Results on disk, one file each, so that nothing is computed twice and an interruption loses one piece at most."""

from pathlib import Path

import numpy as np
import xarray as xr

from deeplinear._files import write_atomically
from deeplinear._reproduce.jobs import Job, key


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """File of a job's result, whether it is there or not."""
        return self.folder / f"{key(job)}.nc"

    def load(self, job: Job) -> xr.Dataset | None:
        """Return a kept result; None if there is none, or if its file is damaged."""
        try:
            return xr.load_dataset(self.path(job), engine="h5netcdf")
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return None

    def save(self, job: Job, data: xr.Dataset) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = {
            str(name): {"zlib": True, "complevel": 6}
            for name, each in data.variables.items()
            if each.ndim and np.prod(each.shape) > 64
        }
        write_atomically(self.path(job), lambda path: data.to_netcdf(path, engine="h5netcdf", encoding=packed))
