"""Panels: the same equations on a coarse time grid, for horizons of up to millions of steps.

After a start of single steps, time is covered by panels that grow as training slows down (see ``_grid``).
The rows of a panel are swept until they stand still: first the responses, with correlations frozen, then the
correlations, which are linear in themselves, then all of it. What a panel leaves unresolved is read off the
last coefficients of its polynomials; it is done again at half the length if that is too much, and by single
steps, which are exact, where panels do not work.
"""

import math
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from deeplinear._core import memory
from deeplinear._core.arrays import Array
from deeplinear._core.cached import cached_property
from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._equations.chain import Chain
from deeplinear._equations.coefficients import coefficients, is_complex, structure
from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.products import mean_diagonal
from deeplinear._equations.system import Equations
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Causal, Room, Symmetric
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Overlaps, Unresolved
from deeplinear._solvers.panels import guess
from deeplinear._solvers.panels.error import NOISE, grows, rest
from deeplinear._solvers.panels.settle import Unknown, settle
from deeplinear._solvers.panels.work import MOST_ROWS, PROBED, ROOM, START, more_room, step_work
from deeplinear._solvers.rounding import LOSS_FLOOR, amplification
from deeplinear._time.grid import NODES, Grid, breaks
from deeplinear._time.propagator import GridPropagator

_FIRST = 2 * NODES
"""Length of the first panel."""

_MOST_GROUPS = 32
"""Groups of single steps, at most, before another panel is tried."""

_SWEEP, _SWEEP_IN_DEPTH = 5.0, 1.0
"""Cost of a sweep over a panel, in units of that of a single step; with nodes in depth, that is many sweeps itself."""

_SETTLED = 1e-2
"""Change of the last sweep, in units of the tolerance."""

_ROUNDING = 3e-9
"""Change that is put down to rounding, where sweeps do not reduce it any more."""

_VANISHED = 5e-12
"""What is left of losses that have vanished, relative to their initial values, by sums over responses in a panel."""

_COARSE = 1e-3
"""Change at which the first, partial sweeps end."""

_FLOOR = 1e-3
"""Correlations that are this fraction of their initial value, or less, are settled to that scale only."""

_TAIL = 0.5
"""Part of a panel's error that adds up in each decade by which losses fall, as errors of the rate of decay do."""

_ALTERNATING = 0.1
"""Part of a panel's error, at most, that may alternate from step to step, as it must to be amplified."""

_STIFFER = 1.05
"""Growth of learning rate times kernel after which that is tried again."""

_INNER = (1e-1, 1e-4)
"""How much closer layer 0 is settled within a sweep: at first, and where what it leaves is noise to the sweeps."""

_SWEEPS, _INNER_SWEEPS = 60, 20


