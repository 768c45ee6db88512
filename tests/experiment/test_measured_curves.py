"""Curves that were measured elsewhere: every form they come in, and what is refused."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.event_files import masked_crc, read_scalars
from factories import maker

make = maker("lr", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=41)
NAN = np.nan


@pytest.fixture(scope="module")
def pair() -> tuple[dl.Solution, dl.Ensemble]:
    return dl.solve(make()), dl.simulate(make(), 100, 10, record="losses")


# --- comparison ----------------------------------------------------------------------------------------------


def test_all_steps_are_compared_as_those_of_an_ensemble(pair) -> None:
    theory, experiment = pair
    curves = dl.measured(test_loss=experiment.test_loss, train_loss=experiment.train_loss, dim=100)
    ours, theirs = dl.compare(theory, curves), dl.compare(theory, experiment)
    assert ours.p_value == theirs.p_value
    assert ours.finite_size == theirs.finite_size
    assert ours.verdict == theirs.verdict
    for name in ("test_loss", "train_loss"):
        assert_array_equal(ours[name].z, theirs[name].z)
        assert_array_equal(ours[name].expected_shift, theirs[name].expected_shift)


def test_every_fifth_step_is_compared_with_theory_there(pair) -> None:
    theory, experiment = pair
    found = dl.compare(theory, dl.measured(test_loss=experiment.test_loss[:, ::5], steps=5, dim=100))
    assert found.steps == 9
    every = dl.compare(theory, experiment)["test_loss"]
    assert_array_equal(found["test_loss"].times, np.arange(0, 41, 5))
    assert_array_equal(found["test_loss"].z, every.z[::5])
    assert_array_equal(found["test_loss"].expected_shift, every.expected_shift[::5])
    with pytest.raises(KeyError):
        found["train_loss"]


def test_losses_may_be_recorded_at_different_steps_with_gaps(pair) -> None:
    theory, experiment = pair
    test, train = experiment.test_loss.copy(), experiment.train_loss.copy()
    test[:, 1::2] = NAN
    test[3, 4] = NAN  # one run has no value there
    found = dl.compare(theory, dl.measured(test_loss=test, train_loss=train))
    assert_array_equal(found["test_loss"].times, [t for t in range(0, 41, 2) if t != 4])
    assert len(found["train_loss"].times) == 41


def test_a_wrong_theory_is_noticed_from_few_steps(pair) -> None:
    theory = dl.solve(make(lr=0.12))
    found = dl.compare(theory, dl.measured(test_loss=pair[1].test_loss[:, ::10], steps=10))
    assert found.verdict == "disagrees"


def test_one_run_leaves_the_question_open(pair) -> None:
    theory, experiment = pair
    found = dl.compare(theory, experiment.test_loss[0])
    assert found.verdict == "undecided"
    assert np.isnan(found.finite_size)
    assert "pass dim to measured" in found.explanation


def test_theories_without_finite_networks_take_curves_too() -> None:
    theory = dl.solve(make(width="infinite"))
    assert np.isnan(dl.compare(theory, dl.measured(test_loss=theory.test_loss, dim=50)).finite_size)


def test_divergence_between_records_is_alike() -> None:
    theory = dl.solve(make(lr=0.6))
    at = theory.status.diverged_at
    assert at is not None
    curve = np.append(theory.test_loss[:at][::5], np.inf)
    found = dl.compare(theory, dl.measured(test_loss=[curve] * 8, steps=5))
    assert found.verdict == "agrees"
    calm = dl.compare(theory, dl.measured(test_loss=[np.full(41, 2.0)] * 8))
    assert calm.verdict == "disagrees"


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        (np.ones(9), r"the curve has 9 values and theory has 41 steps: say which steps, measured\(steps=...\)"),
        (dl.measured(np.ones(9), steps=10), "the curve goes to step 80 and theory to 40: solve 81 steps, or cut"),
        (None, "measured needs a curve"),
        ({"a": [1.0]}, 'the table has no loss column; name one of these with test_loss="...": a'),
    ],
)
def test_what_does_not_fit_a_theory_is_refused_in_a_line(pair, curves, message) -> None:
    with pytest.raises(ValueError, match=message) as error:
        dl.compare(pair[0], curves)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 120


def test_theory_and_experiment_the_wrong_way_round_are_refused(pair) -> None:
    with pytest.raises(ValueError, match="theory must be a Solution, which solve returns, got Ensemble"):
        dl.compare(pair[1], pair[0])
    with pytest.raises(ValueError, match="experiment must be an Ensemble or measured curves, got a Solution"):
        dl.compare(pair[0], pair[0])


# --- forms ---------------------------------------------------------------------------------------------------


def test_arrays_with_steps_of_their_own() -> None:
    found = dl.measured(test_loss=[[3.0, 2.0, 1.0], [4.0, 2.0]], steps=[[0, 7, 9], [0, 9]])
    assert_array_equal(found.times, [0, 7, 9])
    assert_array_equal(found.test_loss, [[3, 2, 1], [4, NAN, 2]])
    assert np.isnan(found.train_loss).all()
    assert found.mean("test_loss")[0] == 3.5
    assert found.standard_error("test_loss")[0] == 0.5
    assert list(found.to_xarray().data_vars) == ["test_loss"]


TABLE = {"Step": [0, 5, 10], "val/loss": [3.0, NAN, 1.0], "train_loss": [2.0, 1.5, 0.5], "name": ["a", "b", "c"]}


@pytest.mark.parametrize("form", [dict, pd.DataFrame], ids=["dict", "frame"])
def test_tables_are_read_by_the_names_of_their_columns(form) -> None:
    found = dl.measured(form(TABLE))
    assert_array_equal(found.times, [0, 5, 10])
    assert_array_equal(found.test_loss, [[3, NAN, 1]])
    assert_array_equal(found.train_loss, [[2, 1.5, 0.5]])
    other = dl.measured(form(TABLE), test_loss="train_loss", steps="Step")
    assert_array_equal(other.test_loss, [[2, 1.5, 0.5]])


def test_a_dictionary_may_hold_many_runs_at_every_step() -> None:
    found = dl.measured({"test_loss": np.ones((4, 6))})
    assert found.test_loss.shape == (4, 6)


def test_rows_of_several_runs_are_told_apart_by_a_column() -> None:
    frame = pd.DataFrame({"seed": [1, 1, 2, 2], "step": [0, 10, 10, 0], "test_loss": [4.0, 2.0, 1.0, 3.0]})
    assert_array_equal(dl.measured(frame).test_loss, [[4, 2], [3, 1]])


def test_an_export_of_weights_and_biases(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(
        '"Step","good - test_loss","good - test_loss__MIN","good - test_loss__MAX","bad - test_loss"\n'
        '"0","2.5","2.5","2.5","2.25"\n'
        '"50","1.5","1.5","1.5",""\n'
        '"100","0.5","0.5","0.5","0.75"\n'
    )
    found = dl.measured(path)
    assert_array_equal(found.times, [0, 50, 100])
    assert_array_equal(found.test_loss, [[2.5, 1.5, 0.5], [2.25, NAN, 0.75]])
    assert_array_equal(dl.measured(str(path), test_loss="bad - test_loss").test_loss, [[2.25, 0.75]])


def test_semicolons_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_bytes("\ufeffiteration;loss\n0;1.0\n10;0.5\n\n".encode())
    assert_array_equal(dl.measured(path, train_loss="loss").train_loss, [[1.0, 0.5]])


# A first record as TensorBoard itself writes it, with its version and checksums.
VERSION = b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\t\x00\x00\xc0%\xddu\xd5A\x1a\rbrain.Event:1\xec\xf32\x8d"


def record(step: int, tag: str, value: float, as_tensor: bool = False) -> bytes:
    """An event with one scalar."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    def varint(number: int) -> bytes:
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)

    scalar = b"\x15" + struct.pack("<f", value)
    if as_tensor:
        scalar = field(8, b"\x08\x01" + field(4, struct.pack("<f", value)))
    event = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + varint(step)
    event += field(5, field(1, field(1, tag.encode()) + scalar))
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event))


