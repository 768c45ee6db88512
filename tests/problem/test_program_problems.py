"""Problems with update rules, schedules, layers and phases: what is refused, printing, TOML, other processes."""

import pickle

import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from factories import maker

s = dl.schedules

SCHEDULES = [
    s.constant(0.1, warmup=0.2),
    s.linear(0.1, end=0.5),
    s.cosine(0.1, warmup=0.1, end=0.1),
    s.wsd(0.1, warmup=0.1, decay=0.3, end=0.05),
    s.power(0.1, 0.5),
    s.piecewise(0.1, at=[0.5, 0.75], factors=[0.1, 0.01]),
]
RULES = [
    *[dl.GradientDescent(schedule) for schedule in SCHEDULES],
    dl.GradientDescent(0.1, s.linear(0.9), weight_decay=s.cosine(0.1), layer_lr={"input": 0.0}, layer_decay=[1, 2, 3]),
    dl.GradientDescent([0.1] * 12, [0.5] * 12, True, [0.0] * 12, clip=0.5, clip_by="layer"),
    dl.NormalizedDescent(s.wsd(0.1), per="global", beta2=0.99, momentum=0.9, nesterov=True, layer_lr=[1, 0, 1]),
    dl.Muon(0.1),
    dl.Muon(s.cosine(0.1), momentum=0.5, nesterov=True, iterations=3, input=True),
    dl.Muon(0.1, other=dl.GradientDescent(s.linear(0.2), 0.9, layer_lr={"readout": 0.0})),
    dl.ScheduleFree(s.constant(0.1, warmup=0.5), beta=0.5, layer_lr={"hidden": 2.0}),
    dl.SAM(0.1, rho=0.05, momentum=s.linear(0.9), weight_decay=0.1),
]
NETWORKS = [
    dl.MLP(2, 1.0, init_scale={"readout": 0.5}),
    dl.MLP(2, 1.0, parameterization="standard", init_scale=[1.0, 2.0, 0.0]),
    dl.ResNet(2, 1.0, branch_scaling=1.0, init_scale={"input": 2.0}),
]
SAMPLINGS = [
    dl.OnlineSGD(s.linear(2.0, end=0.5)),
    dl.OnlineSGD([1.0] * 12),
    dl.MultiPassSGD(2.0, s.piecewise(1.0, at=[0.5], factors=[2.0])),
]
PHASES = [
    (dl.Phase(8), dl.Phase(4, target_overlap=-0.5)),
    (dl.Phase(8), dl.Phase(4, new_samples=False, noise=0.0, optimizer=dl.Muon(s.linear(0.1)))),
    (
        dl.Phase(4, optimizer=dl.SAM(s.cosine(0.1), 0.1), sampling=dl.OnlineSGD(s.linear(2.0, end=0.5))),
        dl.Phase(4, sampling=dl.Population(), optimizer=dl.GradientDescent([0.1] * 8)),
        dl.Phase(4, target_overlap=0.0, noise=1.0, sampling=dl.FullBatch(1.0)),
    ),
]


problem = maker(depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.1, steps=12)
PROBLEMS = [
    *[problem(optimizer=each) for each in RULES],
    *[problem(network=each) for each in NETWORKS],
    *[problem(sampling=each) for each in SAMPLINGS],
    *[problem(phases=each) for each in PHASES],
]


@pytest.mark.parametrize("one", PROBLEMS, ids=range(len(PROBLEMS)))
def test_problems_go_to_files_to_other_processes_and_to_text_and_back(one):
    assert dl.Problem.from_toml(one.to_toml()) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert eval(repr(one), vars(dl)) == one
    assert hash(one) == hash(dl.Problem.from_toml(one.to_toml()))


def test_functions_are_written_as_their_values_wherever_they_stand():
    """Of the rule, of the other rule of Muon, and of phases, whose functions count from their own start."""

    def rate(step):
        return 0.1 / (1 + step)

    rates = tuple(rate(step) for step in range(12))
    muon = problem(optimizer=dl.Muon(0.1, other=dl.GradientDescent(rate)))
    for copy in (dl.Problem.from_toml(muon.to_toml()), pickle.loads(pickle.dumps(muon))):
        assert copy.optimizer.other.lr == rates
    assert dl.Problem.from_toml(problem(optimizer=dl.Muon(rate)).to_toml()).optimizer == dl.Muon(rates)
    phases = (dl.Phase(8), dl.Phase(4, optimizer=dl.GradientDescent(rate)))
    assert dl.Problem.from_toml(problem(phases=phases).to_toml()).phases[1].optimizer.lr == rates[:4]


