"""A view of the page as the Python lines that produce it."""

import math
from collections.abc import Callable
from typing import Any

from deeplinear._core.dataset import FIELDS, LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._explore.averages import read_average
from deeplinear._explore.curvature import VECTORS, looked_at
from deeplinear._explore.geometry import read_along
from deeplinear._explore.kinds import KINDS, read_kind
from deeplinear._explore.planning import FACTORS
from deeplinear._explore.problems import read_problem
from deeplinear._explore.rates import GRID
from deeplinear._explore.written import experiment_lines, file_of, problem_lines, rows_lines

VIEWS = (
    "loss", "kernel", "decomposition", "correlations", "rates", "sharpness", "landscape", "weights", "schedule", "plan",
)  # fmt: skip
_MOST_CURVES, _MOST_RATES = 12, 400

_LABELS = {
    "loss": "loss",
    "kernel": "tangent kernel",
    "decomposition": "part of the test loss",
    "rates": "loss",
    "sharpness": "curvature of the training loss",
    "landscape": "loss",
    "schedule": "loss",
}


def python_lines(view: dict[str, Any]) -> str:
    """Return Python code that draws what the page shows.

    Parameters
    ----------
    view
        ``view``, one of ``VIEWS``; ``curves``, a list of ``name``, ``color``, ``problem`` and, if networks were
        trained, ``experiment`` with ``dim`` and ``seeds``, or ``rates`` that were drawn; ``x`` and ``y``, "linear" or
        "log"; ``train``, whether the train loss is shown; of correlations ``kind``, ``layer`` and whether they are
        ``relative``; of a landscape the line ``along`` which it is seen; of losses the ``average`` of weights.

    Raises
    ------
    ValueError
        If the view cannot be shown.
    """
    what, curves = view.get("view"), view.get("curves")
    if what not in VIEWS:
        raise Refusal("view", what, f"{' or '.join(VIEWS)}")
    if not isinstance(curves, list) or not 1 <= len(curves) <= _MOST_CURVES:
        raise Refusal("curves", curves, f"a list of 1 to {_MOST_CURVES}", got=f"{curves!r:.60}")
    if not all(isinstance(curve, dict) for curve in curves):
        raise Refusal("curves", curves, "objects", text="curves must be objects")
    if what in _ALONE:
        body = _ALONE[what](curves[0], view)
    else:
        body = "\n".join(
            [
                _curves(curves),
                "",
                "fig, ax = plt.subplots()",
                *_drawn(what, curves, view),
                *_axes(what, view),
            ]
        )
    files = {file for curve in curves if (file := file_of(curve.get("problem")))}
    if len(files) > 1:
        raise Refusal("curves", None, "of one data set", text="code can be written for one data set at a time")
    body = "\n".join([*(line for file in files for line in rows_lines(file)), body])
    imports = ["import dataclasses", ""] if what == "rates" else []
    imports = ["import math", *imports] if "math." in body else imports
    plots = ["import matplotlib.pyplot as plt", *(["import numpy as np"] if "np." in body else [])]
    header = [
        *imports,
        *([] if imports[-1:] == [""] or not imports else [""]),
        *plots,
        "",
        "import deeplinear as dl",
        "",
    ]
    return "\n".join([*header, body, "plt.show()", ""])


def _drawn(what: str, curves: list[dict[str, Any]], view: dict[str, Any]) -> list[str]:
    """Lines that draw the curves of a view."""
    train = view.get("train") is True
    if what == "landscape":
        return _landscape(view)
    if what == "loss":
        return _draw_loss(curves, train, read_average(view.get("average")))
    return _DRAW[what](curves, train)


def _curves(curves: list[dict[str, Any]]) -> str:
    lines = ["curves = ["]
    for curve in curves:
        lines.append(
            f"    ({_text(curve, 'name')!r}, {_text(curve, 'color')!r}, {problem_lines(curve.get('problem'))}),"
        )
    return "\n".join([*lines, "]"])


def _text(curve: dict[str, Any], key: str) -> str:
    value = curve.get(key)
    if not isinstance(value, str) or len(value) > 100:
        raise Refusal(f"{key} of a curve", value, "a short text", got=f"{value!r:.60}")
    return value


def _draw_loss(curves: list[dict[str, Any]], train: bool, average: Any = None) -> list[str]:
    losses = LOSSES if train else ("test_loss",)
    averages = f", averages=[dl.{average!r}]" if average else ""
    lines = [
        "for name, color, problem in curves:",
        f"    theory = dl.solve(problem{averages})",
        '    ax.plot(theory.times, theory.test_loss, "--", color=color, label=f"{name}: test")',
    ]
    if average:
        lines.append('    ax.plot(theory.times, theory.averaged_test_loss[0], color=color, label=f"{name}: averaged")')
    if train:
        lines.append('    ax.plot(theory.times, theory.train_loss, ":", color=color, label=f"{name}: train")')
    trained = {index: curve for index, curve in enumerate(curves) if curve.get("experiment") is not None}
    for index, curve in trained.items():
        lines += [f"name, color, problem = curves[{index}]", *experiment_lines(curve, losses)]
    return lines


def _draw_kernel(_: list[dict[str, Any]], __: bool) -> list[str]:
    return [
        "for name, color, problem in curves:",
        "    theory = dl.solve(problem)",
        '    ax.plot(theory.times, theory.kernel, "--", color=color, label=name)',
    ]


def _draw_decomposition(_: list[dict[str, Any]], __: bool) -> list[str]:
    return [
        "for name, color, problem in curves[:1]:",
        "    theory = dl.solve(problem)",
        '    for part in ("bias", "width", "data", "label_noise"):',
        '        ax.plot(theory.times, getattr(theory.decomposition, part), label=f"{name}: {part}")',
        '    ax.plot(theory.times, theory.test_loss, "--", color=color, label=f"{name}: test loss")',
    ]


