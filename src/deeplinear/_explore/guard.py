"""Who may ask the server, and what its answers allow the browser."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOSTS = (b"127.0.0.1", b"localhost")
_POLICY = (
    b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY,
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}


_FOR_DOCUMENTATION = {b"content-security-policy": _POLICY + b"; script-src 'self' 'unsafe-inline'"}
"""Its pages have small scripts in them."""


class Guard:
    """Keeps other web sites out, and tells the browser to fetch nothing from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin"), headers.get(b"host", b"")
        if host.rpartition(b":")[0] not in _HOSTS and host not in _HOSTS:
            # A name that somebody else made point here is not ours.
            refusal = JSONResponse({"error": "this page is served only at 127.0.0.1 and localhost", "field": None}, 400)
            await refusal(scope, receive, send)
            return
        if origin is not None and origin != b"http://" + host:
            refusal = JSONResponse({"error": "requests from other pages are refused", "field": None}, 403)
            await refusal(scope, receive, send)
            return

        own = _FOR_DOCUMENTATION if scope["path"].startswith("/documentation/") else {}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *(_HEADERS | own).items()]
            await send(message)

        await self._app(scope, receive, send_with_headers)
