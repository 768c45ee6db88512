"""The page on nonlinear networks: its tables are those of the file, and the file is what networks do."""

import json

import numpy as np
import pytest

import deeplinear as dl
from documentation import DOCS, script
from needs import need_torch

need_torch()
measured, nonlinear = script(DOCS / "measured.py"), script(DOCS / "nonlinear.py")


@pytest.fixture(scope="module")
def found():
    return json.loads(nonlinear.RESULTS.read_text())


def rows(name):
    return measured.read(name, nonlinear.PAGE, "nonlinear")


def test_tables_are_those_of_the_file(found):
    assert rows("rates") == nonlinear.rates(found)
    assert rows("leaving") == nonlinear.leaving(found)
    without_theory = [row for row in rows("transfer") if row[2] != "theory"]
    assert len(without_theory) == 10


def test_sentences_are_those_of_the_tables(found):
    """Numbers of the text that are not cells of a table."""
    page = (DOCS / nonlinear.PAGE).read_text()
    networks = len([name for name in found if name[-1].isdigit() and len(name.split()) > 3 and "." in name])
    assert f"{networks} networks" in page
    assert "twelve minutes" in page
    assert found["seconds"] < 12 * 60
    labels = [("labels", parameterization, width) for parameterization in ("mup", "ntk") for width in nonlinear.WIDTHS]
    losses = [nonlinear.final(found, case, "relu") for case in labels]
    ratios = [each[0] / each.min() for each in losses]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times the loss" in page
    falls = {name: [] for name in ("theory", "relu", "gelu")}
    for ends in (labels[0], labels[4]), (labels[5], labels[9]):
        theory = [found[" ".join(map(str, case))]["loss"] for case in ends]
        falls["theory"].append(100 * (1 - theory[1] / theory[0]))
        for activation in ("relu", "gelu"):
            first, last = (nonlinear.best(found, case, activation)[1] for case in ends)
            falls[activation].append(100 * (1 - last / first))
    assert "falls by {:.1f} % in muP and {:.1f} % in NTK".format(*falls["theory"]) in page
    assert "ReLU networks falls by {:.0f} % and {:.0f} %".format(*falls["relu"]) in page
    assert "GELU networks by {:.0f} % and {:.0f} %".format(*falls["gelu"]) in page


def test_the_control_holds(found):
    """What the page says of linear networks."""
    for target, parameterization, widths in nonlinear.CASES:
        for width in widths:
            case = (target, parameterization, width)
            theory, losses = found[" ".join(map(str, case))], nonlinear.final(found, case, "linear")
            deviation = np.abs(nonlinear.curve(found, case, "linear") / theory["curve"] - 1).max()
            at_end = theory["loss"] / losses[1] - 1
            if target == "labels":
                assert losses[1] <= 1.002 * losses.min()
                assert 0.017 < at_end < 0.025
                assert deviation < 0.05
            else:
                assert 0.06 < at_end < 0.09
                assert deviation < 0.395


def test_the_scale_of_losses():
    assert f"{dl.Spectrum.from_data(*nonlinear.digits('labels')).noise ** 2:.3f}" == "0.292"
    assert f"{nonlinear.digits('linear fit')[1].var():.2f}" == "0.71"


@pytest.mark.parametrize("activation", nonlinear.ACTIVATIONS)
def test_a_network_of_the_file_trained_again(found, activation):
    case = ("labels", "mup", 64)
    name = " ".join(map(str, (*case, activation, 0.0, 0)))
    problem = nonlinear.problem(*case, found["labels mup 64"]["lr"], activation)
    losses = nonlinear.train(problem, "labels", activation, 0, nonlinear.LOOKS)
    np.testing.assert_allclose(losses, found[name], rtol=1e-3)  # single precision, 100 steps at a stable rate


def test_theory_of_the_file_solved_again(found):
    stored = found["labels mup 64"]
    curve = dl.solve(nonlinear.problem("labels", "mup", 64, stored["lr"])).test_loss
    np.testing.assert_allclose(curve[list(nonlinear.LOOKS)], stored["curve"], atol=1e-5)
    assert curve[-1] == pytest.approx(stored["loss"], rel=1e-6)
