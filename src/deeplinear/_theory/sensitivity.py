"""Exact derivatives of the losses with respect to the continuous fields of a problem.

The equations are analytic in every field. So a field x is given a tiny imaginary part h, all of the solution becomes
complex, and Im loss(x + i h) / h is the derivative, with an error of order h^2 and no cancellation.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.drawn import Drawn
from deeplinear._core.refusal import Refusal
from deeplinear._problem.edit import Field, all_fields, field_names, find_field, get_field, get_part, replace_unchecked
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._rules.series import is_constant
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.panels.solver import Panels
from deeplinear._theory.curves import Curve, curves
from deeplinear._theory.status import Status

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

CONTINUOUS = (
    "lr", "richness", "width", "samples", "batch", "noise", "branch", "momentum", "weight_decay", "clip", "beta2",
    "rho", "beta",
)  # fmt: skip
"""Fields with derivatives, as far as a problem has them. Of phases it is ``target_overlap`` too."""

_CHOICE = Choice(tolerance=1e-8, only=("panels", "condensed", "dense"), most_rows=2400, patience=math.inf)
"""Long runs are solved by panels, or with a condensed past, to this relative error of their losses; derivatives are
about as accurate."""

_MOST_NAMES = 1000

_STEP = 1e-30
"""Imaginary part, as a fraction of the value unless that is zero: its square is below all rounding."""

_SMALLEST = 1e-260
"""Values below this have no derivative: their imaginary parts would be next to the smallest numbers."""


@dataclass(frozen=True, eq=False)
class Sensitivity(Drawn):
    """How the losses respond to small changes in the fields of a problem.

    From the step of a divergence on, losses are ``inf`` and derivatives ``nan``.

    Attributes
    ----------
    problem
        Where the derivatives are taken.
    times
        Steps t = 0 .. T-1, or about 400 of them where a long run is solved by panels (see ``solve``), shape (times,).
    test_loss, train_loss
        The losses themselves, shape (times,).
    d_test_loss, d_train_loss
        Their derivatives by name of the field, each of shape (times,).
    at
        Value of each field; 1 for a field with several values (a schedule, widths by layer), whose derivative is with
        respect to a common factor.
    status
        Whether training diverged, and when.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> print(sensitivity(problem, ["lr", "noise"]))
    at step 19          value     d test loss    d train loss
    lr                   0.05          -4.299           -3.34
    noise                 0.5           1.339          0.5602
    """

    problem: Problem
    times: NDArray[np.int64] = field(repr=False)
    test_loss: Array = field(repr=False)
    train_loss: Array = field(repr=False)
    d_test_loss: Mapping[str, Array] = field(repr=False)
    d_train_loss: Mapping[str, Array] = field(repr=False)
    at: Mapping[str, float]
    status: Status

    def to_xarray(self) -> "xr.Dataset":
        """Return everything with named axes, field and time; the problem is in the attributes, as TOML."""
        import xarray as xr  # slow to import

        names = list(self.at)
        return xr.Dataset(
            {
                "test_loss": ("time", self.test_loss),
                "train_loss": ("time", self.train_loss),
                "d_test_loss": (("field", "time"), np.stack([self.d_test_loss[name] for name in names])),
                "d_train_loss": (("field", "time"), np.stack([self.d_train_loss[name] for name in names])),
            },
            {"field": names, "time": self.times, "value": ("field", [self.at[name] for name in names])},
            {"problem": self.problem.to_toml()},
        )

    def __str__(self) -> str:
        names = {name: name if is_constant(get_field(self.problem, name)) else f"{name} factor" for name in self.at}
        long = max(12, *map(len, names.values()))
        lines = [f"{f'at step {self.times[-1]}':{long}}{'value':>13}{'d test loss':>16}{'d train loss':>16}"]
        for name, value in self.at.items():
            last = f"{self.d_test_loss[name][-1]:16.4g}{self.d_train_loss[name][-1]:16.4g}"
            lines.append(f"{names[name]:{long}}{value:13.4g}{last}")
        if self.status.diverged:
            lines.append(str(self.status))
        elif any(np.isnan(each[-1]) for slopes in (self.d_test_loss, self.d_train_loss) for each in slopes.values()):
            lines.append("nan: not known, as numbers on the way to it leave their range")
        return "\n".join(lines)


def sensitivity(problem: Problem, wrt: str | Iterable[str] | None = None) -> Sensitivity:
    """Differentiate the losses with respect to fields of a problem, exactly.

    Each field costs about two to three solutions of the problem. Long runs that ``solve`` would give to panels are
    solved, and differentiated, by them, to a relative error of about 1e-8, and other long ones with a condensed past.
    Panels do not work with momentum, so derivatives with respect to momentum are found by solving every step.

    Parameters
    ----------
    problem
        Where to differentiate.
    wrt
        Names of fields: ``lr``, ``richness``, ``width``, ``samples``, ``batch``, ``noise``, ``branch``, ``momentum``,
        ``weight_decay``, ``clip``, ``beta2``, ``rho``, ``beta``, if the problem has them; by default all of these, but
        ``momentum`` only where every step is solved anyway. All else is held fixed: when the width of an NTK network
        changes, for example, ``richness`` is fixed rather than gamma0, and so are any values that phases set
        themselves. Fields of phases, which are counted from 0, and of a rule inside another are given with their path:
        ``phases.1.lr``, ``phases.1.noise``, ``phases.1.target_overlap``, ``other.lr``. For a number that depends on the
        step, and for widths given by layer, the derivative is with respect to a common factor, at 1.

    Raises
    ------
    ValueError
        If a name is not a continuous field of the problem; an infinite ``width`` is not continuous, and neither is
        a field of a phase that is None.
    MemoryError
        Before solving, if the matrices do not fit into the memory available.
    ArithmeticError
        If a long run is not resolved, as for ``solve``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width="infinite", parameterization="ntk", centered=True),
    ...     dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3,
    ... )
    >>> sensitivity(problem, "lr").d_test_loss["lr"]  # of (1 - 2 lr)^(2 t)
    array([ 0.   , -3.2  , -4.096])

    How much fine-tuning gains from a target similar to the first:

    >>> tuned = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.05), steps=20,
    ...     phases=(dl.Phase(10), dl.Phase(10, target_overlap=0.5)),
    ... )
    >>> print(sensitivity(tuned, ["phases.1.target_overlap"]))
    at step 19                     value     d test loss    d train loss
    phases.1.target_overlap          0.5         -0.2371         -0.2371
    """
    check_problem(problem)
    names = _names(problem, wrt)
    solved = derivatives([(problem, name) for name in names], choice=_CHOICE)
    if _is_long(problem):
        solved = [each.spaced() for each in solved]
    first = solved[0]
    return Sensitivity(
        problem=problem,
        times=first.value.times,
        test_loss=np.maximum(first.value.test_loss, 0.0),
        train_loss=np.maximum(first.value.train_loss, 0.0),
        d_test_loss={name: each.slope.test_loss for name, each in zip(names, solved, strict=True)},
        d_train_loss={name: each.slope.train_loss for name, each in zip(names, solved, strict=True)},
        at={name: value_of(problem, name) for name in names},
        status=Status(first.value.diverged_at),
    )


@dataclass(frozen=True)
class Derivative:
    """Losses of a problem, and their derivative with respect to one field."""

    value: Curve
    slope: Curve

    def spaced(self) -> "Derivative":
        """Return it at spaced steps."""
        return Derivative(self.value.spaced(), self.slope.spaced())


def derivatives(
    points: Sequence[tuple[Problem, str]],
    advance: Callable[[float], object] | None = None,
    choice: Choice | None = None,
) -> list[Derivative]:
    """Differentiate many problems, each with respect to one named field; all else is as for ``curves``."""
    sizes = [_step_from(value_of(problem, name)) for problem, name in points]
    nudged = [_nudged(problem, name, size) for (problem, name), size in zip(points, sizes, strict=True)]
    solved = curves(nudged, choice, advance)
    return [_parts(curve, size) for curve, size in zip(solved, sizes, strict=True)]


def _step_from(value: float) -> float:
    """Return the size of an imaginary part, whose square is no part of the value, and which is a number."""
    size = abs(value) or 1.0
    return max(_STEP * size, min(_SMALLEST, 1e-8 * size))


def _is_long(problem: Problem) -> bool:
    """Whether panels are taken."""
    return _CHOICE.solver(problem).name == Panels.name


def value_of(problem: Problem, name: str) -> float:
    """Return the value of a continuous field; 1 if it has several, of which a common factor is then varied."""
    value = get_field(problem, name)
    return value if isinstance(value, float) else 1.0


def _nudged(problem: Problem, name: str, size: float) -> Problem:
    """Give a field an imaginary part."""
    value = get_field(problem, name)
    changed: Any
    if not is_constant(value):
        values = value if isinstance(value, tuple) else _every_step(problem, find_field(problem, name))
        changed = tuple(complex(each) * (1 + 1j * size) for each in values)
    else:
        changed = complex(value, size)
    return replace_unchecked(problem, {name: changed})


def _every_step(problem: Problem, field: Field) -> NDArray[Any]:
    """Return the values that a schedule takes at every step of the rule that has it."""
    rule = get_part(problem, field.path)
    series = {"lr": "rates", "momentum": "momenta", "weight_decay": "decays", "batch": "batches"}
    stages, phase = problem.stages, int(field.path[1]) if field.path[0] == "phases" else 0
    steps = stages[phase].of_samples if field.name == "batch" else stages[phase].of
    values: NDArray[Any] = getattr(rule, series[field.name])(steps if field.path[0] == "phases" else problem.steps)
    return values


def _parts(curve: Curve, size: float) -> Derivative:
    """Split a complex curve into losses and their derivatives."""
    times, end = curve.times, curve.diverged_at

    def slope(loss: NDArray[Any]) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # after a divergence, or next to zero
            parts: Array = loss.imag / size
        parts[times >= (np.inf if end is None else end)] = np.nan
        return parts

    value = Curve(curve.axis, curve.test_loss.real, curve.train_loss.real, end)
    return Derivative(value, Curve(curve.axis, slope(curve.test_loss), slope(curve.train_loss), end))


def _names(problem: Problem, wrt: Any) -> tuple[str, ...]:
    own = field_names(problem)
    refused = _refused(problem)
    allowed = [name for name in CONTINUOUS if name in own and name not in refused]
    if wrt is None:
        is_long = _is_long(problem)
        return tuple(name for name in allowed if not (is_long and name == "momentum"))
    names = (wrt,) if isinstance(wrt, str) else tuple(checks.listed("wrt", wrt, _MOST_NAMES, of="names"))
    for name in names:
        if not isinstance(name, str) or (name not in allowed and not _is_inside(problem, name)):
            why = f": {refused.get(name, f'{name} does not change continuously')}" if str(name) in own else ""
            raise Refusal("wrt", name, f"among {', '.join(allowed)} for this problem", rest=why)
    if not names or len(set(names)) < len(names):
        raise Refusal("wrt", list(names), "one or more distinct names")
    return names


def _is_inside(problem: Problem, name: Any) -> bool:
    """Whether a name with a path to it is that of a continuous field, which has a value."""
    inside = [field for field in all_fields(problem) if "." in str(name) and name in (field.short, str(field))]
    if not inside or inside[0].name not in (*CONTINUOUS, "target_overlap") or inside[0].short in _refused(problem):
        return False
    return get_field(problem, name) is not None


def _refused(problem: Problem) -> dict[str, str]:
    """Continuous fields without a derivative at this problem, and why."""
    refused = {}
    if math.isinf(problem.network.end_widths[0]):
        refused["width"] = "the width is infinite"
    for name in (name for name in CONTINUOUS if name in field_names(problem)):
        if 0.0 < abs(value_of(problem, name)) < _SMALLEST:
            refused[name] = f"{name} is below {_SMALLEST:g}, where derivatives are lost in rounding"
    if problem.optimizer.scaling is None:
        refused["clip"] = "nothing is clipped"
    return refused
