"""Problems as the Python lines that make them."""

import math
from typing import Any

import deeplinear as dl
from deeplinear._core.about import Described, described
from deeplinear._core.refusal import Refusal
from deeplinear._explore.experiments import with_modes
from deeplinear._explore.problems import DRAWN, UPLOADED, read_knots, read_problem
from deeplinear._explore.uploads import columns_of, read_file


def file_of(document: Any) -> str | None:
    """Return the file that a problem has its data from."""
    data = document.get("data") if isinstance(document, dict) else None
    is_file = isinstance(data, dict) and data.get("type") == UPLOADED
    return read_file(data.get("file")) if is_file and data is not None else None


def rows_lines(file: str) -> list[str]:
    """Return lines that read the rows of a data set."""
    name, columns = file[17:], columns_of(file)
    if columns is None:
        return [f"rows = np.load({name!r})", 'x, y = rows["x"], rows["y"]']
    skip = f", skiprows={columns.skip}" if columns.skip else ""
    return [
        f'rows = np.loadtxt({name!r}, delimiter={columns.split!r}{skip}, encoding="utf-8-sig")',
        f"y = rows[:, {columns.targets!r}]",
        f"x = np.delete(rows, {columns.targets!r}, axis=1)",
    ]


def problem_lines(document: Any, indent: str = "    ") -> str:
    """Return the call that makes a problem."""
    problem, file = read_problem(document), file_of(document)
    inner = indent + "    "
    return "\n".join(
        [
            "dl.Problem(",
            f"{inner}network={_part(problem.network)},",
            f"{inner}data={_part(problem.data) if file is None else 'dl.Spectrum.from_data(x, y)'},",
            f"{inner}sampling={_part(problem.sampling)},",
            f"{inner}optimizer={_part(problem.optimizer, _drawn_rate(document, problem.steps))},",
            f"{inner}steps={problem.steps},",
            *([f"{inner}phases=({', '.join(map(_phase, problem.phases))}),"] if problem.phases else []),
            f"{indent})",
        ]
    )


def experiment_lines(curve: dict[str, Any], losses: tuple[str, ...]) -> list[str]:
    """Return lines that train networks on ``problem`` and draw them."""
    dim, seeds = _experiment(curve["experiment"])
    problem, file = read_problem(curve.get("problem")), file_of(curve.get("problem"))
    compared = with_modes(problem, dim)
    law = problem.data
    modes = (
        [] if compared is problem else [f"problem = problem.replace(data={_law(law, dim)})  # as networks have them"]
    )
    call = f"problem, dim={dim}, seeds={seeds}" if file is None else f"problem, seeds={seeds}, data=(x, y)"
    return [
        *modes,
        f'networks = dl.simulate({call}, record="losses")',
        f"for loss in {losses!r}:",
        "    mean, error = networks.mean(loss), networks.standard_error(loss)",
        '    ax.plot(networks.times, mean, color=color, label=f"{name}: networks, {loss}")',
        "    ax.fill_between(networks.times, mean - error, mean + error, color=color, alpha=0.25)",
        "print(dl.compare(dl.solve(problem), networks))",
    ]


def _law(law: Any, dim: int) -> str:
    noise = f", noise={law.noise!r}" if law.noise else ""
    return f"dl.Spectrum.power_law({law.capacity!r}, {law.source!r}, modes={dim}{noise})"


def _experiment(document: Any) -> tuple[int, int]:
    dim, seeds = (document.get("dim"), document.get("seeds")) if isinstance(document, dict) else (None, None)
    if type(dim) is not int or type(seeds) is not int or min(dim, seeds) < 1:
        allowed = "an object with whole numbers dim and seeds"
        raise Refusal("experiment", document, allowed, got=f"{document!r:.60}")
    return dim, seeds


def _drawn_rate(document: dict[str, Any], steps: int) -> dict[str, str]:
    """Return the learning rate of a schedule that was drawn, as it is written."""
    optimizer = document["optimizer"]
    if optimizer.get("schedule") != DRAWN:
        return {}
    at, factors = read_knots(optimizer.get("knots"))
    return {"lr": f"{optimizer['lr']!r} * np.interp(np.linspace(0, 1, {steps}), {at!r}, {factors!r})"}


def _phase(phase: dl.Phase) -> str:
    return _part(phase, name="Phase")


def _part(part: Any, written: dict[str, str] | None = None, name: str = "") -> str:
    """Write one part with the values that differ from their defaults, some of which are ``written`` already."""
    given = written or {}
    values = [
        f"{each.name}={given.get(each.name) or _value(each, getattr(part, each.name))}"
        for each in described(part)
        if getattr(part, each.name) != each.default
    ]
    return f"dl.{name or part.kind.call or type(part).__name__}({', '.join(values)})"


def _value(each: Described, value: Any) -> str:
    if isinstance(value, dl.schedules.Schedule):
        return f"dl.{value!r}"
    if each.about.form == "rule":  # within another, or within a phase
        return _part(value)
    return "math.inf" if value == math.inf else repr(value)
