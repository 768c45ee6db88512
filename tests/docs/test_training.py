"""Tables of the findings on training: some of their cells again, by theory, to the digits that are shown."""

import pytest

import deeplinear as dl
from documentation import DOCS, script

measured, training = script(DOCS / "measured.py"), script(DOCS / "training.py")


def rows(name: str) -> list[list[str]]:
    return measured.read(name, "findings-training.md", "training")


def test_the_page_has_every_table_and_picture() -> None:
    for name in training.TABLES:
        assert len(rows(name)) > 2, name
        assert (training.IMAGES / f"training-{name.replace('_', '-')}.png").exists(), name


def test_best_rates_across_width() -> None:
    _, rates, *_, loss, _ = rows("widths")[1]
    best = dl.optimal_lr(
        training.staircase(dl.MLP(2, training.WIDTHS[-1], centered=True), training.RULES["gradient descent"])
    )
    assert f"{best.lr:.3g}" == rates.split(", ")[-1]
    assert f"{best.loss:.4f}" == loss


def test_forgetting() -> None:
    for name, value, *losses in rows("forgetting")[1:]:
        old, new = dl.solve(training.fine_tuning(**(training.FINE_TUNING | {name: float(value)}))).task_loss
        found = [old[60], old[-1], new[60], new[-1]]
        assert [f"{loss:.4f}" for loss in found] == [losses[index] for index in (0, 1, 3, 4)], (name, value)


def test_networks_forget_as_theory_says() -> None:
    """Of the 36 means none is further away than 4 standard errors, and the shift of D = 100, below 2 %."""
    for _, _, _, old, old_networks, _, new, new_networks in rows("forgetting")[1:]:
        for theory, networks in ((old, old_networks), (new, new_networks)):
            mean, error = map(float, networks.split(" ± "))
            assert mean == pytest.approx(float(theory), abs=4 * error + 0.02 * float(theory))


def test_averages() -> None:
    for row in rows("averages")[1:]:
        found = dl.solve(training.noisy(dl.GradientDescent(float(row[0]))), averages=training.AVERAGES)
        assert [f"{loss:.4f}" for loss in (found.test_loss[-1], *found.averaged_test_loss[:, -1])] == row[1:5]


@pytest.mark.slow
def test_best_rates_across_depth() -> None:
    found = {name: (rates, loss) for name, rates, *_, loss, _ in rows("depths")[1:]}
    rates, loss = found["normalised by layer, CompleteP"]
    network = dl.ResNet(16, 1.0, centered=True, branch_scaling=1.0)
    best = dl.optimal_lr(training.staircase(network, training.RULES["normalised by layer"]))
    assert f"{best.lr:.3g}" == rates.split(", ")[-1]
    assert f"{best.loss:.4f}" == loss
