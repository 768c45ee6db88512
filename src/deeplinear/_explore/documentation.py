"""What the page links to: the documentation as it was built beside the package, or what the library says of itself."""

import html
import inspect
from pathlib import Path

import deeplinear as dl

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
  <link rel="icon" href="/page/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/page/style.css">
  <script src="/page/theme.js"></script>
</head>
<body class="reference">
  <main class="card">{body}</main>
</body>
</html>
"""


def site() -> Path | None:
    """Return the folder of the documentation where it has been built, in a clone of the repository; else None."""
    folder = Path(__file__).resolve().parents[3] / "docs" / "_build" / "html"
    return folder if (folder / "index.html").is_file() else None


def names() -> list[str]:
    """Return all that the library says something of."""
    return [name for name in dl.__all__ if inspect.getdoc(getattr(dl, name))]


def index() -> str:
    """Return a page that lists everything in the library, each with a sentence."""
    rows = "".join(f"<dt><a href='{name}'>dl.{name}</a></dt><dd>{_first_line(name)}</dd>" for name in names())
    how = (
        "In a clone of the repository <code>make docs</code> builds the whole documentation, with tutorials and theory."
    )
    return _TEMPLATE.format(title="deeplinear: reference", body=f"<h1>Reference</h1><p>{how}</p><dl>{rows}</dl>")


def entry(name: str) -> str:
    """Return a page with what the library says of one thing.

    Examples
    --------
    >>> "<h1>dl.sharpness <small>function</small></h1>" in entry("sharpness")
    True
    """
    said = getattr(dl, name)
    kind = "module" if inspect.ismodule(said) else "class" if inspect.isclass(said) else "function"
    text = html.escape(inspect.getdoc(said) or "")
    body = f"<p><a href='./'>Reference</a></p><h1>dl.{name} <small>{kind}</small></h1><pre>{text}</pre>"
    return _TEMPLATE.format(title=f"dl.{name}", body=body)


def _first_line(name: str) -> str:
    return html.escape((inspect.getdoc(getattr(dl, name)) or "").splitlines()[0])
