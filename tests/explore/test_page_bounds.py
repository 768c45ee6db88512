"""Requests that are wrong, large, slow or many: what the server answers, and that nothing is left running."""

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from deeplinear._core.claims import lock
from deeplinear._explore import app as explorer_app
from deeplinear._explore import connections, pool
from deeplinear._explore import folder as folders
from deeplinear._explore.app import LARGEST_BODY, make_app
from explorer import PROBLEM, changed, cookie_line, last_line, running_explorer, served, until


def test_two_hundred_at_once_are_answered_or_refused_whole(client: httpx.Client) -> None:
    """None of them is told that it is accepted and then left without an answer."""
    limits = httpx.Limits(max_connections=200)
    with (
        httpx.Client(base_url=client.base_url, cookies=client.cookies, timeout=60, limits=limits) as many,
        ThreadPoolExecutor(200) as threads,
    ):
        answers = list(threads.map(lambda _: many.post("/api/solve", json={"problem": PROBLEM}), range(200)))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert sum(answer.status_code == 200 for answer in answers) >= 98  # as many as there is room for
    for answer in answers:
        if answer.status_code == 200:
            assert "result" in last_line(answer)
        else:
            assert "already waiting; try again" in answer.json()["error"]
            assert answer.headers["retry-after"]


@pytest.fixture
def stuck_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a server whose processes never end to read what they are given."""
    script = "import sys; print('{}', flush=True); sys.stdin.read()"
    monkeypatch.setattr(pool, "command", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(pool, "READING", 0.2)
    monkeypatch.setattr(pool, "_PATIENCE", 0.05)
    with served(make_app()) as connected:
        yield connected


def test_reading_a_request_is_bounded_in_time(stuck_client: httpx.Client) -> None:
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: stuck_client.post("/api/solve", json={"problem": PROBLEM}), range(6)))
    assert [answer.status_code for answer in answers] == [400] * 6
    assert "reading this took longer than" in answers[0].json()["error"]
    assert until(lambda: stuck_client.get("/api/load").json() == {"short": 0, "long": 0})


def test_who_hangs_up_while_a_request_is_read_ends_that(
    stuck_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "READING", 1000.0)
    with contextlib.suppress(httpx.ReadTimeout):
        stuck_client.post("/api/solve", json={"problem": PROBLEM}, timeout=0.3)
    assert until(lambda: stuck_client.get("/api/load").json() == {"short": 0, "long": 0}, seconds=5)


def test_who_hangs_up_ends_the_writing_of_a_file(app: Starlette, client: httpx.Client) -> None:
    long, before = changed("optimizer", momentum=0.5) | {"steps": 900}, set(app.state.folder.iterdir())
    with pytest.raises(httpx.ReadTimeout):
        client.post("/api/netcdf", json={"problem": long}, timeout=1.0)
    assert until(lambda: client.get("/api/load").json() == {"short": 0, "long": 0}, seconds=5)
    assert until(lambda: set(app.state.folder.iterdir()) == before)


def hung_up(connection: socket.socket, seconds: float) -> bytes:
    """What the server sends until it closes the connection."""
    connection.settimeout(seconds)
    received = b""
    while chunk := connection.recv(4096):
        received += chunk
    return received


def test_half_sent_requests_are_closed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_REQUEST", 2.0)  # a late body is answered before, also on a busy machine
    monkeypatch.setattr(explorer_app, "SLOWEST_BODY", 0.3)
    at = (client.base_url.host, client.base_url.port)
    head = b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"
    head += cookie_line(client)
    beginnings = (b"", b"GET / HT", head, head + b"\r\n", head + b"\r\n{", head.replace(b"json", b"xml") + b"\r\n{")
    opened = [socket.create_connection(at) for _ in range(40) for _ in beginnings]
    for connection, beginning in zip(opened, beginnings * 40, strict=True):
        connection.sendall(beginning)
    assert client.get("/api/load").status_code == 200  # others are served meanwhile
    answers = [hung_up(connection, 10) for connection in opened]
    for beginning, answer in zip(beginnings * 40, answers, strict=True):
        status = answer.split(b"\r\n")[0]
        expected = b"" if not beginning else b"HTTP/1.1 415" if b"xml" in beginning else b"HTTP/1.1 408"
        assert status.startswith(expected)
        assert bool(status) == bool(beginning)  # nothing is said to who said nothing
    for connection in opened:
        connection.close()


def test_a_body_that_is_no_http_is_answered_once(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    """The application has begun to answer the request when its body turns out to be none."""
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    request = b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\n" + cookie_line(client)
    request += b"transfer-encoding: chunked\r\n\r\nzz\r\n"
    try:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(request)
            answer = hung_up(connection, 10)
        assert until(lambda: client.get("/api/load").json() == {"short": 0, "long": 0}, seconds=5)
    finally:
        logger.removeHandler(caplog.handler)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.exc_info], "no traceback"


def test_slow_requests_that_arrive_in_time_are_answered(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_REQUEST", 1.0)
    body = json.dumps({"problem": PROBLEM}).encode()
    head = (
        f"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\n{cookie_line(client).decode()}"
        f"content-type: application/json\r\ncontent-length: {len(body)}"
    )
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.settimeout(20)
        for _ in range(3):  # on one connection, which together takes longer than one request may
            for part in (head[:20], head[20:] + "\r\n\r\n", body[:50].decode(), body[50:].decode()):
                connection.sendall(part.encode())
                time.sleep(0.1)
            received = b""
            while b"\r\n0\r\n" not in received:
                received += connection.recv(65536)
            assert b'"result"' in received


def test_answers_that_nobody_reads_do_not_keep_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = """import sys
print('{"ready": true}', flush=True)
for line in sys.stdin:
    print('{"progress": {}}', flush=True)
    print('{"result": 1}', flush=True)"""
    monkeypatch.setattr(pool, "command", lambda *_: [sys.executable, "-c", answers])

    async def last_lines() -> list[bytes]:
        processes = pool.Pool(1, 5, tmp_path)
        left_open = []
        for _ in range(3):  # each is left at its last line, and the next has the one process there is
            lines = processes.run("solve", {}, 10.0)
            left_open.append(lines)
            async with asyncio.timeout(20):
                while b"result" not in (line := await anext(lines)):
                    pass
            await processes.settled()
            assert processes.tasks == 0
        await processes.close()
        return [line]

    with ThreadPoolExecutor(1) as thread:  # in this one a browser of other tests may have its own loop
        assert thread.submit(asyncio.run, last_lines()).result() == [b'{"result": 1}\n']


def test_who_does_not_read_is_hung_up_on(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_READER", 0.3)
    whole = int(client.head("/plotly.js").headers["content-length"])
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.sendall((b"GET /plotly.js HTTP/1.1\r\nhost: 127.0.0.1\r\n" + cookie_line(client) + b"\r\n") * 3)
        time.sleep(1.5)
        connection.settimeout(10)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(2**20):
                received += len(chunk)
    assert received < whole


def test_connections_are_bounded(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 5)
    at = (client.base_url.host, client.base_url.port)
    opened = [socket.create_connection(at) for _ in range(8)]
    time.sleep(0.1)
    opened[-1].sendall(b"GET /api/load HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    answer = hung_up(opened[-1], 10)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"more than 5 connections are open already" in answer
    for connection in opened:
        connection.close()


def test_folders_of_killed_servers_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with running_explorer() as (_, process):
        assert until(lambda: list(tmp_path.glob(f"deeplinear-explore-{process.pid}-*")))
        left = next(tmp_path.glob(f"deeplinear-explore-{process.pid}-*"))
        (left / "theory.nc").write_bytes(b"half a file")
        os.kill(process.pid, 9)
        process.wait()
    assert left.exists()
    dead = process.pid  # nobody has this number now
    others = [
        tmp_path / "deeplinear-explore-mine",
        tmp_path / f"deeplinear-explore-{os.getpid()}-abc",
        tmp_path / "tmpabc",
    ]
    for folder in others:
        folder.mkdir()
    (tmp_path / f"deeplinear-explore-{dead}-file").touch()
    (tmp_path / f"deeplinear-explore-{dead}-link").symlink_to(others[0])
    held = tmp_path / f"deeplinear-explore-{dead}-held"  # by a process that is not seen from here
    held.mkdir()
    held_lock = lock(held)
    with folders.own_folder() as own:
        assert own.exists()
        assert not left.exists()
        assert all(folder.exists() for folder in (*others, held))
        assert (tmp_path / f"deeplinear-explore-{dead}-file").exists()
        assert (tmp_path / f"deeplinear-explore-{dead}-link").is_symlink()
        assert not folders._is_abandoned(own)
    assert not own.exists()
    assert held_lock is not None
    os.close(held_lock)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "127.0.0.1:8911@evil.com"}, 400),
        ({"host": "127.0.0.1.evil.com"}, 400),
        ({"host": "localhost:"}, 400),
        ({"host": "[127.0.0.1]"}, 400),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),  # another port of this machine
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"content-length": "2", "transfer-encoding": "chunked"}, 400),
        ({"cookie": ""}, 403),
        ({"cookie": "deeplinear-1=x"}, 403),
    ],
)
def test_who_may_ask(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    """Refusals, too, may not be read by other pages."""
    answer = client.get("/api/load", headers=headers)
    assert answer.status_code == status
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert status == 200 or answer.json()["error"]


def test_the_address_has_a_token(client: httpx.Client, app: Starlette) -> None:
    """Which is another one at each start, and without which nothing is answered."""
    token = app.state.token
    for path in ("/", "/api/page", "/page/main.js", "/plotly.js", "/api/solve"):
        assert httpx.get(f"{client.base_url}{path}").status_code == 403
        assert httpx.get(f"{client.base_url}{path}", params={"token": token.value[:-1]}).status_code == 403
    with httpx.Client(base_url=client.base_url) as other:
        entered = other.get("/", params={"token": token.value}, headers={"sec-fetch-site": "cross-site"})
        assert 'http-equiv="refresh"' in entered.text  # on to the page, by a request of its own
        assert {"HttpOnly", "SameSite=strict"} <= set(entered.headers["set-cookie"].split("; "))
        assert other.get("/api/load").status_code == 200
    once = token.once()
    assert [httpx.get(f"{client.base_url}/", params={"token": once}).status_code for _ in range(2)] == [200, 403]
    assert make_app().state.token.value != token.value


def test_the_printed_address_leads_to_the_page(browser: Any, client: httpx.Client, app: Starlette) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{client.base_url}/?token={app.state.token.value}")
    page.wait_for_selector("#controls h2, #controls .control")
    assert page.url.partition("#")[0] == f"{client.base_url}/"
    context.close()


def test_requests_are_bounded_and_must_be_ours(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = "/api/solve"
    assert (
        client.post(solve, content=b" " * (LARGEST_BODY + 1), headers={"content-type": "application/json"}).status_code
        == 413
    )
    assert client.post(solve, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    for text in (b"{", b"[1]", b"[" * 100_000):
        assert client.post(solve, content=text, headers={"content-type": "application/json"}).status_code == 400
    assert client.post("/api/nothing", json={}).status_code == 404
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.post(solve, json={"problem": PROBLEM}, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post(solve, json={"problem": PROBLEM}, headers={"origin": str(client.base_url)}).status_code == 200
    assert client.get("/page/../app.py").status_code == 404
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/plotly.js").status_code == 200
    monkeypatch.setitem(explorer_app.LIMITS, "rates", 0.0)
    assert "took longer than 0 s" in last_line(client.post("/api/rates", json={"problem": PROBLEM}))["error"]


def test_everything_the_page_needs_is_in_the_package(client: httpx.Client) -> None:
    index = client.get("/").text
    for path in re.findall(r'(?:src|href)="([^"#]+)"', index):
        assert client.get("/" + path).status_code == 200, path
    scripts = [client.get(f"/page/{name}").text for name in ("main.js", "controls.js", "plot.js", "style.css")]
    for text in (index, *scripts):
        assert not re.findall(r"https?://(?!www\.w3\.org)", text)
