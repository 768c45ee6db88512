"""Random small problems over every feature, for tests that hold for any problem.

Numbers come from a grid of a hundred values, so that failures shrink to readable problems. Learning
rates are small enough that training does not blow up.
"""

import numpy as np
from hypothesis import strategies as st

import deeplinear as dl
from deeplinear._problem.sampling import Sampling


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
