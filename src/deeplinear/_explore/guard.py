"""Who may ask the server, and what its answers allow the browser."""

import re
import secrets

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_OTHER_PAGES = ("cross-site", "same-site")
"""What browsers say of requests that pages of other sites, or of other ports of this machine, make them send."""

_POLICY = (
    b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY,
    b"cross-origin-resource-policy": b"same-origin",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}


_FOR_DOCUMENTATION = {b"content-security-policy": _POLICY + b"; script-src 'self' 'unsafe-inline'"}
"""Its pages have small scripts in them."""

_ENTER = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>deeplinear explorer</title>'
"""The way from the address with the token to the page: a request of the page's own, with its cookie."""


class Token:
    """What the address of the page has in it, so that nobody else on this machine can ask for anything."""

    def __init__(self) -> None:
        self.value = secrets.token_urlsafe(24)
        self._once: set[str] = set()

    def once(self) -> str:
        """Return another one that counts once, for the command that opens a browser: all users can see commands."""
        self._once.add(value := secrets.token_urlsafe(24))
        return value

    def opens(self, value: str) -> bool:
        """Return whether an address with this may be opened."""
        if value in self._once:
            self._once.remove(value)
            return True
        return self.fits(value)

    def fits(self, value: str) -> bool:
        """Return whether this is the token."""
        return secrets.compare_digest(value.encode(), self.value.encode())


class Guard:
    """Keeps other web sites and other users out, and tells the browser to fetch nothing from elsewhere."""

    def __init__(self, app: ASGIApp, token: Token) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = _FOR_DOCUMENTATION if scope["path"].startswith("/documentation/") else {}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *(_HEADERS | own).items()]
            await send(message)

        await (self._answer(scope) or self._app)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return what to answer instead of the application, if it is not to be asked."""
        asked = HTTPConnection(scope)
        headers, host, token = asked.headers, asked.headers.get("host", ""), asked.query_params.get("token", "")
        if not _HOST.fullmatch(host):  # a name that somebody else made point here is not ours
            return _refusal(400, "this page is served only at 127.0.0.1 and localhost")
        if "content-length" in headers and "transfer-encoding" in headers:
            return _refusal(400, "a request has a length or comes in chunks, not both", {"connection": "close"})
        cookie = f"deeplinear-{scope['server'][1]}"  # browsers know one set of cookies for all ports
        if scope["method"] == "GET" and scope["path"] == "/" and token and self._token.opens(token):
            entered = HTMLResponse(_ENTER)
            entered.set_cookie(cookie, self._token.value, httponly=True, samesite="strict")
            return entered
        if headers.get("origin", f"http://{host}") != f"http://{host}" or headers.get("sec-fetch-site") in _OTHER_PAGES:
            return _refusal(403, "requests from other pages are refused")
        if not self._token.fits(asked.cookies.get(cookie, "") or token):
            text = "open the page at the address that deeplinear explore printed when it started: it has a token in it"
            return _refusal(403, text)
        return None


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": text, "field": None}, status, headers=headers)
