"""Run the tests of the compiled products with sanitizers and bounds checks, which see what plain tests do not.

A copy of the package is compiled with AddressSanitizer and UndefinedBehaviorSanitizer, and Cython checks every index.
The first fault ends the run. Needs gcc, and the test extra in the environment that runs this.

    python tools/sanitize.py
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DMULTIVERSION="
TESTS = ["tests/equations/test_products.py", "tests/equations/test_compiled.py"]
SHOWN = """
import numpy as np
from deeplinear._equations import _rows
try:
    _rows.fill_sum(np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), None, None, 9)
except IndexError as error:
    print("an index out of bounds is seen:", error)
else:
    raise SystemExit("bounds are not checked")
"""


def copy(folder: Path) -> None:
    """Copy what is built and tested, with every check of Cython switched on."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "_rows.c", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    rows = folder / "src" / "deeplinear" / "_equations" / "_rows.pyx"
    text = rows.read_text()
    for off in ("boundscheck(False)", "wraparound(False)"):
        assert off in text, off
        text = text.replace(f"@cython.{off}\n", "")
    rows.write_text(text.replace("language_level=3", "language_level=3, boundscheck=True, initializedcheck=True"))


def library(name: str) -> str:
    """Return where gcc has a library that must be loaded before all others."""
    done = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> int:
    """Build, show that checks are on, and run the tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        build = {"CC": "gcc", "DEEPLINEAR_COMPILED": "require", "DEEPLINEAR_FLAGS": FLAGS}
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(folder / "built")]
        install = [sys.executable, "-m", "pip", "install", *options, str(folder)]
        subprocess.run(install, env=os.environ | build, check=True)
        (made,) = (folder / "built" / "deeplinear" / "_equations").glob(
            f"_rows*{sysconfig.get_config_var('EXT_SUFFIX')}"
        )
        shutil.copy(made, folder / "src" / "deeplinear" / "_equations")
        environment = os.environ | {
            "PYTHONPATH": str(folder / "src"),
            "PYTHONMALLOC": "malloc",
            "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps much until its end
            "DEEPLINEAR_REQUIRE": "compiled",
        }
        subprocess.run([sys.executable, "-c", SHOWN], cwd=folder, env=environment, check=True)
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
        return subprocess.run(pytest, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
