"""The commands: each takes objects made from options, does one job and returns an exit code."""

import inspect
import math
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from deeplinear import EMA, Ensemble, Measured, Problem, Solution, TailMean, Verdict, measured
from deeplinear import compare as compare_both
from deeplinear import simulate as simulate_networks
from deeplinear import solve as solve_theory
from deeplinear._check_values import check as check_values
from deeplinear._check_values import known, machine
from deeplinear._cli._errors import DISAGREES, DIVERGED, OK, Commands
from deeplinear._cli._options import (
    AVERAGES,
    DEVICE,
    FILES,
    FINITE,
    PROBLEM,
    REPORT,
    TOLERANCE,
    Files,
    Finite,
    Group,
    is_replaced,
    out,
)
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._report import Report, table
from deeplinear._cli._sweep_options import GRID
from deeplinear._cli._tables import curves_table, more_losses, observables_table
from deeplinear._core.build import version
from deeplinear._core.dataset import LOSSES
from deeplinear._core.files import PICTURES
from deeplinear._core.threads import count_cores
from deeplinear._core.words import INFINITE, in_bytes, in_time
from deeplinear._cost.estimate import Estimate, check_experiment, solve_seconds
from deeplinear._cost.estimate import estimate as estimate_cost
from deeplinear._cost.model import method_of_two_times
from deeplinear._equations.products import COMPUTED
from deeplinear._plots.words import in_words
from deeplinear._sweep.cost import SweepCost, estimate_sweep
from deeplinear._sweep.plan import Plan

_SETS = ("averaged_test_loss", "task_loss")
_Averages = tuple[EMA | TailMean, ...]

_HELP = """Predict from theory how deep linear networks train, and check it against real ones.

Examples:

    deeplinear compare

    deeplinear compare --depth 4 --width 0.5 --sampling online --batch 0.25 --out online.pdf

    deeplinear compare run*.csv --lr 0.03 --steps 500 --dim 784

    deeplinear fit run*.csv --free lr,noise --steps 500 --dim 784

    deeplinear solve --width infinite --noise 0 --lr 0.05 --steps 400 --out theory.nc

    deeplinear simulate --problem problem.toml --steps 100 --dim 300 --seeds 8 --json

    deeplinear transfer --over width --values 0.5,1,2,4 --parameterization ntk

    deeplinear sweep --over depth=1,2,4 --over lr=0.002:0.05:20log --steps 100

    deeplinear sharpness --richness 2 --lr 0.05 --steps 60 --dim 2000 --seeds 8

    deeplinear landscape --sampling online --batch 0.5 --lr 0.01 --steps 60 --along twins

    deeplinear optimal --over lr,weight_decay,richness --noise 0.5 --steps 30

    deeplinear plan --compute 300 --over batch,steps --sampling online --steps 100

    deeplinear estimate --steps 3000

    deeplinear check

    deeplinear reproduce 2 --out transfer

    deeplinear explore

Exit codes: 0 done (and theory and experiment do not disagree), 1 they disagree, 2 bad input, 3 training
diverged, 4 not enough memory, 5 a package is missing (the message says which to install), 130 interrupted, 141 nobody
reads the output any longer (as in a pipe into head).
"""

app = typer.Typer(
    cls=Commands,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"deeplinear {version()}\nproducts of steps: {COMPUTED}")
        raise typer.Exit


@app.callback()
def _root(
    wanted: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and whether the products of steps are compiled.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
    rules: Annotated[
        str | None,
        typer.Option(
            "--rules",
            metavar="MODULE",
            help="Import update rules of your own from a module, here or wherever Python finds it.",
        ),
    ] = None,
) -> None:
    pass  # they were imported before options were made of them


