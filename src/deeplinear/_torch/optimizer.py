"""The update rules of a problem as a PyTorch optimizer."""

from collections.abc import Callable
from typing import Any

import torch

from deeplinear._core.refusal import Refusal
from deeplinear._experiment.steps import Gradient, Steps
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._rules.numbers import Numbers
from deeplinear._torch.network import Network

Closure = Callable[[], torch.Tensor]

_COUNTED = "weights that count"


class ProblemOptimizer(torch.optim.Optimizer):
    """The update rules of a problem, step by step, with their schedules and phases; ``optimizer`` makes it.

    What rules keep is in ``state``, so that training goes on from a saved one.

    Parameters
    ----------
    problem
        Whose rules to follow.
    module
        Whose weights to change.
    """

    def __init__(self, problem: Problem, module: Network) -> None:
        self._problem, self._stages = problem, problem.stages
        self._width = module.layers[-1].in_features
        self._steps: Steps | None = None  # of the phase, where it has begun its next step
        groups = [{"params": [layer.weight], "layer": index} for index, layer in enumerate(module.layers)]
        super().__init__(groups, {"step": 0, "averaged": False, "kept": {}})

    def step(self, closure: Closure | None = None) -> "torch.Tensor | None":
        """Take one step.

        Parameters
        ----------
        closure
            Computes half the mean squared error and its gradient, by ``backward``, and returns the former. Without it
            the gradients are those that the weights have. SAM, which looks twice, needs it.

        Returns
        -------
        Tensor
            What the closure returned; None without it.
        """
        t = int(self.param_groups[0]["step"])
        stage = self._stage(t)
        self.train()
        loss = None if closure is None else self._evaluate(closure)
        with torch.no_grad():
            steps = self._begun(t, stage)
            if steps.traits.looks > 1 and closure is None:
                name = stage.optimizer.kind.title
                raise ValueError(f"closure must be given to step with {name}, which takes the gradient twice; got None")
            while steps.receive(self._gradient()):
                assert closure is not None
                self._give(steps.evaluated)
                self._evaluate(closure)
            self._keep(steps)
            for group in self.param_groups:
                group["step"] = t + 1
            self._steps = None
            if t + 1 < self._problem.steps:
                self._end(t + 1)
        return loss

    def eval(self) -> None:
        """Give the module the weights that count, until ``train`` or ``step``: the mean, where there is one."""
        self._switch(averaged=True)

    def train(self) -> None:
        """Give the module the weights at which gradients are taken."""
        self._switch(averaged=False)

    def _stage(self, t: int) -> Stage:
        for stage in self._stages:
            if t < stage.stop:
                return stage
        raise ValueError(f"all {self._problem.steps} steps of the problem were taken; give it more steps")

    def _end(self, t: int) -> None:
        """Forget everything where the next step starts afresh, from the weights that count; begin it where not."""
        stage = self._stage(t)
        if stage.start == t and not stage.since:
            self.eval()
            self.state.clear()
            for group in self.param_groups:
                group["averaged"], group["kept"] = False, {}
        else:
            self._give(self._begun(t, stage).evaluated)

    def _begun(self, t: int, stage: Stage) -> Steps:
        """Return the rule at step t, which has begun and waits for a gradient."""
        if self._steps is None:
            weights = [self.state[each].get(_COUNTED, each.detach()) for each in self._weights]
            if stage.optimizer.traits.elsewhere and _COUNTED not in self.state[self._weights[0]]:
                weights = [each.clone() for each in weights]
            steps = self._steps = Steps(stage.optimizer, weights, stage.of, self._problem.units, self._width)
            for name, base in self.param_groups[0]["kept"].items():
                every = [self.state[each].get(name) for each in self._weights]
                if base is not None:
                    steps.kept[name], steps.bases[name] = every, base
                else:
                    is_number = isinstance(every[0], torch.Tensor)
                    steps.numbers[name] = Numbers(torch.stack(every)) if is_number else every[0]
            steps.begin(t - stage.start + stage.since)
        return self._steps

    def _keep(self, steps: Steps) -> None:
        """Put what the rule keeps into the state."""
        names: dict[str, int | None] = dict(steps.bases) | dict.fromkeys(steps.numbers)
        for layer, (group, weight) in enumerate(zip(self.param_groups, self._weights, strict=True)):
            group["kept"], state = names, self.state[weight]
            state.update({name: arrays[layer] for name, arrays in steps.kept.items()})
            for name, number in steps.numbers.items():
                values = number.values if isinstance(number, Numbers) else number
                state[name] = values[layer if len(values) > 1 else 0] if isinstance(number, Numbers) else values
            if steps.traits.elsewhere:
                state[_COUNTED] = steps.weights[layer]

    @property
    def _weights(self) -> list[torch.Tensor]:
        return [group["params"][0] for group in self.param_groups]

    def _gradient(self) -> Gradient:
        """Return G = - N_L gamma0^2 times the gradient of each layer."""
        found = []
        for weight in self._weights:
            if weight.grad is None:
                raise ValueError("every weight must have a gradient before step: call backward on the loss")
            found.append(weight.grad * -(self._width * self._problem.network.gamma0**2))
        return Gradient(found, lambda: torch.stack([each.square().sum() / self._width for each in found]))

    def _give(self, weights: list[Any]) -> None:
        """Give the module other weights, unless these are its own."""
        with torch.no_grad():
            for own, each in zip(self._weights, weights, strict=True):
                if each.data_ptr() != own.data_ptr():
                    own.copy_(each)

    def _switch(self, *, averaged: bool) -> None:
        if self.param_groups[0]["averaged"] == averaged or _COUNTED not in self.state[self._weights[0]]:
            return
        t = min(int(self.param_groups[0]["step"]), self._problem.steps - 1)
        stage = self._stage(t)
        with torch.no_grad():
            if averaged:
                self._give([self.state[each][_COUNTED] for each in self._weights])
            else:
                self._give(self._begun(t, stage).evaluated)
        for group in self.param_groups:
            group["averaged"] = averaged

    @staticmethod
    def _evaluate(closure: Closure) -> torch.Tensor:
        with torch.enable_grad():
            return closure()


def optimizer(problem: Problem, module: Network) -> ProblemOptimizer:
    """Return the update rules of a problem as an optimizer of PyTorch.

    It follows the gradient of half the squared error, summed over outputs and averaged over samples. Rates, schedules
    and phases are those of the problem, so that schedulers of PyTorch have nothing to do.

    Parameters
    ----------
    problem
        Every optimiser of the library is taken. ``SAM`` needs a closure in ``step``. ``ScheduleFree`` takes gradients
        at other weights than those that count: call ``optimizer.eval()`` before losses are computed, and
        ``optimizer.train()`` after; they do nothing with other rules.
    module
        A module that ``network`` made of a problem with the same network.

    Raises
    ------
    ValueError
        If the module is not one of ``network``, or has other layers than the problem.

    Examples
    --------
    >>> import deeplinear as dl
    >>> from deeplinear._torch.network import network
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(), dl.Population(), dl.Muon(0.1, input=True), steps=3
    ... )
    >>> optimizer(problem, network(problem, dim=10)).param_groups[0]["layer"]
    0
    """
    check_problem(problem)
    if not isinstance(module, Network):
        raise Refusal("module", module, "a module that deeplinear.torch.network made", got=type(module).__name__)
    wanted = problem.network.layers + 1
    if len(module.layers) != wanted:
        raise Refusal("module", module, f"{wanted} weight layers", verb="have", got=str(len(module.layers)))
    return ProblemOptimizer(problem, module)
