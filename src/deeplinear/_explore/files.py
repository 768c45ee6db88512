"""Files that the browser sends: kept in the server's own folder, a few at a time, until it ends."""

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deeplinear._core.failures import in_words, is_full_disk
from deeplinear._explore.uploads import LARGEST_FILE, path_in

SLOWEST_FILE = 60.0
"""Most seconds in which a file has to arrive."""

MOST_KEPT = 6
"""Most files that are kept; the oldest goes first."""


FULL_DISK = 507
"""Status of an answer for which there was no room on the disk."""


@contextmanager
def room_on_disk() -> Iterator[None]:
    """Answer in a sentence where there is none."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise HTTPException(FULL_DISK, in_words(error)) from None
        raise


async def upload(request: Request) -> Response:
    """Keep a file; answer by what it is known by."""
    if request.headers.get("content-type") != "application/octet-stream":
        raise HTTPException(415, "a file must be sent as application/octet-stream")
    name = re.sub(r"[/\\\x00-\x1f]", "_", request.query_params.get("name", ""))[-80:] or "file"
    file = f"{secrets.token_hex(8)} {name}"
    path = path_in(request.app.state.folder, file)
    try:
        with room_on_disk():
            async with asyncio.timeout(SLOWEST_FILE):
                await _write(request, path)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, TimeoutError):
            raise HTTPException(408, f"a file must arrive within {SLOWEST_FILE:.0f} s") from None
        raise
    kept: list[Path] = request.app.state.files
    kept.append(path)
    while len(kept) > MOST_KEPT:
        _remove(kept.pop(0))
    return JSONResponse({"file": file})


async def forget(request: Request) -> Response:
    """Delete a file."""
    with suppress(ValueError):
        path = path_in(request.app.state.folder, request.query_params.get("file"))
        if path in request.app.state.files:
            request.app.state.files.remove(path)
            _remove(path)
    return JSONResponse({})


async def _write(request: Request, path: Path) -> None:
    size = 0
    with path.open("wb") as written:
        async for chunk in request.stream():
            size += len(chunk)
            if size > LARGEST_FILE:
                raise HTTPException(413, f"a file must have at most {LARGEST_FILE // 2**20} MB")
            written.write(chunk)


def _remove(path: Path) -> None:
    for each in (path, path.with_suffix(".npz")):
        each.unlink(missing_ok=True)
