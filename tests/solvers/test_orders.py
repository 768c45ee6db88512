"""The order of each method: how its error falls with nodes, or with the length of what they stand for."""

import math

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._equations import products, site, source
from deeplinear._solvers.condensed import run
from deeplinear._solvers.merged_steps import _at_one, _merged
from deeplinear._solvers.panels.run import PanelRun
from deeplinear._solvers.panels.work import START
from deeplinear._time import history
from deeplinear._time.grid import PANEL_NODES
from factories import maker

make = maker("sampling", depth=1, width=0.8, noise=0.3, sampling=dl.OnlineSGD(0.5), lr=0.002, steps=641)


@pytest.fixture(scope="module")
def exact():
    return dl.solve(make(), method="dense").test_loss[-1]


@pytest.mark.parametrize(("runs", "off"), [((4,), 0.05), ((4, 8), 0.05), ((2, 3, 4, 6), 0.6)])
def test_merged_steps_have_the_order_of_their_runs(exact, runs, off):
    """What is left of the power series in m - 1 goes as the product of all m - 1, which tends to the power of runs.

    Slopes are off by the next term of the series, which is larger where steps are.
    """
    problem, errors, products_of_m = make(), [], []
    for count in (16, 32):
        merged = [640 / count / each for each in runs]
        losses = [
            dl.solve(_merged(problem, m, count * each + 1)).test_loss for m, each in zip(merged, runs, strict=True)
        ]
        errors.append(float(_at_one(merged, losses_at_end(losses))[0] - exact))
        products_of_m.append(math.prod(m - 1 for m in merged))
    slope = math.log2(abs(errors[0] / errors[1]))
    assert slope == pytest.approx(math.log2(products_of_m[0] / products_of_m[1]), abs=off)
    assert slope > len(runs)


def losses_at_end(curves):
    """The last loss of each curve, as a curve of one value."""
    return [curve[-1:] for curve in curves]


def test_panels_tend_to_the_order_of_their_nodes():
    """Panels of equal length, all of which are taken however much they leave out: an error of order length^8."""
    problem = make(sampling=dl.FullBatch(1.5), lr=0.005, steps=START + 192)
    loss, errors = dl.solve(problem, method="dense").test_loss, []
    for length in (48, 24, 12):
        panels = PanelRun([problem], 1e-9)
        panels.errors.truncation = lambda rows: np.zeros(1)
        panels.errors.alternating = lambda: np.zeros(1)
        with np.errstate(under="ignore"):
            panels._single_steps(START)
            panels._goal = 1e-8
            for _ in range(192 // length):
                panels._panel(length)
        errors.append(np.abs(panels.test_losses(np.arange(problem.steps))[:, 0] / loss - 1).max())
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert 6.0 < slopes[0] < slopes[1] < PANEL_NODES + 0.5
    assert slopes[1] > PANEL_NODES - 1


@pytest.fixture
def clear():
    """What forgets blocks that were made with another number of nodes, as it does at the end."""

    def forget():
        history._from_zero.cache_clear()
        history._rule.cache_clear()

    yield forget
    forget()


def test_a_condensed_past_converges_faster_than_any_power_of_its_nodes(monkeypatch, clear):
    """All blocks become one that may, whatever is left out; twice the nodes give more than twice the digits."""
    problem = make(sampling=dl.MultiPassSGD(1.5, 0.25), lr=0.02, steps=320)
    loss, digits = dl.solve(problem, method="dense").test_loss, []
    for nodes in (4, 8, 16):
        for module, name in (
            (history, "BLOCK_NODES"),
            (run, "BLOCK_NODES"),
            *((each, "SETS") for each in (products, site, source)),
        ):
            monkeypatch.setattr(module, name, nodes)
        clear()
        solved = run.CondensedRun(problem, 1e6)
        solved.fill()
        assert solved.largest < 8 * nodes
        digits.append(-np.log10(np.abs((solved.values().error[0] + 0.3**2) / loss - 1).max()))
    assert digits[0] > 1
    assert digits[1] > 2 * digits[0]
    assert digits[2] > 2 * digits[1]
