"""Files on the server: how they are kept, what is read from them, and what is refused, in words."""

import errno
import io
import random
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore import files, tasks, uploads
from deeplinear._explore.app import _Refused, make_app
from deeplinear._explore.problems import read_problem
from deeplinear._explore.worker import _Worker
from explorer import PROBLEM, last_line, served

BINARY = {"content-type": "application/octet-stream"}


def sent(client: httpx.Client, content: bytes, name: str = "some.csv") -> str:
    """Send a file; return what it is known by."""
    answer = client.post("/api/upload", params={"name": name}, content=content, headers=BINARY)
    file: str = answer.json()["file"]
    return file


def packed(**arrays: Any) -> bytes:
    written = io.BytesIO()
    np.savez_compressed(written, **arrays)
    return written.getvalue()


def rows(count: int = 40) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, 3)) * [2.0, 1.0, 0.5]
    return x, np.stack([x[:, 0] - x[:, 2], x[:, 1]], axis=1) + 0.1 * rng.standard_normal((count, 2))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process looks for files, as processes of the server do."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def kept(folder: Path, content: bytes) -> str:
    """Put a file where the server would; return what it is known by."""
    file = f"{len(list(folder.iterdir())):016x} file"
    uploads.path_in(folder, file).write_bytes(content)
    return file


@pytest.fixture
def own() -> Iterator[tuple[Starlette, httpx.Client]]:
    """A server to which nobody else has sent a file, and a client of it."""
    app = make_app()
    with served(app) as client:
        yield app, client


def test_files_are_kept_in_the_servers_folder_and_forgotten(
    own: tuple[Starlette, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    (app, client), (x, y) = own, rows()
    first = sent(client, packed(x=x, y=y), "../rows.npz")
    assert first[16:] == " .._rows.npz"
    answer = last_line(client.post("/api/data", json={"file": first}))["result"]
    assert (answer["rows"], answer["directions"], answer["outputs"]) == (40, 3, 2)
    assert len(list(app.state.folder.iterdir())) == 2  # itself and its spectrum
    client.delete("/api/upload", params={"file": first})
    assert list(app.state.folder.iterdir()) == []
    gone = last_line(client.post("/api/data", json={"file": first}))
    assert (gone["error"], gone["field"]) == ("this file is no longer here: choose it again", "data.file")
    for index in range(files.MOST_KEPT + 2):
        sent(client, b"%d" % index)
    assert len(list(app.state.folder.iterdir())) == files.MOST_KEPT
    monkeypatch.setattr(files, "LARGEST_FILE", 10)
    large = client.post("/api/upload", params={"name": "x"}, content=b"x" * 11, headers=BINARY)
    assert (large.status_code, large.json()["error"]) == (413, "a file must have at most 0 MB")
    form = client.post("/api/upload", content=b"x", headers={"content-type": "text/plain"})
    assert form.status_code == 415
    assert len(list(app.state.folder.iterdir())) == files.MOST_KEPT


def test_rows_are_the_same_from_a_table_and_from_arrays(folder: Path) -> None:
    x, y = rows()
    table = "a;b;y1;c;y2\n" + "\n".join(
        ";".join(map(repr, [*row[:2], target[0], row[2], target[1]]))
        for row, target in zip(x.tolist(), y.tolist(), strict=True)
    )
    last = "\n".join(",".join(map(repr, [*row, target[0]])) for row, target in zip(x.tolist(), y.tolist(), strict=True))
    expected = dl.Spectrum.from_data(x, y)
    for content in (packed(x=x, y=y), table.encode()):
        file = kept(folder, content)
        found = uploads.spectrum_of(file)
        np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-12)
        np.testing.assert_allclose(found.target_power, expected.target_power, rtol=1e-12, atol=1e-14)
        assert found.noise == pytest.approx(expected.noise, rel=1e-12)
        uploads._spectrum.cache_clear()
        assert uploads.spectrum_of(file, whole=True) == found  # from what was written down
    unnamed = uploads.spectrum_of(kept(folder, last.encode()))
    np.testing.assert_allclose(unnamed.target_power, dl.Spectrum.from_data(x, y[:, 0]).target_power, rtol=1e-12)


def test_many_directions_are_fewer_with_the_same_predictions(folder: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((400, 150)) * np.arange(1, 151) ** -0.8
    file = kept(folder, packed(x=x, y=x.sum(axis=1)))
    few, whole = uploads.spectrum_of(file), uploads.spectrum_of(file, whole=True)
    assert len(few.eigenvalues) < 64 < len(whole.eigenvalues) == 150
    problem = dl.Problem(dl.MLP(1, 64.0), whole, dl.FullBatch(100.0), dl.GradientDescent(0.1), steps=20)
    theory, fewer = dl.solve(problem), dl.solve(problem.replace(data=few))
    np.testing.assert_allclose(fewer.test_loss, theory.test_loss, rtol=1e-6)


def test_fewer_directions_have_the_same_predictions_with_momentum(folder: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1500, 600)) * np.arange(1, 601) ** -0.55
    file = kept(folder, packed(x=x, y=x.sum(axis=1)))
    document = {
        "network": {"type": "MLP", "depth": 1, "width": 640.0, "richness": 0.1},
        "data": {"type": "Uploaded", "file": file},
        "sampling": {"type": "Population"},
        "optimizer": {"type": "GradientDescent", "lr": 0.9, "momentum": 0.9},
        "steps": 80,
    }
    few, whole = (read_problem(document, whole) for whole in (False, True))
    assert len(few.data.eigenvalues) < 200 < len(whole.data.eigenvalues)
    np.testing.assert_allclose(dl.solve(few).test_loss, dl.solve(whole).test_loss, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has 0 lines"),
        (b"x\n1\n2\n", "it has only one column"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"a,b\n1,2\n3\n", "line 3 should have 2 numbers, but is '3'"),
        (b"a,b\n1,2\n3,nan\n5,6\n7,9\n", "y must be finite, got nan at [1, 0]"),
        (b"a,b\n1,2\n1,3\n1,4\n", "x must have a column that varies"),
        (b"PK\x03\x04 and nonsense", "this npz file cannot be read"),
        (packed(a=np.ones(3)), "it has no array x and no y, but a"),
        (packed(x=np.array([{}], dtype=object), y=np.ones(1)), "must have rows and columns of numbers, not shape (1,)"),
        (packed(x=np.ones((2, 3, 4)), y=np.ones(2)), "rows and columns of numbers, not shape (2, 3, 4)"),
        (packed(x=np.array(3.0), y=np.ones(2)), "rows and columns of numbers, not shape ()"),
        (packed(x=np.array([["a"]]), y=np.ones(1)), "of numbers, not shape (1, 1) of <U1"),
        (packed(x=np.eye(3), y=np.ones(3))[:-80], "this npz file cannot be read"),
        (packed(x=np.eye(3), y=np.ones(2)), "y must have as many rows as x (3)"),
    ],
)
def test_bad_data_are_refused_with_what_was_wanted(folder: Path, content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="Expected: a CSV file") as refusal:
        uploads.spectrum_of(kept(folder, content))
    assert words in str(refusal.value)


