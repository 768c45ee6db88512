from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import deeplinear as dl
from deeplinear._plots import loss as _plot
from deeplinear._plots.loss import plot_comparison, plot_solution
from deeplinear._plots.style import save_figure
from deeplinear._plots.words import in_words

CASES = {
    "full batch": dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), 30),
    "loss falls to rounding": dl.Problem(
        dl.MLP(2, 1.0, centered=True),
        dl.Isotropic(),
        dl.Population(),
        dl.GradientDescent(0.15),
        200,
    ),
    "diverges": dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.5), 40),
    "many words": dl.Problem(
        dl.MLP(4, [1.0, 2.0, 1.0, 1.5], parameterization="ntk", richness=0.5),
        dl.Isotropic(0.3, [[1.0, 0.2], [0.2, 0.5]]),
        dl.MultiPassSGD(2.0, 0.4),
        dl.GradientDescent(0.005, momentum=0.5, nesterov=True, weight_decay=0.01),
        12,
    ),
    "online": dl.Problem(
        dl.MLP(1, 0.5), dl.Isotropic(0.1), dl.OnlineSGD(0.5), dl.GradientDescent(lambda t: 0.05 / (1 + t)), 20
    ),
    "one step": dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.1), dl.FullBatch(1.0), dl.GradientDescent(0.1), 1),
}


def drawn(figure: Figure) -> None:
    """Draw in full; any warning is an error here."""
    figure.canvas.draw()


@pytest.mark.parametrize(
    ("name", "record"),
    [
        *(pytest.param(name, "all", marks=[pytest.mark.slow] * (name == "online")) for name in CASES),
        ("full batch", "losses"),
    ],
)
def test_every_kind_of_result_can_be_drawn(name: str, record: str, tmp_path: Path) -> None:
    each = CASES[name]
    theory, experiment = dl.solve(each), dl.simulate(each, 12, 3, record=record)
    figure = plot_comparison(theory, experiment)
    assert len(figure.axes) == (4 if record == "all" else 2)
    save_figure(figure, tmp_path / "comparison.png")
    save_figure(plot_solution(theory), tmp_path / "solution.png")
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


def test_one_network_has_no_error_band() -> None:
    each = CASES["full batch"]
    drawn(plot_comparison(dl.solve(each), dl.simulate(each, 12, 1)))


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        pytest.param(".png", b"\x89PNG", marks=pytest.mark.slow),
        (".pdf", b"%PDF"),
        (".svg", b"<?xml"),
        (".PNG", b"\x89PNG"),
    ],
)
def test_format_follows_the_suffix(suffix: str, start: bytes, tmp_path: Path) -> None:
    theory = dl.solve(CASES["full batch"])
    paths = [tmp_path / f"{name}{suffix}" for name in ("one", "two")]
    for path in paths:
        save_figure(plot_solution(theory), path)
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes(), "equal pictures are equal files"
    assert sorted(tmp_path.iterdir()) == sorted(paths), "nothing temporary stays"


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png or \.svg or \.pdf, got 'a\.gif'"):
        save_figure(Figure(), "a.gif")
    with pytest.raises(ValueError, match="does not exist"):
        save_figure(Figure(), tmp_path / "missing" / "a.png")


def test_nothing_global_changes() -> None:
    with matplotlib.rc_context({"font.size": 17, "lines.linewidth": 9}):
        before = dict(matplotlib.rcParams)
        figure = plot_solution(dl.solve(CASES["one step"]))
        assert dict(matplotlib.rcParams) == before
    assert figure.axes[0].get_lines()[0].get_linewidth() < 3, "a picture does not depend on the user's settings"


def test_solution_is_drawn_into_given_axes() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_solution(dl.solve(CASES["full batch"]), ax=right) is figure
    assert not left.get_lines()
    assert {line.get_label() for line in right.get_lines()} >= {"test loss", "train loss", "bias part of test loss"}


def test_theory_is_dashed_and_experiment_solid_with_the_right_values() -> None:
    each = CASES["full batch"]
    theory, experiment = dl.solve(each), dl.simulate(each, 12, 4)
    losses = plot_comparison(theory, experiment).axes[0]
    solid = {line.get_label(): line for line in losses.get_lines() if line.get_linestyle() == "-"}
    dashed = [line for line in losses.get_lines() if line.get_linestyle() == "--"]
    np.testing.assert_array_equal(solid["test loss"].get_ydata(), experiment.mean("test_loss"))
    np.testing.assert_array_equal(solid["train loss"].get_ydata(), experiment.mean("train_loss"))
    np.testing.assert_array_equal([line.get_ydata() for line in dashed], [theory.test_loss, theory.train_loss])


def test_z_scores_are_those_of_the_losses() -> None:
    each = CASES["full batch"]
    theory, experiment = dl.solve(each), dl.simulate(each, 12, 4)
    expected = (experiment.mean("test_loss") - theory.test_loss) / experiment.standard_error("test_loss")
    lines = [line.get_ydata() for line in plot_comparison(theory, experiment).axes[1].get_lines()]
    assert any(len(line) == each.steps and np.allclose(line, expected) for line in lines)


def test_colours_differ_in_grey() -> None:
    def luminance(color: str) -> float:
        return float(np.dot(to_rgb(color), [0.2126, 0.7152, 0.0722]))

    test, train = (luminance(color) for _, color in _plot.LOSSES.values())
    assert abs(test - train) > 0.2


