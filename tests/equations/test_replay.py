"""Steps that are replayed on a card: rows whose number only the device knows, against rows by slices.

Without a card, nothing is recorded: what would be replayed is called again.
"""

import importlib.util
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.device import find_device
from deeplinear._equations import replay
from deeplinear._equations.coefficients import coefficients
from deeplinear._equations.fixed_point import MEMORY, Past
from deeplinear._solvers.dense import Dense, DenseRun
from factories import maker
from needs import need, need_torch

make = maker(
    "network", "sampling", network=dl.MLP(3, [1.0, 0.5, 2.0]), noise=0.3, sampling=dl.FullBatch(2.0), lr=0.03, steps=8
)

GRAM = [[1.0, 0.3], [0.3, 0.5]]
SPECTRUM = dl.Spectrum([1.0, 0.5, 0.2], [0.3, 0.3, 0.4], noise=0.1)

PROBLEMS = {
    "full batch": make(),
    "online": make(sampling=dl.OnlineSGD(2.0), momentum=0.5),
    "multi-pass": make(sampling=dl.MultiPassSGD(2.0, 0.5), weight_decay=0.1),
    "batches that grow": make(sampling=dl.OnlineSGD([2.0] * 4 + [4.0] * 4)),
    "residual": make(dl.ResNet(3, 1.0), weight_decay=0.1),
    "centered": make(dl.MLP(2, 1.0, centered=True), weight_decay=0.1),
    "spectrum": make(data=SPECTRUM),
    "outputs": make(sampling=dl.MultiPassSGD(2.0, 0.5), data=dl.Isotropic(0.3, GRAM)),
    "phases": make().replace(phases=[dl.Phase(4), dl.Phase(4, 0.5)]),
    "infinite depth": make(dl.ResNet(np.inf, 1.0)),
}


class Again:
    """A graph that calls again what would have been recorded."""

    def __init__(self, work):
        self.replay = work


def filled(problems):
    run = DenseRun(problems, coefficients(problems, 5 if problems[0].network.depth == np.inf else 0, device=DEVICE))
    run.fill()
    return run


@pytest.fixture(scope="module", autouse=True)
def torch():
    global DEVICE
    module, _ = need_torch()
    DEVICE = find_device("torch:cpu")
    return module


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_row_that_only_the_device_knows(name, monkeypatch):
    problems = [PROBLEMS[name], PROBLEMS[name].replace(lr=0.02)]
    expected = filled(problems)
    recorded = []
    monkeypatch.setattr(replay, "why_not", lambda c: None)
    monkeypatch.setattr(replay, "record", lambda work: (recorded.append(1), Again(work))[1])
    monkeypatch.setattr(replay.Replay, "_use", lambda *_: None)  # products are those of PyTorch
    monkeypatch.setattr(replay, "past_on_card", lambda like: Past(MEMORY, like))
    actual = filled(problems)
    # The data, and up and down the chain how sweeps begin and go on.
    assert len(recorded) == (5 if name == "infinite depth" else 1)
    close = 1e-9 if name == "infinite depth" else 1e-13  # sweeps end at 1e-10
    for ours, theirs in zip(actual.equations.room.two_time, expected.equations.room.two_time, strict=True):
        scale = float(abs(theirs.matrix).max())
        assert float(abs(ours.matrix - theirs.matrix).max()) <= close * scale
    assert len(actual.overlaps.same_data) == 2
    for ours, theirs in zip(actual.overlaps, expected.overlaps, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=100 * close, atol=close)


def test_a_divergence_is_found_at_its_step_however_seldom_losses_are_looked_at(monkeypatch):
    law = dl.Spectrum.power_law(1.3, 0.5)
    one = make(dl.MLP(2, 10.0), dl.FullBatch(20.0), data=law, steps=100)
    problems = [one.replace(lr=lr) for lr in (0.05, 1.0, 0.9)]
    expected = dl.solve(problems, method="dense")
    monkeypatch.setattr(replay, "why_not", lambda c: None)
    monkeypatch.setattr(replay, "record", Again)
    monkeypatch.setattr(replay.Replay, "_use", lambda *_: None)
    actual = dl.solve(problems, method="dense", device="torch:cpu")
    assert [each.status for each in actual] == [each.status for each in expected]
    assert [each.status.diverged for each in actual] == [False, True, True]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours.test_loss, theirs.test_loss, rtol=1e-9)
        np.testing.assert_allclose(ours.decomposition.bias, theirs.decomposition.bias, rtol=1e-9)


def test_variances_of_several_outputs_are_those_before_a_divergence(monkeypatch):
    problem = make(data=dl.Isotropic(0.3, GRAM), lr=0.6, steps=20)
    expected = dl.solve(problem, method="dense")
    monkeypatch.setattr(replay, "why_not", lambda c: None)
    monkeypatch.setattr(replay, "record", Again)
    monkeypatch.setattr(replay.Replay, "_use", lambda *_: None)
    actual = dl.solve(problem, method="dense", device="torch:cpu")
    end = expected.status.diverged_at
    assert end == actual.status.diverged_at == 3
    for name in ("initialization", "data"):
        ours, theirs = (getattr(each.variance, name)[:end] for each in (actual, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        assert np.isfinite(ours).all()


def test_a_batch_has_no_more_problems_than_a_card_starts_programs_for():
    solver = Dense(device=DEVICE)
    assert solver.worth_batching(make(steps=2)) == 2**15 - 1
    of_modes = make(data=dl.Spectrum(np.linspace(1.0, 0.1, 500).tolist(), [1.0] * 500), steps=2)
    assert solver.worth_batching(of_modes) <= (2**16 - 1) // 500


@pytest.mark.parametrize("name", ["full batch", "infinite depth"])
def test_nothing_of_a_recorded_run_waits_for_garbage_to_be_collected(name, monkeypatch):
    class Graph:
        def __init__(self, work):  # which a graph does not keep
            self._work = weakref.WeakMethod(work)

        def replay(self):
            self._work()()

    kept = []

    def past(like):
        made = Past(MEMORY, like)
        kept.append(weakref.ref(made))
        return made

    monkeypatch.setattr(replay, "why_not", lambda c: None)
    monkeypatch.setattr(replay, "record", Graph)
    monkeypatch.setattr(replay.Replay, "_use", lambda *_: None)
    monkeypatch.setattr(replay, "past_on_card", past)
    with replay.no_garbage_collection():
        run = filled([PROBLEMS[name]])
        assert all(each() is None for each in kept)
        assert len(kept) == (2 if name == "infinite depth" else 0)
        assert len(run.overlaps.same) == 1
        matrices = weakref.ref(run.equations.room)
        del run
        assert matrices() is None


def test_rules_that_look_at_gradients_are_not_replayed(monkeypatch):
    monkeypatch.setattr(replay, "why_not", lambda c: None)
    monkeypatch.setattr(replay, "Replay", None)
    filled([make(optimizer=dl.GradientDescent(0.03, clip=0.5))])


def test_why_steps_are_not_replayed():
    assert replay.why_not(coefficients([make()], device=DEVICE)) == "they are not on an NVIDIA graphics card"


def test_products_of_a_row_on_a_card():
    need("triton", importlib.util.find_spec("triton") is not None, "pip install triton")
    work = Path(__file__).with_name("products_on_a_card.py")
    ended = subprocess.run(
        [sys.executable, work], env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "51 cases agree\n"), ended.stderr
