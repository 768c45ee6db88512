"""The update rules on tensors of PyTorch, which keep what they remember in a dictionary for each weight.

With G_t minus the gradient in the units of the theory, every weight layer follows

    m_{t+1} = momentum m_t + G_t - decay W_t
    W_{t+1} = W_t + lr_t m_{t+1}                                   plain and heavy-ball momentum
    W_{t+1} = W_t + lr_t (momentum m_{t+1} + G_t - decay W_t)      Nesterov

with rate and decay times the factors of the layer. These are the rules of ``_experiment/descent.py``, written for full
gradients, such as automatic differentiation gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from deeplinear._experiment.descent import Factors
from deeplinear._experiment.more_rules import orthogonal
from deeplinear._experiment.training import factors_of
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._rules.rule import Optimizer


@dataclass
class Layer:
    """A weight layer at one step.

    Attributes
    ----------
    index
        Its number, from 0 at the input.
    weight
        Changed in place.
    gradient
        G_t, which belongs to the rule.
    memory
        What the rule remembers of this layer, by name.
    """

    index: int
    weight: torch.Tensor
    gradient: torch.Tensor
    memory: dict[str, Any]

    def remembered(self, name: str) -> torch.Tensor:
        """Return a tensor like the weight that starts as zero."""
        if name not in self.memory:
            self.memory[name] = torch.zeros_like(self.weight)
        return self.memory[name]


class Rule:
    """An update rule of a phase of training.

    Parameters
    ----------
    optimizer
        The rule of the problem.
    steps
        Number of steps of its schedules.
    factors
        Of each weight layer, as in the experiment.
    """

    def __init__(self, optimizer: Optimizer, steps: int, factors: Factors) -> None:
        self.optimizer, plain = optimizer, optimizer.plain
        self._rates = np.outer(plain.rates(steps), factors.rates)
        self._decays = np.outer(plain.decays(steps), factors.decays)
        self._momenta, self._sizes = plain.momenta(steps), factors.sizes
        self._orthogonal_rates = np.outer(optimizer.rates(steps), factors.orthogonal)

    def step(self, t: int, layers: Sequence[Layer], width: int) -> None:
        """Take the weights from step t of the rule to t + 1; ``width`` is N_L."""
        if self.optimizer.scaling is not None:
            self._scale(t, layers, width)
        of_muon = self.optimizer.orthogonal
        first = 0 if of_muon is not None and of_muon.input else 1
        for layer in layers:
            if of_muon is not None and first <= layer.index < len(layers) - 1:
                self._step_orthogonally(t, layer)
            elif self.optimizer.averaging is not None:
                self._step_averaged(t, layer)
            else:
                self._descend(t, layer)

    def _descend(self, t: int, layer: Layer) -> None:
        weight, mu = layer.weight, float(self._momenta[t])
        lr, decay = float(self._rates[t, layer.index]), float(self._decays[t, layer.index])
        pull = layer.gradient.sub_(weight, alpha=decay) if decay else layer.gradient
        if self._momenta.any():
            momentum = layer.remembered("momentum").mul_(mu).add_(pull)
            pull = pull.add_(momentum, alpha=mu) if self.optimizer.plain.nesterov else momentum
        weight.add_(pull, alpha=lr)

    def _step_orthogonally(self, t: int, layer: Layer) -> None:
        rule = self.optimizer.orthogonal
        assert rule is not None
        momentum = layer.remembered("momentum").mul_(rule.momentum).add_(layer.gradient)
        ahead = layer.gradient.add_(momentum, alpha=rule.momentum) if rule.nesterov else momentum
        lr = float(self._orthogonal_rates[t, layer.index]) * layer.weight.shape[0] ** 0.5
        layer.weight.add_(orthogonal(ahead, rule.iterations), alpha=lr)

    def _step_averaged(self, t: int, layer: Layer) -> None:
        """The weight is y, between the fast weights z and their mean x, which are remembered."""
        beta, weight, c = self.optimizer.averaging, layer.weight, 1.0 / (t + 2)
        if not layer.memory:
            layer.memory.update(fast=weight.clone(), mean=weight.clone())
        lr = float(self._rates[t, layer.index])
        fast, mean = layer.memory["fast"], layer.memory["mean"]
        fast.add_(layer.gradient, alpha=lr)
        mean.lerp_(fast, c)
        weight.copy_(torch.lerp(fast, mean, beta))

    def _scale(self, t: int, layers: Sequence[Layer], width: int) -> None:
        """Divide gradients by their size, where they are too large or by the root of a running mean of its square."""
        rule = self.optimizer.scaling
        assert rule is not None
        squares = squared_norms(layers, width)
        squares = squares * torch.as_tensor(self._sizes, dtype=squares.dtype, device=squares.device)
        if not rule.by_layer:
            squares = squares.sum().expand_as(squares)
        for layer, square in zip(layers, squares, strict=True):
            if rule.clip is None:
                mean = rule.beta2 * layer.memory.get("square", 0.0) + (1.0 - rule.beta2) * square
                layer.memory["square"] = mean
                square = mean / (1.0 - rule.beta2 ** (t + 1))
            norm = square.sqrt()
            factor = 1.0 / norm if rule.clip is None else (rule.clip / norm).clamp(max=1.0)
            if norm > 0:
                layer.gradient.mul_(factor)


def rule_of(problem: Problem, stage: Stage) -> Rule:
    """Return the update rule of a phase."""
    return Rule(stage.optimizer, stage.of, factors_of(problem, stage))


def squared_norms(layers: Sequence[Layer], width: int) -> torch.Tensor:
    """Squared norms of the gradients over N_L, shape (L + 1,)."""
    return torch.stack([layer.gradient.square().sum() / width for layer in layers])
