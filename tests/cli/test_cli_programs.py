"""Update rules, schedules, layers, averages and phases on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import deeplinear as dl
from command_line import document, refused, run
from deeplinear._cli import _fields
from deeplinear._cli._options import PROBLEM

pytestmark = pytest.mark.usefixtures("in_folder")

QUICK = ("--steps", "6", "--depth", "2", "--quiet")
schedules = dl.schedules


def given(*arguments: str) -> dl.Problem:
    """Read the options of a problem without doing anything with it."""
    values: dict[str, Any] = {parameter.name: None for parameter in PROBLEM.parameters}
    flags = {field.flag: field for field in _fields.FIELDS}
    for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        field = flags.get(flag)
        switch = field is not None and field.is_switch
        values[name] = value == "yes" if switch else [value] if field and field.reader.repeats else value
    values["problem"] = values["problem"] and Path(values["problem"])
    return PROBLEM.build(values)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("arguments", "part", "expected"),
    [
        ("--lr|cosine(0.05, warmup=0.1)", "optimizer", dl.GradientDescent(schedules.cosine(0.05, warmup=0.1))),
        ("--lr|power(0.1, 2)", "optimizer", dl.GradientDescent(schedules.power(0.1, 2.0))),
        (
            "--lr|piecewise(0.1, at=[0.5, 0.75], factors=[0.1, 0.01])",
            "optimizer",
            dl.GradientDescent(schedules.piecewise(0.1, [0.5, 0.75], [0.1, 0.01])),
        ),
        (
            "--momentum|linear(0.9)|--weight-decay|wsd(0.1, decay=0.3)",
            "optimizer",
            dl.GradientDescent(0.03, schedules.linear(0.9), weight_decay=schedules.wsd(0.1, decay=0.3)),
        ),
        ("--layer-lr|input=1,readout=0", "optimizer", dl.GradientDescent(0.03, layer_lr={"readout": 0.0})),
        ("--layer-decay|1,2,3,4", "optimizer", dl.GradientDescent(0.03, layer_decay=(1.0, 2.0, 3.0, 4.0))),
        ("--clip|0.5|--clip-by|layer", "optimizer", dl.GradientDescent(0.03, clip=0.5, clip_by="layer")),
        ("--optimizer|normalized", "optimizer", dl.NormalizedDescent(0.03)),
        ("--optimizer|normalized|--per|global|--beta2|0.9", "optimizer", dl.NormalizedDescent(0.03, "global", 0.9)),
        ("--optimizer|muon", "optimizer", dl.Muon(0.03)),
        (
            "--optimizer|muon|--lr|0.02|--nesterov|yes|--iterations|3|--input|yes",
            "optimizer",
            dl.Muon(0.02, nesterov=True, iterations=3, input=True),
        ),
        (
            "--optimizer|muon|--other-momentum|0.5",
            "optimizer",
            dl.Muon(0.03, other=dl.GradientDescent(0.03, momentum=0.5)),
        ),
        (
            "--optimizer|muon|--other-lr|linear(0.1)|--other-layer-lr|readout=0",
            "optimizer",
            dl.Muon(0.03, other=dl.GradientDescent(schedules.linear(0.1), layer_lr={"readout": 0.0})),
        ),
        ("--optimizer|schedule-free|--beta|0.5", "optimizer", dl.ScheduleFree(0.03, beta=0.5)),
        ("--optimizer|sam", "optimizer", dl.SAM(0.03, rho=0.05)),
        ("--optimizer|sam|--rho|0.1|--momentum|0.9", "optimizer", dl.SAM(0.03, rho=0.1, momentum=0.9)),
        (
            "--sampling|online|--batch|linear(2, end=0.5)",
            "sampling",
            dl.OnlineSGD(schedules.linear(2.0, end=0.5)),
        ),
        ("--network|resnet|--branch-scaling|1", "network", dl.ResNet(3, 1.0, branch_scaling=1.0)),
        ("--network|resnet|--branch-scaling|none", "network", dl.ResNet(3, 1.0, branch_scaling="none")),
        ("--init-scale|readout=0.5", "network", dl.MLP(3, 1.0, init_scale={"readout": 0.5})),
        ("--parameterization|standard", "network", dl.MLP(3, 1.0, parameterization="standard")),
    ],
)
def test_options_make_parts(arguments: str, part: str, expected: object) -> None:
    assert getattr(given(*arguments.split("|")), part) == expected


@pytest.mark.parametrize("word", _fields.KINDS["optimizer"])
def test_every_rule_is_solved_with_defaults_alone(word: str) -> None:
    parsed = document("solve", *QUICK[:-1], "--optimizer", word)
    kind = _fields.KINDS["optimizer"][word]
    problem = dl.Problem.from_dict(parsed["problem"])
    assert type(problem.optimizer) is kind
    assert parsed["test_loss"] == dl.solve(problem).test_loss.tolist()


BAD = [
    ("--layer-lr 1,0", "layer_lr must be one number for each of 3 weight layers, or some of input, hidden, readout"),
    ("--layer-lr head=0", "layer_lr must have no other names than input, hidden, readout, got 'head'"),
    ("--layer-lr input=fast", "--layer-lr must be one number for each weight layer, or some by name, such as"),
    ("--layer-lr input=-1", "layer_lr['input'] must be a finite number, zero or above, got -1"),
    ("--init-scale 1,1,1,1,1", "init_scale must be one number for each of 3 weight layers"),
    ("--clip 0", "clip must be a positive finite number, got 0"),
    ("--clip 1 --clip-by neuron", "clip_by must be 'global' or 'layer', got 'neuron'"),
    ("--optimizer normalized --beta2 1", "beta2 must be a number from 0 up to but not including 1, got 1"),
    ("--optimizer sam --rho 0", "rho must be a positive finite number, got 0"),
    ("--optimizer muon --momentum 1", "momentum must be a number from 0 up to but not including 1, got 1"),
    ("--optimizer muon --momentum cosine(0.5)", "momentum must be a number from 0 up to but not including 1, got"),
    ("--optimizer muon --iterations 0", "iterations must be a whole number, at least 1, got 0"),
    ("--optimizer muon --other-lr -1", "lr must be a positive finite number, got -1"),
    ("--other-lr 0.1", "--other-lr cannot be used with optimizer gradient-descent, only with muon"),
    ("--optimizer muon --clip 1", "--clip cannot be used with optimizer muon, only with gradient-descent"),
    ("--lr cosine(-0.1)", "lr.peak must be a finite number, zero or above, got -0.1"),
    ("--lr linear(0.1,end=-1)", "lr.end must be a number from 0 to 1, got -1"),
    ("--lr cosine(0.1,warmup=1)", "lr.warmup must be a number from 0 up to but not including 1, got 1"),
    ("--lr step(0.1)", "--lr: the shape of a schedule must be 'constant' or 'linear' or 'cosine'"),
    ("--lr cosin(0.1)", "got 'cosin' (did you mean 'cosine'?)"),
    ("--clip-by layer", "clip_by must be 'global' without clip, which says at what norm to clip, got 'layer'"),
    ("--optimizer sgd", "got 'sgd': it is GradientDescent, with batches that the sampling draws: OnlineSGD or"),
    ("--optimizer muonn", "got 'muonn' (did you mean 'muon'?)"),
    ("--sampling sgd", "got 'sgd': batches are fresh with OnlineSGD, and drawn from a set of samples with"),
    ("--lr cosine()", "lr must be a cosine schedule with a peak"),
    ("--lr cosine(0.1,speed=2)", "lr must be a cosine schedule of peak, warmup, end, got 'speed'"),
    ("--lr cosine(", "--lr must be a number, several separated by commas, or a schedule such as 'cosine(0.1)', got"),
    ("--lr cosine(0.1).values", "--lr must be a number, several separated by commas, or a schedule"),
    ("--lr cosine(__import__('os'))", "--lr must be a number, several separated by commas, or a schedule"),
    ("--sampling online --batch piecewise(2,[0.5],[0])", "batch[3] must be a positive finite number, got 0.0"),
    ("--network resnet --branch-scaling -1", "branch_scaling must be a finite number, zero or above, got -1"),
    ("--network resnet --branch-scaling deep", "branch_scaling must be 'depth-mup' or 'none', or a power of 1/depth"),
    ("--network resnet --depth inf --optimizer muon", "optimizer must be a rule that does not treat layers separately"),
    ("--network resnet --depth inf --optimizer normalized", "their sizes are not kept there"),
    ("--network resnet --depth inf --branch-scaling 0.2", "branch_scaling must be 'depth-mup' or a power of 0.5"),
    ("--average ema", "--average must look like ema=0.99 or tail=0.5, got 'ema'"),
    ("--average mean=0.5", "--average must look like ema=0.99 or tail=0.5, got 'mean=0.5'"),
    ("--average ema=1", "--average ema must be a number from 0 up to but not including 1, got 1"),
    ("--average tail=0", "--average tail must be a number above 0 and at most 1, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[arguments for arguments, _ in BAD])
def test_bad_options_are_refused_by_name(arguments: str, message: str) -> None:
    assert message in refused("solve", "--steps", "6", "--quiet", "--depth", "2", *arguments.split())


@pytest.mark.parametrize("word", ["adam", "Adam", "adamw", "sgd-sign", "sign_sgd", "lion"])
def test_rules_by_entry_are_refused_with_the_reason_and_what_comes_nearest(word: str) -> None:
    message = refused("solve", "--optimizer", word)
    assert f"got '{word}': it acts on single entries of a matrix" in message
    assert "the nearest rule is NormalizedDescent" in message
    with pytest.raises(ValueError, match=r"optimizer.type must be 'GradientDescent' or .* nearest rule"):
        dl.Problem.from_toml(given().to_toml().replace('"GradientDescent"', f'"{word}"'))


def test_a_word_that_nobody_knows_gets_no_reason() -> None:
    message = refused("solve", "--optimizer", "sdg")
    assert (
        message == "error: optimizer must be gradient-descent or normalized or muon or schedule-free or sam, got 'sdg'"
    )


def test_another_rule_has_its_own_defaults_where_the_file_has_those_of_its_rule() -> None:
    """A file from ``save`` spells out every default; a momentum of 0 there must not become that of Muon."""
    given().save("plain.toml")
    assert given("--problem", "plain.toml", "--optimizer", "muon").optimizer == dl.Muon(0.03)
    given("--momentum", "0.5").save("momentum.toml")
    assert given("--problem", "momentum.toml", "--optimizer", "muon").optimizer == dl.Muon(0.03, momentum=0.5)


def test_options_change_fields_of_a_rule_within_another() -> None:
    given("--optimizer", "muon", "--other-lr", "0.1", "--other-momentum", "0.5").save("muon.toml")
    changed = given("--problem", "muon.toml", "--lr", "0.2", "--other-momentum", "0.9").optimizer
    assert changed == dl.Muon(0.2, other=dl.GradientDescent(0.1, momentum=0.9))


def test_help_shows_the_default_of_every_kind() -> None:
    text = " ".join(run("solve", "--help").stdout.replace("│", " ").split())
    assert "[default: (0.0; 0.95 with muon)]" in text
    assert "[default: (that of --lr)]" in text
    assert "depth-mup|none|P" in text
    assert "gradient-descent|normalized|muon|schedule-free|sam" in text


AVERAGED = ("--average", "ema=0.9", "--average", "tail=0.5")


def test_averages_of_theory_and_of_networks() -> None:
    averages = (dl.EMA(0.9), dl.TailMean(0.5))
    theory = document("solve", *QUICK[:-1], *AVERAGED)
    problem = dl.Problem.from_dict(theory["problem"])
    assert theory["averaged_test_loss"] == dl.solve(problem, averages=averages).averaged_test_loss.tolist()
    networks = document("simulate", *QUICK[:-1], *AVERAGED, "--dim", "10", "--seeds", "2")
    expected = dl.simulate(problem, dim=10, seeds=2, averages=averages).mean("averaged_test_loss")
    assert networks["averaged_test_loss"]["mean"] == expected.tolist()
    shown = run("solve", *QUICK, *AVERAGED).stdout
    assert "EMA(decay=0.9)" in shown
    assert "TailMean(part=0.5)" in shown


def test_averages_are_compared() -> None:
    result = run("compare", *QUICK[:-1], *AVERAGED, "--dim", "20", "--seeds", "4", "--json")
    names = [each["name"] for each in json.loads(result.stdout)["comparison"]["observables"]]
    assert names.count("averaged_test_loss") == 2


def test_phases_come_from_a_file() -> None:
    phases = (dl.Phase(3), dl.Phase(3, target_overlap=0.5, optimizer=dl.Muon(0.02)))
    problem = dl.Problem(
        dl.MLP(2, 1.0), dl.Isotropic(0.1), dl.FullBatch(2.0), dl.GradientDescent(0.05), 6, phases=phases
    )
    problem.save("phases.toml")
    assert given("--problem", "phases.toml") == problem
    parsed = document("solve", "--problem", "phases.toml", "--lr", "0.1")
    changed = dl.Problem.from_dict(parsed["problem"])
    assert changed.phases == phases
    assert parsed["task_loss"] == dl.solve(changed).task_loss.tolist()
    assert "2 phases: 3 steps; 3 steps, target overlap 0.5, Muon" in run("solve", "--problem", "phases.toml").stdout
    assert "phases must add up to the 9 steps of the problem, got 6 steps" in refused(
        "solve", "--problem", "phases.toml", "--steps", "9"
    )