def test_data_that_unpack_to_too_much_are_refused(folder: Path) -> None:
    """Made here, since to pack them takes longer than to collect all other tests of files."""
    with pytest.raises(ValueError, match=r"the data have 18000000 numbers, and this page accepts at most 4000000"):
        uploads.spectrum_of(kept(folder, packed(x=np.zeros((9000, 2000)), y=np.zeros(9000))))


def test_large_data_and_curves_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_ROWS", {"numbers": 100, "directions": 3, "outputs": 1, "products": 100})
    for x, y, words in (
        (np.ones((60, 2)), np.ones(60), "120 numbers, and this page accepts at most 100"),
        (np.ones((2, 4)), np.ones(2), "4 directions"),
        (np.ones((3, 2)), np.ones((3, 2)), "2 outputs"),
        (np.ones((30, 2)), np.ones(30), "30 rows in 2 directions, which takes this page too long: give it fewer"),
    ):
        with pytest.raises(ValueError, match=words):
            uploads.spectrum_of(kept(folder, packed(x=x, y=y)))
    monkeypatch.setattr(uploads, "MOST_CURVES", {"bytes": 30, "steps": 2, "runs": 1})
    with pytest.raises(ValueError, match="the file is 0 MB, and curves may be at most 0 MB"):
        uploads.measured_of(kept(folder, b"step,test_loss\n" + 8 * b"0,1\n"))
    with pytest.raises(ValueError, match="the curves have 3 steps, and this page accepts at most 2"):
        uploads.measured_of(kept(folder, b"step,test_loss\n0,1\n1,2\n2,3\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"step,test_loss\n", "must have a line of names and lines of numbers, got 1 lines"),
        (b"a,b\n1,2\n", "the file has no loss column (it has: a, b). Expected"),
        (b"step,test_loss\n0,-1\n", "test_loss must be zero or above, got -1.0"),
        (b"step,test_loss\n0.5,1\n", "steps must be whole numbers"),
        (b"\xff\xfe\x00\x01", "neither a CSV file"),
    ],
)
def test_bad_curves_are_refused_with_what_was_wanted(folder: Path, content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="Expected: a CSV file with a line of names and a line for each") as refusal:
        uploads.measured_of(kept(folder, content))
    assert words in str(refusal.value)
    assert str(folder) not in str(refusal.value)


