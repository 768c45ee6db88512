"""The network of a problem as a PyTorch module.

Layers are ``nn.Linear`` without biases, whose weights are of order one, and which multiply their outputs:

    h_1 = W_0 x / sqrt(U)        h_{l+1} = W_l phi(h_l) / sqrt(N_l)        f = sqrt(U) / (N_L gamma0) W_L phi(h_L)

where U is the input dimension D, or 1 where the data are dimension-free, and phi is the identity unless an activation
is given. In a residual network h_{l+1} = h_l + beta W_l phi(h_l) / sqrt(N_l).
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._experiment.arguments import check_richness
from deeplinear._experiment.methods import EXPLICIT, Counts
from deeplinear._experiment.sizes import Sizes
from deeplinear._experiment.train import INIT, explicit_network, generator
from deeplinear._problem.problem import Problem, check_problem

Activation = Callable[[torch.Tensor], torch.Tensor]


class ScaledLinear(nn.Linear):
    """A layer without a bias whose output is multiplied by a number.

    Parameters
    ----------
    weight
        Shape (outputs, inputs).
    multiplier
        The number.
    """

    def __init__(self, weight: torch.Tensor, multiplier: float) -> None:
        super().__init__(*weight.shape[::-1], bias=False, device="meta")
        self.weight = nn.Parameter(weight.clone())
        self.multiplier = multiplier

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs, shape (samples, outputs)."""
        return self.multiplier * super().forward(x)

    def extra_repr(self) -> str:
        """Say what it is, beside its name."""
        return f"{super().extra_repr()}, multiplier={self.multiplier:.4g}"


class Network(nn.Module):
    """A network with the parameterization of a problem; ``network`` makes it.

    Parameters
    ----------
    weights
        W_0 .. W_L as ``nn.Linear`` has them, shapes (N_1, D), (N_2, N_1) .. (C, N_L).
    multipliers
        Factor on the output of each layer, shape (L + 1,).
    beta
        Strength of residual branches; None without skip connections.
    centered
        Whether the function of these first weights is subtracted.
    activation
        Applied to every hidden layer; None for a linear network.

    Attributes
    ----------
    layers
        The ``nn.Linear`` of each weight layer, first to last, each with its ``multiplier``.
    beta, activation
        As given.
    """

    def __init__(
        self,
        weights: Sequence[torch.Tensor],
        multipliers: Sequence[float],
        beta: float | None = None,
        centered: bool = False,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        self.layers: nn.ModuleList = nn.ModuleList(
            ScaledLinear(*each) for each in zip(weights, multipliers, strict=True)
        )
        self.beta = beta
        self.activation = activation  # a submodule where it is one, such as nn.ReLU()
        self._centered = centered
        for layer, weight in enumerate(weights if centered else ()):
            self.register_buffer(f"initial_{layer}", weight.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs on inputs of shape (samples, D), shape (samples, C)."""
        function = self._function(self.layers, x)
        return function - self._function(self._initial(), x) if self._centered else function

    def features(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return h_1 .. h_L on inputs of shape (samples, D), before any activation, each of shape (samples, N_l)."""
        return self._features(self.layers, x)

    def _function(self, layers: Sequence[Activation], x: torch.Tensor) -> torch.Tensor:
        return layers[-1](self._activated(self._features(layers, x)[-1]))

    def _features(self, layers: Sequence[Activation], x: torch.Tensor) -> list[torch.Tensor]:
        fields = [layers[0](x)]
        for layer in list(layers)[1:-1]:
            through = layer(self._activated(fields[-1]))
            fields.append(through if self.beta is None else fields[-1] + self.beta * through)
        return fields

    def _activated(self, field: torch.Tensor) -> torch.Tensor:
        return field if self.activation is None else self.activation(field)

    def _initial(self) -> list[Activation]:
        def layer(index: int) -> Activation:
            weight, multiplier = getattr(self, f"initial_{index}"), self.layers[index].multiplier
            return lambda field: multiplier * nn.functional.linear(field, weight)

        return [layer(index) for index in range(len(self.layers))]


def network(
    problem: Problem, dim: int | None = None, *, seed: int = 0, activation: Activation | None = None
) -> Network:
    """Return the network of a problem as a PyTorch module, with the initial weights of a seed in ``simulate``.

    Parameters
    ----------
    problem
        Its network has finite width and depth.
    dim
        Input dimension D, as in ``simulate``.
    seed
        Zero or above.
    activation
        Applied to every hidden layer, before the weights that read it: a function or module of PyTorch such as
        ``torch.nn.functional.relu``. The theory is about linear networks (None) and says nothing about others.

    Returns
    -------
    Network
        In double precision on the processor; ``.float()`` and ``.to("cuda")`` change that, as for every module.

    Raises
    ------
    ValueError
        If an argument is not allowed, or the network cannot be made; as for ``simulate``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=0.5), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=10
    ... )
    >>> module = network(problem, dim=40)
    >>> [tuple(weight.shape) for weight in module.parameters()]
    [(20, 40), (20, 20), (1, 20)]
    >>> module(torch.ones(3, 40, dtype=torch.float64)).shape
    torch.Size([3, 1])
    """
    seed = checks.whole("seed", seed, at_least=0)
    if activation is not None and not callable(activation):
        raise Refusal("activation", activation, "None or a PyTorch function such as torch.nn.functional.relu")
    sizes = checked_sizes(problem, dim)
    drawn = explicit_network(problem, sizes, generator(seed, INIT))
    weights = [torch.from_numpy(weight) for weight in drawn.weights]
    weights[-1] = weights[-1].T.contiguous()
    return Network(weights, multipliers(problem, sizes), drawn.beta, problem.network.centered, activation)


def checked_sizes(problem: Problem, dim: int | None) -> Sizes:
    """Return the counts of a problem; ValueError where ``simulate`` could not train it with explicit matrices."""
    check_problem(problem)
    counts = Counts.of(problem, dim)
    check_richness(counts, EXPLICIT)
    return counts.sizes


def multipliers(problem: Problem, sizes: Sizes) -> list[float]:
    """Return the factor on the output of each weight layer, first to last."""
    root = math.sqrt(sizes.unit)
    hidden = [1.0 / math.sqrt(width) for width in sizes.widths[:-1]]
    return [1.0 / root, *hidden, root / (sizes.widths[-1] * problem.network.gamma0)]
