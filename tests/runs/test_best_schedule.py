"""The best schedule: at least as good as named ones, in every form, and what it costs to stop."""

from functools import cache

import numpy as np
import pytest

import deeplinear as dl
from made_runs import PEAK, WARMUP, losses, three

STEPS = 6000


@cache
def fit() -> dl.RunsFit:
    return dl.fit_runs(three(), law="norm")


def last(rates: np.ndarray) -> float:
    return float(losses(rates, np.array([len(rates)]))[0])


@pytest.mark.parametrize("monotone", [True, False])
def test_no_named_schedule_is_better(monotone: bool) -> None:
    best = fit().best_schedule(STEPS, monotone=monotone)
    assert best.loss == pytest.approx(last(best.lr), abs=5e-4)
    share = WARMUP / STEPS
    for decay in np.linspace(0.05, 0.9, 12):
        for end in (0.0, 0.05, 0.2):
            assert best.loss < last(dl.schedules.wsd(PEAK, share, decay=decay, end=end).values(STEPS)) + 2e-4
    assert min(best.compared.values()) >= best.loss - 2e-5
    later = best.lr[WARMUP:]
    assert later[0] == pytest.approx(PEAK, rel=0.02)
    if monotone:
        assert np.all(np.diff(later) <= 1e-12)
    assert best.lr[: WARMUP - 1] == pytest.approx(PEAK * np.arange(1, WARMUP) / WARMUP)
    assert best.lr[best.decay_begins] < 0.98 * PEAK <= best.lr[best.decay_begins - 1]


@pytest.mark.parametrize("shape", ["cosine", "wsd"])
def test_named_shapes_are_tuned(shape: str) -> None:
    best = fit().best_schedule(STEPS, shape)
    assert best.schedule.shape == shape
    assert best.lr == pytest.approx(best.schedule.values(STEPS))
    assert best.loss == pytest.approx(best.compared[shape], abs=5e-4)  # on an axis of 1500 places
    if shape == "wsd":
        tried = [
            last(dl.schedules.wsd(PEAK, WARMUP / STEPS, decay=each).values(STEPS)) for each in (0.1, 0.2, 0.4, 0.6)
        ]
        assert best.loss < min(tried) + 2e-4


def test_a_free_schedule_comes_in_every_form() -> None:
    torch = pytest.importorskip("torch")
    best = fit().best_schedule(400, warmup=20)
    assert last(best.schedule.values(400)) == pytest.approx(best.loss, abs=1e-3)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    schedule = best.lambda_lr(optimizer)
    seen = []
    for _ in range(400):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert seen == pytest.approx(best.lr, rel=1e-9)


def test_stopping_costs_what_the_rest_would_gain() -> None:
    stop = fit().stopping(4000, 8000)
    assert stop.now > stop.decayed > stop.finished
    assert stop.cost == stop.decayed - stop.finished
    assert stop.now == pytest.approx(last(dl.schedules.constant(PEAK, WARMUP / 4000).values(4000)), abs=2e-3)
    assert "Stopping now costs" in str(stop)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(
        ValueError, match="shape must be 'free' or 'constant' or 'cosine' or 'linear' or 'wsd', got 'sqr'"
    ):
        fit().best_schedule(STEPS, "sqr")
    with pytest.raises(ValueError, match=r"warmup must be below steps \(6000\), got 6000"):
        fit().best_schedule(STEPS, warmup=6000)
    with pytest.raises(ValueError, match="steps must be a whole number, at least 4001"):
        fit().stopping(4000, 4000)
