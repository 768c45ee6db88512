"""The gallery: one HTML file with everything in it."""

import base64
import itertools
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from deeplinear._core.files import write_atomically
from deeplinear._reproduce.claim import SIGNIFICANT, Claim, Outcome, quantity
from deeplinear._reproduce.figures import COLUMNS, TITLES

if TYPE_CHECKING:
    from deeplinear._reproduce.run import Reproduction

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --paper: #ffffff; --soft: #f3f4f6; --line: #d5d9de; --link: #0b5cad;
  --yes: #10733a; --no: #b3261e; --open: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #15181c; --soft: #1f2429; --line: #3a4149;
  --link: #7db7f5; --yes: #63d18b; --no: #ff8a80; --open: #a0a7b0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); } h3 { margin: 0.5rem 0; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: 0.3rem 0.8rem; margin: 1rem 0; }
.row { display: grid; gap: 1.5rem; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); align-items: start; }
.row.one { max-width: 46rem; }
@media (max-width: 60rem) { .row { grid-template-columns: minmax(0, 1fr); } }
article img { width: 100%; height: auto; background: white; border: 1px solid var(--line); border-radius: 4px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9em; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; min-width: 4.5rem; }
td:last-child { overflow-wrap: normal; }
.yes { color: var(--yes); font-weight: 600; } .no { color: var(--no); font-weight: 600; } .open { color: var(--open); }
.why { font-style: italic; }
details { margin: 0.4rem 0; } summary { cursor: pointer; }
pre { background: var(--soft); padding: 0.6rem; overflow-x: auto; font-size: 0.8em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 0.8rem; font-size: 0.9em; }
dt { font-weight: 600; } dd { margin: 0; }
"""

_CLASSES = {Outcome.HOLDS: "yes", Outcome.FAILS: "no", Outcome.UNDECIDED: "open"}


def write_page(path: Path, found: list["Reproduction"], made: dict[str, str]) -> None:
    """Write the gallery of panels; ``made`` says with what command, when and with which version."""
    text = "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>deeplinear: the paper reproduced</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            _head(found, made),
            _summary(found),
            *(_figure(name, list(panels)) for name, panels in itertools.groupby(found, lambda each: each.panel.figure)),
            "</body>\n</html>\n",
        ]
    )
    write_atomically(path, lambda temporary: temporary.write_text(text))


def _head(found: list["Reproduction"], made: dict[str, str]) -> str:
    claims = [claim for each in found for claim in each.claims]
    held, failed, open_ = (sum(claim.outcome is each for claim in claims) for each in Outcome)
    links = "".join(f'<a href="#{each.id}">{each.id}</a>' for each in found)
    return f"""<h1>Deep linear networks: the paper reproduced</h1>
<p>Every figure of Bordelon and Pehlevan, <i>Deep Linear Network Training Dynamics from Random Initialization</i> (ICML
2025), with its claims checked. Theory is dashed, networks are solid with a band of one standard error.
{len(claims)} claims: {held} hold, {failed} do not, {open_} are undecided.</p>
<p>Where the paper gives no value, one was chosen after looking at several, so that the effect shows: a claim that holds
here holds at these values. Each claim has a bound, with its reason; a number with an error must clear it by
{SIGNIFICANT:g} standard errors, on either side, and is undecided otherwise.</p>
<p>Made with <code>{escape(made["command"])}</code> on {made["date"]}, deeplinear {escape(made["version"])}, scale
{escape(made["scale"])}; the computations took {_minutes(sum(each.seconds for each in found))}.</p>
<nav>{links}</nav>"""


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _summary(found: list["Reproduction"]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{each.id}">{each.id}</a></td>{_cells(claim)}</tr>'
        for each in found
        for claim in each.claims
    )
    head = f"<tr><th>panel</th>{_HEADER}</tr>"
    return f'<h2 id="claims">All claims</h2>\n<div class="wide"><table>{head}{rows}</table></div>'


_HEADER = "<th>claim</th><th>bound</th><th>measured</th><th>outcome</th>"


def _cells(claim: Claim) -> str:
    whose = " (ours)" if claim.ours else ""
    why = f'<br><span class="why">{escape(claim.remark)}</span>' if claim.remark else ""
    return (
        f"<td>{escape(claim.text)}{whose}</td><td>{escape(claim.bound)}</td><td>{escape(claim.measured)}{why}</td>"
        f'<td class="{_CLASSES[claim.outcome]}">{claim.outcome}</td>'
    )


def _figure(name: str, panels: list["Reproduction"]) -> str:
    columns = min(COLUMNS[name], len(panels))
    label = "Table 1" if name == "T1" else f"Figure {name}"
    inside = "\n".join(_panel(each) for each in panels)
    one = " one" if columns == 1 else ""
    return (
        f'<section><h2 id="figure-{name}">{label}: {escape(TITLES[name])}</h2>\n'
        f'<div class="row{one}" style="--columns: {columns}">\n{inside}\n</div></section>'
    )


def _panel(found: "Reproduction") -> str:
    panel = found.panel
    picture = base64.b64encode(found.picture.read_bytes()).decode()
    claims = "".join(f"<tr>{_cells(claim)}</tr>" for claim in found.claims)
    problems = "\n".join(
        f"# {line.label or index}\n{line.problem.to_toml()}" for index, line in enumerate(found.plan.lines)
    )
    return f"""<article id="{found.id}">
<h3>{found.id}. {escape(found.title)}</h3>
<img alt="{escape(panel.title)}: {escape(panel.says)}" src="data:image/png;base64,{picture}">
<p>{escape(panel.says)}</p>
<dl><dt>given</dt><dd>{escape(panel.given)}</dd><dt>chosen</dt><dd>{escape(panel.choices)}</dd>
<dt>networks</dt><dd>{_size(found)}</dd></dl>
<div class="wide"><table><tr>{_HEADER}</tr>{claims}</table></div>
{_agreement(found)}
<details><summary>Problems</summary><pre>{escape(problems)}</pre></details>
</article>"""


def _size(found: "Reproduction") -> str:
    size = found.plan.size
    return "none" if not found.agreements else f"D = {size.dim}, {size.seeds} for each curve"


def _agreement(found: "Reproduction") -> str:
    """How far theory and networks are apart, folded away."""
    if not found.agreements:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each.label)}</td><td>{quantity(100 * each.deviation, 100 * each.error)} %</td>"
        f"<td>{_number(each.rms_z)}</td><td>{escape(each.verdict)}</td></tr>"
        for each in found.agreements
    )
    return (
        "<details><summary>Theory and networks, curve by curve</summary>"
        '<div class="wide"><table><tr><th>curve</th><th>rms deviation</th><th>rms z</th><th>verdict</th></tr>'
        f"{rows}</table></div></details>"
    )


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "–"
