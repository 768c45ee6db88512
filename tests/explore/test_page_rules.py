"""Controls of update rules, schedules and phases, in a real browser."""

import numpy as np

import deeplinear as dl
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM
from explorer_page import DRAWN, IS_DRAWN, SLOW, Explorer


def test_update_rules_have_their_controls(explorer: Explorer, address: str) -> None:
    """Every kind can be chosen, begins with its own defaults, and its numbers reach the problem that is drawn."""
    explorer.open(address)
    page = explorer.page
    kinds = page.locator("[id='optimizer-type'] option").evaluate_all("all => all.map((each) => each.value)")
    assert kinds == ["GradientDescent", "NormalizedDescent", "Muon", "ScheduleFree", "SAM"]
    page.select_option("[id='optimizer-type']", "Muon")
    explorer.wait_for_value("optimizer", "type", "Muon")
    explorer.wait_for_value("optimizer", "momentum", 0.95)
    explorer.control("optimizer.clip").wait_for(state="hidden", timeout=SLOW)
    explorer.control("optimizer.other").fill("0.1")
    explorer.wait_for_value("optimizer", "other", 0.1)
    page.select_option("[id='optimizer-type']", "SAM")
    explorer.wait_for_value("optimizer", "momentum", 0)
    explorer.control("optimizer.rho").fill("0.2")
    explorer.wait_for_value("optimizer", "rho", 0.2)
    shown = np.array(explorer.traces[-1]["y"], dtype=float)
    expected = dl.Problem.from_dict(PROBLEM | {"optimizer": {"type": "SAM", "lr": 0.05, "rho": 0.2}})
    np.testing.assert_allclose(shown, dl.solve(expected).test_loss, rtol=1e-6)


def test_schedules_layers_and_clipping_are_typed(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.locator("details.more:has([id='optimizer.clip']) > summary").click()
    page.select_option("[id='optimizer.schedule']", "wsd")
    explorer.control("optimizer.warmup").fill("0.2")
    explorer.control("optimizer.shape").fill("decay=0.3, end=0.1")
    explorer.control("optimizer.layer_lr").fill("input=0, readout=2")
    explorer.control("optimizer.clip").fill("0.5")
    explorer.wait_for_value("optimizer", "clip", 0.5)
    rate = dl.schedules.wsd(0.05, warmup=0.2, decay=0.3, end=0.1)
    rule = dl.GradientDescent(rate, layer_lr={"input": 0, "readout": 2}, clip=0.5)
    drawn = read_problem(page.evaluate(DRAWN))
    assert drawn.optimizer == rule
    np.testing.assert_allclose(np.array(explorer.traces[-1]["y"], dtype=float), dl.solve(drawn).test_loss, rtol=1e-6)
    explorer.wait_for("decodeURIComponent(location.hash).includes('\"clip\":0.5')")
    page.reload()  # a link has it all
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    explorer.wait_for("document.getElementById('optimizer.layer_lr').value === 'input=0, readout=2'")
    page.locator("details.more:has([id='optimizer.clip']) > summary").click()
    explorer.control("optimizer.clip").fill("")
    explorer.wait_for(f"{DRAWN}?.optimizer.clip === undefined")
    explorer.control("optimizer.layer_lr").fill("head=0")
    explorer.wait_for("!document.getElementById('optimizer.layer_lr-error').hidden")
    text = "layer_lr must have no other names than input, hidden, readout"
    explorer.wait_for_text("[id='optimizer.layer_lr-error']", text)


def test_a_second_task_follows(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.select_option("[id='phases-type']", "Two")
    explorer.control("phases.steps").fill("8")
    explorer.wait_for_value("phases", "steps", 8)
    drawn = read_problem(page.evaluate(DRAWN))
    assert drawn.phases == (dl.Phase(12), dl.Phase(8, target_overlap=0.5))
    theory = dl.solve(drawn)
    first_task, _, test = (np.array(trace["y"], dtype=float) for trace in explorer.traces)
    np.testing.assert_allclose(test, theory.test_loss, rtol=1e-6)
    np.testing.assert_allclose(first_task, theory.task_loss[0], rtol=1e-6)
    explorer.wait_for_text("#see", "what is forgotten of it")
    explorer.control("phases.steps").fill("20")
    explorer.wait_for("!document.getElementById('phases.steps-error').hidden")
    page.select_option("[id='phases-type']", "One")
    explorer.wait_for(f"{DRAWN} && !{DRAWN}.phases")
    explorer.wait_for_traces(2)


def test_bad_values_are_shown_beside_their_control(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    before = explorer.traces
    width = explorer.control("network.width")
    width.fill("-3")
    error = explorer.control("network.width-error")
    error.wait_for(state="visible", timeout=SLOW)
    explorer.wait_for_text("[id='network.width-error']", "width must be a positive finite number, got -3")
    page.wait_for_selector("[id='network.width'][aria-invalid=true]", timeout=SLOW)
    assert [trace["y"] for trace in explorer.traces] == [trace["y"] for trace in before]  # the last good curve stays
    explorer.wait_for_text("#pins", "last curve that could be drawn")
    width.fill("wide")
    explorer.wait_for("document.getElementById('network.width-error').textContent.includes('wide')")
    width.fill("0.5, 2")
    explorer.wait_for("document.getElementById('network.width-error').hidden")
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    explorer.control("experiment.dim").fill("99999999")
    page.click("#train")
    dim = explorer.control("experiment.dim-error")
    dim.wait_for(state="visible", timeout=SLOW)
    explorer.wait_for_text("[id='experiment.dim-error']", "from 1 to 1000000")


def test_averages_of_weights_are_drawn(explorer: Explorer, address: str) -> None:
    """Chosen beside the losses, drawn as a curve of its own, kept in the link, and written as Python."""
    explorer.open(address)
    page = explorer.page
    page.select_option("#average", "tail-0.5")
    averaged = "document.querySelector('#plot').data?.some((each) => each.name.endsWith('averaged'))"
    explorer.wait_for(f"{DRAWN} && {averaged}")  # all of it, and not only its first steps
    (trace,) = (each for each in explorer.traces if each["name"].endswith("averaged"))
    drawn = read_problem(page.evaluate(DRAWN))
    expected = dl.solve(drawn, averages=[dl.TailMean(0.5)]).averaged_test_loss[0]
    np.testing.assert_allclose(np.array(trace["y"], dtype=float), expected, rtol=1e-6)
    explorer.wait_for("decodeURIComponent(location.hash).includes('tail-0.5')")
    page.locator("#view-kernel").click()
    page.locator("#averages").wait_for(state="hidden", timeout=SLOW)
