"""Random small problems over every feature, for tests that hold for any problem.

Numbers come from a grid of a hundred values, so that failures shrink to readable problems. Learning
rates are small enough that training does not blow up.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deeplinear as dl
from deeplinear._problem.sampling import Sampling


def on_random(
    values: st.SearchStrategy[Any], few: int, many: int, **options: Any
) -> Callable[[Callable[[Any], None]], Callable[[int], None]]:
    """Turn a check of one value into a test of ``few`` random ones, and of ``many`` in ``make check-slow``."""

    def test_of(check: Callable[[Any], None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples, deadline=None, derandomize=True, **options)(given(values)(check))()

        test.__name__ = check.__name__
        return test

    return test_of


def between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.integers(0, 100).map(lambda i: round(low + (high - low) * i / 100, 6))


@st.composite
def networks(draw: st.DrawFn) -> dl.MLP:
    depth = draw(st.integers(1, 4))
    width = between(0.3, 3.0)
    parameterization = draw(st.sampled_from(["mup", "ntk"]))
    # NTK at infinite width has gamma0 = 0, which the reference does not solve.
    limit = [st.just("infinite")] if parameterization == "mup" else []
    return dl.MLP(
        depth=depth,
        width=draw(st.one_of(width, st.lists(width, min_size=depth, max_size=depth), *limit)),
        richness=draw(between(0.3, 2.0)),
        parameterization=parameterization,
        centered=draw(st.booleans()),
    )


@st.composite
def grams(draw: st.DrawFn) -> list[list[float]]:
    outputs = draw(st.integers(1, 3))
    factor = np.array([[draw(between(-1.0, 1.0)) for _ in range(outputs)] for _ in range(outputs)])
    gram: list[list[float]] = (factor @ factor.T).tolist()
    return gram


@st.composite
def spectra(draw: st.DrawFn) -> dl.Spectrum:
    """Up to 4 modes in either limit, some of them equal, silent or without target."""
    count = draw(st.integers(1, 4))

    def each(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    power = each(st.one_of(st.just(0.0), between(0.1, 2.0)))
    gram = np.array(draw(st.one_of(st.just([[1.0]]), grams())))
    proportional = draw(st.booleans())
    weight = np.array(each(between(0.2, 1.0)))
    return dl.Spectrum(
        eigenvalues=each(st.one_of(st.sampled_from([0.0, 0.5]), between(0.01, 1.5))),
        target_power=power if len(gram) == 1 else [each * gram for each in power],
        multiplicity=draw(st.sampled_from([None, (weight / weight.sum() if proportional else weight).tolist()])),
        proportional=proportional,
        noise=draw(between(0.1, 1.0)),
    )


def data() -> st.SearchStrategy[dl.Isotropic | dl.Spectrum]:
    isotropic = st.builds(dl.Isotropic, noise=between(0.0, 1.0), target_gram=st.one_of(st.none(), grams()))
    return st.one_of(isotropic, spectra())


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    samples = draw(between(0.5, 3.0))
    keep = draw(between(0.2, 1.0))
    rules: list[Sampling] = [
        dl.Population(),
        dl.FullBatch(samples),
        dl.OnlineSGD(batch=samples),
        dl.MultiPassSGD(samples, batch=keep * samples),
    ]
    return draw(st.sampled_from(rules))


@st.composite
def optimizers(draw: st.DrawFn, steps: int) -> dl.GradientDescent:
    momentum = draw(st.one_of(st.just(0.0), between(0.1, 0.9)))
    rate = between(0.001, 0.05).map(lambda lr: lr * (1 - momentum))
    schedule = st.lists(rate, min_size=steps, max_size=steps)
    decreasing = rate.map(lambda first: lambda step: first / (1 + step))
    return dl.GradientDescent(
        lr=draw(st.one_of(rate, schedule, decreasing)),
        momentum=momentum,
        nesterov=momentum > 0 and draw(st.booleans()),
        weight_decay=draw(st.one_of(st.just(0.0), between(0.0, 1.0))),
    )


@st.composite
def problems(draw: st.DrawFn) -> dl.Problem:
    """Any valid problem with at most 4 hidden layers, 3 outputs and 8 steps."""
    steps = draw(st.integers(1, 8))
    return dl.Problem(draw(networks()), draw(data()), draw(samplings()), draw(optimizers(steps)), steps)


@st.composite
def any_networks(draw: st.DrawFn) -> dl.MLP | dl.ResNet:
    """Networks of every kind and parameterisation, with initial scales by layer."""
    depth = draw(st.integers(1, 3))
    some = st.fixed_dictionaries({}, optional={name: between(0.0, 2.0) for name in ("input", "hidden", "readout")})
    each = st.lists(between(0.2, 2.0), min_size=depth + 1, max_size=depth + 1)
    common = {
        "richness": draw(between(0.3, 2.0)),
        "parameterization": draw(st.sampled_from(["mup", "ntk", "standard"])),
        "centered": draw(st.booleans()),
        "init_scale": draw(st.one_of(st.none(), some, each)),
    }
    if draw(st.booleans()):
        scaling = draw(st.sampled_from(["depth-mup", "none", 0.5, 1.0]))
        branch = draw(between(0.2, 1.5))
        return dl.ResNet(depth, draw(between(0.3, 3.0)), branch=branch, branch_scaling=scaling, **common)
    width = draw(st.one_of(between(0.3, 3.0), st.lists(between(0.3, 3.0), min_size=depth, max_size=depth)))
    return dl.MLP(depth, width, **common)


def schedules(peak: st.SearchStrategy[float]) -> st.SearchStrategy[object]:
    """A number, or a schedule of any shape."""
    warmup = st.sampled_from([0.0, 0.3])
    return st.one_of(
        peak,
        st.builds(dl.schedules.constant, peak, warmup),
        st.builds(dl.schedules.linear, peak, warmup, between(0.0, 1.0)),
        st.builds(dl.schedules.cosine, peak, warmup, between(0.0, 1.0)),
        st.builds(dl.schedules.wsd, peak, warmup),
        st.builds(dl.schedules.power, peak, between(0.0, 2.0), warmup),
        st.builds(dl.schedules.piecewise, peak, st.just([0.5]), st.just([0.3]), warmup),
    )


@st.composite
def any_optimizers(draw: st.DrawFn, layers: int) -> object:
    """Update rules of every kind, for a number of weight layers."""
    rate = between(0.002, 0.03)
    some = st.fixed_dictionaries({}, optional={name: between(0.0, 2.0) for name in ("input", "hidden", "readout")})
    by_layer = st.one_of(st.none(), some, st.lists(between(0.0, 2.0), min_size=layers, max_size=layers))
    momentum = draw(st.one_of(st.just(0.0), schedules(between(0.1, 0.6))))
    common = {
        "momentum": momentum,
        "nesterov": momentum != 0.0 and draw(st.booleans()),
        "weight_decay": draw(st.one_of(st.just(0.0), schedules(between(0.1, 1.0)))),
        "layer_lr": draw(by_layer),
        "layer_decay": draw(by_layer),
    }
    lr, kind = draw(schedules(rate)), draw(st.integers(0, 5))
    if kind == 0:
        clip = draw(between(0.1, 3.0))
        return dl.GradientDescent(lr, clip=clip, clip_by=draw(st.sampled_from(["global", "layer"])), **common)
    if kind == 1:
        beta2 = draw(st.one_of(st.just(0.0), between(0.1, 0.9)))
        return dl.NormalizedDescent(lr, per=draw(st.sampled_from(["global", "layer"])), beta2=beta2, **common)
    if kind == 2:
        mu = draw(st.one_of(st.just(0.0), between(0.1, 0.9)))
        looks_ahead = mu > 0 and draw(st.booleans())
        other = dl.GradientDescent(draw(rate), **common)
        return dl.Muon(lr, mu, looks_ahead, draw(st.integers(1, 5)), draw(st.booleans()), other)
    if kind == 3:
        return dl.ScheduleFree(lr, draw(between(0.0, 0.95)), common["layer_lr"])
    if kind == 4:
        return dl.SAM(lr, draw(between(0.01, 0.3)), **common)
    return dl.GradientDescent(lr, **common)


@st.composite
def any_samplings(draw: st.DrawFn) -> Sampling:
    """Rules of sampling, with batches that may change."""
    samples, batch = draw(between(0.5, 3.0)), draw(schedules(between(0.3, 0.5)))
    if isinstance(batch, dl.schedules.Schedule) and batch.values(40).min() <= 0.0:
        batch = batch.peak
    rules: list[Sampling] = [
        dl.Population(),
        dl.FullBatch(samples),
        dl.OnlineSGD(batch),
        dl.MultiPassSGD(samples, batch),
    ]
    return draw(st.sampled_from(rules))


@st.composite
def programs(draw: st.DrawFn) -> dl.Problem:
    """Problems with any update rule, some of them in phases; at most 3 hidden layers, 2 outputs and 8 steps."""
    network, gram = draw(any_networks()), draw(st.sampled_from([[[1.0]], [[1.0, 0.3], [0.3, 0.5]]]))
    layers = network.layers + 1
    isotropic = dl.Isotropic(draw(between(0.0, 1.0)), gram)
    spectrum = dl.Spectrum([1.5, 0.4], [1.0, 0.5], multiplicity=[0.3, 0.7], proportional=True, noise=0.3)
    data = draw(st.sampled_from([isotropic, spectrum]))
    sampling, optimizer = draw(any_samplings()), draw(any_optimizers(layers))
    phases = []
    for index in range(draw(st.integers(0, 3))):
        own_sampling = draw(st.one_of(st.none(), any_samplings()))
        before = phases[-1].sampling if phases else None
        phases.append(
            dl.Phase(
                steps=draw(st.integers(1, 3)),
                target_overlap=draw(between(-1.0, 1.0)) if index else 1.0,
                new_samples=own_sampling != before or draw(st.booleans()),
                sampling=own_sampling,
                noise=draw(st.one_of(st.none(), between(0.0, 1.0))),
                optimizer=draw(st.one_of(st.none(), any_optimizers(layers))),
            )
        )
    steps = sum(phase.steps for phase in phases) or draw(st.integers(1, 8))
    return dl.Problem(network, data, sampling, optimizer, steps, phases)
