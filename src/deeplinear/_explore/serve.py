"""Start the explorer on this machine and open the browser."""

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from deeplinear._core.refusal import Refusal
from deeplinear._explore.app import make_app, plotly_script
from deeplinear._explore.connections import Impatient

_HOST = "127.0.0.1"

USUAL_PORT = 8642
"""Always the same, so that links keep working from one day to the next."""


def serve(port: int | None, open_browser: bool, say: Callable[[str], object]) -> None:
    """Serve the page until interrupted.

    Parameters
    ----------
    port
        Where to listen on the loopback address; 0 for any that is free, None for the usual one, or any if it is taken.
    open_browser
        Whether to open the page in the browser.
    say
        Is told the address, with a token without which nobody can ask the server for anything.
    """
    plotly_script()  # missing packages are found before anything starts
    with _listen(port) as listening:
        app = make_app()
        address = f"http://{_HOST}:{listening.getsockname()[1]}/?token="
        say(f"the explorer is at {address}{app.state.token.value} (Ctrl-C ends it)")
        if open_browser:
            # The socket listens already, so that a browser waits for the server; some browsers hold up who opens them.
            opened = f"{address}{app.state.token.once()}"
            threading.Thread(target=webbrowser.open, args=(opened,), daemon=True).start()
        try:
            uvicorn.Server(configuration(app)).run(sockets=[listening])
        except KeyboardInterrupt:
            say("ended")


def configuration(app: Starlette) -> uvicorn.Config:
    """Return how the application is served."""
    return uvicorn.Config(
        app,
        http=Impatient,
        log_level="error",
        access_log=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=1,
    )


def _listen(port: int | None) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, USUAL_PORT if port is None else port))
    except OSError as error:
        if port is not None:
            listening.close()
            why = f": {error.strerror}; 0 picks any free one"
            raise Refusal("port", port, "free", rest=why) from None
        listening.bind((_HOST, 0))
    except OverflowError:
        listening.close()
        raise Refusal("port", port, "from 0 to 65535") from None
    listening.listen()
    return listening
