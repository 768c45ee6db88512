"""The documentation: every block of code runs, every link leads somewhere, every symbol is what its page says."""

import ast
import doctest
import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from typer.testing import CliRunner

import deeplinear as dl
from deeplinear._cli import app
from deeplinear._core.about import described, parts_of
from deeplinear._equations.chain import Layers
from deeplinear._time.grid import Grid
from deeplinear._time.history import Block
from documentation import DOCS, ROOT, blocks, cells, links, pages, script
from factories import some_slow

NOTEBOOKS = [page for page in pages() if cells(page)]
DOCTESTS = [page for page in pages() if any(">>> " in b.text for b in blocks(page) if b.kind == "python")]
NAMES = {page: str(page.relative_to(ROOT)) for page in pages()}


def test_there_are_notebooks_and_every_kind_of_block_is_known() -> None:
    assert len(NOTEBOOKS) >= 9
    known = {"python", "console", "toml", "text", "{code-cell}"}
    directives = {"{math}", "{toctree}", "{eval-rst}", "{image}", "{include}", "{gallery}", "{admonition}"}
    for page in pages():
        for block in blocks(page):
            assert block.kind in known | directives, f"{NAMES[page]}:{block.line} is {block.kind!r}"


LONG = (
    "batch-and-rate.md",
    "budget.md",
    "choose.md",
    "command-line.md",
    "coordinate-check-passes.md",
    "faq.md",
    "findings.md",
    "findings-sharpness.md",
    "findings-training.md",
    "fit-and-predict.md",
    "how-many-epochs.md",
    "how-much-data.md",
    "learning-rate-transfer.md",
    "optimisers-and-phases.md",
    "peaks-of-schedules.md",
    "predict-and-check.md",
    "rate-and-tokens.md",
    "residual-depth.md",
    "scaling-laws.md",
    "several-at-once.md",
    "sharpness.md",
    "sweeps.md",
    "warm-up.md",
    "weight-decay.md",
    "which-depth-rule.md",
    "which-schedule.md",
    "your-own-data.md",
)
"""Pages whose code takes seconds. Cells run when the site is built, as all do."""


def slow_if_long(pages: list[Path]) -> list[Any]:
    return [pytest.param(page, marks=[pytest.mark.slow] * (page.name in LONG), id=NAMES[page]) for page in pages]