def test_curves_are_drawn_also_where_they_cannot_be_compared(client: httpx.Client) -> None:
    file = sent(client, b"step,train_loss,val_loss\n0,1,2\n40,0.5,1\n")
    result = last_line(client.post("/api/measured", json={"file": file, "problem": PROBLEM}))["result"]
    assert result["verdict"] is None
    assert result["note"] == "the curve goes to step 40 and theory to 19: solve 41 steps, or cut the curve"
    assert result["test_loss"] == {"times": [0, 40], "mean": [2, 1], "standard_error": [None, None]}
    assert result["train_loss"]["mean"] == [1, 0.5]


def _outcome(file: str, expected: tuple[Any, Any]) -> str:
    """Say what is read from a data set: right or other rows, or how it is refused."""
    try:
        found = uploads.rows_of(file)
    except Refusal as error:
        return f"{error.field}: {str(error).partition(': ')[0]}"
    return "right" if all(np.array_equal(*pair) for pair in zip(found, expected, strict=True)) else "other"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_flipped_bits_of_archives_are_refused_in_words(folder: Path, compression: int) -> None:
    """Or make no difference, as in a date."""
    content, (x, y) = io.BytesIO(), rows()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, array in {"x": x, "y": y}.items():
            part = io.BytesIO()
            np.save(part, array)
            archive.writestr(f"{name}.npy", part.getvalue())
    whole, rng = content.getvalue(), random.Random(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.randrange(2, len(whole))] ^= 1 << rng.randrange(8)  # it still begins as an archive does
        outcome = _outcome(kept(folder, bytes(damaged)), (x, y))
        assert outcome in ("right", "file: this npz file cannot be read") or outcome.startswith("file: the data have")


def test_arrays_that_claim_to_be_huge_are_refused(folder: Path) -> None:
    content, header = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 1)})
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("x", "y"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(80))
    with pytest.raises(Refusal, match=r"the data have 1000000000000 numbers, and this page accepts") as error:
        uploads.rows_of(kept(folder, content.getvalue()))
    assert error.value.field == "file"


LARGE: dict[str, Callable[[], bytes]] = {
    "many short rows": lambda: b"a,b\n" + b"1,2\n" * 15_000_000,
    "old ends of lines": lambda: b"a,b\r" + b"1,2\r" * 15_000_000,
    "many columns": lambda: b",".join([b"1"] * 500_000) + b"\n",
    "one long line": lambda: b"a,b\n1,2\n" + b"1," * 5_000_000,
    "a square": lambda: packed(x=np.zeros((2000, 2000)), y=np.zeros(2000)),
    "targets without inputs": lambda: packed(x=np.zeros((2, 1)), y=np.zeros(20_000_000, dtype=np.int8)),
}


@pytest.mark.parametrize("what", LARGE)
def test_large_files_are_refused_before_they_are_read(folder: Path, what: str) -> None:
    """In little memory and time: two such files at once took 4.5 GB, or a minute."""
    file, seconds = kept(folder, LARGE[what]()), time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            uploads.rows_of(file)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - seconds < 20


def test_steps_beyond_all_numbers_are_refused(folder: Path) -> None:
    with pytest.raises(Refusal, match=r"steps must be at most 9007199254740992, got 1e\+300\. Expected: a CSV file"):
        uploads.measured_of(kept(folder, b"step,test_loss\n0,1\n1e300,0.5\n"))


def test_a_full_disk_is_said_in_a_sentence(
    own: tuple[Starlette, httpx.Client], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _, client = own
    monkeypatch.setattr(files, "_write", full)
    monkeypatch.setattr("tempfile.mkdtemp", full)
    said = "there is no room on the disk (No space left on device): delete something and try again"
    sent = client.post("/api/upload", params={"name": "a"}, content=b"x", headers=BINARY)
    written = client.post("/api/netcdf", json={"problem": PROBLEM})
    for answer in (sent, written):
        assert (answer.status_code, answer.json()["error"]) == (507, said)
    assert "Traceback" not in capfd.readouterr().err


def test_a_full_disk_where_the_work_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(tasks.TASKS, "netcdf", full)
    answer = _Worker(io.StringIO())._done(0, "netcdf", {"problem": PROBLEM, "path": str(tmp_path / "a")}, False)
    assert answer["error"].startswith("there is no room on the disk")
    assert _Refused(answer).status == 507
