"""What a start loads: nothing that a solve does not use. Counted, since times depend on the machine."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import deeplinear as dl

SLOW = {"scipy", "xarray", "pandas", "dask", "h5py", "h5netcdf", "matplotlib", "psutil", "torch", "zarr", "plotly"}
"""Packages that take 10 to 600 ms to load."""

SOLVE = "import sys; sys.argv = ['deeplinear', 'solve', '--steps', '30', *sys.argv[1:]]\n"
SOLVE += "from deeplinear_command import main\ntry: main()\nexcept SystemExit: pass\n"


def loaded(code: str, folder: Path, *arguments: str) -> set[str]:
    """Return the modules that a program has loaded."""
    command = [sys.executable, "-c", f"{code}\nprint('loaded', *sys.modules)", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("loaded ")[2].split())


def heavy(modules: set[str]) -> set[str]:
    return SLOW & {name.partition(".")[0] for name in modules}


def test_importing_loads_what_solves(tmp_path: Path) -> None:
    modules = loaded("import sys, deeplinear", tmp_path)
    assert heavy(modules) == set()
    assert "importlib.metadata" not in modules
    assert {name.split(".")[1] for name in modules if name.startswith("deeplinear.")} <= {
        "rules", "schedules", "_core", "_problem", "_rules", "_time", "_equations", "_solvers", "_theory"
    }  # fmt: skip


def test_solving_loads_nothing_more(tmp_path: Path) -> None:
    code = "import sys, deeplinear as dl\n"
    code += (
        "dl.solve(dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=30))"
    )
    assert heavy(loaded(code, tmp_path)) <= {"psutil"}  # which says how much memory is free


@pytest.mark.parametrize(("arguments", "needed"), [((), {"h5py", "h5netcdf"}), (("--json",), set())])
def test_the_command_loads_what_writes_its_file(tmp_path: Path, arguments: tuple[str, ...], needed: set[str]) -> None:
    modules = loaded(SOLVE, tmp_path, *arguments)
    assert (tmp_path / "solve.nc").exists() == bool(needed)
    assert heavy(modules) == needed | {"psutil"}


def test_what_is_imported_when_it_is_asked_for() -> None:
    """The same names as types are checked with, each of which is there."""
    source = ast.parse(Path(dl.__file__).read_text(encoding="utf-8"))
    (checked,) = (each for each in source.body if isinstance(each, ast.If))
    expected = {
        each.module.removeprefix("deeplinear."): tuple(name.name for name in each.names)
        for each in checked.body
        if isinstance(each, ast.ImportFrom) and each.module
    }
    assert expected == dl._WHEN_ASKED_FOR
    assert all(hasattr(dl, name) for name in dl.__all__)
    assert set(dl.__all__) <= set(dir(dl))
    with pytest.raises(AttributeError, match="has no attribute 'solv'"):
        dl.solv  # noqa: B018
