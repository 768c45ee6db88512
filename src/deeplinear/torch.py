"""A problem in PyTorch: its network, its update rule and its data, for your own training loop.

Import it by its name, which needs PyTorch (``pip install 'deeplinear[gpu]'``)::

    import deeplinear.torch

With the same seed a network that is trained this way has the losses that ``deeplinear.simulate`` gives it with
``method="explicit"``, up to rounding.

Examples
--------
>>> import deeplinear as dl
>>> problem = dl.Problem(
...     dl.MLP(depth=2, width=1.0), dl.Isotropic(noise=0.1), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5
... )
>>> module = network(problem, dim=20, seed=3)
>>> descent = optimizer(problem, module)
>>> losses = []
>>> for x, y, weight in data(problem, dim=20, seed=3):
...     squares = (module(x) - y).square().sum(1)
...     losses.append(squares.mean().item())
...     descent.zero_grad()
...     (weight * squares).mean().div(2).backward()
...     descent.step()
>>> import numpy as np
>>> expected = dl.simulate(problem, dim=20, seeds=[3], method="explicit").train_loss[0]
>>> bool(np.allclose(losses, expected, rtol=1e-12))
True
"""

try:
    import torch as _pytorch  # noqa: F401
except ImportError:
    raise ImportError("deeplinear.torch needs PyTorch: pip install 'deeplinear[gpu]'") from None

from deeplinear._torch.data import Batch, Data, data
from deeplinear._torch.network import Network, network
from deeplinear._torch.optimizer import ProblemOptimizer, optimizer

__all__ = ["Batch", "Data", "Network", "ProblemOptimizer", "data", "network", "optimizer"]