def test_event_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "run1" / "events.out.tfevents.1700000000.host"
    file.parent.mkdir()
    content = VERSION + record(0, "loss/test", 2.5) + record(300, "loss/test", 0.5) + record(300, "loss/train", 0.25)
    file.write_bytes(content + record(300, "loss/test", 0.75) + record(600, "lr", 1.0)[:-9])  # a restart, then cut off
    assert read_scalars(file) == {"loss/test": {0: 2.5, 300: 0.75}, "loss/train": {300: 0.25}}
    found = dl.measured(file)
    assert_array_equal(found.times, [0, 300])
    assert_array_equal(found.test_loss, [[2.5, 0.75]])
    second = tmp_path / "run2" / file.name
    second.parent.mkdir()
    second.write_bytes(VERSION + record(0, "loss/test", 1.5, True) + record(300, "loss/test", 0.25, True))
    both = dl.measured(tmp_path, test_loss="loss/test")
    assert_array_equal(both.test_loss, [[2.5, 0.75], [1.5, 0.25]])


def test_no_flipped_bit_of_an_event_file_goes_unnoticed(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1"
    content = VERSION + record(0, "loss/test", 2.5) + record(300, "loss/test", 0.5, True)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"events.out.tfevents.1 is not a TensorBoard event file, or is damaged$"):
            read_scalars(file)


