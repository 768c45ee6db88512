"""Whatever error is asked for, from a hundredth to 1e-10, an approximate method keeps it or says that it cannot."""

import numpy as np
import pytest

import deeplinear as dl

MODES = dl.Spectrum([2.0, 1.0, 0.25], [0.5, 1.0, 2.0], [0.2, 0.3, 0.5], proportional=True, noise=0.3)
ISOTROPIC, ONLINE = dl.Isotropic(0.3), dl.OnlineSGD(0.5)
PROBLEMS = {
    "panels": dl.Problem(dl.MLP(1, 0.5, 2.0), MODES, dl.Population(), dl.GradientDescent(0.01), 300),
    "condensed": dl.Problem(dl.MLP(2, 1.0), ISOTROPIC, ONLINE, dl.GradientDescent(0.01), 300),
    "coarse": dl.Problem(dl.MLP(1, 1.0), ISOTROPIC, ONLINE, dl.GradientDescent(0.002), 600),
}


@pytest.fixture(scope="module")
def exact() -> dict[str, dl.Solution]:
    return {method: dl.solve(problem, method="dense") for method, problem in PROBLEMS.items()}


@pytest.mark.parametrize("method", PROBLEMS)
def test_a_method_keeps_the_error_that_was_asked_for(method: str, exact: dict[str, dl.Solution]) -> None:
    problem, expected = PROBLEMS[method], exact[method]
    kept, worst = 0, []
    for tolerance in 10.0 ** -np.arange(2, 11):
        try:
            solution = dl.solve(problem, method=method, tolerance=float(tolerance))
        except ArithmeticError as error:
            assert "not resolved to tolerance" in str(error)  # noqa: PT017
            continue
        losses, reported = solution.at(np.arange(problem.steps)), solution.stats["error"]
        for name in ("test_loss", "train_loss"):
            curve = getattr(expected, name)
            scale = np.maximum(curve, solution.stats["error_floor"] * curve[0])
            worst.append(float(np.abs(losses[name].values / scale - curve / scale).max()))
            assert worst[-1] <= tolerance, (tolerance, name, worst[-1])
            assert worst[-1] <= 10 * max(reported, 1e-12)
        kept += 1
    assert kept >= 7
    assert max(worst[-2:]) < 0.1 * max(worst[:2]), "a smaller tolerance gives a smaller error"


def test_infinite_depth_keeps_the_error_that_was_asked_for() -> None:
    problem = dl.Problem(dl.ResNet(np.inf, 1.0), ISOTROPIC, ONLINE, dl.GradientDescent(0.05), 5)
    best = dl.solve(problem, tolerance=1e-11)
    for tolerance in 10.0 ** -np.arange(2, 11):
        solution = dl.solve(problem, tolerance=float(tolerance))
        error = np.abs(solution.test_loss - best.test_loss).max() / best.test_loss[0]
        assert error <= tolerance
        assert solution.stats["depth_error"] <= tolerance
