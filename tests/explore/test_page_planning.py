"""Schedules that are drawn by hand, and budgets, in a real browser."""

import numpy as np

import deeplinear as dl
from deeplinear._explore.planning import FACTORS
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM, changed
from explorer_page import DRAWN, SLOW, Explorer

SHORT = changed("network", depth=1) | {"steps": 10}


def test_a_schedule_is_drawn_by_hand_and_the_loss_follows(explorer: Explorer, address: str) -> None:
    explorer.open(address, problem=SHORT, view="schedule")
    page = explorer.page
    dots = page.locator(".schedule-picture .dot")
    explorer.wait_for_count(".schedule-picture .dot", 5)
    box = dots.nth(2).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 40, steps=4)
    page.mouse.up()
    explorer.wait_for(f"{DRAWN}?.optimizer.knots?.[2][1] < 0.9")
    dots.nth(4).focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    explorer.wait_for(f"{DRAWN}?.optimizer.knots?.[4][1] === 0.8")
    knots = page.evaluate(DRAWN)["optimizer"]["knots"]
    assert [at for at, _ in knots] == [0, 0.25, 0.5, 0.75, 1]
    assert [factor for _, factor in knots if factor == 1] == [1, 1, 1]
    lrs = 0.05 * np.interp(np.linspace(0, 1, 10), *np.transpose(knots))
    theory = dl.solve(read_problem(SHORT).replace(lr=tuple(lrs.tolist())))
    np.testing.assert_allclose(explorer.traces[-1]["y"], theory.test_loss, rtol=1e-12)

    dots.nth(1).dblclick()  # is taken away
    explorer.wait_for(f"{DRAWN}?.optimizer.knots?.length === 4")
    page.mouse.click(x + 30, y)  # beside the line another one comes
    explorer.wait_for(f"{DRAWN}?.optimizer.knots?.length === 5")
    page.click(".schedule-head [value=cosine]")
    explorer.wait_for_value("optimizer", "schedule", "cosine")
    explorer.wait_for_count(".schedule-picture .dot", 9)
    page.click(".schedule-head [value=constant]")
    explorer.wait_for(f"{DRAWN} && !{DRAWN}.optimizer.schedule")

    explorer.control("steps").fill("4")
    page.click("#best-schedule")
    explorer.wait_for("document.querySelector('#schedule-words').textContent.includes('less than the best cosine one')")
    explorer.wait_for_value("optimizer", "schedule", "drawn")
    constant = dl.optimal_lr(read_problem(SHORT).replace(steps=4)).loss
    assert explorer.traces[-1]["y"][-1] < 0.95 * constant


def test_a_budget_has_its_best_width_and_steps(explorer: Explorer, address: str) -> None:
    explorer.open(address, problem=SHORT, view="plan", x="log", y="log", budget=1, pins=[{"problem": PROBLEM}])
    page = explorer.page
    explorer.wait_for_traces(len(FACTORS) + 2)
    problem = read_problem(SHORT)
    found = dl.plan(problem, dl.training_cost(problem.replace(width=4.0)))
    dot = explorer.traces[-1]
    best = np.unravel_index(found.losses.argmin(), found.losses.shape)
    np.testing.assert_allclose([dot["x"][0], dot["y"][0]], [found.costs[best], found.losses[best]], rtol=1e-9)
    assert found.loss <= dot["y"][0] < 1.03 * found.loss  # the best of all rates, and of rates a factor 1.19 apart
    frontier = explorer.traces[-2]
    np.testing.assert_allclose(frontier["x"], found.frontier.compute, rtol=1e-12)
    np.testing.assert_allclose(frontier["y"], found.frontier.loss + found.label_noise, rtol=1e-12)
    explorer.wait_for_chips(["theory (now)"])  # the pinned one is not drawn here
    page.locator("#pin").wait_for(state="hidden", timeout=SLOW)
    explorer.wait_for_text("#see", "With ten times the budget, the loss above the noise falls to ")

    page.locator("#budget").fill("200")  # half way
    budget = np.sqrt(found.costs.min() * found.costs.max())
    affordable = np.where(found.costs <= budget * (1 + 1e-9), found.losses, np.inf)
    width, horizon = np.unravel_index(affordable.argmin(), affordable.shape)
    explorer.wait_for(f"Math.abs(document.querySelector('#plot').data.at(-1).y[0] - {affordable.min()}) < 1e-12")
    page.click("#take")
    explorer.wait_for_value("network", "width", found.grid["width"][width])
    explorer.wait_for(f"{DRAWN}?.steps === {found.horizons[horizon] + 1}")
    explorer.wait_for_count("#pins .chip", 2)
