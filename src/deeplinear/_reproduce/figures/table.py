"""Table 1: what it costs."""

import math

import deeplinear as dl
from deeplinear._reproduce.claim import Check, Claim
from deeplinear._reproduce.panel import Line, OverSizes, Panel, Series, Size, Timing
from deeplinear._reproduce.results import Costs

WHOLE = 0.5
"""How far a measured power may be from the table's: half way to the next whole one."""

NEAREST = f"each power is within {WHOLE:g} of the table's: nearer to it than to the next whole number"


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


DIM, WIDE = 64, 16
"""Input dimension where widths and data sets grow, and N / D where data sets do: N^2 L is then what a step takes."""

STEPS = (100, 141, 200, 283, 400, 566, 800, 1000, 1250, 1600, 2000, 2400)
UPDATES = (200, 283, 400, 566, 800, 1131, 1600, 2263, 3200)
DEPTHS = (2, 3, 4, 6, 8, 11, 16, 23, 32)
TALLER = (2, 4, 8, 11, 16, 23, 32, 45, 64)
RATIOS = (2, 4, 8, 16, 32, 64, 128)
WIDTHS = (4, 8, 16, 32, 45, 64, 79, 96, 128)
HORIZONS = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)

# Memory slows down where a cache of a few MB ends, and time then grows by more than its power. So where much memory is
# gone through, powers are those of sizes that hold 64 MB and more; elsewhere, those of the upper two thirds.
SERIES = (
    Series("network", "network", "T", lines({t: mlp(steps=t) for t in UPDATES}), 566, 200, 1.0),
    Series("network", "network", "L", lines({n: mlp(n, steps=10) for n in TALLER}), 8, 1000, 1.0),
    Series("network", "network", "N", lines({DIM * n: mlp(3, n, 1.0, 10) for n in WIDTHS}), 32 * DIM, DIM, 2.0),
    Series("network", "network", "P", lines({DIM * n: mlp(3, WIDE, n, 20) for n in RATIOS}), 8 * DIM, DIM, 1.0),
    Series("theory", "MLP theory", "T", lines({t: mlp(2, steps=t) for t in STEPS}), 800, None, 3.0),
    Series("theory", "MLP theory", "L", lines({n: mlp(n) for n in DEPTHS}), 6, None, 1.0),
    Series("theory", "residual theory", "T", lines({t: resnet(2, t) for t in STEPS}), 800, None, 3.0),
    Series("theory", "residual theory", "L", lines({n: resnet(n, 400) for n in DEPTHS}), 4, None, 2.0),
    Series("panels", "panels", "T", lines({t: mlp(2, samples=2.0, steps=t) for t in HORIZONS}), 10_000),
)


def power(results: Costs, label: str, expected: float) -> Check:
    """Check the power with which time grows in one series."""
    found = results[label]
    value, error = found.exponent
    return Check(f"power of {found.series.axis}", "clock", value, error, expected - WHOLE, expected + WHOLE)


def network(results: Costs) -> Claim:
    """Cost of a finite network."""
    return Claim(
        "training a network takes N^2 L T, at fixed P",
        NEAREST,
        tuple(power(results, f"network, {name}", expected) for name, expected in (("N", 2), ("L", 1), ("T", 1))),
    )


def samples(results: Costs) -> Claim:
    """Cost in the size of the data set."""
    return Claim(
        "and grows in proportion to P on top of that",
        NEAREST,
        (power(results, "network, P", 1.0),),
        f"from P/D = {RATIOS[0]} to {RATIOS[-1]} at N = {WIDE} D",
        "In a linear network sums over examples can be taken first: a step takes N^2 L + P D, not N^2 L P.",
    )


def mlp_theory(results: Costs) -> Claim:
    """Cost of the theory of multilayer networks."""
    return Claim(
        "the theory of multilayer networks takes L T^3",
        NEAREST,
        (power(results, "MLP theory, L", 1.0), power(results, "MLP theory, T", 3.0)),
        why="Short runs are ruled by the overhead of each step, so the power of T is reached from below.",
    )


def residual_theory(results: Costs) -> Claim:
    """Cost of the theory of residual networks."""
    return Claim(
        "the theory of residual networks takes L^2 T^3",
        NEAREST,
        (power(results, "residual theory, L", 2.0), power(results, "residual theory, T", 3.0)),
        why="Only the blocks of equal layers are needed, and two sweeps over the layers give them: L T^3 is enough.",
    )


def linear_in_depth(results: Costs) -> Claim:
    """Residual theory in O(L)."""
    return Claim(
        "residual networks cost as much per layer as others: L^1",
        NEAREST,
        (power(results, "residual theory, L", 1.0),),
        ours=True,
    )


def panels(results: Costs) -> Claim:
    """Long horizons on a coarse time grid."""
    timed = results["panels, T"]
    value, error = timed.exponent
    return Claim(
        "smooth runs need far fewer nodes than steps: time grows as a small power of T",
        "the power is below 0.5: half way between time that does not grow and time in proportion to the steps",
        (Check("power of T", "clock", value, error, high=0.5),),
        f"from 10^3 to 10^{math.log10(timed.sizes[-1]):.0f}, {timed.seconds[-1]:.1f} s at the last",
        ours=True,
    )


PANELS = (
    Panel(
        "T1",
        "Cost of networks and of theory",
        "Cost of full-batch training and of the theory, as powers of T, L, N and P.",
        "exponents: network N^2 L P T, theory L T^3, residual theory L^2 T^3",
        "the least of several timings on the machine at hand; slopes of log time against log size, over large sizes",
        Timing(SERIES),
        OverSizes(),
        (network, samples, mlp_theory, residual_theory, linear_in_depth, panels),
        {"tiny": Size(1, 1, curves=2), "quick": Size(1, 1, curves=9), "full": Size(1, 1)},
    ),
)
