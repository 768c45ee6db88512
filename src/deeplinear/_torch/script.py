"""A problem as a script of plain PyTorch, which needs nothing of this library."""

from string import Template

import numpy as np

from deeplinear._core.refusal import Refusal
from deeplinear._experiment.data_sets import data_sets
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._experiment.targets import target_roots
from deeplinear._problem.problem import Problem
from deeplinear._rules.rule import Rule
from deeplinear._rules.series import is_constant
from deeplinear._torch.plain import PlainLayer, output_multiplier, plain_layers


def pytorch_script(problem: Problem, dim: int | None) -> str:
    """Return the script; ValueError where plain PyTorch has no such rule."""
    _check(problem)
    sizes = sizes_of(problem, dim)
    layers = plain_layers(problem, sizes, problem.optimizer)
    return _SCRIPT.substitute(
        problem=_named(problem),
        constants=_constants(problem, sizes, layers, dim),
        hidden=_HIDDEN_RESIDUAL if problem.network.skip else _HIDDEN,
        batches=_batches(problem, sizes),
        imports="import copy\n" if problem.network.centered else "",
        function=_CENTERED if problem.network.centered else "    function = network\n",
        schedule=_SCHEDULE if problem.optimizer.has_schedule else "",
        momentum=_momentum(problem.optimizer),
        rates="ETA * rate" if not problem.optimizer.has_schedule else "ETA[0] * rate",
    )


def _check(problem: Problem) -> None:
    """Refuse what ``torch.optim.SGD`` does not do."""
    rule = problem.optimizer
    elsewhere = ": deeplinear.torch has every rule"
    if problem.phases:
        raise Refusal("phases", problem.phases, "none in a script", got=f"{len(problem.phases)} phases", rest=elsewhere)
    if not rule.is_plain:
        raise Refusal("optimizer", rule, "GradientDescent without clip in a script", got=rule.called, rest=elsewhere)
    for name in ("momentum", "weight_decay"):
        if not is_constant(getattr(rule, name)):
            raise Refusal(name, getattr(rule, name), "one number in a script", rest=elsewhere)


def _named(problem: Problem) -> str:
    parts = (problem.network, problem.sampling, problem.optimizer)
    return ", ".join(each.kind.title for each in parts)


def _constants(problem: Problem, sizes: Sizes, layers: list[PlainLayer], dim: int | None) -> str:
    """Lines that give every number a name."""
    finite, rule = problem.data.finite(dim), problem.optimizer
    counts = finite.weight.astype(int).tolist()
    roots = [target_roots(count, gram).tolist() for count, gram in zip(counts, finite.target, strict=True)]
    eta = rule.rates(problem.steps).tolist() if rule.has_schedule else rule.lr
    rows = [
        ("STEPS", problem.steps, "Number of losses, each before its step"),
        ("FANS", [sizes.dim, *sizes.widths, sizes.outputs], "Inputs, hidden layers, outputs"),
        ("INIT_STD", [each.init_std for each in layers], "Standard deviation of the initial weights of each layer"),
        ("MULTIPLIER", output_multiplier(problem, sizes), "Factor on the output"),
        ("ETA", eta, "Learning rate of the theory"),
        ("RATES", [each.rate for each in layers], "Learning rate of SGD for each layer, in units of ETA"),
        ("DECAYS", [float(rule.decays(1)[0]) * each.decay for each in layers], "Weight decay of SGD for each layer"),
        ("NOISE", problem.data.noise, "Standard deviation of the labels about the target"),
        (
            "COUNTS",
            counts,
            "Groups of input directions of equal variance: how many, variance, roots of the target's power",
        ),
        ("VARIANCES", finite.eigenvalues.tolist(), ""),
        ("ROOTS", roots, ""),
        ("UNIT", sizes.unit, "Sums over directions are divided by this"),
    ]
    if problem.network.skip:
        rows.append(("BRANCH", problem.network.branch_factor, "Strength of residual branches"))
    return "\n".join((f"# {about}\n" if about else "") + f"{name} = {value!r}" for name, value, about in rows)


def _momentum(rule: Rule) -> str:
    momentum = float(rule.momenta(1)[0])
    return f", momentum={momentum!r}, nesterov={rule.nesterov}" if momentum else ""