def test_events_with_right_checksums_and_other_fields_are_refused(tmp_path: Path) -> None:
    """A value without a tag, or with a number for its tag."""
    file = tmp_path / "events.out.tfevents.1"
    for value in (b"\x15" + bytes(4), b"\x08\x01\x15" + bytes(4)):
        event = b"\x2a" + bytes([len(value) + 2]) + b"\x0a" + bytes([len(value)]) + value
        length = struct.pack("<Q", len(event))
        file.write_bytes(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))
        with pytest.raises(ValueError, match="is not a TensorBoard event file, or is damaged"):
            read_scalars(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_loss": [1.0, 0.5], "steps": [0, 10**19]}, r"steps must be at most 9007199254740992, got 1e\+19"),
        ({"test_loss": [1.0, 0.5], "steps": [0, 1e300]}, r"steps must be at most 9007199254740992, got 1e\+300"),
        ({"test_loss": [1.0, 0.5], "steps": 10**400}, r"steps must be .*, got 10\*\*400 or so, which is too large"),
        ({"test_loss": [1.0, 0.5], "steps": [0, 10**400]}, "steps must be numbers below 1e308, got a larger one"),
        ({"test_loss": [1.0, 10**400]}, "test_loss must be numbers below 1e308, got a larger one"),
        ({"curves": {"step": [0, 1], "test_loss": [1.0, 10**400]}}, "'test_loss' of the table are not numbers: 1000"),
    ],
)
def test_numbers_that_are_too_large_are_refused(arguments: dict[str, Any], message: str) -> None:
    table = arguments.get("curves")
    with pytest.raises(Refusal, match=message):
        dl.measured(table, **{name: value for name, value in arguments.items() if name != "curves"})


def test_steps_may_be_the_index_of_a_data_frame(pair) -> None:
    """They were read as 0, 1, 2, and ten correct runs disagreed (p = 0.002)."""
    theory, experiment = pair
    steps = np.arange(0, 41, 5)
    names = [f"run {seed} - test_loss" for seed in range(10)]
    wide = pd.DataFrame(experiment.test_loss[:, ::5].T, index=steps, columns=names)
    long = pd.DataFrame(
        {"test_loss": experiment.test_loss[:, ::5].ravel()},
        index=pd.MultiIndex.from_product([range(10), steps], names=["seed", "step"]),
    )
    for table in (wide, wide.rename_axis("iter"), long):
        found = dl.measured(table, dim=100)
        assert found.has_steps
        assert_array_equal(found.times, steps)
        assert dl.compare(theory, found).verdict == "agrees"
    assert_array_equal(dl.measured(wide.reset_index(names="step").iloc[2:]).times, steps[2:])
    plain = wide.reset_index(drop=True)
    assert not dl.measured(plain).has_steps
    with pytest.raises(ValueError, match="the curve has 9 values and theory has 41 steps: say which steps"):
        dl.compare(theory, plain)


@pytest.mark.parametrize("header", ["step,loss", "iter,loss", "Step,run 1 - loss", "trainer/global_step,train_loss"])
def test_files_are_read_as_they_come(pair, tmp_path: Path, header: str) -> None:
    """Lists, patterns and folders of them; runs may have different lengths; ``loss`` is that of training."""
    theory, experiment = pair
    for seed in range(10):
        rows = [f"{step},{experiment.train_loss[seed, step]}" for step in range(0, 41 - 4 * (seed % 3), 2)]
        (tmp_path / f"run{seed}.csv").write_text("\n".join([header, *rows]))
    files = sorted(tmp_path.glob("*.csv"))
    expected = dl.measured(train_loss=experiment.train_loss[:, :33:2], steps=2, dim=100)
    for source in (files, list(map(str, files)), tmp_path / "run*.csv", str(tmp_path), [tmp_path / "run[0-9].csv"]):
        found = dl.measured(source, dim=100)
        assert repr(found) == "Measured(10 runs, steps 0 to 32: train loss at 17 steps)"
        assert dl.compare(theory, found).p_value == dl.compare(theory, expected).p_value
    assert dl.compare(theory, files).verdict == "agrees"
    shorter = dl.solve(make(steps=35))
    assert dl.compare(shorter, dl.measured(files, dim=100)).steps == 17
    found = dl.fit(files, make(noise=0.2), "noise")
    assert found.low["noise"] < 0.3 < found.high["noise"]


def test_the_other_loss_is_named_as_the_cause(pair, tmp_path: Path) -> None:
    theory, experiment = pair
    frames = [pd.DataFrame({"step": np.arange(41), "loss": row}) for row in experiment.test_loss]
    found = dl.compare(theory, dl.measured(frames, dim=100))
    assert found.verdict == "disagrees"
    assert found.cause == "the test and train losses are each other's: swap them"
    assert dl.compare(theory, dl.measured(frames, test_loss="loss", dim=100)).verdict == "agrees"


