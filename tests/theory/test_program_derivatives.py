"""Derivatives of every update rule against central differences of solutions."""

from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._problem.edit import get_field, replace
from factories import maker

s = dl.schedules
PHASES = (
    dl.Phase(5),
    dl.Phase(5, target_overlap=0.5, noise=0.1, optimizer=dl.Muon(0.02), sampling=dl.FullBatch(1.0)),
)


problem = maker(
    "optimizer", "network", depth=2, width=0.8, richness=0.7, noise=0.3, sampling=dl.FullBatch(1.5), steps=10
)


CASES = {
    "clipped": problem(dl.GradientDescent(0.1, 0.3, weight_decay=0.1, clip=0.3)),
    "clipped by layer": problem(dl.GradientDescent(0.1, weight_decay=0.1, clip=0.2, clip_by="layer")),
    "normalized": problem(dl.NormalizedDescent(0.05, beta2=0.5, momentum=0.3, weight_decay=0.1)),
    "normalized globally": problem(dl.NormalizedDescent(0.05, per="global", beta2=0.5)),
    "muon": problem(dl.Muon(0.02, momentum=0.5)),
    "muon and another": problem(dl.Muon(0.02, 0.5, True, other=dl.GradientDescent(0.05, 0.5, weight_decay=0.1))),
    "schedule-free": problem(dl.ScheduleFree(0.05, beta=0.7)),
    "sam": problem(dl.SAM(0.05, rho=0.1, momentum=0.3, weight_decay=0.1)),
    "schedules": problem(
        dl.GradientDescent(s.cosine(0.05, warmup=0.2), s.linear(0.5), weight_decay=s.linear(0.1)),
        sampling=dl.OnlineSGD(s.linear(1.0, end=0.5)),
    ),
    "layers": problem(
        dl.GradientDescent(0.05, layer_lr={"input": 0.5}),
        dl.ResNet(3, 0.8, branch_scaling=1.0, init_scale={"readout": 0.5}),
    ),
    "standard": problem(dl.GradientDescent(0.02), dl.MLP(2, [0.8, 1.2], parameterization="standard")),
    "phases": problem(dl.GradientDescent(0.05, 0.3), phases=PHASES),
}
_H = 1e-4


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(factor * each for each in value)
    return value.scaled(factor) if isinstance(value, s.Schedule) else factor * value


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_central_differences(name: str) -> None:
    """The error of differences is h^2 = 1e-8 times third derivatives, and rounding, 1e-15 / h."""
    one = CASES[name]
    found = dl.sensitivity(one)
    names = [field for field, value in found.at.items() if value != 0]  # which a factor cannot change
    assert {"lr", "richness", "width"} < set(names)
    ends = [replace(one, {field: _scaled(get_field(one, field), 1 + h)}) for field in names for h in (_H, -_H)]
    solved = dl.solve(ends)
    for field, above, below in zip(names, solved[::2], solved[1::2], strict=True):
        size = 2 * _H * found.at[field]
        for loss in ("test_loss", "train_loss"):
            expected = (getattr(above, loss) - getattr(below, loss)) / size
            np.testing.assert_allclose(
                getattr(found, f"d_{loss}")[field], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max()
            )


@pytest.mark.parametrize(
    ("optimizer", "field"),
    [
        (dl.Muon(0.05, momentum=0.0, other=dl.GradientDescent(0.05)), "momentum"),
        (dl.NormalizedDescent(0.05), "momentum"),
        (dl.NormalizedDescent(0.05), "beta2"),
        (dl.SAM(0.05, rho=0.1), "weight_decay"),
        (dl.ScheduleFree(0.05, beta=0.0), "beta"),
    ],
)
def test_derivatives_at_zero_are_those_of_one_sided_differences(optimizer: Any, field: str) -> None:
    """Differences over h and 2 h leave an error of order h^2."""
    one, h = problem(optimizer), 1e-4
    at, near, far = (run.test_loss for run in dl.solve([replace(one, {field: k * h}) for k in range(3)]))
    expected = (4 * near - 3 * at - far) / (2 * h)
    assert np.abs(expected).max() > 1e-3  # a derivative that is lost would be zero
    np.testing.assert_allclose(
        dl.sensitivity(one, field).d_test_loss[field], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )


INSIDE = problem(
    dl.GradientDescent(0.05, 0.3),
    phases=(
        dl.Phase(4, noise=0.2),
        dl.Phase(3, target_overlap=0.5, noise=0.1, optimizer=dl.Muon(0.02, other=dl.GradientDescent(0.05, 0.3)),
                 sampling=dl.FullBatch(1.0)),
        dl.Phase(3, target_overlap=-0.4, optimizer=dl.GradientDescent(s.cosine(0.05), weight_decay=s.linear(0.2)),
                 sampling=dl.OnlineSGD(s.linear(1.0, end=0.5))),
    ),
)  # fmt: skip
INSIDE_NAMES = (
    "phases.0.noise", "phases.1.target_overlap", "phases.1.noise", "phases.1.lr", "phases.1.optimizer.momentum",
    "phases.1.other.lr", "phases.1.other.momentum", "phases.1.samples", "phases.2.target_overlap", "phases.2.lr",
    "phases.2.weight_decay", "phases.2.batch",
)  # fmt: skip


def test_fields_of_phases_have_derivatives() -> None:
    """Those of central differences, as above; before a phase there is none."""
    found = dl.sensitivity(INSIDE, INSIDE_NAMES)
    ends = [
        replace(INSIDE, {field: _scaled(get_field(INSIDE, field), 1 + h)}) for field in INSIDE_NAMES for h in (_H, -_H)
    ]
    solved = dl.solve(ends)
    for field, above, below in zip(INSIDE_NAMES, solved[::2], solved[1::2], strict=True):
        for loss in ("test_loss", "train_loss"):
            expected = (getattr(above, loss) - getattr(below, loss)) / (2 * _H * found.at[field])
            size = np.abs(expected).max()
            assert size > 1e-3  # a derivative that is lost would be zero
            np.testing.assert_allclose(getattr(found, f"d_{loss}")[field], expected, rtol=1e-5, atol=1e-6 * size)
        start = {"0": 0, "1": 4, "2": 7}[field.split(".")[1]]
        np.testing.assert_array_equal(found.d_test_loss[field][:start], 0.0)


@pytest.mark.parametrize("name", ["phases.0.lr", "phases.2.noise", "phases.3.lr", "phases.1.steps", "phases.1.clip"])
def test_what_a_phase_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match=r"wrt must be among .*, got 'phases"):
        dl.sensitivity(INSIDE, name)


def test_nothing_clipped_has_no_derivative() -> None:
    one = problem(dl.GradientDescent(0.1))
    assert "clip" not in dl.sensitivity(one).at
    with pytest.raises(Refusal, match=r"wrt must be among .*, got 'clip': nothing is clipped"):
        dl.sensitivity(one, "clip")
