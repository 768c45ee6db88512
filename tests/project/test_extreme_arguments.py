"""Arguments that are extreme, or of another kind, are refused with a sentence, before anything is worked out."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from factories import maker

PROBLEM = maker(noise=0.3, depth=2, width=1.0, lr=0.05, steps=20, sampling=dl.FullBatch(2.0))()
MANY = range(10**8)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a position of a landscape": (
        lambda: dl.landscape(PROBLEM, positions=[-1e200, 0.0, 1.0]),
        r"^positions must be closer to 0, got -1e\+200: the loss there is beyond all numbers$",
    ),
    "positions of a landscape": (
        lambda: dl.landscape(PROBLEM, positions=range(10**7)),
        "^positions must be at most 10000 numbers, got 10000000$",
    ),
    "steps of sharpness": (lambda: dl.sharpness(PROBLEM, at=MANY), "^at must be at most 10000 numbers"),
    "steps without an end": (
        lambda: dl.sharpness(PROBLEM, at=iter(int, 1)),
        "^at must be at most 10000 numbers, got more$",
    ),
    "steps of weights": (lambda: dl.weight_spectra(PROBLEM, at=MANY), "^at must be at most 10000"),
    "steps of networks": (lambda: dl.Curvature(MANY), "^at must be at most 10000 numbers"),
    "one step of networks": (lambda: dl.Curvature(5), "^at must be a sequence of numbers, got 5$"),
    "tolerance of a rate": (
        lambda: dl.optimal_lr(PROBLEM, tolerance=1e-300),
        "^tolerance must be a number from 1e-12 up to 1, got 1e-300$",
    ),
    "tolerance of a stable rate": (
        lambda: dl.max_stable_lr(PROBLEM, tolerance=1e300),
        r"^tolerance must be a number from 1e-12 up to 1, got 1e\+300$",
    ),
    "an array as a word": (
        lambda: dl.optimal_lr(PROBLEM, objective=np.ones(3)),  # type: ignore[arg-type]
        "^objective must be 'test' or 'train', got array",
    ),
    "values of a transfer": (
        lambda: dl.transfer(PROBLEM, "width", np.linspace(1.0, 2.0, 10**5)),
        "^values must be at most 1000 numbers, got 100000$",
    ),
    "rates of a transfer": (
        lambda: dl.transfer(PROBLEM, "width", [1.0, 2.0], lrs=MANY),
        "^lrs must be at most 1000 numbers, got 100000000$",
    ),
    "fields of a search": (lambda: dl.optimal(PROBLEM, MANY), "^over must be at most 20 names"),  # type: ignore[arg-type]
    "bounds of a search": (
        lambda: dl.optimal(PROBLEM, ["lr"], bounds=np.ones(3)),  # type: ignore[arg-type]
        "^bounds must be a dictionary of fields with their lowest and highest value, got array",
    ),
    "fields of derivatives": (lambda: dl.sensitivity(PROBLEM, MANY), "^wrt must be at most 1000 names, got 100000000$"),  # type: ignore[arg-type]
    "tables of fields": (lambda: dl.sensitivity(PROBLEM, np.zeros((2, 2))), "^wrt must be among lr, "),  # type: ignore[arg-type]
    "a long range as a curve": (
        lambda: dl.measured(test_loss=MANY),
        "^test_loss must be at most 10000000 losses or runs, got 100000000$",
    ),
    "steps of a training run": (
        lambda: dl.Run(MANY, [3.0, 2.0], 0.1),  # type: ignore[arg-type]
        "^steps must be at most 10000000 numbers, got 100000000$",
    ),
    "tokens as steps": (
        lambda: dl.Run(np.linspace(0, 1e12, 10).round(), np.linspace(3.0, 2.0, 10), 0.1),
        r"^steps must be at most 10000000, got 1000000000000.0 in run: count updates, not tokens or examples$",
    ),
    "points of an exponent": (
        lambda: dl.fit_exponent([1, 2, 3], [1.0, 0.5, 0.3], 1, 3, points=10**9),
        "^points must be a whole number from 3 to 100000, got 1000000000$",
    ),
    "windows of an exponent": (
        lambda: dl.local_exponents([1, 10, 100], [1.0, 0.5, 0.3], per_decade=10**9),
        "^per_decade must be a whole number from 1 to 100000",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_extreme_arguments_are_refused_at_once(name: str) -> None:
    ask, message = REFUSED[name]
    start = time.process_time()
    with pytest.raises(Refusal, match=message):
        ask()
    assert time.process_time() - start < 1.0


def test_the_smallest_tolerance_is_taken() -> None:
    sharp, usual = (dl.optimal_lr(PROBLEM, tolerance=tolerance) for tolerance in (1e-12, 1e-4))
    assert math.isclose(sharp.lr, usual.lr, rel_tol=1e-4)
    assert dl.max_stable_lr(PROBLEM, tolerance=1e-12).lr <= dl.max_stable_lr(PROBLEM, tolerance=1.0).lr * 2


def test_positions_may_come_one_by_one() -> None:
    found = dl.landscape(PROBLEM, positions=(x / 2 for x in range(3)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.positions, [0.0, 0.5, 1.0])


def test_a_message_does_not_show_all_of_a_long_value() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    for value in ([0.0] * 10**6, "a" * 10**6, list("ab") * 200, nested, range(2**70)):
        with pytest.raises(Refusal, match=r"^lr must be ") as refused:
            raise Refusal("lr", value, "a number")
        assert len(str(refused.value)) < 2500


def test_a_curve_that_is_one_number_is_refused() -> None:
    with pytest.raises(Refusal, match=r"^test_loss must be a column of numbers, got 0.5$"):
        dl.measured({"test_loss": 0.5})


def test_derivatives_that_leave_the_range_of_numbers_say_so() -> None:
    """Decay uncovers the function at initialisation, of size 1 / richness, that is subtracted."""
    tiny = PROBLEM.replace(network=dl.MLP(1, 1.7, 1.9e-239, centered=True), sampling=dl.Population(), steps=2)
    assert "nan: not known, as numbers on the way to it leave their range" in str(dl.sensitivity(tiny))
    assert "nan" not in str(dl.sensitivity(PROBLEM))


@pytest.mark.parametrize("experiment", [0, [1.0], {"dims": 6}, "a"])
def test_networks_of_a_coordinate_check_are_described_by_a_dict(experiment: Any) -> None:
    """Numbers 44, 166 and 326 of ``make fuzz``."""
    with pytest.raises(Refusal, match=r"^experiment must be a dict of dim, seeds, workers, device, method, got "):
        dl.coordinate_check(PROBLEM, [0.5, 1.0], experiment=experiment)


def test_columns_without_a_deviation_are_no_warning() -> None:
    """Numbers 155, 409 and 772 of ``make fuzz``: a curve of zeros, of which the size explains nothing."""
    network = dl.ResNet(1, 1.0, branch=2.4)
    problem = dl.Problem(network, dl.Isotropic(0.5), dl.Population(), dl.GradientDescent(0.02), 1)
    found = dl.compare(dl.solve(problem), np.array([0.0]))
    assert found.verdict is dl.Verdict.DISAGREES


def test_losses_whose_squares_overflow_are_no_warning() -> None:
    """Number 233 of ``make fuzz``: the initial function is as large as 1 / richness."""
    problem = PROBLEM.replace(richness=1e-90, steps=1)
    assert dl.compare(dl.solve(problem), np.array([2.0**63])).verdict is not dl.Verdict.AGREES
