"""The web side of the explorer: the page, and an interface of JSON requests that are bounded in size and time.

Every piece of work is one POST, answered by lines of JSON: progress, and at last a result or an error. Who closes the
connection ends the work; there is nothing else to cancel and nothing is left behind.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deeplinear._explore.code import python_lines
from deeplinear._explore.controls import as_plain
from deeplinear._explore.pool import Busy, Pool
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import MOST_FINITE, field_of, is_quick, read_problem
from deeplinear._explore.tasks import KINDS, LIMITS

LARGEST_BODY = 256 * 1024
"""Most bytes of a request."""

SLOWEST_BODY = 10.0
"""Most seconds in which a request has to arrive."""

_PAGE = Path(__file__).parent / "page"
_HEADERS = {
    b"content-security-policy": b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}


def make_app() -> Starlette:
    """Return the web application; its processes start and end with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        # What is short never waits for what is long, and what is long lets what is short go first.
        app.state.short, app.state.long = Pool(size=2, queue=96), Pool(size=2, queue=6, nice=True)
        with tempfile.TemporaryDirectory(prefix="deeplinear-") as folder:
            app.state.folder = Path(folder)
            await app.state.short.warm_up()
            yield
            await asyncio.gather(app.state.short.close(), app.state.long.close())

    return Starlette(
        routes=[
            Route("/", _index),
            Route("/plotly.js", _plotly),
            Route("/api/page", _describe),
            Route("/api/load", _load),
            Route("/api/python", _python, methods=["POST"]),
            Route("/api/netcdf", _netcdf, methods=["POST"]),
            Route("/api/{task}", _task, methods=["POST"]),
            Mount("/page", StaticFiles(directory=_PAGE)),
        ],
        middleware=[
            Middleware(_Guard),
            # A name that somebody else made point here is not ours.
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False),
        ],
        exception_handlers={ValueError: _refuse, Busy: _refuse_busy, HTTPException: _refuse_http},
        lifespan=lifespan,
    )


class _Guard:
    """Keeps other web sites out, and tells the browser to fetch nothing from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin"), headers.get(b"host", b"")
        if origin is not None and origin != b"http://" + host:
            await JSONResponse({"error": "requests from other pages are refused"}, 403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _index(_: Request) -> Response:
    return FileResponse(_PAGE / "index.html")


async def _plotly(_: Request) -> Response:
    return FileResponse(plotly_script(), media_type="text/javascript")


def plotly_script() -> Path:
    """Return the copy of Plotly's JavaScript that its Python package brings."""
    package = find_spec("plotly")
    if package is None or not package.submodule_search_locations:
        raise ValueError("the explorer draws with Plotly: pip install 'deeplinear[explore]'")
    return Path(package.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


async def _describe(_: Request) -> Response:
    limits = {"dim": MOST_FINITE["dim"], "seeds": MOST_FINITE["seeds"]}
    page = as_plain() | {"presets": PRESETS, "correlations": KINDS, "limits": limits, "version": version("deeplinear")}
    return JSONResponse(page)


async def _load(request: Request) -> Response:
    """Say how much work runs or waits."""
    state = request.app.state
    return JSONResponse({"short": state.short.tasks, "long": state.long.tasks})


async def _task(request: Request) -> Response:
    name = request.path_params["task"]
    if name not in LIMITS:
        raise HTTPException(404, f"there is no {name!r} here")
    body = await _body(request)
    problem = await asyncio.to_thread(read_problem, body.get("problem"))  # wrong values are refused before they wait
    pool: Pool = (
        request.app.state.short if name in ("solve", "correlations") and is_quick(problem) else request.app.state.long
    )
    pool.check_room()
    return StreamingResponse(pool.run(name, body, LIMITS[name]), media_type="application/x-ndjson")


async def _netcdf(request: Request) -> Response:
    body = await _body(request)
    await asyncio.to_thread(read_problem, body.get("problem"))
    pool: Pool = request.app.state.long
    pool.check_room()
    with tempfile.NamedTemporaryFile(dir=request.app.state.folder, suffix=".nc", delete=False) as file:
        path = Path(file.name)
    lines = [line async for line in pool.run("netcdf", body | {"path": str(path)}, LIMITS["netcdf"])]
    answer = json.loads(lines[-1])
    if "error" in answer:
        path.unlink(missing_ok=True)
        return JSONResponse(answer, 400)
    return FileResponse(
        path,
        media_type="application/x-netcdf",
        filename="theory.nc",
        background=BackgroundTask(path.unlink, missing_ok=True),
    )


async def _python(request: Request) -> Response:
    body = await _body(request)
    return JSONResponse({"python": await asyncio.to_thread(python_lines, body)})


async def _body(request: Request) -> dict[str, Any]:
    """Read a JSON object of bounded size in bounded time."""
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise HTTPException(415, "a request must be application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    raise HTTPException(413, f"a request must have at most {LARGEST_BODY} bytes")
    except TimeoutError:
        raise HTTPException(408, f"a request must arrive within {SLOWEST_BODY:.0f} s") from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "a request must be JSON") from None
    if not isinstance(document, dict):
        raise HTTPException(400, "a request must be a JSON object")
    return document


async def _refuse(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error), "field": field_of(str(error))}, 400)


async def _refuse_busy(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error), "field": None}, 503, headers={"retry-after": "2"})


async def _refuse_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "field": None}, error.status_code)
