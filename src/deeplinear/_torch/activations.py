"""Sizes of the activations of any module of PyTorch, and of their changes in training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def activation_sizes(
    module: nn.Module, train: Callable[[], Any], x: torch.Tensor, steps: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the size of the output of every layer after some steps, and of its change since the first of them.

    Layers are the modules that have weights of their own; sizes are root mean squares over all entries of a tensor.

    Parameters
    ----------
    module
        What is trained.
    train
        Takes one step of training.
    x
        Inputs on which activations are looked at.
    steps
        Number of steps.

    Examples
    --------
    >>> layer = nn.Linear(2, 2, bias=False)
    >>> nn.init.eye_(layer.weight).sum().item()
    2.0
    >>> def train():
    ...     layer.weight.data *= 2
    >>> activation_sizes(nn.Sequential(layer), train, torch.ones(1, 2), steps=2)
    ({'0': 4.0}, {'0': 3.0})
    """
    before = _outputs(module, x)
    for _ in range(steps):
        train()
    after = _outputs(module, x)
    return {name: _size(each) for name, each in after.items()}, {
        name: _size(each - before[name]) for name, each in after.items()
    }


def _outputs(module: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of all layers, by the name of the layer."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                found[name] = output.detach().clone()

        return hook

    layers = {name: each for name, each in module.named_modules() if list(each.parameters(recurse=False))}
    hooks = [each.register_forward_hook(keep(name)) for name, each in layers.items()]
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            module(x)
    finally:
        module.train(was_training)
        for each in hooks:
            each.remove()
    return found


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())
