"""Files that are given to the page: curves and data, in a real browser."""

import re
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM
from explorer_page import DRAWN, SLOW, Explorer


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """Losses of eight networks, logged every four steps."""
    networks = dl.simulate(read_problem(PROBLEM), 60, 8, record="losses")
    names = [f"run {seed} - test_loss" for seed in range(8)]
    rows = [",".join(map(str, [step, *networks.test_loss[:, step].tolist()])) for step in range(0, 20, 4)]
    path = tmp_path / "curves.csv"
    path.write_text("\n".join([",".join(["step", *names]), *rows]))
    return path


def test_curves_are_drawn_and_compared_and_bad_ones_refused(
    own_explorer: Explorer, address: str, curves: Path, tmp_path: Path
) -> None:
    explorer = own_explorer
    explorer.open(address)
    page = explorer.page
    result = page.locator("#measured-result")
    bad = tmp_path / "bad.csv"
    bad.write_text("epoch,accuracy\n1,0.5\n2,0.6\n")
    page.set_input_files("#curves-input", bad)
    explorer.wait_for("document.querySelector('#measured-result').classList.contains('is-error')")
    explorer.wait_for_text("#measured-result", "the file has no loss column (it has: epoch, accuracy). Expected: a CSV")
    explorer.wait_for_traces(2)

    page.set_input_files("#curves-input", curves)
    result.locator(".verdict").wait_for(timeout=SLOW)
    measured = dl.measured(curves)
    comparison = dl.compare(dl.solve(read_problem(PROBLEM)), measured)
    assert result.locator(".verdict").get_attribute("class") == f"verdict {comparison.verdict.value}"
    assert "pass dim to measured" in comparison.explanation
    assert "measured(" not in (result.text_content() or "")  # which the page cannot do
    explorer.wait_for_traces(3)
    drawn = explorer.traces[-1]
    assert (drawn["name"], drawn["mode"]) == ("yours, test", "markers")
    np.testing.assert_array_equal(drawn["x"], measured.times)
    np.testing.assert_allclose(drawn["y"], measured.mean("test_loss"), rtol=1e-12)
    legend = page.evaluate("() => document.querySelector('#plot').layout.legend.title.text")
    assert legend == "dashed: theory<br>dots: yours"

    # They are compared again when the controls rest elsewhere, and kept where theory is too short for that.
    explorer.control("optimizer.lr").fill("0.02")
    explorer.wait_for("document.querySelector('#measured-result .verdict')?.classList.contains('disagrees')")
    explorer.control("steps").fill("10")
    explorer.wait_for("document.querySelector('#measured-result').textContent.includes('solve 17 steps')")
    explorer.wait_for_traces(3)

    page.click("#reset")  # to what a newcomer sees
    explorer.wait_for("!document.querySelector('#plot').data.some(({name}) => name.includes('yours'))")
    explorer.wait_for_traces(3)
    explorer.wait_for("document.querySelector('#measured-result').textContent === ''")
    explorer.wait_for("document.querySelector('#preset').value === 'width'")
    page.go_back()
    explorer.wait_for_value("optimizer", "lr", 0.02)


def test_data_give_a_spectrum_and_networks_are_trained_on_the_rows(
    own_explorer: Explorer, address: str, tmp_path: Path
) -> None:
    explorer = own_explorer
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 4)) * [1.0, 0.7, 0.5, 0.3]
    y = x @ [1.0, -1.0, 0.5, 2.0] + 0.1 * rng.standard_normal(120)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    (tmp_path / "bad.csv").write_text("a,b,y\n1,2,3\n4,,6\n")
    explorer.open(address)
    page = explorer.page
    page.select_option("#data-type", "Uploaded")
    explorer.wait_for("document.getElementById('data.file-error').textContent === 'choose a file'")
    page.set_input_files("[id='data.file-input']", tmp_path / "bad.csv")
    explorer.wait_for("document.getElementById('data.file-error').textContent.includes('line 3 should have 3 numbers')")
    explorer.wait_for_text("[id='data.file-error']", "or an npz file with arrays x and y")

    page.set_input_files("[id='data.file-input']", tmp_path / "rows.npz")
    explorer.wait_for_value("data", "type", "Uploaded")
    spectrum = dl.Spectrum.from_data(x, y)
    expected = f"rows.npz: 120 examples, 4 directions, noise {spectrum.noise:.3g}"
    explorer.wait_for_text(".file-name", expected)
    explorer.control("network.width").fill("32")
    explorer.control("sampling.samples").fill("64")
    explorer.wait_for(f"{DRAWN}?.sampling.samples === 64")
    network, sampling = dl.MLP(depth=2, width=32.0), dl.FullBatch(64.0)
    problem = dl.Problem(network, spectrum, sampling, dl.GradientDescent(0.05), steps=20)
    theory = dl.solve(problem)
    np.testing.assert_allclose(explorer.traces[-1]["y"], theory.test_loss, rtol=1e-12)

    page.click("#train")
    page.locator("#experiment-result .verdict").wait_for(timeout=SLOW)
    networks = dl.simulate(problem, seeds=8, data=(x, y), record="losses")
    shown = next(trace for trace in explorer.traces if trace["name"] == "networks, test" and trace["showlegend"])
    np.testing.assert_allclose(shown["y"], networks.mean("test_loss"), rtol=1e-9)
    text = page.locator("#experiment-result").inner_text()
    assert "trained on your own examples" in text
    gaussian = dl.simulate(problem, seeds=8, record="losses")
    said = [100 * dl.compare(theory, each)["test_loss"].relative_error.max() for each in (networks, gaussian)]
    shown = re.findall(r"up to ([\d.]+) %", text)
    assert [float(each) for each in shown] == pytest.approx(said, rel=0.05)  # two digits
