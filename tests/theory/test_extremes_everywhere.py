"""Extreme problems, put to every question: an answer, or a sentence that names what to change; never a warning.

Warnings are errors, as in all tests.
"""

import matplotlib.pyplot as plt
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from factories import maker

make = maker("network", "data", "sampling", "optimizer", noise=0.3, depth=2, width=1.0, lr=0.05, steps=5,
             sampling=dl.FullBatch(2.0))  # fmt: skip

PROBLEMS = {
    "noise 1e150": make(noise=1e150),
    "target 1e300": make(gram=[[1e300]]),
    "target 1e-300": make(gram=[[1e-300]], noise=0.0),
    "no target": make(gram=[[0.0]], noise=0.0),
    "samples 1e-300": make(sampling=dl.FullBatch(1e-300)),
    "samples 1e300": make(sampling=dl.FullBatch(1e300)),
    "batch 1e-200": make(sampling=dl.OnlineSGD(1e-200)),
    "lr 1e-320": make(lr=1e-320),
    "lr 5": make(lr=5.0),
    "lr 1e300": make(lr=1e300),
    "decay 1e200": make(optimizer=dl.GradientDescent(0.05, weight_decay=1e200)),
    "lr 1e6, one step": make(lr=1e6, steps=2),
    "richness 1e150": make(richness=1e150),
    "richness 1e-90": make(richness=1e-90),
    "richness 1e-300, centered": make(dl.MLP(2, 1.0, 1e-300, centered=True)),
    "target 1e300, centered": make(dl.MLP(2, 1.0, centered=True), gram=[[1e300]]),
    "samples 1e-300, centered": make(dl.MLP(2, 1.0, centered=True), sampling=dl.FullBatch(1e-300)),
    "width 1e-300": make(width=1e-300),
    "width 1e300": make(width=1e300),
    "branch 1e24": make(dl.ResNet(3, 1.0, branch=1e24)),
    "initial weights 0": make(dl.MLP(2, 1.0, init_scale=[0.0, 0.0, 0.0])),
    "initial weights 1e-200": make(dl.MLP(2, 1.0, init_scale=[1e-200, 1.0, 1.0])),
    "initial weights 1e100": make(dl.MLP(2, 1.0, init_scale=[1e100, 1.0, 1.0])),
    "eigenvalues 1e300": make(data=dl.Spectrum([1e300, 1e-300], [1.0, 1.0], [0.5, 0.5], proportional=True)),
}


def networks(problem):
    return dl.simulate(problem, 8, 3, workers=1)


QUESTIONS = {
    "solve": dl.solve,
    "simulate": networks,
    "compare": lambda problem: dl.compare(dl.solve(problem), networks(problem)),
    "sensitivity": dl.sensitivity,
    "sharpness": dl.sharpness,
    "landscape": dl.landscape,
    "weight_spectra": dl.weight_spectra,
    "finite_size": lambda problem: dl.finite_size(problem, 10, pairs=4, workers=1),
    "optimal_lr": dl.optimal_lr,
}


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def ask(question, problem):
    """Ask and read the answer; None for a refusal that names what to change, which counts as one."""
    try:
        found = QUESTIONS[question](problem)
    except Refusal:  # which names an argument
        return None
    except ArithmeticError as error:  # training diverges, or no rate is stable; not a division by zero
        if type(error) is not ArithmeticError:
            raise
        return None
    assert str(found)
    return found


OFTEN = [
    *((question, "noise 1e150") for question in QUESTIONS),
    *(("compare", name) for name in ("samples 1e-300, centered", "target 1e300", "width 1e-300", "eigenvalues 1e300")),
    *(("weight_spectra", name) for name in ("width 1e300", "lr 5", "initial weights 0")),
    *(("sensitivity", name) for name in ("lr 1e-320", "richness 1e-300, centered")),
    *(("finite_size", name) for name in ("samples 1e-300", "target 1e-300")),
    ("sharpness", "richness 1e150"),
]
"""Pairs of which each has once leaked a warning or an error without a name; the others are left to the slow tests."""

PAIRS = [
    pytest.param(question, name, marks=[pytest.mark.slow] * ((question, name) not in OFTEN))
    for question in QUESTIONS
    for name in PROBLEMS
]


@pytest.mark.parametrize(("question", "name"), PAIRS)
def test_extreme_problems_have_an_answer_to_every_question_and_it_can_be_drawn(question, name):
    found = ask(question, PROBLEMS[name])
    if hasattr(found, "plot"):
        found.plot().figure.canvas.draw()
