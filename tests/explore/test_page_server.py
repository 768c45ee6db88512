"""The command that serves the page, and a real server: how it starts and ends."""

import asyncio
import json
import os
import queue
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
import uvicorn
from typer.testing import CliRunner

import deeplinear as dl
from deeplinear._cli import app as cli
from deeplinear._explore import app as explorer_app
from deeplinear._explore import documentation
from deeplinear._explore.problems import read_problem
from explorer import changed, cookie_line, last_line, running_explorer, until


# --- the command ---
def test_command_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run(cli, ["explore", "--no-browser", "--port", port])
        assert result.exit_code == 2
        assert f"port must be free, got {port}" in result.stderr
    assert "port must be from 0 to 65535" in run(cli, ["explore", "--port", "99999"]).stderr
    monkeypatch.setattr(explorer_app, "find_spec", lambda _: None)
    result = run(cli, ["explore", "--no-browser"])
    assert result.exit_code == 5
    assert "pip install 'deeplinear[explore]'" in result.stderr
    monkeypatch.delitem(sys.modules, "deeplinear._explore.serve")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run(cli, ["explore", "--no-browser"])
    assert result.exit_code == 5
    assert "(uvicorn): pip install 'deeplinear[explore]'" in result.stderr


def test_command_opens_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = queue.SimpleQueue[str]()
    monkeypatch.setattr("webbrowser.open", opened.put)
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    result = CliRunner().invoke(cli, ["explore", "--port", "0"])
    assert result.exit_code == 0
    printed, found = re.search(r"http://\S+", result.stdout), opened.get(timeout=10)
    assert printed is not None
    assert found.partition("=")[0] == printed[0].partition("=")[0]
    assert found != printed[0]  # all users can see the command that opens a browser: what it has in it counts once


def test_documentation_that_was_built_is_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<h1>built</h1>")
    monkeypatch.setattr(documentation, "site", lambda: tmp_path)
    app = explorer_app.make_app()
    transport = httpx.ASGITransport(app)

    def ask(path: str) -> httpx.Response:
        async def answered() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
                return await asking.get(path, params={"token": app.state.token.value} if path != "/" else None)

        with ThreadPoolExecutor(1) as thread:  # where no browser of another test has a loop of its own
            return thread.submit(asyncio.run, answered()).result()

    answer = ask("/documentation/")
    assert answer.text == "<h1>built</h1>"
    assert "script-src 'self' 'unsafe-inline'" in answer.headers["content-security-policy"]
    assert "script-src" not in ask("/").headers["content-security-policy"]
    listed = ask("/reference/").text  # and what the library says of itself is always there
    assert "<a href='plan'>dl.plan</a></dt><dd>Find what a budget is best spent on.</dd>" in listed
    assert ask("/reference/secrets").status_code == 404


# --- a real server ---
def workers_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_server_from_start_to_end() -> None:
    with running_explorer() as (client, process):
        # Bound to this machine alone.
        listening = [each for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
        assert [each.laddr.ip for each in listening] == ["127.0.0.1"]

        # Fifty requests at once, each with its own answer.
        problems = [changed("network", width=0.5 + 0.05 * index) for index in range(50)]
        with ThreadPoolExecutor(50) as threads:
            answers = list(threads.map(lambda each: client.post("api/solve", json={"problem": each}), problems))
        for problem, answer in zip(problems, answers, strict=True):
            assert answer.status_code == 200
            expected = dl.solve(read_problem(problem)).test_loss[-1]
            assert last_line(answer)["result"]["test_loss"][-1] == expected

        # Who hangs up ends the work.
        long = changed("optimizer", lr=1e-6) | {"steps": 1500}
        request = {"problem": long, "dim": 500, "seeds": 24}
        with client.stream("POST", "api/experiment", json=request) as stream:
            lines = stream.iter_lines()
            while "training" not in next(lines):
                pass
            assert client.get("api/load").json() == {"short": 0, "long": 1}
        assert until(lambda: client.get("api/load").json() == {"short": 0, "long": 0})
        assert until(lambda: all(each.cpu_percent(0.2) < 20 for each in workers_of(process.pid)))

        workers = workers_of(process.pid)
        assert workers
        # Interrupted in the middle of work, it leaves nothing behind.
        sock = socket.create_connection(tuple(listening[0].laddr))
        body = json.dumps({"problem": long, "dim": 500, "seeds": 24}).encode()
        headers = {"host": "127.0.0.1", "content-type": "application/json", "content-length": len(body)}
        headers["cookie"] = cookie_line(client).decode().removeprefix("cookie: ").strip()
        head = ["POST /api/experiment HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        sock.sendall("\r\n".join(head).encode() + body)
        assert b"200 OK" in sock.recv(1000)
        workers += workers_of(process.pid)
    sock.close()
    assert process.returncode == 0
    assert until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers))


def test_workers_end_when_the_server_is_killed() -> None:
    with running_explorer() as (client, process):
        client.get("api/page")
        assert until(lambda: len(workers_of(process.pid)) == 2)
        workers = workers_of(process.pid)
        os.kill(process.pid, 9)
        process.wait()
        assert until(
            lambda: not any(psutil.pid_exists(each.pid) and each.status() != psutil.STATUS_ZOMBIE for each in workers)
        )
