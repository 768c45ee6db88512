"""Links in signatures: a class that is defined in a private module is documented under its public name."""

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import deeplinear


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Point ``deeplinear._problem.Problem`` to ``deeplinear.Problem``."""
    target = node.get("reftarget", "")
    name = target.rpartition(".")[2]
    if not target.startswith("deeplinear._") or name not in deeplinear.__all__:
        return None
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"deeplinear.{name}", node, content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Resolve what Sphinx does not find."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True}
