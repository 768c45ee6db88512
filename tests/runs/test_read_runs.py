"""Runs from tables and files: which column is which, several runs in one table, rates logged in other rows."""

import struct
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.event_files import masked_crc
from deeplinear._runs.read import read_runs

STEPS = np.arange(10, 201, 10)
LOSS = 1.0 + 3.0 / STEPS**0.5
RATES = np.linspace(0.2, 0.1, 20)


def test_a_dictionary_with_names_of_its_own() -> None:
    (run,) = read_runs({"it": STEPS, "nll": LOSS, "eta": RATES}, steps="it", loss="nll", lr="eta", warmup=5)
    assert run.steps.tolist() == STEPS.tolist()
    assert run.loss.tolist() == LOSS.tolist()
    assert run.rates[10] == 0.2
    assert run.rates[:5] == pytest.approx(0.2 * np.arange(1, 6) / 5)


@pytest.mark.parametrize(
    ("names", "loss"),
    [
        (("step", "loss", "lr"), "loss"),
        (("trainer/global_step", "train/loss", "train/learning_rate"), "train/loss"),
        (("iter", "val_loss", "lr-AdamW"), "val_loss"),
        (("Step", "Training Loss", "Learning Rate"), "Training Loss"),
    ],
)
def test_usual_names_are_known(tmp_path: Path, names: tuple[str, str, str], loss: str) -> None:
    path = tmp_path / "mine.csv"
    rows = [",".join(names)] + [f"{s},{x:.6f},{r}" for s, x, r in zip(STEPS, LOSS, RATES, strict=True)]
    path.write_text("\n".join(rows))
    (run,) = read_runs(path)
    assert (run.name, run.loss) == ("mine", pytest.approx(LOSS, abs=1e-6))


def test_the_training_loss_is_taken_before_others() -> None:
    table = {"step": STEPS, "val_loss": LOSS + 1, "train_loss": LOSS, "lr": RATES}
    assert read_runs(table)[0].loss.tolist() == LOSS.tolist()
    assert read_runs(table, loss="val_loss")[0].loss[0] == LOSS[0] + 1


def test_an_export_of_weights_and_biases(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    head = '"Step","a - loss","a - loss__MIN","a - loss__MAX","a - lr","b - loss","b - lr"\n'
    rows = [
        f'"{s}","{x}","{x}","{x}","{r}","{x + 1 if s <= 150 else ""}","{r}"'
        for s, x, r in zip(STEPS, LOSS, RATES, strict=True)
    ]
    path.write_text(head + "\n".join(rows))
    first, second = read_runs(path)
    assert (first.name, second.name) == ("a", "b")
    assert first.loss == pytest.approx(LOSS)
    assert (len(second.steps), second.loss[0]) == (15, pytest.approx(LOSS[0] + 1))


def test_a_column_tells_runs_apart() -> None:
    table = {"run": ["x"] * 20 + ["y"] * 20, "step": [*STEPS, *STEPS], "loss": [*LOSS, *LOSS], "lr": [*RATES, *RATES]}
    first, second = read_runs(table)
    assert first.loss.tolist() == second.loss.tolist() == LOSS.tolist()


def test_rates_in_rows_of_their_own() -> None:
    """As loggers write them: a row with the rate, a row with the loss."""
    nothing = np.full(20, np.nan)
    table = {
        "step": np.concatenate([STEPS - 1, STEPS]),
        "loss": np.concatenate([nothing, LOSS]),
        "lr": np.concatenate([RATES, nothing]),
    }
    (run,) = read_runs(table)
    assert run.loss.tolist() == LOSS.tolist()
    assert run.rates[STEPS[1:] - 1] == pytest.approx(
        np.interp(STEPS[1:] - 1, STEPS, np.interp(STEPS, STEPS - 1, RATES))
    )


def record(step: int, tag: str, value: float) -> bytes:
    """Return an event of TensorBoard with one scalar."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    varint = bytes([step]) if step < 128 else bytes([step & 127 | 128, step >> 7])
    event = b"\x10" + varint + field(5, field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)))
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event))


def test_event_files_are_runs(tmp_path: Path) -> None:
    for name in ("low", "high"):
        file = tmp_path / name / "events.out.tfevents.1"
        file.parent.mkdir()
        pairs = zip(STEPS.tolist(), LOSS, RATES, strict=True)
        file.write_bytes(b"".join(record(s, "train/loss", x) + record(s, "train/lr", r) for s, x, r in pairs))
    found = read_runs(tmp_path)
    assert [run.name for run in found] == ["high", "low"]
    assert found[0].loss == pytest.approx(LOSS, rel=1e-6)


def test_files_go_into_a_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,loss,lr\n" + "\n".join(f"{s},{x},0.2" for s, x in zip(STEPS, LOSS, strict=True)))
    fit = dl.fit_runs([str(path), path, {"step": STEPS, "loss": LOSS, "lr": RATES}], law="plain", warmup=4)
    assert [run.name for run in fit.runs] == ["a", "a 2", "run"]
    assert fit.warmup == 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"step": STEPS, "lr": RATES}, 'run has no column of losses; name one of these with loss="...": step, lr'),
        (
            {"step": STEPS, "loss": LOSS},
            'run has no column of learning rates; name one of these with lr="...": step, loss',
        ),
        ({"loss": LOSS, "lr": RATES}, 'run has no column of steps; name one of these with steps="...": loss, lr'),
        ({"step": STEPS, "loss": ["1,5"] * 20, "lr": RATES}, "'1,5' has a decimal comma; write a decimal point"),
        ({"step": STEPS, "loss": LOSS, "lr": RATES * np.nan}, "the column of learning rates of run is empty"),
    ],
)
def test_what_is_missing_is_said(table: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_runs(table)


def test_files_that_are_not_curves_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read_runs(tmp_path / "none.csv")
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ValueError, match="is neither a CSV file nor a TensorBoard event file"):
        read_runs(tmp_path / "picture.csv")
    with pytest.raises(ValueError, match="has no TensorBoard event files"):
        read_runs(tmp_path)
    with pytest.raises(ValueError, match="loss must be a column of numbers of run: step, loss, lr, got 'nll'"):
        read_runs({"step": STEPS, "loss": LOSS, "lr": RATES}, loss="nll")