def command(*groups: Group) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Register a function as a command that has the options of ``groups``, one argument for each of them."""

    def register(function: Callable[..., int]) -> Callable[..., None]:
        parameters = [parameter for group in groups for parameter in group.parameters]

        def run(**values: Any) -> None:
            code = function(**{group.argument: group.build(values) for group in groups})
            raise typer.Exit(code)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return app.command(name=function.__name__)(run)

    return register


@command(FILES, PROBLEM, FINITE, AVERAGES, DEVICE, REPORT, TOLERANCE, out("compare.png", PICTURES))
def compare(
    files: Files,
    problem: Problem,
    finite: Finite,
    averages: _Averages,
    device: str,
    report: Report,
    tolerance: float,
    out: Path | None,
) -> int:
    """Solve, simulate, and say whether theory and experiment agree; draw a picture.

    With files, the experiment is in these: curves of networks that others trained, whose input dimension is --dim. One
    curve is enough to disagree, eight to agree.

    In the table, "max |z|" is the largest deviation in standard errors, and "beyond size" what is left of it without
    the shift that networks of this size are expected to have. "Would notice" is how far off, at all steps, a theory
    would have to be for so many networks to show it; it is empty where these are too few.

    Exit codes: 0 they agree or are close, or these networks cannot decide; 1 they disagree, 2 bad input, 4 not enough
    memory.

    Examples: deeplinear compare --depth 4 --samples 1.2 --dim 400 --seeds 24 --out depth4.pdf

    deeplinear compare run*.csv --depth 4 --lr 0.03 --steps 500 --dim 784
    """
    experiment: Ensemble | Measured
    if files.paths:
        experiment = read_curves(files, finite.dim)
        theory = _solve(problem, averages, device, report, two_time=False)
    else:
        check_finite(problem, finite)
        theory = _solve(problem, averages, device, report, two_time=True)
        experiment = train(problem, finite, device, report, averages=averages)
    with report.stage("comparison"):
        comparison = compare_both(theory, experiment, tolerance=tolerance)
    if out is not None:
        save_picture(out, comparison)
    document = document_of("compare", problem, out) | {
        "comparison": comparison.to_dict(),
        "theory": theory.stats,
        "experiment": _about(experiment, files),
    }
    verdict = f"{comparison.verdict}: {comparison.explanation} (p = {comparison.p_value:.2g})"
    shown = observables_table(comparison)
    report.result(document, *words_of(problem, experiment), shown, verdict, *written_lines("picture", out))
    return DISAGREES if comparison.verdict is Verdict.DISAGREES else OK


def read_curves(files: Files, dim: int | None) -> Measured:
    """Read the curves of files, all of them together."""
    columns = {"test_loss": files.test_loss, "train_loss": files.train_loss}
    return measured(list(files.paths), dim=dim, **{name: column for name, column in columns.items() if column})


def _about(experiment: Ensemble | Measured, files: Files) -> dict[str, Any]:
    if isinstance(experiment, Measured):
        return {"files": files.paths, "runs": len(experiment.seeds), "dim": experiment.dim}
    return experiment.stats | {"dim": experiment.dim, "method": experiment.method}


@command(PROBLEM, AVERAGES, DEVICE, REPORT, out("solve.nc", (".nc", *PICTURES)))
def solve(problem: Problem, averages: _Averages, device: str, report: Report, out: Path | None) -> int:
    """Predict the losses from theory; write everything to a file that xarray opens, or a picture.

    Exit codes: 0 done, 2 bad input, 3 training diverged (the result is still written), 4 not enough memory.

    Example: deeplinear solve --width infinite --lr 0.05 --steps 400 --out theory.nc
    """
    has_file = out is not None and out.suffix.lower() not in PICTURES
    theory = _solve(problem, averages, device, report, two_time=has_file)
    if out is not None and out.suffix.lower() in PICTURES:
        save_picture(out, theory)
    elif out is not None:
        theory.save(out)
    document = document_of("solve", problem, out) | {
        "status": {"diverged_at": theory.status.diverged_at, "text": str(theory.status)},
        "times": theory.times,
        **{name: getattr(theory, name) for name in (*LOSSES, *_sets(theory), "kernel")},
        "decomposition": {part: getattr(theory.decomposition, part) for part in vars(theory.decomposition)},
        "stats": theory.stats,
    }
    columns = {"step": theory.times, "test loss": theory.test_loss, "train loss": theory.train_loss}
    columns |= more_losses({name: getattr(theory, name) for name in _sets(theory)}, averages)
    columns |= {part.replace("_", " "): getattr(theory.decomposition, part) for part in vars(theory.decomposition)}
    shown = curves_table("theory", columns)
    report.result(document, *words_of(problem), shown, f"training {theory.status}", *written_lines("result", out))
    return DIVERGED if theory.status.diverged else OK


@command(PROBLEM, FINITE, AVERAGES, DEVICE, REPORT, out("simulate.nc", (".nc",)))
def simulate(
    problem: Problem, finite: Finite, averages: _Averages, device: str, report: Report, out: Path | None
) -> int:
    """Train real networks; write what they did to a file that xarray opens.

    Exit codes: 0 done, 2 bad input, 3 every network diverged (the result is still written), 4 not enough memory.

    Example: deeplinear simulate --dim 400 --seeds 24 --record losses --out networks.nc
    """
    experiment = train(problem, finite, device, report, averages=averages)
    if out is not None:
        experiment.save(out)
    names = (*LOSSES, *_sets(experiment))
    losses = {name: (experiment.mean(name), experiment.standard_error(name)) for name in names}
    diverged = int((experiment.diverged_at >= 0).sum())
    document = document_of("simulate", problem, out) | {
        "dim": experiment.dim,
        "seeds": experiment.seeds,
        "diverged_at": experiment.diverged_at,
        "method": experiment.method,
        "times": experiment.times,
        **{name: {"mean": mean, "standard_error": error} for name, (mean, error) in losses.items()},
        "stats": experiment.stats,
    }
    columns: dict[str, Any] = {"step": experiment.times}
    for name, (mean, error) in losses.items():
        if name in LOSSES:
            columns |= {name.replace("_", " "): mean, f"± {name.removesuffix('_loss')}": error}
    columns |= more_losses({name: losses[name][0] for name in _sets(experiment)}, averages)
    ending = f"{diverged} of {len(experiment.seeds)} networks diverged" if diverged else "training completed"
    shown = curves_table("experiment: mean over networks ± standard error", columns)
    report.result(document, *words_of(problem, experiment), shown, ending, *written_lines("result", out))
    return DIVERGED if diverged == len(experiment.seeds) else OK


@command(PROBLEM, FINITE, GRID, REPORT)
def estimate(problem: Problem, finite: Finite, grid: dict[str, list[Any]], report: Report) -> int:
    """Estimate the time and memory that solve and simulate, or a whole sweep, would take, without running them.

    Exit codes: 0 done, 2 bad input.

    Examples: deeplinear estimate --steps 3000 --dim 1000

    deeplinear estimate --over width=0.5:8:5log --over lr=0.002:0.05:20log
    """
    cost = _estimate_sweep(problem, finite, grid) if grid else _estimate(problem, finite)
    rows = [["solve", in_time(cost.theory.seconds), in_bytes(cost.theory.bytes)]] if cost.theory else []
    if cost.theory and cost.theory.most_seconds is not None and cost.theory.most_bytes is not None:
        rows.append(["at most, if it oscillates", in_time(cost.theory.most_seconds), in_bytes(cost.theory.most_bytes)])
    if cost.experiment:
        rows.append(["simulate", in_time(cost.experiment.seconds), in_bytes(cost.experiment.bytes)])
    names = {"theory": "solve", "experiment": "simulate"}
    large = " and ".join(names[each] for each in cost.too_large)
    fits = [f"{f'NOT ENOUGH memory for {large}' if large else 'enough memory'}: {in_bytes(cost.available)} available"]
    if isinstance(cost, Estimate) and cost.losses_fit and cost.losses_bytes is not None:
        fits.append(f"with --record losses simulate takes {in_bytes(cost.losses_bytes)}")
    document = document_of("estimate", problem, None) | cost.to_dict()
    size = [f"{cost.points} points on {cost.workers} processes"] if isinstance(cost, SweepCost) else []
    report.result(document, *words_of(problem), *size, table("estimate", ["", "time", "memory"], rows), *fits)
    return OK


@command(DEVICE, REPORT)
def check(device: str, report: Report) -> int:
    """Compare this installation with answers that are known to 12 digits from other calculations, in seconds.

    A few dozen problems over every feature are solved by every method. The last column has the errors of other
    installations.

    Exit codes: 0 all values agree, 1 some do not, 2 bad input.

    Example: deeplinear check
    """
    with report.stage("check") as progress:
        checked = check_values(device, progress)
    elsewhere = known()["errors"]
    rows = [
        [each.method, f"{each.problems}", f"{each.values}", f"{each.error:.1e}", _range(elsewhere, each.method)]
        for each in checked
    ]
    wrong = [each for each in checked if not each.holds]
    verdict = "\n".join(map(str, wrong)) or f"all values agree ({machine()})"
    document = {
        "command": "check",
        "version": version(),
        "machine": machine(),
        "agrees": not wrong,
        "methods": [asdict(each) for each in checked],
        "elsewhere": elsewhere,
    }
    names = ["method", "problems", "values", "largest error", "elsewhere"]
    report.result(document, table("largest error, relative to the largest value", names, rows), verdict)
    return DISAGREES if wrong else OK


def _range(elsewhere: dict[str, dict[str, float]], method: str) -> str:
    """Name the smallest and the largest error of a method on other machines."""
    errors = sorted(each[method] for each in elsewhere.values() if method in each)
    return " to ".join(f"{error:.1e}" for error in dict.fromkeys([*errors[:1], *errors[-1:]]))


def _estimate(problem: Problem, finite: Finite) -> Estimate:
    dim = finite.actual_dim if _can_be_simulated(problem) else finite.dim
    return estimate_cost(problem, dim, finite.seeds, finite.workers, finite.record, finite.method)


def _estimate_sweep(problem: Problem, finite: Finite, grid: dict[str, list[Any]]) -> SweepCost:
    plan = Plan.read(problem, grid, True, {"dim": finite.actual_dim, "seeds": finite.seeds})
    return estimate_sweep(plan, finite.workers or count_cores())


def _solve(problem: Problem, averages: _Averages, device: str, report: Report, *, two_time: bool) -> Solution:
    """Solve the theory, with functions of two times if these are wanted."""
    method = method_of_two_times(problem) if two_time else "auto"
    with report.stage("theory", solve_seconds(problem) if report.shows_progress else float) as progress:
        return solve_theory(problem, method=method, averages=averages, device=device, progress=progress)


def train(problem: Problem, finite: Finite, device: str, report: Report, **options: Any) -> Ensemble:
    """Train networks as options of the command line say; others are those of ``simulate``."""
    with report.stage("experiment") as progress:
        return simulate_networks(
            problem,
            finite.actual_dim,
            finite.seeds,
            workers=finite.workers,
            record=finite.record,
            method=finite.method,
            device=device,
            progress=progress,
            **options,
        )


def _sets(result: Solution | Ensemble) -> list[str]:
    """Names of the losses of averages and of tasks that a result has."""
    return [name for name in _SETS if getattr(result, name).size]


def check_finite(problem: Problem, finite: Finite) -> None:
    """Refuse what cannot be simulated before the theory is solved."""
    check_experiment(problem, finite.actual_dim, finite.seeds, finite.workers, finite.record, finite.method)


def _can_be_simulated(problem: Problem) -> bool:
    return problem.network.width != INFINITE and math.isfinite(problem.network.depth)


def document_of(name: str, problem: Problem, out: Path | None) -> dict[str, Any]:
    """Return what every command says in JSON."""
    return {
        "command": name,
        "version": version(),
        "problem": _spell_infinite(tomllib.loads(problem.to_toml())),
        "file": None if out is None else str(out),
    }


def _spell_infinite(document: dict[str, Any]) -> dict[str, Any]:
    """Write an infinite depth as a word, which JSON can hold."""
    network = {name: INFINITE if value == math.inf else value for name, value in document["network"].items()}
    return document | {"network": network}


def words_of(problem: Problem, experiment: Ensemble | Measured | None = None) -> list[str]:
    """Describe a problem, and the networks that were trained."""
    words = in_words(problem)
    if isinstance(experiment, Measured):
        words.append(repr(experiment).removeprefix("Measured(").removesuffix(")"))
    elif experiment is not None:
        kept = "" if experiment.method == "explicit" else f", {experiment.method} matrices"
        words.append(f"{len(experiment.seeds)} networks of input dimension {experiment.dim}{kept}")
    return words


def written_lines(what: str, out: Path | None) -> list[str]:
    """Say which file was written, if one was, how large it is, and whether it replaced another."""
    if out is None:
        return []
    older = ", in place of an older file" if is_replaced(out) else ""
    return [f"{what}: {out} ({in_bytes(out.stat().st_size)}{older})"]
