"""Results on disk, one file each, so that nothing is computed twice and an interruption loses one piece at most."""

from pathlib import Path

import numpy as np
import xarray as xr

from deeplinear._core.dataset import write_dataset
from deeplinear._core.files import is_intact
from deeplinear._reproduce.jobs import Job, key


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """File of a job's result, whether it is there or not."""
        return self.folder / f"{key(job)}.nc"

    def load(self, job: Job) -> xr.Dataset | None:
        """Return a kept result; None if there is none, or if its file is damaged or that of another job."""
        try:
            with self.path(job).open("rb") as file:
                if is_intact(file) is False:
                    return None
            data = xr.load_dataset(self.path(job), engine="h5netcdf")
        except MemoryError:
            raise
        except Exception:  # what a file that is cut off or foreign raises depends on where it makes no sense
            return None
        return data if "made" in data.attrs and data.attrs.get("job", key(job)) == key(job) else None

    def save(self, job: Job, data: xr.Dataset) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = {
            str(name): {"zlib": True, "complevel": 6}
            for name, each in data.variables.items()
            if each.ndim and np.prod(each.shape) > 64
        }
        write_dataset(self.path(job), data.assign_attrs(job=key(job)), packed)
