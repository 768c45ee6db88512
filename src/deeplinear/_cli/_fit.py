"""The command that fits fields of a problem to measured curves."""

from pathlib import Path

from deeplinear import Problem
from deeplinear import fit as fit_curves
from deeplinear._cli._commands import command, document_of, read_curves, words_of, written_lines
from deeplinear._cli._errors import DISAGREES, OK
from deeplinear._cli._options import CURVES, PROBLEM, REPORT, Files, Group, make_option, out
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._report import Report
from deeplinear._core.files import PICTURES

_PANEL = "Fit"

_FREE = Group(
    "free",
    (
        make_option(
            "free",
            str,
            "lr",
            "--free",
            metavar="FIELDS",
            help="Fields to find, separated by commas, such as lr,noise; they start from the values of the options.",
            rich_help_panel=_PANEL,
        ),
    ),
    lambda values: [name.strip().replace("-", "_") for name in values["free"].split(",")],
)

_DIM = Group(
    "dim",
    (
        make_option(
            "dim",
            int | None,
            None,
            "--dim",
            metavar="D",
            show_default="unknown",
            help="Input dimension of the networks, for errors where there are fewer than three.",
            rich_help_panel=_PANEL,
        ),
    ),
    lambda values: values["dim"],
)


@command(CURVES, PROBLEM, _FREE, _DIM, REPORT, out("fit.png", PICTURES))
def fit(files: Files, problem: Problem, free: list[str], dim: int | None, report: Report, out: Path | None) -> int:
    """Find the fields of a problem that explain curves of networks, with errors; draw theory over the curves.

    Exit codes: 0 done, 1 theory does not explain the curves, 2 bad input, 4 not enough memory.

    Example: deeplinear fit run*.csv --free lr,noise --depth 3 --steps 500 --dim 784
    """
    curves = read_curves(files, dim)
    with report.stage("fit"):
        found = fit_curves(curves, problem, free, dim=dim)
    if out is not None:
        save_picture(out, found)
    names = ("values", "errors", "low", "high", "factors", "chi2", "dof", "p_value", "count", "at_bounds", "unnoticed")
    document = document_of("fit", found.problem, out) | {
        **{name: getattr(found, name) for name in names},
        "far": found.far,
        "explained": found.explained,
        "converged": found.converged,
        "comparisons": [each.to_dict() for each in found.comparisons],
    }
    report.result(document, *words_of(found.problem, curves), str(found), *written_lines("picture", out))
    return OK if found.explained else DISAGREES