def test_parts_of_a_picture_do_not_overlap() -> None:
    each = CASES["many words"]
    figure = plot_comparison(dl.solve(each), dl.simulate(each, 12, 3))
    drawn(figure)
    boxes = [ax.get_tightbbox() for ax in figure.axes] + [figure._suptitle.get_window_extent()]
    page = figure.bbox
    for i, box in enumerate(boxes):
        assert page.x0 <= box.x0
        assert box.x1 <= page.x1 + 1
        for other in boxes[i + 1 :]:
            assert not (box.x0 < other.x1 and other.x0 < box.x1 and box.y0 < other.y1 and other.y0 < box.y1)


def test_words_name_what_is_special() -> None:
    network, data, optimizer = in_words(CASES["many words"])
    assert network == "MLP, depth 4, width 1/2/1/1.5, richness 0.5, NTK"
    assert data == "multi-pass SGD, samples 2, batch 0.4, noise 0.3, 2 outputs"
    assert optimizer == "lr 0.005, momentum 0.5, nesterov, weight decay 0.01, 12 steps"
    assert in_words(CASES["online"])[2] == "lr schedule, 20 steps"


_S = dl.schedules


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (dl.GradientDescent(_S.cosine(0.1, warmup=0.1), clip=1.0), "lr 0.1 cosine after warm-up, clip 1, 10 steps"),
        (dl.GradientDescent(0.1, layer_lr={"input": 0}, clip=1.0, clip_by="layer"),
         "lr 0.1, layer lr input 0, clip 1, clip by layer, 10 steps"),
        (dl.NormalizedDescent(0.1), "normalised descent, lr 0.1, 10 steps"),
        (dl.NormalizedDescent(0.1, per="global", beta2=0.9),
         "normalised descent, lr 0.1, per global, beta2 0.9, 10 steps"),
        (dl.Muon(0.1), "Muon, lr 0.1, momentum 0.95, iterations 5, 10 steps"),
        (dl.Muon(0.1, 0.9, True, input=True, other=dl.GradientDescent(0.2, 0.5)),
         "Muon, lr 0.1, momentum 0.9, nesterov, iterations 5, input, other weights lr 0.2, momentum 0.5, 10 steps"),
        (dl.ScheduleFree(0.1, layer_lr=[1, 0, 2]), "schedule-free, lr 0.1, beta 0.9, layer lr 1/0/2, 10 steps"),
        (dl.SAM(0.1, 0.05, momentum=_S.linear(0.9)), "SAM, lr 0.1, rho 0.05, momentum 0.9 linear, 10 steps"),
    ],
)  # fmt: skip
def test_every_update_rule_has_words(optimizer: Any, words: str) -> None:
    each = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.Population(), optimizer, steps=10)
    assert in_words(each)[2] == words


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("lr", "Muon, momentum 0.9, iterations 5, other weights lr 0.2, momentum 0.5, 10 steps"),
        ("momentum", "Muon, lr 0.1, iterations 5, other weights lr 0.2, momentum 0.5, 10 steps"),
        ("other.momentum", "Muon, lr 0.1, momentum 0.9, iterations 5, other weights lr 0.2, 10 steps"),
        ("steps", "Muon, lr 0.1, momentum 0.9, iterations 5, other weights lr 0.2, momentum 0.5"),
    ],
)
def test_a_field_is_left_out_and_no_other_of_its_name(field: str, words: str) -> None:
    optimizer = dl.Muon(0.1, 0.9, other=dl.GradientDescent(0.2, 0.5))
    each = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.Population(), optimizer, steps=10)
    assert in_words(each, [field])[2] == words


_BATCHES = dl.OnlineSGD(_S.linear(2.0, end=0.5))
PROGRAM = dl.Problem(
    dl.ResNet(2, 1.0, branch_scaling=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), 10,
    (dl.Phase(6), dl.Phase(4, 0.5, sampling=_BATCHES, noise=0.1, optimizer=dl.SAM(0.1, 0.1))),
)  # fmt: skip


def test_phases_have_words() -> None:
    network, *_, phases = in_words(PROGRAM)
    assert network.endswith("branch 1, branch scaling 1")
    second = "4 steps, target overlap 0.5, online SGD, batch 2 linear, noise 0.1, SAM, lr 0.1, rho 0.1"
    assert phases == f"2 phases: 6 steps; {second}"


def test_losses_of_averages_and_tasks_are_drawn() -> None:
    averages = (dl.EMA(0.9), dl.TailMean(0.5))
    theory, experiment = (
        dl.solve(PROGRAM, averages=averages), dl.simulate(PROGRAM, 12, 3, averages=averages, record="losses")
    )  # fmt: skip
    more = [
        ("test loss of EMA(decay=0.9)", theory.averaged_test_loss[0]),
        ("test loss of TailMean(part=0.5)", theory.averaged_test_loss[1]),
        ("test loss on task 1", theory.task_loss[0]),
        ("test loss on task 2", theory.task_loss[1]),
    ]
    drawn(figure := plot_solution(theory))
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    for label, values in more:
        np.testing.assert_array_equal(lines[label], values)
    drawn(figure := plot_comparison(theory, experiment))
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    np.testing.assert_array_equal(lines["test loss on task 1"], experiment.mean("task_loss")[0])
    np.testing.assert_array_equal(lines[more[0][0]], experiment.mean("averaged_test_loss")[0])
