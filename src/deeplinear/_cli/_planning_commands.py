"""The commands that plan a run: ``optimal`` and ``plan``."""

import math
from pathlib import Path

from deeplinear import Problem
from deeplinear import optimal as find_optimum
from deeplinear import plan as find_plan
from deeplinear._cli._commands import command, document_of, words_of, written_lines
from deeplinear._cli._errors import OK
from deeplinear._cli._options import DEVICE, PROBLEM, REPORT, out
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._planning_options import BUDGET, CHOICE, Budget, Choice
from deeplinear._cli._report import Report, table
from deeplinear._core.files import PICTURES
from deeplinear._core.words import percent


@command(PROBLEM, CHOICE, DEVICE, REPORT, out("optimal.png", PICTURES))
def optimal(problem: Problem, choice: Choice, device: str, report: Report, out: Path | None) -> int:
    """Find values of several fields that together leave the lowest loss at the last step; draw the loss around them.

    Exit codes: 0 done, 2 bad input, 4 not enough memory.

    Example: deeplinear optimal --over lr,weight_decay,richness --noise 0.5 --steps 30 --bounds richness=0.2,5
    """
    with report.stage("theory") as progress:
        found = find_optimum(
            problem,
            choice.over,
            bounds=choice.bounds,
            objective=choice.objective,
            margin=choice.margin,
            starts=choice.starts,
            device=device,
            progress=progress,
        )
    if out is not None:
        save_picture(out, found)
    kept = ("values", "loss", "binding", "at_margin", "at_edge", "stable_factor", "curvature", "bounds", "objective")
    document = document_of("optimal", found.problem, out) | {
        **{name: getattr(found, name) for name in kept},
        **{name: None if math.isnan(each := getattr(found, name)) else each for name in ("safe_lr", "safe_loss")},
        "minima": [{"values": dict(each.values), "loss": each.loss} for each in found.minima],
    }
    rows = [
        [percent(each.loss / found.loss - 1.0), f"{each.loss:.4g}", *(f"{x:.4g}" for x in each.values.values())]
        for each in found.minima
    ]
    shown = table("minima", ["above the best", f"{found.objective} loss", *found.names_in_words], rows)
    ends = [f"{name} is at its {end} bound: try beyond it" for name, end in found.binding.items()]
    lines = [*found.factors, *found.stability, *ends]
    report.result(document, *words_of(found.problem), shown, *lines, *written_lines("picture", out))
    return OK


@command(PROBLEM, BUDGET, DEVICE, REPORT, out("plan.png", PICTURES))
def plan(problem: Problem, budget: Budget, device: str, report: Report, out: Path | None) -> int:
    """Find what a budget is best spent on, and how that grows with the budget; draw the frontier.

    The steps of the problem are the longest run. Every model has its best constant rate at every horizon.

    Exit codes: 0 done, 2 bad input, 4 not enough memory.

    Example: deeplinear plan --compute 300 --over batch,steps --sampling online --values batch=0.25:4:5log --steps 100
    """
    with report.stage("theory") as progress:
        found = find_plan(
            problem,
            budget.compute,
            budget.over,
            values=budget.values,
            objective=budget.objective,
            store=budget.store,
            device=device,
            progress=progress,
        )
    if out is not None:
        save_picture(out, found)
    best, runs = found.frontier, found.runs
    names = ("compute", "loss", "values", "is_inside", "notes", "exponents")
    document = document_of("plan", found.problem, out) | {
        **{name: getattr(found, name) for name in ("values", "loss", "cost", "compute", "objective", "label_noise")},
        "runs": found.runs,
        "frontier": {name: getattr(best, name) for name in names},
    }
    columns = {f"{found.objective} loss": runs["loss"], **{name: runs[name] for name in found.values}, "lr": runs["lr"]}
    columns = {("updates" if name == "steps" else name): x - (name == "steps") for name, x in columns.items()}
    rows = [
        [f"{best.compute[i]:.4g}", *(f"{columns[name][i]:.4g}" for name in columns), best.notes[i]]
        for i in range(len(best.compute))
    ]
    first = f"compute ({found.unit})" if found.unit else "compute"
    shown = table("best at each budget", [first, *columns, "not in the exponents"], rows)
    report.result(document, *words_of(found.problem), shown, str(found), *written_lines("picture", out))
    return OK
