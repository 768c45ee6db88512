"""The packages that CONTRIBUTING lists are the folders on disk, and import only those below them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "deeplinear"


def drawn() -> dict[str, list[str]]:
    """Modules of each package, from the list in CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The layout of")[2]
    rooms: dict[str, list[str]] = {}
    room = ""
    for line in text.split("```")[1].strip("\n").splitlines():
        words = line.split()
        if not line.startswith(" "):
            room, *words = words
            rooms[room] = []
        rooms[room] += words
    return rooms


def test_the_rooms_are_those_on_disk() -> None:
    found = {
        path.name: sorted(
            str(module.relative_to(path).with_suffix(""))
            for module in path.rglob("*.py")
            if module.name != "__init__.py"
        )
        for path in PACKAGE.iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    found |= {path.stem: [] for path in PACKAGE.glob("_*.py") if path.name != "__init__.py"}
    assert {room: sorted(modules) for room, modules in drawn().items()} == found


def test_every_room_has_its_tests() -> None:
    elsewhere = {"__main__": "cli", "_torch": "pytorch"}  # a folder "torch" would stand for a PyTorch that is not there
    no_room = {"docs", "project"}
    tests = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("test_*.py"))}
    tests |= {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    assert {elsewhere.get(room, room.removeprefix("_")) for room in drawn()} == tests - no_room


def test_rooms_import_only_rooms_below_them() -> None:
    command = [Path(sys.executable).parent / "lint-imports", "--config", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