def test_the_first_steps_of_muon_have_the_first_rates_of_other_weights():
    rates = tuple(0.1 + 0.01 * step for step in range(12))
    one = problem(optimizer=dl.Muon(0.1, other=dl.GradientDescent(rates))).first(5)
    assert one.optimizer.other.lr == rates[:5]
    with pytest.raises(Refusal, match=r"lr must be one number or one per step \(steps is 5\), got 12 values"):
        problem(optimizer=dl.Muon(0.1, other=dl.GradientDescent(rates)), steps=5)


def test_other_weights_of_muon_have_its_rate_unless_it_is_given():
    assert dl.Muon(0.1).plain == dl.GradientDescent(0.1)
    assert dl.Muon(0.1).scaled(2.0, 12).plain.lr == 0.2
    assert dl.Muon(0.1, other=dl.GradientDescent(0.3)).scaled(2.0, 12).plain.lr == 0.3


REFUSED = [
    (lambda: problem(optimizer=dl.GradientDescent(0.1, layer_lr=[1, 1])), r"layer_lr must be one number for each of 3"),
    (lambda: dl.GradientDescent(0.1, layer_lr={"head": 1}), r"layer_lr must have no other names than .*, got 'head'"),
    (lambda: dl.GradientDescent(0.1, layer_decay=1.0), r"layer_decay must be one number for each weight layer"),
    (lambda: dl.GradientDescent(0.1, layer_lr=[1, -1, 1]), r"layer_lr\[1\] must be a finite number, zero or above"),
    (lambda: dl.MLP(2, 1.0, init_scale=[1.0]), r"init_scale must be one number for each of 3 weight layers"),
    (lambda: dl.MLP(2, "infinite", parameterization="standard"), r"parameterization must be 'mup' or 'ntk' at inf"),
    (lambda: dl.ResNet(2, 1.0, branch_scaling=-1), r"branch_scaling must be a finite number, zero or above, got -1"),
    (lambda: dl.ResNet(2, 1.0, branch_scaling="deep"), r"branch_scaling must be 'depth-mup' or 'none', or a power"),
    (lambda: dl.ResNet(2, 1.0, branch_scaling=True), r"branch_scaling must be 'depth-mup' or 'none', or a power"),
    (lambda: dl.GradientDescent(0.1, clip=0.0), r"clip must be a positive finite number, got 0.0"),
    (lambda: dl.GradientDescent(0.1, clip=-1.0), r"clip must be a positive finite number, got -1.0"),
    (lambda: dl.GradientDescent(0.1, clip_by="neuron"), r"clip_by must be 'global' or 'layer', got 'neuron'"),
    (lambda: dl.GradientDescent(0.1, clip_by="layer"), r"clip_by must be 'global' without clip, .*, got 'layer'"),
    (lambda: dl.NormalizedDescent(0.1, beta2=1.0), r"beta2 must be a number from 0 up to but not including 1, got 1"),
    (lambda: dl.NormalizedDescent(0.1, beta2=-0.1), r"beta2 must be a number from 0 up to but not including 1"),
    (lambda: dl.Muon(0.1, momentum=1.0), r"momentum must be a number from 0 up to but not including 1, got 1"),
    (lambda: dl.Muon(0.1, momentum=0.0, nesterov=True), r"nesterov must be False without momentum"),
    (lambda: dl.Muon(0.1, iterations=0), r"iterations must be a whole number, at least 1, got 0"),
    (lambda: dl.Muon(0.1, other=dl.SAM(0.1, 0.1)), r"other must be a GradientDescent without clip, got SAM"),
    (lambda: dl.Muon(0.1, other=dl.GradientDescent(0.1, clip=1.0)), r"other must be a GradientDescent without clip"),
    (lambda: dl.SAM(0.1, rho=0.0), r"rho must be a positive finite number, got 0"),
    (lambda: dl.ScheduleFree(0.1, beta=1.0), r"beta must be a number from 0 up to but not including 1, got 1"),
    (lambda: s.cosine(-0.1), r"peak must be a finite number, zero or above, got -0.1"),
    (lambda: s.wsd(0.1, warmup=0.5, decay=0.6), r"decay must be at most 1 - warmup \(0.5\), got 0.6"),
    (lambda: s.piecewise(0.1, at=[0.5], factors=[-1]), r"factors\[0\] must be a finite number, zero or above, got -1"),
    (lambda: problem(optimizer=dl.SAM(lambda t: 5 - t, 0.1)), r"lr\[6\] must be a finite number, zero or above"),
    (lambda: problem(optimizer=dl.GradientDescent(0.1, s.linear(1.5))), r"momentum\[0\] must be a number from 0 up to"),
    (lambda: dl.Phase(0), r"steps must be a whole number, at least 1, got 0"),
    (lambda: dl.Phase(5, target_overlap=1.5), r"target_overlap must be a number from -1 to 1, got 1.5"),
    (lambda: dl.Phase(5, noise=-1), r"noise must be a finite number, zero or above, got -1"),
    (lambda: dl.Phase(5, optimizer="Muon"), r"optimizer must be GradientDescent or .* or SAM, got 'Muon'"),
    (lambda: problem(phases=(dl.Phase(5), dl.Phase(5))), r"phases must add up to the 12 steps .* got 10 steps"),
    (lambda: problem(phases=(dl.Phase(12, target_overlap=0.5),)), r"target_overlap must be 1 in the first phase"),
    (lambda: problem(phases=("first",)), r"phases must be a sequence of Phase, got 'first'"),
    (
        lambda: problem(phases=(dl.Phase(6), dl.Phase(6, new_samples=False, sampling=dl.Population()))),
        r"new_samples must be True where the sampling rule changes, got False",
    ),
    (
        lambda: problem(network=dl.ResNet(float("inf"), 1.0), optimizer=dl.Muon(0.1)),
        r"optimizer must be a rule that does not treat layers separately at infinite depth, got Muon: their sizes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("attempt", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_values_are_refused_by_name(attempt, message):
    with pytest.raises(Refusal, match=message) as refused:
        attempt()
    assert message.startswith(refused.value.field)


FILE = problem(optimizer=dl.Muon(s.cosine(0.1), other=dl.GradientDescent(0.1)), phases=PHASES[1]).to_toml()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("iterations", "iteration", r"'iteration' \(did you mean 'iterations'\?\) is not known in optimizer"),
        ("peak", "top", r"lr must be a cosine schedule of peak, warmup, end, got 'top'"),
        ('"cosine"', '"cos"', r"lr.shape must be 'constant' or 'linear' or 'cosine'"),
        ("peak = 0.1", "peak = -0.1", r"lr.peak must be a finite number, zero or above, got -0.1"),
        ("peak = 0.1", "", r"lr must be a cosine schedule with a peak, got"),
        ("new_samples", "fresh", r"'fresh' is not known in phases; allowed: steps, target_overlap, new_samples"),
        ('"Muon"', '"Moun"', r"optimizer.type must be 'GradientDescent' or .*, got 'Moun'"),
        ('"Muon"', '"AdamW"', r"optimizer.type must be .*, got 'AdamW': it acts on single entries"),
        ('"GradientDescent"', '"SAM"', r"other.type must be 'GradientDescent', got 'SAM'"),
        ("[[phases]]\nsteps = 8", "[[phases]]\nsteps = 7", r"phases must add up to the 12 steps .*, got 11"),
        ("[[phases]]\nsteps = 8\n", "[[phases]]\n", r"phases: missing 1 required positional argument: 'steps'"),
        ("[[phases]]", '[[phases]]\ntype = "Phase"', r"'type' is not known in phases; allowed: steps"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_are_named(old, new, message):
    assert old in FILE
    with pytest.raises(ValueError, match=message):
        dl.Problem.from_toml(FILE.replace(old, new, 1))


def test_phases_are_a_list_of_tables():
    text = problem().to_toml()
    for wrong in ("phases = 2", "phases = [2]", 'phases = "two"'):
        with pytest.raises(Refusal, match=r"phases must be a list of tables, got"):
            dl.Problem.from_toml(f"{wrong}\n{text}")