def _draw_rates(curves: list[dict[str, Any]], train: bool) -> list[str]:
    below, above = GRID
    lines = [
        f"drawn = {[_rates(curve) for curve in curves]!r}  # learning rates of each curve; if none, around the best"
    ]
    lines += [
        "for (name, color, problem), lrs in zip(curves, drawn):",
        "    optimum = dl.optimal_lr(problem)",
        "    rates = problem.optimizer.rates(problem.steps)",
        "    best = optimum.lr * rates.max() if optimum.is_factor else optimum.lr",
        f"    lrs = np.array(lrs or best * np.append(np.geomspace{below}, np.geomspace{above}[1:]))",
        "    optimizers = [problem.optimizer.scaled(lr / rates.max(), problem.steps) for lr in lrs]",
        "    solved = dl.solve([dataclasses.replace(problem, optimizer=each) for each in optimizers])",
        '    ax.plot(lrs, [theory.test_loss[-1] for theory in solved], "--", color=color, label=name)',
    ]
    if train:
        lines.append(
            '    ax.plot(lrs, [theory.train_loss[-1] for theory in solved], ":", color=color, label=f"{name}: train")'
        )
    return [*lines, '    ax.plot(best, optimum.loss, "o", color=color)']


def _rates(curve: dict[str, Any]) -> list[float]:
    rates = curve.get("rates", [])
    is_list = isinstance(rates, list) and len(rates) <= _MOST_RATES
    if not is_list or not all(isinstance(rate, float) and 0 < rate < math.inf for rate in rates):
        raise Refusal("rates of a curve", rates, "a list of positive numbers", got=f"{rates!r:.60}")
    return list(rates)


def _draw_sharpness(curves: list[dict[str, Any]], _: bool) -> list[str]:
    return [
        f"looked_at = {[looked_at(read_problem(curve.get('problem'))) for curve in curves]!r}  # steps of each curve",
        "for (name, color, problem), at in zip(curves, looked_at):",
        f"    found = dl.sharpness(problem, at, vectors={VECTORS})",
        '    ax.errorbar(at, found.largest, found.largest_error, fmt="--o", color=color, label=f"{name}: largest")',
        '    ax.errorbar(at, found.lowest, found.lowest_error, fmt=":o", color=color, label=f"{name}: lowest")',
        '    ax.plot(at, found.limit, "k-.", linewidth=1, label=f"{name}: edge of stability")',
    ]


def _landscape(view: dict[str, Any]) -> list[str]:
    along = read_along(view.get("along"))
    return [
        "for name, color, problem in curves:",
        f"    found = dl.landscape(problem, {along!r})",
        '    ax.plot(found.positions, found.test_loss, "--", color=color, label=f"{name}: test")',
        '    ax.plot(found.positions, found.train_loss, ":", color=color, label=f"{name}: train")',
    ]


def _weights(curve: dict[str, Any], _: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"problem = {problem_lines(curve.get('problem'), '')}",
            f"found = dl.weight_spectra(problem, {looked_at(read_problem(curve.get('problem')))})",
            "fig, ax = plt.subplots()",
            "found.plot(ax)",
        ]
    )


def _plan(curve: dict[str, Any], _: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"problem = {problem_lines(curve.get('problem'), '')}",
            f"largest = problem.replace(width={FACTORS[-1]} * problem.network.width)",
            "found = dl.plan(problem, compute=dl.training_cost(largest))",
            "print(found)",
            "fig, ax = plt.subplots()",
            "found.plot(ax)",
        ]
    )


_DRAW: dict[str, Callable[[list[dict[str, Any]], bool], list[str]]] = {
    "schedule": _draw_loss,
    "kernel": _draw_kernel,
    "decomposition": _draw_decomposition,
    "rates": _draw_rates,
    "sharpness": _draw_sharpness,
}


def _axes(what: str, view: dict[str, Any]) -> list[str]:
    scales = [f'ax.set_{axis}scale("{view[axis]}")' for axis in ("x", "y") if view.get(axis) in ("linear", "log")]
    across = {"rates": "learning rate", "landscape": "position on the line"}.get(what, "training step")
    return [*scales, f'ax.set(xlabel="{across}", ylabel="{_LABELS[what]}")', "ax.legend()"]


def _correlations(curve: dict[str, Any], view: dict[str, Any]) -> str:
    kind, layer = read_kind(view.get("kind")), view.get("layer")
    first = KINDS[kind]
    index = "" if first is None or not isinstance(layer, int) else f"[{layer - first}]"
    relative = []
    if view.get("relative") is True and FIELDS[kind].is_symmetric:
        relative = ["values = values / np.sqrt(np.outer(values.diagonal(), values.diagonal()))"]
    return "\n".join(
        [
            f"problem = {problem_lines(curve.get('problem'), '')}",
            "theory = dl.solve(problem)",
            f"values = theory.{kind}{index}",
            "times, outputs = len(theory.pair_times), problem.data.outputs",
            'values = np.einsum("tcsc->ts", values.reshape(times, outputs, times, outputs))',
            *relative,
            "fig, ax = plt.subplots()",
            "image = ax.pcolormesh(theory.pair_times, theory.pair_times, values)",
            f'fig.colorbar(image, label="{kind.replace("_", " ")}")',
            'ax.set(xlabel="step t\'", ylabel="step t", aspect="equal")',
        ]
    )


_ALONE = {"correlations": _correlations, "weights": _weights, "plan": _plan}
"""Views of one curve, which are drawn in their own way."""
