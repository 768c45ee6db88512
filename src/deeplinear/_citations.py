"""What to cite for a result: the program, the theory, and where the parts of its problem come from."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from deeplinear._core.about import described
from deeplinear._core.build import version
from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import Problem

_DEPTH_MUP = ["bordelon2024depthwise", "yang2024tensor"]
OF_NETWORK: dict[str, dict[Any, list[str]]] = {
    "parameterization": {"mup": ["yang2021tuning"], "ntk": ["jacot2018neural"]},
    "branch_scaling": {"depth-mup": _DEPTH_MUP, 0.5: _DEPTH_MUP, 1.0: ["dey2025lazy"]},
}
"""What to cite for values of the fields of a network."""
OF_RULE = {"muon": ["jordan2024muon"], "sam": ["foret2021sharpness"], "schedule-free": ["defazio2024road"]}


def citations(of: Any) -> str:
    """Return what to cite for a problem or a result, as BibTeX.

    Parameters
    ----------
    of
        A problem; a result that has one as ``problem``, such as a solution or an ensemble; or one that has a solution
        as ``theory``, such as a comparison. Other results, such as a learning rate or an estimate of time and memory,
        do not keep their problem: pass that itself.

    Returns
    -------
    str
        Entries for the program, for the theory that it solves, and for the parameterisation and the update rules of the
        problem.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(2, 1.0, parameterization="ntk"), dl.Isotropic(), dl.FullBatch(2.0), dl.SAM(0.05, rho=0.1), steps=5
    ... )
    >>> entries = dl.citations(dl.solve(problem))
    >>> for line in entries.splitlines():
    ...     if line.startswith("@"):
    ...         print(line)
    @software{deeplinear,
    @inproceedings{bordelon2025deep,
    @inproceedings{jacot2018neural,
    @inproceedings{foret2021sharpness,
    """
    theory = getattr(of, "theory", None)
    problem = of if isinstance(of, Problem) else getattr(of, "problem", getattr(theory, "problem", None))
    if not isinstance(problem, Problem):
        raise Refusal("of", of, "a problem, or a result that has one; pass the problem itself for any other")
    known = entries()
    return "\n".join(known[key] for key in dict.fromkeys(_keys(problem)))


def entries() -> dict[str, str]:
    """Return the text of every entry that is known, by its key; that of the program has its version."""
    text = (files("deeplinear") / "citations.bib").read_text(encoding="utf-8")
    found = {match[1]: match[0] for match in re.finditer(r"^@\w+\{(\w+),\n.*?^\}\n", text, re.M | re.S)}
    found["deeplinear"] = found["deeplinear"].replace("  year =", f"  version = {{{version()}}},\n  year =")
    return found


def _keys(problem: Problem) -> Iterator[str]:
    """Yield the keys of what a problem used, in the order of its parts."""
    yield from ("deeplinear", "bordelon2025deep")
    for each in described(problem.network):
        if each.name in OF_NETWORK:
            yield from OF_NETWORK[each.name].get(getattr(problem.network, each.name), [])
    phases = [phase.optimizer for phase in problem.phases]
    for rule in (problem.optimizer, *phases):
        if rule is not None:
            yield from OF_RULE.get(rule.kind.option, [])
