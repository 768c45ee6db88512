"""The layers of a problem as plain ``nn.Linear`` and ``torch.optim.SGD`` have them.

A network of the theory multiplies the output of each layer, m_l W_l h, with entries of W_l of order one. The same
function has weights w_l = m_l W_l without multipliers, and it trains the same way with the rate m_l^2 R_l in place of
R_l: the gradient by W_l is that by w_l times m_l, and a step of w_l is that of W_l times m_l. The factor of the output
stays outside, as in muP.
"""

from dataclasses import dataclass

import numpy as np

from deeplinear._experiment.sizes import Sizes
from deeplinear._problem.problem import Problem
from deeplinear._rules.layers import spread
from deeplinear._rules.rule import Rule


@dataclass(frozen=True)
class PlainLayer:
    """One ``nn.Linear`` without a bias.

    Attributes
    ----------
    fan_in, fan_out
        Its sizes.
    init_std
        Standard deviation of the initial weights.
    rate
        Learning rate of ``torch.optim.SGD`` on half the mean squared error, in units of the problem's rate eta.
    decay
        Weight decay of ``torch.optim.SGD``, in units of the problem's.
    """

    fan_in: int
    fan_out: int
    init_std: float
    rate: float
    decay: float


def plain_layers(problem: Problem, sizes: Sizes, optimizer: Rule) -> list[PlainLayer]:
    """Return the layers of a network, first to last; the output is to be multiplied with ``output_multiplier``."""
    network = problem.network
    count = network.layers + 1
    fans = [sizes.dim, *sizes.widths, sizes.outputs]
    squares = np.array([1.0 / sizes.unit, *(1.0 / width for width in sizes.widths[:-1]), 1.0])
    raw = sizes.widths[-1] * network.gamma0**2
    scales = spread(network.initial_scales, count)
    rates = raw * squares * spread(problem.layer_rates(optimizer), count)
    decays = spread(problem.layer_decays(optimizer), count) / (raw * squares)
    numbers = zip(fans[:-1], fans[1:], scales * np.sqrt(squares), rates, decays, strict=True)
    return [PlainLayer(below, above, *map(float, rest)) for below, above, *rest in numbers]


def output_multiplier(problem: Problem, sizes: Sizes) -> float:
    """Return the factor on the output, sqrt(U) / (N_L gamma0)."""
    return float(np.sqrt(sizes.unit) / (sizes.widths[-1] * problem.network.gamma0))
