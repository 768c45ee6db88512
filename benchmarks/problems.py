"""Problems that several sections measure."""

import numpy as np

import deeplinear as dl


def mlp(steps: int, depth: int = 4, lr: float = 0.01, richness: float = 1.0, outputs: int = 1) -> dl.Problem:
    """A multilayer network on a full batch of twice as many examples as dimensions."""
    data, rule = dl.Isotropic(0.3, np.eye(outputs).tolist()), dl.GradientDescent(lr)
    return dl.Problem(dl.MLP(depth, 1.0, richness), data, dl.FullBatch(2.0), rule, steps)


def residual(depth: float, steps: int, lr: float = 0.01) -> dl.Problem:
    """The same with skip connections."""
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(lr)
    return dl.Problem(dl.ResNet(depth, 1.0), data, dl.FullBatch(2.0), rule, steps)


def power_law(steps: int, modes: int | None = None) -> dl.Problem:
    """A multilayer network of width 100 on 100 examples of a power law."""
    data, rule = dl.Spectrum.power_law(1.5, 1.0, modes=modes), dl.GradientDescent(0.1)
    return dl.Problem(dl.MLP(3, 100.0), data, dl.FullBatch(100.0), rule, steps)


def long(steps: int) -> dl.Problem:
    """A slow fit of hardly more examples than dimensions, which keeps changing for many steps."""
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(0.005)
    return dl.Problem(dl.MLP(3, 1.0), data, dl.FullBatch(1.2), rule, steps)
