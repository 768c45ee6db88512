"""The best schedules of lazy networks: their recursion against the theory, its gradient, and a part of the table."""

import numpy as np
import pytest

import deeplinear as dl
from documentation import DOCS, script

measured, schedules = script(DOCS / "measured.py"), script(DOCS / "schedules.py")
ROWS = measured.read("lazy_schedules", "findings-horizon.md", "schedules")


def lazy_problem(source: float, steps: int, lr: object, noise: float) -> dl.Problem:
    return dl.Problem(
        dl.MLP(1, "infinite", 1e-3, centered=True),
        dl.Spectrum.power_law(1.5, source, noise=noise),
        dl.OnlineSGD(4.0),
        dl.GradientDescent(lr),
        steps,
    )


def test_the_page_has_every_row_and_its_picture() -> None:
    expected = [[task, each] for task in schedules.TASKS for each in [*map(str, schedules.HORIZONS), "published"]]
    assert [[row[0], row[2]] for row in ROWS[1:]] == expected
    assert (schedules.IMAGES / "lazy-schedules.png").exists()


@pytest.mark.parametrize("source", [1.5, 0.5])
def test_the_recursion_is_the_theory_of_lazy_networks(source: float) -> None:
    """Up to terms of order richness squared, and bins of modes; the kernel of one hidden layer is 2."""
    problem = lazy_problem(source, 17, dl.schedules.linear(0.2), 0.3)
    rates = 2.0 * np.array(problem.optimizer.rates(17))[:-1]
    loss, _ = schedules.lazy(source, noise=0.3).loss(rates)
    assert loss + 0.09 == pytest.approx(dl.solve(problem).test_loss[-1], rel=3e-5)


def test_its_gradient_is_that_of_complex_steps() -> None:
    problem, rates = schedules.lazy(0.5), np.random.default_rng(0).uniform(0.1, 1.0, 12)
    _, slopes = problem.loss(rates)
    exact = [problem.loss(rates + 1e-30j * each)[0].imag / 1e-30 for each in np.eye(12)]
    np.testing.assert_allclose(slopes, exact, rtol=1e-12)


def test_rows_again() -> None:
    found, _ = schedules.rows("easy", (16, 64))
    assert found[:2] == ROWS[1:3]


@pytest.mark.slow
def test_optimal_schedule_finds_what_free_rates_reach() -> None:
    problem = lazy_problem(1.5, 33, 0.1, 0.3)
    _, least = schedules.best_rates(schedules.lazy(1.5, noise=0.3), np.full(32, 0.5))
    assert 1.0 - 1e-6 < dl.optimal_schedule(problem).loss / (least + 0.09) < 1 + 4e-5