class PanelRun:
    """Solution of one problem on a grid of nodes in time.

    Attributes
    ----------
    grid
        The time grid.
    equations
        Every two-time function, with a row for each node and output.
    begun
        Whether a panel has been taken.
    error
        Estimate of the relative error of the losses.
    error_floor
        It is relative to this fraction of the initial loss where the loss is smaller.
    diverged_at
        Step at which training diverged, -1 if it did not, shape (1,).
    """

    def __init__(self, problem: Problem, tolerance: float, depth_nodes: int = 0, most_work: float = math.inf) -> None:
        self.problem, self.tolerance, self._depth_nodes = problem, tolerance, depth_nodes
        self._work_left = most_work
        self.grid = Grid()
        self.diverged_at = np.array([-1])
        self.begun, self.error, self._panel_error = False, 0.0, 0.0
        # What rounding leaves of a smaller loss is more than the tolerance.
        self.error_floor = max(LOSS_FLOOR, _VANISHED / tolerance)
        self._goal = tolerance  # of a single panel
        optimizer = problem.stages[0].optimizer
        rates = rates_of(problem) if optimizer.has_schedule or problem.phases else np.asarray(optimizer.lr)
        groups = dict.fromkeys(structure(problem).groups)
        self._factors, decays = problem.layer_rates(optimizer), problem.layer_decays(optimizer)
        self._propagators = {
            group: GridPropagator(self._factors[group] * rates, decays[group] * optimizer.weight_decay, self.grid)
            for group in groups
        }
        last = [stage.stop - 1 for stage in problem.stages]
        self._ends = np.union1d(breaks(rates), last)  # where a panel must end
        self._phase_nodes = [0]  # first node of each phase so far
        self._outputs = problem.data.outputs
        self._allocate(min(problem.steps, ROOM))
        self._initial: list[float] = []
        self._probed = 0.0  # largest product of learning rate and kernel at which disturbances were seen to die out

    def fill(self, progress: Progress | None = None) -> None:
        """Cover all steps; stop early if training diverges."""
        steps = self.problem.steps
        length, groups = _FIRST, 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            self._single_steps(min(START, steps))
            while self.grid.end < steps - 1 and self.diverged_at[0] < 0:
                left = int(self._ends[np.searchsorted(self._ends, self.grid.end, side="right")]) - self.grid.end
                # What follows a jump of the learning rate is fast at first, and unlike the panel before it.
                if min(length, left) < NODES or self.grid.end in self._ends:
                    self._single_steps(min(groups * NODES, steps - 1 - self.grid.end))
                    if groups == _MOST_GROUPS:
                        self._check_that_oscillations_end()
                    length, groups = _FIRST, min(2 * groups, _MOST_GROUPS)
                    continue
                # No panel is much shorter than the one before, from which its first guess is taken.
                length = -(-left // 2) if length < left < 2 * length else min(length, left)
                error = self._panel(length)
                shrink = 0.85 * (self._goal / max(error, 1e-300)) ** (1 / NODES)
                if error <= self._goal:
                    groups = 1
                    length = int(length * max(0.5, min(2.0, shrink)))
                else:
                    length = length // 2 if length > NODES else 0
                if progress is not None:
                    progress(self.grid.end + 1, steps)
        self._resize(len(self.grid))

    @property
    def chain(self) -> Chain:
        """The hidden layers."""
        return self.equations.chain

    def test_losses(self, steps: Array) -> Array:
        """Test losses at integer steps, shape (steps, 1)."""
        at_nodes = np.stack([self.equations.test_loss(node) for node in range(len(self.grid))])
        losses: Array = self.grid.interpolation(steps) @ at_nodes
        return losses

    def rows(self, nodes: slice) -> slice:
        """Rows of some nodes."""
        return slice(nodes.start * self._outputs, nodes.stop * self._outputs)

    def _single_steps(self, count: int) -> None:
        """Take exact steps."""
        for _ in range(count):
            self._take(1.0)
            self._begin_phase()
            rows = self._place(1)[0]
            self.equations.fill(rows)
            if not self._initial:
                self._initial = [float(np.abs(values[0])) for values in self._equal_times(rows)]
                self._goal /= self._added_up(_least_loss(self.problem) / max(self._initial[0], 1e-300))
            if self.equations.diverges(self.grid.last)[0, 0]:
                self.diverged_at[0] = self.grid.end
                return
            if self.chain.unsettled[0]:
                raise Unresolved(f"step {self.grid.end} was not resolved along the depth; lower branch or lr")
            if self._panel_error:
                self._amplify()

    def _begin_phase(self) -> None:
        """Let the next node be the first of a phase, if it is, which has a target and a data set of its own."""
        begun, stages = len(self._phase_nodes), self.problem.stages
        if begun < len(stages) and self.grid.end + 1 == stages[begun].start:
            self._phase_nodes.append(len(self.grid))
            self._resize(self.equations.c.structure.steps)

    @property
    def exhausted(self) -> bool:
        """Whether as much work has been done as was given."""
        return self._work_left < 0

    def _take(self, steps: float) -> None:
        """Count the work of so many steps here; raise Unresolved when as much is done as was given."""
        self._work_left -= steps * step_work(len(self.grid) * self._outputs)
        if self.exhausted:
            raise Unresolved(
                f"panels have come to step {self.grid.end} of {self.problem.steps} and take far more work than usual, "
                "as training does not become smooth enough; lower lr or raise tolerance"
            )

    def _amplify(self) -> None:
        """Count what a step has made of the errors of panels before it."""
        node = len(self.grid) - 1
        amplified = float(amplification(self.equations, slice(node, node + 1), self.grid.single)[0, 0])
        self.error = max(self.error, _ALTERNATING * self._panel_error * amplified)
        if not self.error <= self.tolerance:
            raise self._at_the_edge()

    def _check_that_oscillations_end(self) -> None:
        """Raise Unresolved if, after hundreds of single steps, disturbances still alternate and do not die out.

        Not if every step may have a row, nor if the schedule breaks, which disturbs as well.
        """
        nodes, end = len(self.grid), self.grid.end
        broken = ((self._ends > end - PROBED) & (self._ends <= end)).any()
        if self.problem.steps * self._outputs <= MOST_ROWS or self.diverged_at[0] >= 0 or broken:
            return
        if grows(self._answer_to(nodes - PROBED)):
            raise self._at_the_edge()

    def _answer_to(self, node: int) -> Array:
        """How the modes answer to a disturbance of a single step, shape (modes, steps, outputs, outputs)."""
        first, probed = self.rows(slice(node, node + 1)), self.rows(slice(node, node + PROBED))
        answer = self.equations.data.H.matrix[0, :, probed, first].real.copy()
        found: Array = answer.reshape(len(answer), PROBED, self._outputs, self._outputs)
        return found

    def _at_the_edge(self) -> Unresolved:
        return Unresolved(
            f"training is at the edge of stability about step {self.grid.end}, which panels cannot follow; lower lr"
        )

    def _panel(self, length: int) -> float:
        """Append a panel; return its error, infinite if it did not settle. It is removed if that is too large."""
        previous, alternating = self.grid.last, self._alternating()
        rows, misfit = self._place(length)
        error = max(misfit, alternating)
        if error <= self._goal:
            try:
                residual = self._settle(rows, previous)
            except np.linalg.LinAlgError:
                residual = np.inf
            good = residual <= max(0.1 * self._goal, _ROUNDING)
            error = max(error, self._truncation(rows)) if good else np.inf
            if error <= self._goal:
                self.begun, self._panel_error = True, max(self._panel_error, error, residual)
                left = self.error_floor * _relative(self._losses(rows)[:, -1:], self._loss_floors)
                self.error = max(self.error, self._panel_error * self._added_up(float(left.min())))
                if left.min() < 1e-3 * self.error_floor:
                    self.error = max(self.error, _VANISHED / self.error_floor)
                self._check_stability()
                return error
        self.grid.remove()
        self.equations.room.clear(rows)
        return error if np.isfinite(error) else np.inf

    def _check_stability(self) -> None:
        """Raise Unresolved if a disturbance of one step would grow, which a panel, being smooth, never shows."""
        nodes = len(self.grid)
        kernel = self.chain.kernel()[0, self.grid.last].real
        fastest = max(self._propagators, key=lambda group: abs(self._factors[group]))  # the kernel has their factors
        rate = self._propagators[fastest].rate[self.grid.last] / (self._factors[fastest] or 1.0)
        stiffness = float((rate.real * kernel).max())
        if stiffness <= _STIFFER * self._probed:
            return
        with ExitStack() as held:  # a schedule that is not smooth would seem to answer
            for group, propagator in self._propagators.items():
                held.enter_context(propagator.held(self._factors[group] * stiffness / kernel[-1]))
            for _ in range(PROBED):
                self._take(1.0)
                rows = self._place(1)[0]  # which may make room in new equations
                self.equations.fill(rows)
        answer = self._answer_to(nodes)
        for _ in range(PROBED):
            self.grid.remove()
        self.equations.room.clear(self.rows(slice(nodes, nodes + PROBED)))
        if grows(answer):
            raise self._at_the_edge()
        self._probed = stiffness

    def _place(self, length: int) -> tuple[slice, float]:
        """Append a set to the grid, and to the weights; return its rows and the misfit of the learning rate."""
        nodes, steps = self.grid.add(length), self.problem.steps
        if len(self.grid) * self._outputs > MOST_ROWS + PROBED * self._outputs and steps * self._outputs > MOST_ROWS:
            raise Unresolved(
                f"panels reached step {self.grid.end} of {steps} with {len(self.grid)} nodes: training does not become "
                "smooth enough; lower lr or steps, or raise tolerance"
            )
        if len(self.grid) > self.equations.c.structure.steps:
            self._resize(self._larger())
        rows, misfits = self.rows(nodes), [0.0]
        for group, propagator in self._propagators.items():
            lost, a, misfit = propagator.rows()
            self._weights.append(group, rows, lost[None], a[None])
            misfits.append(misfit)
        return rows, max(misfits)

    # Storage ---------------------------------------------------------------------------------------------

    def _larger(self) -> int:
        size, steps = self.equations.c.structure.steps, self.problem.steps
        return max(len(self.grid), min(steps, more_room(size, self._outputs)))

    def _allocate(self, size: int) -> None:
        """Make room for a number of nodes."""
        ends = [*self._phase_nodes[1:], *[size] * (1 + len(self.problem.stages) - len(self._phase_nodes))]
        lengths = np.diff(ends, prepend=0).tolist()
        shape = structure(self.problem, self._depth_nodes, size, lengths)
        needed = system.memory(shape, complex_numbers=is_complex(self.problem))
        memory.require(needed, "solving", "lower outputs, or raise tolerance")
        c = coefficients([self.problem], self._depth_nodes, size, lengths=lengths)
        room = Room(shape.size, c.gamma0, system.kept(shape))
        self._weights = growing_weights(c, room)
        self.equations = Equations(c, self._weights.layers, room)

    def _resize(self, size: int) -> None:
        """Take other equations with room for another number of nodes, and copy everything there."""
        before = self.equations.room
        self._allocate(size)
        before.copy_to(self.equations.room)

    # Sweeps ----------------------------------------------------------------------------------------------

    def _settle(self, rows: slice, previous: slice) -> float:
        """Solve for the rows of a panel; return the relative change of the last sweep."""
        eq, data, chain = self.equations, self.equations.data, self.chain
        responses, correlations = self._unknowns()
        for each in responses:
            each[rows] = guess.response(each, rows, self.rows(previous), self.grid, self._outputs)
        for C in [*correlations, *chain.correlations(), eq.data_covariances.Cv]:
            C[rows] = guess.constant(C, rows, self._outputs)
        unknown_responses = [Unknown(each, self._response_floor(rows)) for each in responses]
        unknown_correlations = [_correlation(C) for C in correlations]
        settled = max(_SETTLED * self._goal, 0.01 * _ROUNDING)
        closely = settled

        def sweep(respond: bool, correlate: bool, inner: float = _INNER[0]) -> None:
            self._take(_SWEEP_IN_DEPTH if self._depth_nodes else _SWEEP)
            chain.prepare(data.Rhr, rows)
            chain.backward(rows, respond=respond, correlate=correlate)
            if respond:
                self._sweep_data(rows, inner * closely)
            if correlate:
                _sweep_noise(eq.data_covariances, chain.Cg_first, rows, inner * closely)
            chain.forward(data.Rhr, rows, respond=respond, correlate=correlate)

        coarse: Any = {"tolerance": _COARSE, "most_sweeps": _SWEEPS // 2}
        if not settle(unknown_responses, lambda: sweep(True, False), rows, **coarse) < 0.1:
            return np.inf
        if not settle(unknown_correlations, lambda: sweep(False, True), rows, **coarse) < 0.1:
            return np.inf
        every = [*unknown_responses, *unknown_correlations]
        losses = 2 * [self._losses(rows)]

        def sweep_all(inner: float) -> None:
            sweep(True, True, inner)
            losses.append(self._losses(rows))

        # Losses can be small differences, which need more than what they are made of.
        for closer in (1.0, 1e-2, 1e-4):
            closely = max(closer * settled, NOISE)
            for inner in _INNER:
                residual = settle(every, partial(sweep_all, inner), rows, tolerance=closely, most_sweeps=_SWEEPS)
                if residual <= settled or not residual < _COARSE:
                    break
            change = float(_relative(losses[-1] - losses[-2], np.maximum(losses[-1], self._loss_floors)).max())
            if change <= settled or not residual <= settled:
                break
        return max(residual, change)

    def _sweep_data(self, rows: slice, tolerance: float) -> None:
        """Fill rows of layer 0's responses: R_Delta and the transfer functions need each other."""
        data, chain = self.equations.data, self.chain

        def sweep() -> None:
            data.step(chain.Rgu_hat_first(rows), chain.Cg_first, rows)

        if data.RDelta is None:
            sweep()
        else:
            settle([Unknown(data.RDelta)], sweep, rows, tolerance=tolerance, most_sweeps=_INNER_SWEEPS)

    def _response_floor(self, rows: slice) -> float:
        """A response is small where it makes no difference to 1 - gamma0 A Bhat, with Bhat about as large as a."""
        eq = self.equations
        every = [eq.weights.input, *eq.weights.hidden, eq.weights.readout]
        feedback = float(np.abs(eq.c.gamma0).max() * max(np.abs(w.a[rows]).max() for w in every))
        return _FLOOR / max(feedback, 1e-3)

    def _unknowns(self) -> tuple[list[Causal], list[Symmetric]]:
        """Responses and correlations that a sweep reads before it writes them."""
        eq = self.equations
        responses = [eq.data.Rhr, *self.chain.kernels()]
        if eq.data.RDelta is not None:
            responses.append(eq.data.RDelta)
        correlations = [*self.chain.sources()]
        if eq.data_covariances.noisy:
            correlations.append(eq.data_covariances.Cv)
        return responses, correlations

    # Errors ----------------------------------------------------------------------------------------------

    def _losses(self, rows: slice) -> Array:
        """Test loss, and train loss if it differs, per output at the nodes of a set, shape (1 or 2, nodes)."""
        return self._nudged_losses(rows).real

    def _nudged_losses(self, rows: slice) -> Array:
        """The same with the imaginary parts that belong to a derivative, if a field of the problem has one."""
        C0, outputs = self.equations.data_covariances, self._outputs
        nodes = slice(rows.start // outputs, rows.stop // outputs)
        test: Array = self.equations.loss_curve(nodes)[0] / outputs
        if not C0.noisy:
            return test[None]
        return np.stack([test, np.trace(C0.noise.CDelta_equal[0, nodes], axis1=-2, axis2=-1) / outputs])

    def _equal_times(self, rows: slice) -> list[Array]:
        """Losses, then C_h and C_g of the hidden layers, at the nodes of a set."""
        fields = (mean_diagonal(C.block(rows), self._outputs)[0].real for C in self.chain.correlations())
        return [*self._losses(rows), *fields]

    @property
    def _loss_floors(self) -> Array:
        """What losses are judged by if they are smaller, shape (1 or 2, 1)."""
        losses = 2 if self.equations.data_covariances.noisy else 1
        return np.array([[self.error_floor * each] for each in self._initial[:losses]])

    def _alternating(self) -> float:
        """Relative size of what still alternates in the losses of the last single steps; it would end with a panel."""
        count = min(len(self.grid), NODES + 1)
        if any(length > 1 for length in self.grid.lengths[-count:]):
            return 0.0
        losses = self._losses(self.rows(slice(len(self.grid) - count, len(self.grid))))
        differences = np.abs(np.diff(losses, n=count - 1, axis=1)) / 2.0 ** (count - 1)
        return float(_relative(differences, np.maximum(np.abs(losses[:, -1:]), self._loss_floors)).max())

    def _added_up(self, left: float) -> float:
        """What errors of panels, at most, have added up to where this part of the initial loss is left."""
        return max(1.0, -_TAIL * math.log10(max(left, self.error_floor)))

    def _truncation(self, rows: slice) -> float:
        """Relative size of what comes after the last coefficients of the panel's polynomials.

        Features that have died out only count through what they still add to the kernels, lr t C_h.
        """
        losses = len(self._loss_floors)
        added = float(np.abs(self.equations.weights.input.a[rows][0, -1]).sum()) / self._outputs
        worst = 0.0
        for index, (values, initial) in enumerate(zip(self._equal_times(rows), self._initial, strict=True)):
            floor = self.error_floor if index < losses else max(1.0 / (1.0 + added), NOISE / self.tolerance)
            scale = max(np.abs(values).min() if index < losses else np.abs(values).max(), floor * initial)
            worst = max(worst, rest(values, scale))
        derivatives = self._nudged_losses(slice(0, rows.stop)).imag
        for values, largest in zip(derivatives[:, -NODES:], np.abs(derivatives).max(axis=1), strict=True):
            worst = max(worst, rest(values, largest))
        return worst

    # Replicas --------------------------------------------------------------------------------------------

    @cached_property
    def overlaps(self) -> Overlaps:
        """Overlaps of replicas: their responses are those of one network, only the sources differ."""
        eq = self.equations
        (same_data, _), (same_init, chain) = eq.replica(same_data=True), eq.replica(same_data=False)
        assert chain is not None
        tolerance = _SETTLED * self.tolerance
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for nodes in self.grid.sets():
                rows = self.rows(nodes)
                if nodes.stop - nodes.start == 1:
                    eq.fill_covariances(rows, chain, same_init)
                    same_data.step(None, rows)
                    continue
                for C in [*chain.sources(), *chain.correlations(), same_init.Cv, same_data.Cv]:
                    C[rows] = guess.constant(C, rows, self._outputs)
                settle(
                    [_correlation(C) for C in chain.sources()],
                    partial(eq.fill_covariances, rows, chain, same_init),
                    rows,
                    tolerance=tolerance,
                    most_sweeps=_SWEEPS,
                )
                _sweep_noise(same_data, None, rows, tolerance, most_sweeps=_SWEEPS)
        return Overlaps(
            same=eq.equal_times.error,
            same_data=same_data.Cv.diagonal(),
            same_init=same_init.Cv.diagonal(),
            independent=eq.equal_times.bias,
        )


def _relative(change: Array, scale: Array) -> Array:
    """Size of a change over a scale: zero where there is none, also of what is zero."""
    size = np.abs(change)
    ratio: Array = np.where(size == 0, 0.0, size / scale)
    return ratio


def rates_of(problem: Problem) -> Array:
    """Learning rate at each step, shape (steps,)."""
    each = (stage.optimizer.rates(stage.of)[stage.since : stage.since + stage.steps] for stage in problem.stages)
    return np.concatenate(list(each))


def _least_loss(problem: Problem) -> float:
    """Label noise that is left on the training set when as much of it is fitted as there are directions."""
    data = problem.data
    left = (
        np.real(stage.noise) ** 2 * max(0.0, 1.0 - np.real(stage.sampling.reuse) * data.modes.weight.sum())
        for stage in problem.stages
    )
    return float(data.outputs * min(left))


def _sweep_noise(
    covariances: DataCovariances, Cg: Symmetric | None, rows: slice, tolerance: float, most_sweeps: int = _INNER_SWEEPS
) -> None:
    """Fill rows of layer 0's correlations: the noise and the error need each other."""
    if not covariances.noisy:
        covariances.step(Cg, rows)
    else:
        errors = [Unknown(covariances.Cv)]
        settle(errors, lambda: covariances.step(Cg, rows), rows, tolerance=tolerance, most_sweeps=most_sweeps)


def _correlation(C: Symmetric) -> Unknown:
    return Unknown(C, _FLOOR * max(float(np.abs(C.matrix[..., 0, 0]).max()), 1e-300))
