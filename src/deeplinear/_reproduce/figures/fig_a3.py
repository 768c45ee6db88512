"""Figure A3: exponents of hard tasks."""

import deeplinear as dl
from deeplinear._reproduce.claim import Check, Claim
from deeplinear._reproduce.measure import half_way, late_exponent
from deeplinear._reproduce.panel import (
    Line,
    Panel,
    Size,
    SlopeOverValues,
    Training,
)
from deeplinear._reproduce.results import Trained, Trainings

STEPS = {0.3: 4_000_000, 0.5: 4_000_000, 0.9: 4_000_000_000}
"""Of each source: close to b = 1 the laws are close together, and it takes far longer runs to tell them apart."""


def hard(depth: int) -> list[Line]:
    """Several hard tasks, at infinite width without noise."""

    def problem(source: float) -> dl.Problem:
        network = dl.MLP(depth, "infinite", richness=5.0)
        data = dl.Spectrum.power_law(2.0, source)
        return dl.Problem(network, data, dl.Population(), dl.GradientDescent(2.5e-5), STEPS[source])

    group = f"L = {depth}"
    return [Line(b, f"b = {b:g}, {group}", problem(b), networks=False, group=group) for b in STEPS]


def laws(source: float, depth: int) -> tuple[float, float, float]:
    """What the exponent could be: lazy, the paper's, ours."""
    return source, 2 * source / (1 + source), dl.rich_exponent(source, depth)


def agree(results: Trainings, depth: int, which: int) -> tuple[Check, ...]:
    """Check the exponents at one depth against one of the laws."""
    checks = []
    for each in results.group(f"L = {depth}"):
        source = each.line.value
        law = laws(source, depth)[which]
        close = half_way(law, *laws(source, depth))
        checks.append(Check(f"exponent less {law:.3f} at b = {source:g}", "theory", *shifted(each, law), -close, close))
    return tuple(checks)


def shifted(each: Trained, law: float) -> tuple[float, float]:
    """Late exponent less a law, and its error."""
    exponent, error = late_exponent(each)
    return exponent - law, error


HALF_WAY = (
    "over the last decade of steps the exponent at each b is closer to the law than half way to the nearest other of "
    "b, 2b/(1+b) and (L+1)b/(1+Lb); ± is how far it still drifts"
)


NEAR_ONE = "Close to b = 1, where hard tasks end, the laws are so close together that it takes very long runs to tell."


def one_layer(results: Trainings) -> Claim:
    """The paper's law at one hidden layer."""
    return Claim(
        "with one hidden layer the exponent is 2b/(1+b)",
        HALF_WAY,
        agree(results, 1, 1),
        why=NEAR_ONE,
    )


def any_depth(results: Trainings) -> Claim:
    """The paper's law at four hidden layers."""
    return Claim(
        "with four hidden layers the exponent is the same, 2b/(1+b)",
        HALF_WAY,
        agree(results, 4, 1),
        why="The L + 1 weight layers share the growth of the function; the exponent is (L+1)b/(1+Lb), which is "
        "2b/(1+b) at L = 1 only and tends to 1.",
    )


def our_law(results: Trainings) -> Claim:
    """The corrected law at four hidden layers."""
    return Claim(
        "with four hidden layers the exponent is (L+1)b/(1+Lb)",
        HALF_WAY,
        agree(results, 4, 2),
        why=NEAR_ONE,
        ours=True,
    )


PANELS = (
    Panel(
        "A3",
        "Exponents of hard tasks",
        "Fitted slopes follow 2b/(1+b).",
        "several sources b < 1",
        "L = 1 and 4, capacity 2, gamma0 = 5, infinite width, population loss, lr 2.5e-5 (as the kernel grows, larger "
        "rates pass the edge of stability), 4 x 10^6 steps, at b = 0.9 4 x 10^9; slopes of the last decade; no "
        "networks, since the law is that of infinite width",
        Training((*hard(1), *hard(4))),
        SlopeOverValues(
            "source  b",
            {
                "lazy: b": lambda b: b,
                "paper: 2b/(1+b)": lambda b: 2 * b / (1 + b),
                "(L+1)b/(1+Lb), L = 4": lambda b: 5 * b / (1 + 4 * b),
            },
        ),
        (one_layer, any_depth, our_law),
        {"tiny": Size(1, 1, 200, 4), "quick": Size(1, 1, 4_000_000), "full": Size(1, 1)},
    ),
)
