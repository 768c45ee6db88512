"""The web side of the explorer: the page, and an interface of JSON requests that are bounded in size and time.

Every piece of work is one POST, answered by lines of JSON: progress, and at last a result or an error. Who closes the
connection ends the work; there is nothing else to cancel and nothing is left behind. Nothing of a request but its JSON
is looked at in this process: also what it asks for is read where a limit of time and a hang-up end it.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from deeplinear._core.build import version
from deeplinear._explore import documentation
from deeplinear._explore.controls import as_plain
from deeplinear._explore.files import FULL_DISK, forget, room_on_disk, upload
from deeplinear._explore.folder import own_folder
from deeplinear._explore.guard import Guard, Token
from deeplinear._explore.kinds import KINDS
from deeplinear._explore.planning import LONGEST_SCHEDULE
from deeplinear._explore.pool import Busy, Pool
from deeplinear._explore.problems import MOST, MOST_FINITE
from deeplinear._explore.tasks import LIMITS
from deeplinear._explore.uploads import LARGEST_FILE

_T = TypeVar("_T")

LARGEST_BODY = 256 * 1024
"""Most bytes of a request."""

SLOWEST_BODY = 10.0
"""Most seconds in which a request has to arrive."""

_PAGE = Path(__file__).parent / "page"


def make_app() -> Starlette:
    """Return the web application; its processes start and end with it, and its token is another one each time."""
    site, token = documentation.site(), Token()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with own_folder() as folder:
            app.state.folder, app.state.files = folder, []
            # What is short never waits for what is long, and what is long lets what is short go first.
            app.state.short, app.state.long = Pool(2, 96, folder), Pool(2, 6, folder, nice=True)
            app.state.page, _ = await asyncio.gather(asyncio.to_thread(_page), app.state.short.warm_up())
            yield
            await asyncio.gather(app.state.short.close(), app.state.long.close())

    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/plotly.js", _plotly),
            Route("/api/page", _describe),
            Route("/api/load", _load),
            Route("/api/python", _python, methods=["POST"]),
            Route("/api/netcdf", _netcdf, methods=["POST"]),
            Route("/api/upload", upload, methods=["POST"]),
            Route("/api/upload", forget, methods=["DELETE"]),
            Route("/api/{task}", _task, methods=["POST"]),
            Mount("/page", StaticFiles(directory=_PAGE)),
            Route("/reference/", _reference),
            Route("/reference/{name}", _reference),
            *([] if site is None else [Mount("/documentation", StaticFiles(directory=site, html=True))]),
        ],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={
            _Refused: _refuse,
            Busy: _refuse_busy,
            HTTPException: _refuse_http,
            ClientDisconnect: _say_nothing,
            Exception: _fail,
        },
        lifespan=lifespan,
    )
    app.state.token = token
    return app


async def _index(_: Request) -> Response:
    return FileResponse(_PAGE / "index.html")


async def _plotly(_: Request) -> Response:
    return FileResponse(plotly_script(), media_type="text/javascript")


def plotly_script() -> Path:
    """Return the copy of Plotly's JavaScript that its Python package brings."""
    package = find_spec("plotly")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the explorer draws with Plotly: pip install 'deeplinear[explore]'")
    return Path(package.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


async def _describe(request: Request) -> Response:
    return JSONResponse(request.app.state.page)


async def _reference(request: Request) -> Response:
    name = request.path_params.get("name")
    if name is None:
        return HTMLResponse(documentation.index())
    if name not in documentation.names():
        raise HTTPException(404, f"{name!r:.60} was not found")
    return HTMLResponse(documentation.entry(name))


def _page() -> dict[str, Any]:
    """Describe all that is on the page."""
    from deeplinear._explore.presets import PRESETS  # slow to import: while the first processes start

    limits = {"dim": MOST_FINITE["dim"], "seeds": MOST_FINITE["seeds"], "file": LARGEST_FILE}
    limits |= {"knots": MOST["knots"], "schedule": LONGEST_SCHEDULE}
    page = as_plain() | {"presets": PRESETS, "correlations": KINDS, "limits": limits}
    has_site = documentation.site() is not None
    return page | {
        "documentation": "documentation/" if has_site else "reference/",
        "version": version(),
    }


async def _load(request: Request) -> Response:
    """Say how much work runs or waits."""
    state = request.app.state
    return JSONResponse({"short": state.short.tasks, "long": state.long.tasks})


async def _task(request: Request) -> Response:
    name = request.path_params["task"]
    if name not in LIMITS:
        raise HTTPException(404, f"{name!r:.60} was not found")
    body = await _body(request)
    lines = await _while_connected(request, _begun(request, name, body))
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _begun(request: Request, name: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Return the answers to a request that was found in order, and begun if it is short.

    Wrong values are refused before they wait for what is long.
    """
    state = request.app.state
    lines: AsyncIterator[bytes] = state.short.run(name, body, LIMITS[name], only_short=True)
    while not (first := await anext(lines)).strip():
        pass
    answer = json.loads(first)
    if "error" in answer:
        raise _Refused(answer)
    if "long" in answer:
        lines = state.long.run(name, body, LIMITS[name])
        await anext(lines)
    return lines


async def _netcdf(request: Request) -> Response:
    body = await _body(request)
    with room_on_disk():
        folder = Path(tempfile.mkdtemp(dir=request.app.state.folder))
    path = folder / "theory.nc"
    try:
        await _while_connected(request, _last_answer(request, "netcdf", body | {"path": str(path)}))
    except BaseException:
        await request.app.state.long.settled()  # a process that is still writing would leave a file behind
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(
        path,
        media_type="application/x-netcdf",
        filename="theory.nc",
        background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
    )


async def _python(request: Request) -> Response:
    body = await _body(request)
    return JSONResponse(await _while_connected(request, _last_answer(request, "python", body)))


async def _last_answer(request: Request, name: str, body: dict[str, Any]) -> Any:
    """Do a task whose progress nobody sees."""
    answer: dict[str, Any] = {}
    async for line in await _begun(request, name, body):
        answer = json.loads(line) if line.strip() else answer
    if "error" in answer:
        raise _Refused(answer)
    return answer["result"]


async def _while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Do some work, and end it if whoever asked for it hangs up."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_hang_up(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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


class _Refused(Exception):
    """Raised where a task was answered by an error."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["error"])
        self.document = {"error": answer["error"], "field": answer["field"]}
        self.status = 500 if answer.get("unexpected") else FULL_DISK if answer.get("full_disk") else 400


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)
    return JSONResponse(error.document, error.status)


async def _refuse_busy(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error), "field": None}, 503, headers={"retry-after": "2"})


async def _refuse_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "field": None}, error.status_code, headers=error.headers)


async def _say_nothing(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _fail(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"this failed unexpectedly: {type(error).__name__}", "field": None}, 500)
