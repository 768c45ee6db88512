"""Table 1: what it costs."""

import math

import deeplinear as dl
from deeplinear._reproduce.measure import with_error
from deeplinear._reproduce.panel import Claim, Line, OverSizes, Panel, Series, Size, Timing
from deeplinear._reproduce.results import Costs

TOLERANCE = 0.35
"""How far a measured exponent may be from the table's: overheads make short runs look cheaper."""


def problem(network: dl.MLP | dl.ResNet, samples: float, steps: int) -> dl.Problem:
    """Full-batch training."""
    return dl.Problem(network, dl.Isotropic(0.1), dl.FullBatch(samples), dl.GradientDescent(0.002), steps)


def mlp(depth: int = 4, width: float = 1.0, samples: float = 1.0, steps: int = 100) -> dl.Problem:
    """A multilayer network."""
    return problem(dl.MLP(depth, width), samples, steps)


def resnet(depth: int = 8, steps: int = 100) -> dl.Problem:
    """A residual network."""
    return problem(dl.ResNet(depth, 1.0), 1.0, steps)


def lines(problems: dict[int, dl.Problem]) -> tuple[Line, ...]:
    """Problems by their size."""
    return tuple(Line(size, f"{size}", problem) for size, problem in problems.items())


DIM = 64
"""Input dimension where widths and data sets grow."""

SERIES = (
    Series("network", "network, T", lines({t: mlp(steps=t) for t in (25, 50, 100, 200, 400)}), 200, 1.0),
    Series("network", "network, L", lines({n: mlp(n, steps=20) for n in (2, 4, 8, 16, 32)}), 300, 1.0),
    Series("network", "network, N", lines({DIM * n: mlp(3, n, 1.0, 10) for n in (2, 4, 8, 16, 32)}), DIM, 2.0),
    Series("network", "network, P", lines({DIM * n: mlp(3, 4, n, 50) for n in (2, 8, 32, 128)}), DIM, 1.0),
    Series("theory", "MLP theory, T", lines({t: mlp(2, steps=t) for t in (50, 100, 200, 400, 800)}), None, 3.0),
    Series("theory", "MLP theory, L", lines({n: mlp(n) for n in (2, 4, 8, 16, 32)}), None, 1.0),
    Series("theory", "residual theory, T", lines({t: resnet(2, t) for t in (50, 100, 200, 400, 800)}), None, 3.0),
    Series("theory", "residual theory, L", lines({n: resnet(n) for n in (4, 8, 16, 32, 64)}), None, 2.0),
    Series("panels", "panels, T", lines({10**n: mlp(2, steps=10**n) for n in (3, 4, 5, 6)})),
)


def network(results: Costs) -> Claim:
    """Cost of a finite network."""
    found = {name: results[f"network, {name}"].exponent for name in "NLPT"}
    text = ", ".join(f"{name}^({with_error(*each, 2)})" for name, each in found.items())
    off = max(abs(found[name][0] - expected) for name, expected in (("N", 2), ("L", 1), ("T", 1)))
    return Claim("training a network takes N^2 L T, at fixed P", text, off < TOLERANCE)


def samples(results: Costs) -> Claim:
    """Cost in the size of the data set."""
    exponent, error = results["network, P"].exponent
    return Claim(
        "and grows in proportion to P on top of that",
        f"P^({with_error(exponent, error, 2)}) from P/D = 2 to 128 at N = 4 D",
        abs(exponent - 1) < TOLERANCE,
        "In a linear network sums over examples can be taken first: a step takes N^2 L + P D, not N^2 L P.",
    )


def mlp_theory(results: Costs) -> Claim:
    """Cost of the theory of multilayer networks."""
    depth, steps = results["MLP theory, L"].exponent, results["MLP theory, T"].exponent
    return Claim(
        "the theory of multilayer networks takes L T^3",
        f"L^({with_error(*depth, 2)}), T^({with_error(*steps, 2)})",
        False
        if abs(depth[0] - 1) > TOLERANCE or steps[0] > 3 + TOLERANCE
        else (True if steps[0] > 3 - TOLERANCE else None),
        "Short runs are ruled by the overhead of each step, so the exponent in T is reached from below.",
    )


def residual_theory(results: Costs) -> Claim:
    """Cost of the theory of residual networks."""
    depth, steps = results["residual theory, L"].exponent, results["residual theory, T"].exponent
    return Claim(
        "the theory of residual networks takes L^2 T^3",
        f"L^({with_error(*depth, 2)}), T^({with_error(*steps, 2)})",
        abs(depth[0] - 2) < TOLERANCE,
        "Only the blocks of equal layers are needed, and two sweeps over the layers give them: L T^3 is enough.",
    )


def linear_in_depth(results: Costs) -> Claim:
    """Residual theory in O(L)."""
    depth = results["residual theory, L"].exponent
    return Claim(
        "residual networks cost as much per layer as others: L^1",
        f"L^({with_error(*depth, 2)})",
        abs(depth[0] - 1) < TOLERANCE,
        ours=True,
    )


def panels(results: Costs) -> Claim:
    """Long horizons on a coarse time grid."""
    timed = results["panels, T"]
    exponent, error = timed.exponent
    return Claim(
        "smooth runs need far fewer nodes than steps: time grows as a small power of T",
        f"T^({with_error(exponent, error, 2)}) from 10^3 to 10^{math.log10(timed.sizes[-1]):.0f}, "
        f"{timed.seconds[-1]:.1f} s at the last",
        exponent < 0.5,
        ours=True,
    )


PANELS = (
    Panel(
        "T1",
        "Cost of networks and of theory",
        "Cost of full-batch training and of the theory, as powers of T, L, N and P.",
        "exponents: network N^2 L P T, theory L T^3, residual theory L^2 T^3",
        "the least of several timings on the machine at hand; slopes of log time against log size",
        Timing(SERIES),
        OverSizes(),
        (network, samples, mlp_theory, residual_theory, linear_in_depth, panels),
        {"tiny": Size(1, 1, curves=2), "quick": Size(1, 1), "full": Size(1, 1)},
    ),
)