def _batches(problem: Problem, sizes: Sizes) -> str:
    """Lines that yield the data of every step."""
    (data,) = data_sets(problem, sizes.unit)
    if not data.drawn:
        return _POPULATION
    if data.fresh:
        return (
            f"    for count in {_list(data.samples)}:\n        x, y = sample(count, target)\n        yield x, y, 1.0\n"
        )
    begin = f"    x, y = sample({data.samples[0]}, target)\n"
    if np.all(data.keeps == 1.0):
        return begin + "    for _ in range(STEPS):\n        yield x, y, 1.0\n"
    return begin + (f"    for keep in {_list(data.keeps)}:\n        yield x, y, (torch.rand(len(x)) < keep) / keep\n")


def _list(values: np.ndarray[tuple[int], np.dtype[np.generic]]) -> str:
    """Write values of all steps; shortly, where they are one."""
    first = values[0].item()
    return f"[{first!r}] * STEPS" if np.all(values == values[0]) else repr(values.tolist())


_HIDDEN = "            h = layer(h)\n"
_HIDDEN_RESIDUAL = "            h = h + BRANCH * layer(h)\n"
_CENTERED = """\
    start = copy.deepcopy(network)

    def function(x):
        return network(x) - start(x)

"""
_SCHEDULE = """\
        for group, rate in zip(optimizer.param_groups, RATES):
            group["lr"] = ETA[step] * rate
"""
_POPULATION = """\
    # Rows on which a linear network has the loss and the gradient of infinitely many samples.
    x = torch.diag(math.sqrt(FANS[0]) * deviations())
    y = x @ target
    for _ in range(STEPS):
        yield torch.cat([x, x]), torch.cat([y + NOISE, y - NOISE]), 1.0
"""
_SCRIPT = Template('''\
"""$problem: trained with PyTorch alone. Written by deeplinear."""

${imports}import math

import torch
from torch import nn

$constants


class Network(nn.Module):
    """A deep linear network."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*fans, bias=False) for fans in zip(FANS, FANS[1:]))
        for layer, std in zip(self.layers, INIT_STD):
            nn.init.normal_(layer.weight, std=std)

    def forward(self, x):
        first, *hidden, readout = self.layers
        h = first(x)
        for layer in hidden:
$hidden        return MULTIPLIER * readout(h)


def draw_target():
    """Weights of the linear function to learn, (inputs, outputs)."""
    parts = []
    for count, roots in zip(COUNTS, ROOTS):
        roots = torch.tensor(roots)
        parts.append(math.sqrt(count / UNIT) * torch.linalg.qr(torch.randn(count, len(roots)))[0] @ roots)
    return torch.cat(parts)


def deviations():
    return torch.tensor(VARIANCES).sqrt().repeat_interleave(torch.tensor(COUNTS))


def sample(count, target):
    """New inputs and noisy labels."""
    x = torch.randn(count, FANS[0]) * deviations()
    return x, x @ target + NOISE * torch.randn(count, FANS[-1])


def draw_batches(target):
    """Inputs, labels and weights of every step."""
$batches

def test_loss(function, target):
    """Mean squared error on new samples, exactly, of a linear function."""
    x = torch.diag(deviations())
    return (function(x) - x @ target).square().sum() + FANS[-1] * NOISE**2


def train(network, batches, target):
    """Return train and test losses before each step."""
$function    groups = [
        {"params": layer.weight, "lr": $rates, "weight_decay": decay}
        for layer, rate, decay in zip(network.layers, RATES, DECAYS)
    ]
    optimizer = torch.optim.SGD(groups$momentum)
    losses = []
    for step, (x, y, weight) in enumerate(batches):
$schedule        squares = (function(x) - y).square().sum(1)
        losses.append((squares.mean().item(), test_loss(function, target).item()))
        optimizer.zero_grad()
        (weight * squares).mean().div(2).backward()  # half the mean squared error
        optimizer.step()
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    target = draw_target()
    for step, (on_train, on_test) in enumerate(train(Network(), draw_batches(target), target)):
        print(f"{step:5d}  train loss {on_train:.4f}  test loss {on_test:.4f}")
''')
