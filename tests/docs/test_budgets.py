"""The tables of budgets: their rows, the laws beside them, and networks on the frontier."""

import pytest

import deeplinear as dl
from documentation import DOCS, script

measured, budgets = script(DOCS / "measured.py"), script(DOCS / "budgets.py")


def table(name: str) -> list[list[str]]:
    return measured.read(name, "findings-horizon.md", "budgets")


def test_the_page_has_every_row() -> None:
    assert [row[0] for row in table("feature_frontiers")[1:]] == list(budgets.PHASES)
    assert [row[0] for row in table("rich_frontiers")[1:]] == list(budgets.RATES)
    assert [float(row[0]) for row in table("frontier_networks")[1:]] == list(budgets.BUDGETS)


@pytest.mark.parametrize("row", table("feature_frontiers")[1:], ids=lambda row: row[0])
def test_laws_of_random_features(row: list[str]) -> None:
    """The published exponents stand there, spend all of the budget, and the loss follows them to 3 %."""
    law = budgets.published(float(row[1]))
    assert [row[i] for i in (3, 5, 7)] == [f"{each:.3f}" for each in law.values()]
    assert law["width"] + law["steps"] == pytest.approx(1.0)
    assert float(row[2].split()[0]) == pytest.approx(law["loss"], rel=0.03)


def test_laws_are_those_that_the_papers_print() -> None:
    """arXiv 2402.01092: with spectrum k^-b and target k^-a, loss C^(-(a-1)/(b+1)), N = C^(1/(1+b)) and t = C^(b/(1+b)).

    arXiv 2405.15074, figure 3, at the border of phases II and III (alpha = beta = 0.7): loss f^-0.643, d = f^0.5. Its
    capacity is 2 alpha here, and its 2 alpha + 2 beta - 1 is capacity times source.
    """
    spectrum, target = 1.5, 1.9
    hard = budgets.published((target - 1) / spectrum, spectrum)
    assert hard["loss"] == pytest.approx(-(target - 1) / (spectrum + 1))
    assert (hard["width"], hard["steps"]) == pytest.approx((1 / (1 + spectrum), spectrum / (1 + spectrum)))
    alpha = beta = 0.7
    easy = budgets.published((2 * alpha + 2 * beta - 1) / (2 * alpha), 2 * alpha)
    assert f"{easy['loss']:.3f}" == "-0.643"
    assert easy["width"] == pytest.approx(0.5)


@pytest.mark.parametrize("row", table("frontier_networks")[1:], ids=lambda row: row[0])
def test_networks_on_the_frontier(row: list[str]) -> None:
    """What was recorded agrees within 4 standard errors, and the loss is that of the problem in the row."""
    _, width, updates, batch, rate, loss, networks = row
    mean, error = map(float, networks.split(" ± "))
    assert abs(mean - float(loss)) < 4 * error
    problem = dl.Problem(
        dl.MLP(2, float(width)),
        dl.Isotropic(0.3),
        dl.OnlineSGD(float(batch)),
        dl.GradientDescent(float(rate)),
        int(updates) + 1,
    )
    assert dl.solve(problem).test_loss[-1] == pytest.approx(float(loss), rel=0.01)  # of a rate with two digits
