"""Put one wrong factor at a time into every equation and see that some test turns red.

    python tools/mutants.py [words to select mutants by]

Each mutant is a copy of the package with one line changed; tests run against it, those of ``make check-slow`` too,
and must fail. A mutant that survives is printed, and the exit code is 1. Tables of mutants are in ``mutants_of_*.py``.
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import mutants_of_networks
import mutants_of_rules
import mutants_of_theory

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """One wrong line, and the tests that must catch it."""

    tests: list[str]
    file: str
    right: str
    wrong: str


MUTANTS = [
    Mutant(suite.tests, file, right, wrong)
    for suite in (*mutants_of_theory.SUITES, *mutants_of_rules.SUITES, *mutants_of_networks.SUITES)
    for file, lines in suite.mutants.items()
    for right, wrong in lines
]


COMPILED_SUFFIXES = (".pyx", ".h")


def compile_again(folder: Path) -> None:
    """Compile the products of a copy of the package, with pip as ``make test`` does, and put them into the copy."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    equations = Path("deeplinear", "_equations")
    for old in (folder / "src" / equations).glob("_rows.*.so"):
        old.unlink()
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(folder / "built")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(folder)], check=True)
    (made,) = (folder / "built" / equations).glob("_rows.*.so")  # none means that there is no compiler
    shutil.copy(made, folder / "src" / equations)


def survives(mutant: Mutant) -> bool:
    """Whether the tests pass although the package is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        target = Path(folder) / "src" / "deeplinear" / mutant.file
        text = target.read_text()
        target.write_text(text.replace(mutant.right, mutant.wrong))
        if target.suffix in COMPILED_SUFFIXES:
            compile_again(Path(folder))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-m", "slow or not slow"]
        tests = [str(ROOT / "tests" / name) for name in mutant.tests]
        environment = {"PYTHONPATH": f"{folder}/src", "PATH": "/usr/bin:/bin", "HYPOTHESIS_STORAGE_DIRECTORY": folder}
        command = [sys.executable, "-m", "pytest", *options, *tests]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True).returncode == 0


def main() -> int:
    """Run the chosen mutants, or all."""
    words = sys.argv[1:]
    chosen = [each for each in MUTANTS if not words or any(word in " ".join(each[1:]) for word in words)]
    survivors = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += alive
            print("SURVIVED" if alive else "caught  ", mutant.file, "|", mutant.right, "->", mutant.wrong, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
