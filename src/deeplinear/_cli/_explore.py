"""The command that starts the local page."""

import sys
from typing import Annotated

import typer

from deeplinear._cli._commands import app


@app.command()
def explore(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Port on this machine; 0 picks any free one.", show_default="8642, or a free one"
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Explore on a local page: move the controls and watch the theory follow; train real networks; export.

    The page is served to this machine only and needs no network. Ctrl-C ends it and all its work.

    Exit codes: 0 ended, 2 bad input, 5 a package is missing.

    Example: deeplinear explore --no-browser --port 0
    """
    try:
        from deeplinear._explore.serve import serve  # its packages are an extra
    except ImportError as error:
        raise ImportError(
            f"the explorer needs more packages ({error.name}): pip install 'deeplinear[explore]'"
        ) from None
    serve(port, browser, lambda text: print(text, file=sys.stdout, flush=True))
