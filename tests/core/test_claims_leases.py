"""Who works on what: leases of processes that have died end, wherever they ran; what waits says so."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deeplinear._core import claims as claims_module
from deeplinear._core.claims import Claims, Wait

DIES = """
import os, sys
from pathlib import Path
from deeplinear._core.claims import Claims
print(Claims(Path(sys.argv[1])).take("a"), os.getpid(), flush=True)
os._exit(0)
"""

IN_TURN = """
import os, sys, time
from pathlib import Path
from deeplinear._core.claims import Claims
folder, is_first = Path(sys.argv[1]), sys.argv[2] == "first"
end, began = time.monotonic() + 20, folder / "began"
while not is_first and not began.exists():
    time.sleep(0.01)
claims = Claims(folder)
while not (taken := claims.take("a")) and time.monotonic() < end:
    time.sleep(0.1)
began.touch()
while is_first and not (folder / "second").exists():
    time.sleep(0.01)
print(taken, os.getpid(), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def container() -> list[str]:
    """The command that runs others as process 1 of a container of their own, with the same host name."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("this system lets no process make containers")
    return command


def test_containers_with_one_host_name_take_over_from_each_other(tmp_path: Path, container: list[str]) -> None:
    """Both processes have the number 1 and were started together, and the first has died while it held a claim."""
    command = [*container, sys.executable, "-c", IN_TURN, str(tmp_path)]
    both = [subprocess.Popen([*command, which], stdout=subprocess.PIPE, text=True) for which in ("first", "second")]
    while not list((tmp_path / "owners").glob("*")) or len(list((tmp_path / "owners").iterdir())) < 2:
        time.sleep(0.01)
    (tmp_path / "second").touch()
    assert [each.communicate(timeout=60)[0].split() for each in both] == [["True", "1"], ["True", "1"]]


def test_a_process_that_is_alive_keeps_what_it_has_in_any_container(tmp_path: Path, container: list[str]) -> None:
    mine = Claims(tmp_path)
    assert mine.take("a")
    command = [*container, sys.executable, "-c", DIES, str(tmp_path)]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout.split() == ["False", "1"]
    mine.close()


@pytest.mark.parametrize("machine", ["another", None], ids=["on another machine", "without locks"])
def test_a_lease_that_is_not_renewed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None) -> None:
    """As of a dead process of another machine, or on a file system without locks: its number and host say nothing."""
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=True, capture_output=True)
    (owner,) = (tmp_path / "owners").iterdir()
    owner.write_text(json.dumps({} if machine is None else {"machine": machine}))
    monkeypatch.setattr(claims_module, "PATIENCE", 0.3)
    near = Claims(tmp_path)
    assert not near.take("a")
    time.sleep(0.2)
    os.utime(owner)  # a sign of life
    assert not near.take("a")
    time.sleep(0.2)
    assert not near.take("a")
    time.sleep(0.2)
    assert near.take("a")
    near.close()


def test_a_process_that_no_longer_gives_signs_of_life_loses_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its lock is held, as by a child that was forked meanwhile."""
    silent = Claims(tmp_path)
    assert silent.take("a")
    monkeypatch.setattr(claims_module, "PATIENCE", 0.1)
    near = Claims(tmp_path)
    assert not near.take("a")
    time.sleep(0.2)
    assert near.take("a")
    near.close()
    silent.close()


def test_what_waits_says_so_once(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    monkeypatch.setattr(claims_module, "QUIET", 0.05)
    wait = Wait("is at work on the store x")
    for _ in range(4):
        wait.sleep(0.02)
        wait.go_on()
    assert not recwarn
    for _ in range(6):
        wait.sleep(0.02)
    (said,) = recwarn
    assert str(said.message).startswith("waiting for another process, which is at work on the store x; one that has")
