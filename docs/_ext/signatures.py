"""Signatures for people: links to public names, arrays without type parameters, no constructors of results."""

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import deeplinear


def link_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Point ``deeplinear._problem.problem.Problem``, where it is defined, to ``deeplinear.Problem``, its page."""
    target = node.get("reftarget", "")
    name = target.rpartition(".")[2]
    if not target.startswith("deeplinear._") or name not in deeplinear.__all__:
        return None
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"deeplinear.{name}", node, content)


def hide_constructor(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str] | None:
    """Leave out the arguments of classes that are only returned: those without a section on parameters."""
    is_result = what == "class" and "Parameters\n" not in (obj.__doc__ or "")
    return ("", "") if is_result else None


def shorten_arrays(app: Sphinx, doctree: nodes.document) -> None:
    """Write ``ndarray`` for ``ndarray[tuple[Any, ...], dtype[float64]]``."""
    for signature in doctree.findall(addnodes.desc_signature):
        for name in [node for node in signature.findall(addnodes.pending_xref) if node["reftarget"] == "numpy.ndarray"]:
            siblings = name.parent.children
            start = end = siblings.index(name) + 1
            depth = 0
            while end < len(siblings):
                depth += {"[": 1, "]": -1}.get(siblings[end].astext(), 0)
                if depth == 0:
                    break
                end += 1
            if end > start:
                del name.parent[start : end + 1]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all three."""
    app.connect("missing-reference", link_public_name)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("doctree-read", shorten_arrays)
    return {"parallel_read_safe": True}