@pytest.mark.parametrize("page", slow_if_long(NOTEBOOKS))
def test_cells_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace and beside the page, as when the site is built; a cell that raises or warns fails."""
    monkeypatch.chdir(page.parent)
    plt.switch_backend("Agg")
    namespace: dict[str, object] = {"__name__": "__main__", "__file__": str(page)}
    try:
        for cell in cells(page):
            exec(compile("\n" * (cell.line - 1) + cell.text, page, "exec"), namespace)
    finally:
        plt.close("all")


@pytest.mark.parametrize("page", slow_if_long(DOCTESTS))
def test_examples_with_a_prompt_run(page: Path) -> None:
    failures, examples = doctest.testfile(str(page), module_relative=False)
    assert examples
    assert not failures


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_other_python_blocks_run_or_say_why_not(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot run here is at least Python."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.kind == "python" and ">>> " not in block.text:
            tree = ast.parse(block.text)
            if block.is_run:
                exec(compile(tree, f"{NAMES[page]}:{block.line}", "exec"), namespace)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.name == "sweeps.md"), id=NAMES[page]) for page in pages()],
)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``deeplinear`` runs beside the TOML files of the page; what is not run is at least known."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.kind == "toml":
            document = tomllib.loads(block.text)
            (tmp_path / ("grid.toml" if "grid" in document else "problem.toml")).write_text(block.text)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line, is_run in _commands(page):
        program, *arguments = shlex.split(line, comments=True)
        if program == "make":
            assert set(arguments) <= targets, line
        elif program == "pip":
            assert not is_run, f"{NAMES[page]}: {line} would change the environment"
            assert set(re.findall(r"deeplinear\[(\w+)\]", line)) <= set(extras), line
        else:
            assert program == "deeplinear", f"{NAMES[page]}: mark what is not run, got {line!r}"
            result = CliRunner().invoke(app, arguments if is_run else [arguments[0], "--help"])
            assert result.exit_code == 0, f"{line}\n{result.output}"


def _commands(page: Path) -> list[tuple[str, bool]]:
    """Return the commands on a page, and whether they are run."""
    consoles = [(block.text.replace("\\\n", " "), block.is_run) for block in blocks(page) if block.kind == "console"]
    return [(line, is_run) for text, is_run in consoles for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_links_lead_to_files_and_their_headings(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://", "#deeplinear")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{NAMES[page]} links to {link}"
        if heading:
            headings = {_anchor(title) for title in re.findall(r"^#+ (.+)$", target.read_text(), re.M)}
            assert heading in headings, f"{NAMES[page]} links to {link}"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


# --- the reference -------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^   (\w+)$", (DOCS / "reference" / "api.md").read_text(), re.M)
    assert sorted(listed) == sorted(dl.__all__)


@pytest.mark.parametrize("page", sorted((DOCS / "extend").glob("*.md")), ids=NAMES.get)
def test_contracts_name_what_the_code_has(page: Path) -> None:
    """``name`` in ``file`` or ``name`` of ``file``: the file has such a name."""
    text = re.sub(r"\s+", " ", page.read_text())
    for file in re.findall(r"`([\w/]+\.py)`", text):
        assert _source(file), file
    for name, file in re.findall(r"`(\w+)[^`]*`(?: \([^)]*\))? (?:in|of) `([\w/]+\.py)`", text):
        assert re.search(rf"\b{name}\b", _source(file)), f"{file} has no {name}"


def _source(file: str) -> str:
    places = [ROOT / file, ROOT / "src" / "deeplinear" / file]
    return "".join(place.read_text() for place in places if place.exists())


# --- the notation --------------------------------------------------------------------------------------------

ROW = re.compile(r"^\| (?P<symbol>.+) \| `(?P<owner>\w+)\.(?P<name>\w+)` \| `(?P<axes>\(.*\))` \| (?P<equation>.+) \|$")


def notation() -> list[re.Match[str]]:
    lines = (DOCS / "theory" / "notation.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|") and not line.startswith(("|---", "| symbol"))]
    rows = [ROW.match(line) for line in table]
    assert all(rows), [line for line, row in zip(table, rows, strict=True) if not row]
    return [row for row in rows if row]


@pytest.fixture(scope="module")
def solved() -> dict[str, object]:
    """One of everything that the table names, of a problem whose sizes are all different."""
    grams = [[[1.0, 0.2], [0.2, 0.5]]] * 5
    problem = dl.Problem(
        network=dl.MLP(depth=3, width=[0.5, 1.0, 2.0]),
        data=dl.Spectrum([1.0, 0.8, 0.6, 0.4, 0.2], grams, proportional=True, noise=0.3),
        sampling=dl.MultiPassSGD(samples=2.0, batch=0.5),
        optimizer=dl.GradientDescent(0.01, momentum=0.5, weight_decay=0.1),
        steps=7,
    )
    solution = dl.solve(problem)
    dense = solution._solved[0].equations
    assert isinstance(dense.chain, Layers)
    parts = [problem.network, problem.data, problem.data.modes, problem.sampling, problem.optimizer]
    parts += [solution, solution.decomposition, solution.variance]
    parts += [dense.c, dense.weights.input, dense.data, dense.data_covariances, dense.data_covariances.noise]
    parts += [dense.chain.responses.sites[2]]
    parts += [dl.ResNet(depth=3, width=1.0), Grid([1, 1, 1]), Block(0, 100)]
    return {type(part).__name__: part for part in parts}


@pytest.mark.parametrize("row", notation(), ids=lambda row: f"{row['owner']}.{row['name']}")
def test_notation_names_what_the_code_has(row: re.Match[str], solved: dict[str, object]) -> None:
    sizes = {"T": 7, "C": 2, "L": 3, "modes": 5, "batch": 1, "nodes": 3}
    value = getattr(solved[row["owner"]], row["name"])
    value = getattr(value, "matrix", value)  # of a function of two times
    if callable(value):
        value = value(sizes["T"]) if row["owner"] in ("GradientDescent", "MultiPassSGD") else value()
    axes = eval(row["axes"].replace("T C", "T * C"), {}, sizes)
    assert np.shape(value) == axes


def test_notation_refers_to_equations_that_mention_the_symbol() -> None:
    labelled = {}
    for page in (DOCS / "theory").glob("*.md"):
        for label, text in re.findall(r":label: (eq-[\w-]+)\n(.*?)^```", page.read_text(), re.M | re.S):
            labelled[label] = text
    for row in notation():
        label = row["equation"].removeprefix("{eq}`").removesuffix("`")
        assert label in labelled, row[0]
        letter = re.match(r"\$(\\?[A-Za-z]+(?:_\{?\\?\w+\}?)?)\$$", row["symbol"])
        if letter:
            stem = re.sub(r"_(\\ell|[tk])$", "", letter[1])  # an index may have another name there
            assert stem in labelled[label], row[0]


def test_the_symbols_of_fields_are_those_of_the_notation() -> None:
    rows = {(row["owner"], row["name"]): row["symbol"].strip("$") for row in notation()}
    named = {
        (kind.__name__, field.name): field.about.symbol
        for about in parts_of(dl.Problem).values()
        for kind in about.kinds
        for field in described(kind)
    }
    common = {key: symbol for key, symbol in named.items() if key in rows}
    assert len(common) >= 7
    assert common == {key: rows[key] for key in common}
    # What the table lists under the name of a quantity that is made from the field.
    for field, (owner, name) in {
        ("MLP", "width"): ("MLP", "widths"),
        ("GradientDescent", "lr"): ("GradientDescent", "rates"),
    }.items():
        assert rows[owner, name].partition("_")[0] == named[field]
    assert rows["MLP", "gamma0"] == named["MLP", "richness"]
    assert rows["Modes", "eigenvalues"] == named["Spectrum", "eigenvalues"]
    assert rows["Modes", "target"] == named["Spectrum", "target_power"]
    assert rows["Modes", "weight"] == named["Spectrum", "multiplicity"]


def test_the_symbols_of_words_are_numbers_that_agree(solved: dict[str, object]) -> None:
    """Solution and solver hold the same functions, under two names."""
    solution, data, covariances = (solved[name] for name in ("Solution", "DataResponses", "DataCovariances"))
    np.testing.assert_array_equal(solution.error_correlation, covariances.Cv.matrix[0])
    np.testing.assert_array_equal(solution.residual_response, data.RDelta.matrix[0])
    np.testing.assert_array_equal(solution.feature_correlation[0], covariances.Ch.matrix[0])
    np.testing.assert_array_equal(solution.feature_response[0], data.Rhr.matrix[0])


def test_the_equation_of_the_tangent_kernel() -> None:
    """kernel = 1 + sum_l C_g^l(t, t), for equal widths and no decay."""
    problem = dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.03), steps=12)
    solution = dl.solve(problem)
    expected = 1 + np.diagonal(solution.gradient_correlation, axis1=1, axis2=2).sum(axis=0)
    np.testing.assert_allclose(solution.kernel, expected, rtol=1e-13)


# --- finite size ---------------------------------------------------------------------------------------------


FINITE_SIZE = script(DOCS / "finite_size.py")


@pytest.mark.parametrize("name", some_slow(FINITE_SIZE.PROBLEMS, "residual", "deep, P = D"))  # which take longest
def test_recorded_finite_size_numbers_come_from_their_script(name: str) -> None:
    """Some of the smallest networks are trained again, with the same seeds; rounding may differ between machines."""
    recorded = json.loads(FINITE_SIZE.RESULTS.read_text())
    assert list(recorded) == list(FINITE_SIZE.PROBLEMS)
    assert {row["dim"]: row["networks"] for row in recorded[name]["sizes"]} == FINITE_SIZE.sizes(name)
    few = FINITE_SIZE.measure(FINITE_SIZE.PROBLEMS[name], *FINITE_SIZE.REPEATED)
    assert few == pytest.approx(recorded[name]["repeated"], rel=1e-6)
    many = recorded[name]["sizes"][0]
    distance = few["test_loss_bias"] - many["test_loss_bias"]
    assert abs(distance) < 4 * np.hypot(few["test_loss_bias_error"], many["test_loss_bias_error"])


def test_the_site_builds_without_the_network() -> None:
    """No page or setting loads anything from elsewhere: equations are drawn by a bundled script."""
    configuration = (DOCS / "conf.py").read_text()
    assert "sphinx-mathjax-offline" in configuration
    assert "http" not in configuration


def test_the_gallery_is_made_from_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_ext")
    wrong = {"text": "x|y", "bound": "1", "measured": "1.5", "outcome": "does not hold", "why": "a_b", "ours": True}
    unclear = {"text": "z", "bound": "< 3", "measured": "2", "outcome": "undecided", "why": "", "ours": False}
    lines = importlib.import_module("gallery").section({"id": "1a", "title": "A", "claims": [wrong, unclear]})
    assert lines[0] == "## 1a: A"
    assert any("/gallery/1a.png" in line for line in lines)
    assert "| x\\|y (not the paper's) | 1 | 1.5; a\\_b | **does not hold** |" in lines
    assert "| z | \\< 3 | 2 | undecided |" in lines


def test_pages_with_cells_can_be_downloaded_as_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link stands below the title, the only heading of its level; pages without cells have none."""
    monkeypatch.syspath_prepend(DOCS / "_ext")
    with_link = importlib.import_module("notebooks").with_link
    source = (DOCS / "tutorials" / "budget.md").read_text()
    link = "{nb-download}`Download this page as a notebook <budget.ipynb>`"
    before, after = with_link("tutorials/budget", source).split(f"\n\n{link}")
    assert before + after == source
    assert before.splitlines()[-1].startswith("# ")
    plain = (DOCS / "glossary.md").read_text()
    assert with_link("glossary", plain) == plain


def test_every_picture_of_the_gallery_is_there() -> None:
    listed = DOCS / "gallery" / "claims.json"
    if listed.exists():
        for panel in json.loads(listed.read_text())["panels"]:
            assert (listed.parent / f"{panel['id']}.png").exists(), panel["id"]
