"""Pages of the documentation whose code needs PyTorch."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.sizes import sizes_of
from deeplinear._torch.plain import output_multiplier, plain_layers
from documentation import DOCS, blocks
from needs import need_torch

torch, dt = need_torch()

PAGES = ["pytorch.md", "tutorials/coordinate-check.md"]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_one_after_another(page):
    namespace = {"__name__": "__main__"}
    code = [block for block in blocks(DOCS / page) if block.kind == "python"]
    assert code
    for block in code:
        exec(compile(block.text, f"{page}:{block.line}", "exec"), namespace)


D, N, R, ETA, KAPPA = 20, 40, 0.7, 0.1, 0.3
TABLE = {
    "mup": (R, [R**2 * N / D, R**2, R**2 * N], D**0.5 / (N * R)),
    "ntk": (R * (D / N) ** 0.5, [R**2, R**2 * D / N, R**2 * D], 1 / (R * N**0.5)),
    "standard": (R * (D / N) ** 0.5, [R**2, R**2, R**2 * N], 1 / (R * N**0.5)),
}


@pytest.mark.parametrize("parameterization", TABLE)
def test_the_table_has_the_numbers_of_plain_layers(parameterization):
    gamma0, rates, factor = TABLE[parameterization]
    network = dl.MLP(2, N / D, richness=R, parameterization=parameterization)
    problem = dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(ETA, weight_decay=KAPPA), 2)
    layers = plain_layers(problem, sizes_of(problem, D), problem.optimizer)
    np.testing.assert_allclose([layer.init_std for layer in layers], [D**-0.5, N**-0.5, 1.0])
    np.testing.assert_allclose([layer.rate for layer in layers], rates)
    np.testing.assert_allclose(
        [layer.decay for layer in layers], [D / (N * gamma0**2), gamma0**-2, 1 / (N * gamma0**2)]
    )
    np.testing.assert_allclose(output_multiplier(problem, sizes_of(problem, D)), factor)


def test_one_rate_for_weights_of_variance_one_over_fan_in_is_the_standard_parameterization():
    """What people write: nn.Linear without factors, one learning rate, trained beside the module of the problem."""
    network = dl.MLP(2, N / D, parameterization="standard")
    problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(ETA / 10), 5)
    module, batches = dt.network(problem, D), dt.data(problem, D)
    factors = [D**-0.5, N**-0.5, N**-0.5]
    weights = [(layer.weight * m).detach().requires_grad_() for layer, m in zip(module.layers, factors, strict=True)]
    own = torch.optim.SGD(weights, lr=ETA / 10)
    losses = []
    for x, y, _ in batches:
        loss = (x @ weights[0].T @ weights[1].T @ weights[2].T - y).square().mean()
        losses.append(loss.item())
        own.zero_grad()
        (loss / 2).backward()
        own.step()
    expected = dl.simulate(problem, D, [0], method="explicit", record="losses").train_loss[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    assert losses[-1] < 0.9 * losses[0]
