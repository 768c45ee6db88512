"""The explorer for tests: as its own process or in this one, and what is asked of it."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from deeplinear._explore.serve import configuration

PROBLEM: dict[str, Any] = {
    "network": {"type": "MLP", "depth": 2, "width": 1.0},
    "data": {"type": "Isotropic", "noise": 0.3},
    "sampling": {"type": "FullBatch", "samples": 2.0},
    "optimizer": {"type": "GradientDescent", "lr": 0.05},
    "steps": 20,
}
"""A small problem, as the page writes it."""


@contextmanager
def running_explorer() -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """Start ``deeplinear explore`` on a free port; give a client of it and its process, and end it as a user would."""
    command = [
        sys.executable,
        "-c",
        "from deeplinear_command import main; main()",
        "explore",
        "--port",
        "0",
        "--no-browser",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        watchdog.cancel()
        found = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=\S+", line)
        assert found, line
        with httpx.Client(base_url=found[1], timeout=60, limits=httpx.Limits(max_connections=50)) as client:
            assert client.get(found[0]).status_code == 200  # which gives it a cookie
            yield client, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        process.stdout.close()


def changed(part: str, **values: Any) -> dict[str, Any]:
    """The problem with other values in one part."""
    return PROBLEM | {part: PROBLEM[part] | values}


def quiet(**_: Any) -> None:
    """Report nothing."""


def last_line(response: httpx.Response) -> dict[str, Any]:
    """Return the last of the answers to a request."""
    answer: dict[str, Any] = json.loads(response.text.strip().splitlines()[-1])
    return answer


@contextmanager
def served(app: Starlette) -> Iterator[httpx.Client]:
    """Serve an application from a thread of this process; give a client of it."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(configuration(app))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    port = listening.getsockname()[1]
    cookies = {f"deeplinear-{port}": app.state.token.value}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", cookies=cookies, timeout=60) as connected:
        yield connected
    server.should_exit = True
    thread.join()


def cookie_line(client: httpx.Client) -> bytes:
    """Return the line of a request by which the server knows a client."""
    ((name, value),) = client.cookies.items()
    return f"cookie: {name}={value}\r\n".encode()


def cookies_of(client: httpx.Client) -> list[dict[str, str]]:
    """Return by what the server knows a client, for a browser."""
    return [{"name": name, "value": value, "url": f"{client.base_url}/"} for name, value in client.cookies.items()]


def until(condition: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
