"""The loop of training, whatever the matrices are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeplinear._core.arrays import Array, computing, namespace
from deeplinear._experiment.averages import Running
from deeplinear._experiment.curvature import POSITIONS, Curvature, Directions, lanczos
from deeplinear._experiment.data_sets import DataSet
from deeplinear._experiment.in_place import copied
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.record import Log, Run
from deeplinear._experiment.singular_values import SingularValues
from deeplinear._experiment.steps import Gradient, Steps
from deeplinear._experiment.streams import Batch, Inputs, Stream
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._rules.layers import spread


@dataclass(frozen=True)
class Task:
    """What a network learns.

    Attributes
    ----------
    problem
        The problem.
    inputs
        Distribution of the inputs.
    targets
        w* of each phase, shape (D, C).
    data
        The data sets of all steps, in order.
    stream
        Draws the samples of a data set, when its first step comes.
    """

    problem: Problem
    inputs: Inputs
    targets: Sequence[Array]
    data: Sequence[DataSet]
    stream: Callable[[DataSet], Stream]


class Training:
    """Trains a network, or several together, and keeps a record.

    Parameters
    ----------
    task
        What is learned.
    network
        What is trained, in place.
    log
        The record.
    averages
        Averages of the weights whose test losses are wanted.
    label_gram
        As in ``Log.finish``.
    curvature
        Curvature to be measured on the way, if any.
    singular
        Keeps singular values where the curvature is measured, if these are wanted.
    """

    def __init__(
        self,
        task: Task,
        network: FiniteNetwork,
        log: Log,
        averages: Sequence[Average] = (),
        label_gram: Array | None = None,
        curvature: Curvature | None = None,
        singular: SingularValues | None = None,
    ) -> None:
        self._task, self._network, self._log, self._label_gram = task, network, log, label_gram
        self._curvature, self._singular = curvature, singular
        self._first: tuple[list[Array], list[Array]] | None = None  # fields of the first gradient, where it is needed
        self._line_start: list[Array] = []
        self._averages = [Running(average) for average in averages]
        readout = network.weights[-1]
        self._together = 1 if readout.ndim == 2 else len(readout)
        self._weights = network.parameters
        self._rule: Steps
        self._stream: Stream = iter(())
        self._subtracted: Array | float | None = None

    def run(self, advance: Callable[[int], None] | None = None) -> Run:
        """Train to the last step, or until all networks have diverged.

        Parameters
        ----------
        advance
            Called with the number of steps taken since the last call, summed over networks.
        """
        with computing(self._task.targets[0]):
            done = self._descend(advance)
            singular = None if self._singular is None else self._singular.values()
            run = self._log.finish(self._task.data, self._label_gram, singular)
        left = self._task.problem.steps - done
        if advance and left:
            advance(self._together * left)
        return run

    def _descend(self, advance: Callable[[int], None] | None) -> int:
        """Take the steps of all phases; return how many were taken."""
        data = iter(self._task.data)
        for phase, stage in enumerate(self._task.problem.stages):
            if stage.new_samples:
                self._stream = iter(())  # whose samples may be large
                self._stream = self._task.stream(next(data))
            if not stage.since:
                self._rule = self._start(stage)
            for t in range(stage.start, stage.stop):
                if not self._step(t, phase, stage):
                    return t
                if advance:
                    advance(self._together)
        return self._task.problem.steps

    def _start(self, stage: Stage) -> Steps:
        """Return the rule of a phase, which starts afresh from the weights that count."""
        width = self._network.weights[-2].shape[-2]
        return Steps(stage.optimizer, self._weights, stage.of, self._task.problem.units, width)

    def _step(self, t: int, phase: int, stage: Stage) -> bool:
        """Take one step, unless it is the last; return whether any network is still within bounds."""
        rule, inputs, target = self._rule, self._task.inputs, self._task.targets[phase]
        rule.begin(t - stage.start + stage.since)
        self._averaged_losses(t, stage, target)
        early = self._measure_curvature(t, stage, target)
        counted = None if rule.evaluated is rule.weights else self._evaluate(rule.weights, target)[1]
        g, error = self._evaluate(rule.evaluated, target)
        batch = early or next(self._stream)
        seen = batch.see(error)
        train_loss = seen.train_loss if counted is None else batch.see(counted).train_loss
        counted = error if counted is None else counted
        self._log.losses(t, inputs.loss(counted, stage.noise), train_loss)
        self._task_losses(t, counted - target)
        if self._log.is_over(t):
            return False
        h = self._network.forward(batch.signal(error, seen.residual))
        self._log.fields(t, error, inputs.felt(error), batch.share * seen.residual, h, g)
        if t + 1 < self._task.problem.steps:
            gradient = self._gradient(h, g)
            while rule.receive(gradient):
                gradient = self._gradient_on(batch, target)
        return True

    def _measure_curvature(self, t: int, stage: Stage, target: Array) -> Batch | None:
        """Measure the curvature where it is wanted, and return the batch of the step, if it was needed for that."""
        wanted = self._curvature
        if wanted is None or not wanted.is_due(t):
            return None
        g, error = self._evaluate(self._rule.evaluated, target)
        batch = next(self._stream)
        if t == 0 and wanted.start == "first":
            self._first = self._network.forward(batch.signal(error, batch.see(error).residual)), g
        if t not in wanted.at:
            return batch
        whole = _whole(batch, stage)
        problem = self._task.problem
        rates = spread(problem.layer_rates(stage.optimizer), problem.network.layers + 1).tolist()
        directions = Directions(self._network, whole, g, error, rates, self._first)
        self._log.curvature(t, lanczos(directions, wanted.operator, wanted.vectors))
        if self._singular is not None:
            self._singular.note(t)
        if wanted.line:
            self._look_along_line(t, stage, target, whole)
        return batch

    def _look_along_line(self, t: int, stage: Stage, target: Array, whole: Batch) -> None:
        """Keep the weights at the first step that is measured, and the losses between these and those at the last."""
        assert self._curvature is not None
        if t == self._curvature.at[0]:
            self._line_start = [copied(weight) for weight in self._rule.evaluated]
        if t == self._curvature.at[-1]:
            for index, x in enumerate(POSITIONS):
                pairs = zip(self._line_start, self._rule.evaluated, strict=True)
                _, error = self._evaluate([(1.0 - x) * one + x * other for one, other in pairs], target)
                self._log.line(index, whole.see(error).train_loss, self._task.inputs.loss(error, stage.noise))

    def _evaluate(self, weights: list[Array], target: Array) -> tuple[list[Array], Array]:
        """Return g_1 .. g_L and the error of some weights, which the network has from now on."""
        self._network.use(weights)
        g = self._network.backward()
        function = self._network.predictor(g[0])
        if self._subtracted is None:  # at the first step, where all weights are the initial ones
            self._subtracted = function if self._task.problem.network.centered else 0.0
        return g, target - self._learned(function)

    def _learned(self, function: Array) -> Array:
        """Return the function less what is subtracted, zero where that is rounding: a rule may divide by its size."""
        learned: Array = function - self._subtracted
        rounding = self._network.rounding
        if not rounding or not self._task.problem.network.centered:
            return learned
        xp = namespace(function)
        size, whole = (xp.max(xp.abs(each), axis=(-2, -1), keepdims=True) for each in (learned, function))
        kept: Array = xp.where(size < rounding * whole, xp.zeros_like(learned), learned)  # what is not finite stays
        return kept

    def _gradient(self, h: list[Array], g: list[Array]) -> Gradient:
        """Return the gradient of the last fields."""
        return Gradient(self._network.gradients(h, g), lambda: self._network.squares(h, g))

    def _gradient_on(self, batch: Batch, target: Array) -> Gradient:
        """Return the gradient on the same batch where the rule wants another one."""
        g, error = self._evaluate(self._rule.evaluated, target)
        h = self._network.forward(batch.signal(error, batch.see(error).residual))
        return self._gradient(h, g)

    def _averaged_losses(self, t: int, stage: Stage, target: Array) -> None:
        """Bring averages of the weights to step t, and record their losses."""
        for index, average in enumerate(self._averages):
            _, error = self._evaluate(average.update(self._rule.weights), target)
            self._log.averaged_loss(t, index, self._task.inputs.loss(error, stage.noise))

    def _task_losses(self, t: int, minus_function: Array) -> None:
        """Record the losses on the targets of all phases, if there are several."""
        stages = self._task.problem.stages
        for phase, (stage, target) in enumerate(zip(stages, self._task.targets, strict=True)):
            if len(stages) > 1:
                self._log.task_loss(t, phase, self._task.inputs.loss(target + minus_function, stage.noise))


def _whole(batch: Batch, stage: Stage) -> Batch:
    """Return the data of the loss that training descends: all samples, or all of the distribution if they are fresh."""
    is_fresh = stage.sampling.subsamples and stage.sampling.fresh
    return batch.population(stage.noise) if is_fresh else batch.whole()
