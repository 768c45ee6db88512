"""Build the package as a stranger gets it, install it in an empty environment elsewhere, and run the README there.

``python -m build`` makes the source distribution and, in isolation and from it alone, the wheel. Examples and commands
of the README then run in a folder outside of this tree, with nothing installed but what the wheel asks for.

    python tools/wheel_check.py            # what is built stays in dist/
    python tools/wheel_check.py --wheel W  # a wheel that is there already
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from documentation import blocks  # noqa: E402

EXTRAS = "explore,sweep"
"""Extras that the README installs first."""

LOOK = """
import importlib.metadata, pathlib, sys
import deeplinear
from deeplinear._equations.products import _rows
here = pathlib.Path(deeplinear.__file__)
assert here.is_relative_to(sys.prefix), here
assert deeplinear.__version__ == importlib.metadata.version("deeplinear")
print("deeplinear", deeplinear.__version__, "in", sys.prefix, "products:", "compiled" if _rows else "NumPy")
"""

README = """
import doctest, sys
failed, tried = doctest.testfile(sys.argv[1], module_relative=False, raise_on_error=False)
print(tried, "examples of the README,", failed, "failed")
sys.exit(failed > 0 or tried == 0)
"""


def build() -> Path:
    """Build the source distribution and the wheel from it; return the wheel."""
    dist = ROOT / "dist"
    before = {path: path.stat().st_mtime_ns for path in dist.glob("*.whl")}
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True)
    (wheel,) = [path for path in dist.glob("*.whl") if before.get(path) != path.stat().st_mtime_ns]
    return wheel


def look_inside(wheel: Path) -> None:
    """Refuse a wheel that has more than runs, or lacks what types and the page need."""
    names = zipfile.ZipFile(wheel).namelist()
    wrong = [name for name in names if name.endswith((".c", ".pyx", ".h", ".pyc")) or not name.startswith("deeplinear")]
    assert not wrong, wrong
    for name in (
        "py.typed",
        "check_values.json",
        "citations.bib",
        "_equations/_rows.pyi",
        "_explore/page/index.html",
        "_reproduce/gallery.html",
    ):
        assert f"deeplinear/{name}" in names, name


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel in an empty environment; return where its programs are."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, f"{wheel}[{EXTRAS}]"], check=True)
    return programs


def commands() -> list[str]:
    """Return the commands of the README that run."""
    consoles = [block for block in blocks(ROOT / "README.md") if block.kind == "console" and block.is_run]
    lines = [line for block in consoles for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("deeplinear ")]


def run(programs: Path, folder: Path) -> None:
    """Run the README in an empty folder, without this tree in sight."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"MPLBACKEND": "agg", "PATH": f"{programs}{os.pathsep}{environment['PATH']}"}
    work = folder / "work"
    work.mkdir()
    python = [str(programs / "python"), "-P", "-W", "error"]
    subprocess.run([*python, "-c", LOOK], cwd=work, env=environment, check=True)
    subprocess.run([*python, "-c", README, str(ROOT / "README.md")], cwd=work, env=environment, check=True)
    subprocess.run([str(programs / "deeplinear"), "check"], cwd=work, env=environment, check=True)
    for line in commands():
        print("$", line, flush=True)
        subprocess.run(line, shell=True, cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
    print(f"{len(commands())} commands of the README ran")


def main() -> None:
    """Build, install and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="a wheel that is there already")
    wheel = parser.parse_args().wheel or build()
    look_inside(wheel)
    with tempfile.TemporaryDirectory() as name:
        run(install(wheel.resolve(), Path(name)), Path(name))


if __name__ == "__main__":
    main()