@pytest.mark.parametrize(
    ("make_source", "message"),
    [
        (lambda path: [path / "one.csv", path / "two.csv"], "table 2 of 2 has no test loss, which others have"),
        (lambda path: [path / "one.csv", path / "gone.csv"], "there is no file .*gone.csv"),
        (lambda path: str(path / "no*.csv"), "no file is like .*no"),
        (lambda path: [path / "one.csv", [1.0, 2.0]], "the table must|has no|curves"),
        (lambda path: [], "curves must be numbers"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, make_source, message: str) -> None:
    (tmp_path / "one.csv").write_text("step,test_loss\n0,1.0\n1,0.5")
    (tmp_path / "two.csv").write_text("step,train_loss\n0,1.0\n1,0.5")
    with pytest.raises(ValueError, match=message):
        dl.measured(make_source(tmp_path))


def test_naming_one_loss_leaves_the_other_out() -> None:
    table = {"step": [0, 1], "run0/val_loss": [1.0, 0.5]} | {f"run{run}/train_loss": [1.0, 0.4] for run in range(3)}
    assert repr(dl.measured(table, test_loss="run0/val_loss")) == "Measured(1 run, steps 0 to 1: test loss at 2 steps)"
    assert dl.measured(table, train_loss=["run0/train_loss", "run2/train_loss"]).train_loss.shape == (2, 2)
    with pytest.raises(ValueError, match=r"test_loss must have 3 runs, as the other loss has, got 1 run$"):
        dl.measured(table)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("events.out.tfevents.1", b"no record at all", "is not a TensorBoard event file, or is damaged"),
        ("events.out.tfevents.1", VERSION, 'have no loss; name one of these tags with test_loss="...": $'),
        ("a.csv", b"", "must have a line of names and lines of numbers, got 0 lines"),
        ("a.csv", b"\xff\xfe\x00\x01,\n1,2", "is neither a CSV file nor a TensorBoard event file"),
        ("a.csv", b"x,y\n1,2\n", 'has no loss column; name one of these with test_loss="...": x, y'),
        ("a.csv", b"step,test_loss\n0,one\n", r"the values of column 'test_loss' of .*a.csv are not numbers: 'one'$"),
        ("a.csv", b"step;test_loss\n0;1\n1;0,5\n", "not numbers: '0,5' has a decimal comma; write a decimal point"),
        ("a.csv", b"step,test_loss\n0,-1\n", "test_loss must be zero or above, got -1.0"),
        ("a.csv", b"step,test_loss\n0.5,1\n", "steps must be whole numbers, zero or above, got 0.5"),
        ("a.csv", b"step,test_loss\n0,\n", "no value was recorded: all are nan"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        dl.measured(tmp_path / name)
    assert "\n" not in str(error.value)


def test_what_is_no_curve_is_refused_by_the_name_of_the_argument_it_was_given_for() -> None:
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=4)
    theory = dl.solve(problem)
    for ask in (lambda: dl.measured(theory), lambda: dl.fit(theory, problem, "noise")):
        with pytest.raises(ValueError, match=r"curves must be numbers, .*, got Solution"):
            ask()
    with pytest.raises(ValueError, match=r"test_loss must be numbers, .*, got Solution"):
        dl.measured(test_loss=theory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_loss": "loss"}, "test_loss must be an array of losses"),
        ({"test_loss": np.ones((2, 2, 2))}, r"test_loss must be numbers, .*, got shape \(2, 2, 2\)"),
        ({"test_loss": [1, 2], "steps": [0, 0]}, "steps must be distinct, got the same one twice in run 0"),
        ({"test_loss": [1, 2], "steps": [0]}, r"steps must be as many as losses \(2 in run 0\), got 1"),
        ({"test_loss": [1, 2], "steps": -5}, "steps must be a whole number, at least 1, got -5"),
        (
            {"test_loss": [[1, 2]] * 3, "steps": [[0, 1]] * 2},
            "steps must be given for one run or for each of 3, got those of 2",
        ),
        ({"test_loss": [1, 2], "train_loss": [[1, 2]] * 2}, "test_loss must have 2 runs, as the other loss has"),
        ({"test_loss": [[1, NAN], [NAN, 1]]}, "the runs have no step in common"),
        ({"test_loss": [1, 2], "dim": 0}, "dim must be a whole number, at least 1, got 0"),
    ],
)
def test_bad_arrays_are_refused_in_a_sentence(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        dl.measured(**arguments)


def test_names_beside_a_table_are_columns() -> None:
    with pytest.raises(ValueError, match="steps must be the name of a column, beside a table, got 5"):
        dl.measured(TABLE, steps=5)
    with pytest.raises(ValueError, match=r"test_loss must be a column of numbers of the table: Step, val/loss, .* 'x'"):
        dl.measured(TABLE, test_loss="x")
    with pytest.raises(ValueError, match="there is no file"):
        dl.measured("missing.csv")
