"""The update rules of a problem as a PyTorch optimizer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from deeplinear._core.refusal import Refusal
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._torch.network import Network
from deeplinear._torch.rules import Layer, Rule, rule_of, squared_norms

Closure = Callable[[], torch.Tensor]


class ProblemOptimizer(torch.optim.Optimizer):
    """The update rules of a problem, step by step, with their schedules and phases; ``optimizer`` makes it.

    Parameters
    ----------
    problem
        Whose rules to follow.
    module
        Whose weights to change.
    """

    def __init__(self, problem: Problem, module: Network) -> None:
        self._problem, self._stages = problem, problem.stages
        self._rules = [rule_of(problem, stage) for stage in self._stages]
        self._width = module.layers[-1].in_features
        groups = [{"params": [layer.weight], "layer": index} for index, layer in enumerate(module.layers)]
        super().__init__(groups, {"step": 0, "averaged": False})

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
        rule, stage = self._rule(t)
        self.train()
        loss = None if closure is None else self._evaluate(closure)
        with torch.no_grad():
            layers = self._layers()
            if rule.optimizer.ascent is not None:
                if closure is None:
                    raise ValueError("closure must be given to step with SAM, which takes the gradient twice; got None")
                with self._uphill(layers, rule.optimizer.ascent):
                    self._evaluate(closure)
                    layers = self._layers()
            rule.step(t - stage.start + stage.since, layers, self._width)
            for group in self.param_groups:
                group["step"] = t + 1
            self._end(t + 1)
        return loss

    def eval(self) -> None:
        """Give the module the weights that count, until ``train`` or ``step``: the mean, where there is one."""
        self._switch(averaged=True)

    def train(self) -> None:
        """Give the module the weights at which gradients are taken."""
        self._switch(averaged=False)

    def _rule(self, t: int) -> tuple[Rule, Stage]:
        for rule, stage in zip(self._rules, self._stages, strict=True):
            if t < stage.stop:
                return rule, stage
        raise ValueError(f"all {self._problem.steps} steps of the problem were taken; give it more steps")

    def _end(self, t: int) -> None:
        """Forget everything where the next step starts afresh, from the weights that count."""
        if t < self._problem.steps and self._rule(t)[1].start == t and not self._rule(t)[1].since:
            self.eval()
            self.state.clear()
            for group in self.param_groups:
                group["averaged"] = False

    def _layers(self) -> list[Layer]:
        """Return the layers with G = - N_L gamma0^2 times the gradient."""
        found = []
        for group in self.param_groups:
            (weight,) = group["params"]
            if weight.grad is None:
                raise ValueError("every weight must have a gradient before step: call backward on the loss")
            gradient = weight.grad * -(self._width * self._problem.network.gamma0**2)
            found.append(Layer(group["layer"], weight, gradient, self.state[weight]))
        return found

    def _switch(self, *, averaged: bool) -> None:
        for group in self.param_groups:
            (weight,) = group["params"]
            if group["averaged"] != averaged and "mean" in self.state[weight]:
                mean, fast = self.state[weight]["mean"], self.state[weight]["fast"]
                beta = self._rule(min(group["step"], self._problem.steps) - 1)[0].optimizer.averaging
                with torch.no_grad():
                    weight.copy_(mean if averaged else torch.lerp(fast, mean, beta))
                group["averaged"] = averaged

    @staticmethod
    def _evaluate(closure: Closure) -> torch.Tensor:
        with torch.enable_grad():
            return closure()

    @contextmanager
    def _uphill(self, layers: list[Layer], radius: float) -> Iterator[None]:
        """Go up the slope, and back to the same weights."""
        norm = squared_norms(layers, self._width).sum().sqrt()
        before = [layer.weight.clone() for layer in layers]
        for layer in layers:
            if norm > 0:
                layer.weight.sub_(radius / norm * layer.gradient)
        try:
            yield
        finally:
            for layer, weight in zip(layers, before, strict=True):
                layer.weight.copy_(weight)


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
