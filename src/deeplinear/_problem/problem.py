"""One training problem: network, data, sampling, optimizer and horizon meet here."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, AboutPart, check_fields, keep, parts_of
from deeplinear._core.cached import cached_property
from deeplinear._core.files import parse_toml, read_toml, write_atomically
from deeplinear._core.refusal import Refusal, check_names, gather_unknown
from deeplinear._problem.data import Isotropic, Modes
from deeplinear._problem.network import MLP, Network, ResNet
from deeplinear._problem.phase import ABOUT_OPTIMIZER, ABOUT_SAMPLING, AnyOptimizer, Phase, Stage, first_phases, stages
from deeplinear._problem.quadrature import MOST_OF_A_STEP
from deeplinear._problem.sampling import Sampling
from deeplinear._problem.spectrum import PowerLaw, Spectrum
from deeplinear._problem.tables import phase_table, read_part, read_phase, table_of
from deeplinear._rules.layers import check_count, every_layer
from deeplinear._rules.rule import ORTHOGONAL, SIZED, SIZED_BY_LAYER, Rule
from deeplinear._rules.series import is_constant

_NETWORK = AboutPart("Network", "What is trained: layers of linear neurons, from random weights.", (MLP, ResNet), MLP)
_DATA = AboutPart(
    "Data",
    "What there is to learn: a linear rule, seen through random examples.",
    (Isotropic, Spectrum, PowerLaw),
    Isotropic,
)
_STEPS = About(
    "Training steps",
    "How long to train.",
    "whole",
    symbol="T",
    check=checks.Whole(),
    start=200,
    usual=(10, 1000),
    log=True,
)


_FEWEST, _MOST = 64, 65536
"""Ratios between which whole ones look like counts; larger ones are rather meant to be as good as infinite."""


@dataclass(frozen=True)
class Problem:
    """What is trained, on what, how, and for how long.

    Parameters
    ----------
    network, data, sampling, optimizer
        The four parts; see their own pages.
    steps
        Number T of values on each curve, at t = 0 .. T-1, each taken before its update.
    phases
        Parts of training that follow one another and differ in targets, samples or rules; empty if there is one.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=2, width=1.0),
    ...     data=dl.Isotropic(noise=0.1),
    ...     sampling=dl.FullBatch(samples=2.0),
    ...     optimizer=dl.GradientDescent(lr=0.05),
    ...     steps=100,
    ... )
    >>> dl.Problem.from_toml(problem.to_toml()) == problem
    True
    """

    network: MLP | ResNet = field(metadata=_NETWORK.metadata)
    data: Isotropic | Spectrum = field(metadata=_DATA.metadata)
    sampling: Sampling = field(metadata=ABOUT_SAMPLING.metadata)
    optimizer: AnyOptimizer = field(metadata=ABOUT_OPTIMIZER.metadata)
    steps: int = field(metadata=_STEPS.metadata)
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        for name, kinds in PARTS.items():
            if not isinstance(value := getattr(self, name), (*kinds, Rule) if name == "optimizer" else kinds):
                given = f"the class itself: write {value.__name__}(...)" if isinstance(value, type) else None
                raise Refusal(name, value, " or ".join(parts_of(Problem)[name].classes), got=given)
        check_fields(self)
        self._check_phases()
        for stage in self.stages:
            stage.optimizer.check(stage.of)
            if stage.sampling.changes_in_time:
                stage.sampling.subsampling(stage.of_samples)
            for name in ("layer_lr", "layer_decay"):
                check_count(name, getattr(stage.optimizer.plain, name), self.network.hidden_matrices)
            self._check_limits(stage)
        small_batch = self.sampling.small_batch or any(stage.sampling.small_batch for stage in self.stages)
        if small_batch and not (self.data.dimension_free and self.data.outputs == 1):
            raise Refusal(
                "small_batch",
                True,
                "False unless the data are dimension-free and have one output",
                rest=": in units of the input dimension no batch is small",
            )

    def _check_phases(self) -> None:
        if not isinstance(self.phases, Iterable):
            raise Refusal("phases", self.phases, "a sequence of Phase")
        keep(self, phases=tuple(self.phases))
        for phase in self.phases:
            if not isinstance(phase, Phase):
                raise Refusal("phases", phase, "a sequence of Phase")
        if self.phases and (total := sum(phase.steps for phase in self.phases)) != self.steps:
            raise Refusal(
                "phases", self.phases, f"the {self.steps} steps of the problem", verb="add up to", got=f"{total} steps"
            )
        if self.phases and self.phases[0].target_overlap != 1.0:
            allowed = "1 in the first phase, which has no target before it"
            raise Refusal("target_overlap", self.phases[0].target_overlap, allowed)

    def _check_limits(self, stage: Stage) -> None:
        """Refuse update rules that have no limit of infinite depth or width, or that sampling does not go with."""
        rule, name = stage.optimizer, type(stage.optimizer).__name__
        traits = rule.traits
        if traits.apart and self.network.hidden_matrices is None:
            allowed = "a rule that does not treat layers separately at infinite depth"
            why = ": their sizes are not kept there; take a finite depth"
            raise Refusal("optimizer", rule, allowed, got=name, rest=why)
        if rule.is_own and traits.looks > 1 and self.network.branches_vanish:
            why = ": what a look moves hidden weights by is not known there; take a finite depth"
            raise Refusal("optimizer", rule, "a rule that looks once in a step", got=name, rest=why)
        if traits.runs_along and self.network.gamma0 == 0:
            allowed = "GradientDescent without clip in the lazy limit (NTK at infinite width)"
            raise Refusal("optimizer", rule, allowed, got=name, rest=": gradients vanish there")
        if self.network.branches_vanish and rule.plain.has_decay(stage.of) and self.layer_decays(rule)[1]:
            allowed = "0 for hidden weights at infinite depth with branch_scaling above 0.5"
            why = ": it grows with the depth, as their rate does; take layer_decay={'hidden': 0} or a finite depth"
            raise Refusal("weight_decay", rule.plain.weight_decay, allowed, rest=why)

    @property
    def hint(self) -> str:
        """What was probably meant if a ratio looks like a count, such as a width of 512; empty if none does.

        Examples
        --------
        >>> import deeplinear as dl
        >>> network, optimizer = dl.MLP(depth=2, width=512), dl.GradientDescent(0.1)
        >>> dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10).hint
        'width 512 is 512 times the input dimension D here; for 512 neurons write 512 / D, which is 1 if D = 512'
        """
        sizes = {"width": self.network.given_widths} | {name: (size,) for name, size in self.sampling.sizes.items()}
        for name, values in sizes.items():
            for value in () if self.data.dimension_free else values:
                if isinstance(value, float) and value.is_integer() and _FEWEST <= value <= _MOST:  # type: ignore[redundant-expr]
                    of = {"width": "neurons", "samples": "samples", "batch": "samples in a batch"}[name]
                    meant = f"for {value:g} {of} write {value:g} / D, which is 1 if D = {value:g}"
                    return f"{name} {value:g} is {value:g} times the input dimension D here; {meant}"
        return ""

    @property
    def lr(self) -> Any:
        """Learning rate of the optimizer, as it was given; ``replace(lr=...)`` changes it."""
        return self.optimizer.lr

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The phases with everything filled in; one where there are none."""
        return stages(self.phases or (Phase(self.steps),), self.sampling, self.data.noise, self.optimizer, self.steps)

    @cached_property
    def modes(self) -> Modes:
        """Modes of the data, as the equations take them: those that training over so many steps tells apart."""
        return self.data.modes_within(self._horizon, self.largest_momentum)

    @property
    def _horizon(self) -> float:
        """A time beyond which training does not get, in units of the slowness of the fastest mode.

        Training is stable only if a step takes each mode some 2 of these at most, and momentum adds up steps. Other
        rules may do anything.
        """
        rules = [stage.optimizer for stage in self.stages]
        if not all(rule.is_plain and is_constant(rule.momentum) for rule in rules):
            return math.inf
        return MOST_OF_A_STEP * self.steps / (1.0 - self.largest_momentum)

    @property
    def largest_momentum(self) -> float:
        """The largest momentum of all steps. Where gradients are taken near a mean of weights, modes swing likewise."""
        found = [0.0]
        for stage in self.stages:
            rule = stage.optimizer
            for each in (rule, rule.plain):
                found.append(each.momenta(1 if is_constant(each.momentum) else stage.of).real.max())
            found.append(rule.averaging or 0.0)
        return float(max(np.real(found)))

    @cached_property
    def is_complex(self) -> bool:
        """Whether a field is complex, as in derivatives by complex step."""
        own: list[Any] = [self.network, self.data, self.sampling, self.optimizer, self.optimizer.plain]
        for phase in self.phases:
            rules = (phase.sampling, phase.optimizer, phase.optimizer and phase.optimizer.plain)
            own += [phase, *(rule for rule in rules if rule is not None)]
        real = (float, int, str, type(None))  # most fields, at a glance
        return any(
            np.iscomplexobj(value) for part in own for value in vars(part).values() if not isinstance(value, real)
        )

    @property
    def label_noise(self) -> NDArray[Any]:
        """Part of the test loss that is the noise of its labels, which nothing can lower, in each phase."""
        noise: NDArray[Any] = self.data.outputs * np.array([stage.noise for stage in self.stages]) ** 2
        return noise

    def first(self, steps: int) -> "Problem":
        """Return the problem of the first steps alone, which are the same whatever follows."""
        return replace(
            self,
            steps=steps,
            sampling=self.sampling.first(steps, self.steps),
            optimizer=self.optimizer.first(steps, self.steps),
            phases=first_phases(self.phases, steps),
        )

    @property
    def summary(self) -> str:
        """The network and the number of steps in a few words."""
        return f"{type(self.network).__name__} depth {self.network.depth}, {self.steps} steps"

    def replace(self, values: Mapping[str, Any] | None = None, /, **fields: Any) -> "Problem":
        """Return the problem with other values in some of its fields, checked as at construction.

        Parameters
        ----------
        values
            New values by full name, such as ``"optimizer.lr"``.
        fields
            New values by name: fields of any part (``lr``, ``width``, ``noise``, ``steps``), or whole parts
            (``sampling``). Fields that are given beside a new part belong to it.

        Examples
        --------
        >>> import deeplinear as dl
        >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
        >>> problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10)
        >>> other = problem.replace(lr=0.05, width=2.0, sampling=dl.OnlineSGD(0.5))
        >>> other.optimizer.lr, other.network.width, other.sampling
        (0.05, 2.0, OnlineSGD(batch=0.5, small_batch=False))
        """
        from deeplinear._problem.edit import replace as replace_named  # it knows problems

        return replace_named(self, {**(values or {}), **fields})

    def units(self, rule: Rule) -> tuple[NDArray[Any], NDArray[Any]]:
        """Units of a rule's rate in each weight layer, first to last, and the factor on the squared size of gradients.

        At infinite depth one entry stands for all hidden matrices. Standard weights are W_l over the root of the
        fan-in, so their gradients are larger by that root. The arrays are to be read only.
        """
        return _units(self.network, rule.unit)

    def layer_rates(self, optimizer: Rule) -> NDArray[Any]:
        """Factor on the learning rate of each weight layer, first to last, shape (L + 1,)."""
        plain = optimizer.plain
        factors: NDArray[Any] = every_layer("layer_lr", plain.layer_lr, self.network.hidden_matrices)
        rates: NDArray[Any] = self.units(plain)[0] * factors
        rates.setflags(write=False)
        return rates

    def layer_decays(self, optimizer: Rule) -> NDArray[Any]:
        """Factor on the weight decay of each weight layer, first to last, likewise."""
        return every_layer("layer_decay", optimizer.plain.layer_decay, self.network.hidden_matrices)

    def __getstate__(self) -> dict[str, Any]:
        """A learning-rate function goes to another process as its values, as it does to a file."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        phases = [
            replace(phase, optimizer=phase.optimizer and phase.optimizer.tabulated(stage.of))
            for phase, stage in zip(self.phases, self.stages, strict=False)
        ]
        return state | {"optimizer": self.optimizer.tabulated(self.steps), "phases": tuple(phases)}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Problem":
        return self  # nothing about it can change

    def to_toml(self) -> str:
        """Return the problem as TOML text; a learning-rate function is written as its values."""
        document: dict[str, Any] = {"steps": self.steps}
        state = self.__getstate__()
        for name in PARTS:
            document[name] = table_of(state[name])
        if self.phases:
            document["phases"] = [phase_table(phase) for phase in state["phases"]]
        return tomli_w.dumps(document)

    @classmethod
    def from_toml(cls, text: str) -> "Problem":
        """Read a problem from TOML text such as ``to_toml`` writes; unknown names are refused."""
        if not isinstance(text, str):
            raise Refusal("text", text, "TOML, as a string")
        return cls.from_dict(parse_toml(text))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Problem":
        """Build a problem from nested dictionaries, as read from TOML."""
        given = {name: about for name, about in parts_of(cls).items() if name in document}
        tables = document.get("phases", [])
        if not isinstance(tables, list):
            raise Refusal("phases", tables, "a list of tables")
        _, *read = gather_unknown(
            [
                partial(check_names, "the problem", document, [*PARTS, "steps", "phases"]),
                *(partial(read_part, name, document[name], about) for name, about in given.items()),
                *(partial(read_phase, table) for table in tables),
            ]
        )
        missing = [name for name in [*PARTS, "steps"] if name not in document]
        if missing:
            raise ValueError(f"the problem must have {', '.join([*PARTS, 'steps'])}; missing: {', '.join(missing)}")
        parts = dict(zip(given, read, strict=False))
        return cls(**parts, steps=document["steps"], phases=tuple(read[len(given) :]))

    def to_pytorch_code(self, dim: int | None = None) -> str:
        """Return a short script that trains a network of this problem with plain PyTorch, and prints its losses.

        The script needs PyTorch but nothing from this library. It draws its own target, data and weights, so that its
        losses are those of ``simulate`` in distribution; ``deeplinear.torch`` gives them exactly.

        Parameters
        ----------
        dim
            Input dimension D, as in ``simulate``.

        Raises
        ------
        ValueError
            If the network is infinite, or ``torch.optim.SGD`` does not offer the rule: there are phases, the optimiser
            is not a ``GradientDescent``, it clips, or momentum or weight decay depend on the step.

        Examples
        --------
        >>> import deeplinear as dl
        >>> problem = dl.Problem(
        ...     dl.MLP(depth=1, width=0.5), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=20
        ... )
        >>> for line in problem.to_pytorch_code(dim=16).splitlines():
        ...     if line.startswith(("INIT_STD", "MULTIPLIER", "ETA", "RATES")):
        ...         print(line)
        INIT_STD = [0.25, 1.0]
        MULTIPLIER = 0.5
        ETA = 0.1
        RATES = [0.5, 8.0]
        """
        from deeplinear._torch.script import pytorch_script  # of the experiment's side, which imports problems

        return pytorch_script(self, dim)

    def save(self, path: str | Path) -> None:
        """Write the problem to a TOML file."""
        write_atomically(path, lambda temporary: temporary.write_text(self.to_toml(), encoding="utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> "Problem":
        """Read a problem from a TOML file."""
        document = read_toml(path)
        try:
            return cls.from_dict(document)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def check_problem(problem: Any) -> None:
    """Refuse what is no problem."""
    if not isinstance(problem, Problem):
        raise Refusal("problem", problem, "a Problem")


PARTS: dict[str, tuple[type, ...]] = {name: tuple(about.kinds) for name, about in parts_of(Problem).items()}
"""The kinds that each part of a problem may take; the first is the default in a TOML file. There may be other rules."""


def _units(network: Network, unit: str) -> tuple[NDArray[Any], NDArray[Any]]:
    # Networks with 1 and with 1 + 0j are equal.
    return (_units_of if any(map(np.iscomplexobj, vars(network).values())) else _units_once)(network, unit)


def _units_of(network: Network, unit: str) -> tuple[NDArray[Any], NDArray[Any]]:
    fan_ins = network.fan_ins
    rates, sizes = fan_ins.copy(), np.ones_like(fan_ins)
    if unit in (SIZED, SIZED_BY_LAYER):
        rates = sizes = fan_ins / fan_ins[-1]  # eq-standard-size
    elif unit == ORTHOGONAL:
        # Steps are as large as initial weights, sqrt(N_{l+1}); those of standard weights, as sqrt(N_l).
        rates = np.sqrt(fan_ins / np.append(fan_ins[1:], fan_ins[-1]))  # eq-standard-size
    rates = np.array(rates)
    rates[1:-1] *= network.branch_rate(own_size=unit in (SIZED_BY_LAYER, ORTHOGONAL))
    for array in (rates, sizes):
        array.setflags(write=False)
    return rates, sizes


_units_once = lru_cache(maxsize=64)(_units_of)  # many problems have the same
