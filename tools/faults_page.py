"""Send the explorer wrong, huge, half, hurried and slow requests, and see that it refuses them and goes on answering.

    python tools/faults_page.py [--requests 200] [--seed 0]

It starts a server of its own. What does not hold is printed, and the exit code is 1.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

ALLOWED = {*range(200, 300), *range(400, 500), 503, 507}
MOST_BYTES = 3e9
"""Memory that the server and its processes may have together."""

PROBLEM: dict[str, Any] = {
    "network": {"type": "MLP", "depth": 2, "width": 1.0, "richness": 1.0},
    "data": {"type": "Isotropic", "noise": 0.3},
    "sampling": {"type": "FullBatch", "samples": 2.0},
    "optimizer": {"type": "GradientDescent", "lr": 0.05},
    "steps": 12,
}
FOREIGN_MODULES = ("random", "json", "queue", "numpy", "scipy", "deeplinear", "sitecustomize")
"""Files in the current folder that are called as modules; none may be run."""

CURVE = {"name": "mine", "color": "#000000", "problem": PROBLEM, "experiment": {"dim": 10, "seeds": 2}}
REQUESTS = {
    "solve": {"problem": PROBLEM, "brief": True},
    "correlations": {"problem": PROBLEM, "kind": "feature_correlation", "layer": 1},
    "rates": {"problem": PROBLEM},
    "sharpness": {"problem": PROBLEM},
    "landscape": {"problem": PROBLEM, "along": "line"},
    "weights": {"problem": PROBLEM},
    "schedule": {"problem": PROBLEM | {"steps": 4}},
    "plan": {"problem": PROBLEM | {"steps": 4}},
    "measured": {"problem": PROBLEM, "file": "0123456789abcdef curves.csv"},  # or what the server calls those of FILES
    "data": {"file": "0123456789abcdef rows.npz"},
    "runs": {"files": ["0123456789abcdef curves.csv"], "warmup": 0, "steps": 40, "shape": "wsd"},
    "experiment": {"problem": PROBLEM, "dim": 10, "seeds": 2},
    "netcdf": {"problem": PROBLEM},
    "python": {
        "view": "loss",
        "curves": [CURVE],
        "x": "linear",
        "y": "log",
        "train": True,
        "kind": "feature_correlation",
    },
}
LONG = PROBLEM | {"steps": 900, "optimizer": {"type": "GradientDescent", "lr": 1e-4, "momentum": 0.5}}
UGLY: list[Any] = [
    None, True, 0, -1, 0.5, 1e308, -1e308, 1e-320, 10**400, -(10**400), 10**17, 10**6, "",
    "infinite", "NaN", "__proto__", "x" * 10_000,
    [], [1], [[1, 2], [3]], ["a"], [None], {}, {"type": "MLP"}, {"__proto__": 1}, [[[[[[]]]]]], "\x00",
    "\ud83d\ude00", float("nan"),
    float("inf"), [10**400], [1.0] * 3000,
]  # fmt: skip


def _archive(compression: int) -> bytes:
    """A data set of twenty rows."""
    content, rng = io.BytesIO(), np.random.default_rng(0)
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, columns in (("x", 3), ("y", 1)):
            part = io.BytesIO()
            np.save(part, rng.standard_normal((20, columns)))
            archive.writestr(f"{name}.npy", part.getvalue())
    return content.getvalue()


FILES = {
    "curves.csv": ("measured", b"step,test_loss,train_loss\n0,1.0,1.0\n5,0.7,0.6\n10,0.6,0.4\n"),
    "rows.csv": ("data", b"a,b,y\n" + b"".join(b"%d,%d,%d\n" % (k, k * k % 7, k % 3) for k in range(20))),
    "rows.npz": ("data", _archive(zipfile.ZIP_STORED)),
    "packed.npz": ("data", _archive(zipfile.ZIP_DEFLATED)),
    "lzma.npz": ("data", _archive(zipfile.ZIP_LZMA)),
}
"""Files that are in order, and which request reads them."""


class Page:
    """A server under test, and what was found out about it."""

    def __init__(self, folder: Path) -> None:
        self.tried: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.errors = (folder / "errors").open("w+")
        command = [sys.executable, "-P", "-c", "from deeplinear_command import main; main()"]
        (here := folder / "current folder").mkdir(exist_ok=True)
        for name in FOREIGN_MODULES:
            (here / f"{name}.py").write_text("open('it was run', 'w'); raise SystemExit(3)")
        self.process = subprocess.Popen(
            [*command, "explore", "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=here,
            env=os.environ | {"TMPDIR": str(folder)},
        )
        assert self.process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:(\d+)/)\?token=(\S+)", self.process.stdout.readline())
        assert found, "the server did not start"
        self.address, self.port = found[1], int(found[2])
        self.cookies = {f"deeplinear-{self.port}": found[3]}
        self.client = httpx.Client(cookies=self.cookies, limits=httpx.Limits(max_connections=None))
        self.host = f"host: 127.0.0.1\r\ncookie: deeplinear-{self.port}={found[3]}\r\n".encode()
        self.most_bytes = 0.0
        self.until(lambda: self.load() is not None, 120)

    def count(self, what: str, fault: str | None) -> None:
        """Note that something was tried, and whether it held."""
        self.tried[what] = self.tried.get(what, 0) + 1
        self.faults.setdefault(what, 0)
        if fault:
            self.faults[what] += 1
            print(f"{what}: {fault[:500]}", file=sys.stderr)

    def load(self) -> dict[str, int] | None:
        """Ask how much work there is; None if there is no answer."""
        with contextlib.suppress(httpx.HTTPError):
            load: dict[str, int] = self.client.get(self.address + "api/load", timeout=10).json()
            return load
        return None

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for something, and return whether it came."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.1)
        return False

    def still_answers(self, after: str) -> None:
        """See that nothing works on, that a page comes, and how much memory there is."""
        is_idle = self.until(lambda: self.load() == {"short": 0, "long": 0}, 60)
        self.count("still answering afterwards", None if is_idle else f"after {after}: {self.load()}")
        self.note_memory()
        self.count("memory", None if self.most_bytes < MOST_BYTES else f"{self.most_bytes / 1e9:.1f} GB after {after}")

    def note_memory(self) -> None:
        """See how much memory the server and its processes have."""
        server = psutil.Process(self.process.pid)
        total = 0.0
        for each in (server, *server.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
        self.most_bytes = max(self.most_bytes, total)

    def connection(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a request."""
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in children:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(choose: random.Random) -> tuple[str, dict[str, Any]]:
    """A request with one or two values wrong, missing or added."""
    task = choose.choice(list(REQUESTS))
    body: dict[str, Any] = copy.deepcopy(REQUESTS[task])
    for _ in range(choose.choice((1, 1, 2))):
        *parents, last = choose.choice([*places(body)] or [("extra",)])
        at: Any = body
        for key in parents:
            at = at[key]
        if choose.random() < 0.1 and isinstance(at, dict):
            at.pop(last, None)
        elif choose.random() < 0.1 and isinstance(at, dict):
            last = choose.choice(["", "__proto__", "extra", "type"])
            at[last] = copy.deepcopy(choose.choice(UGLY))
        else:
            at[last] = copy.deepcopy(choose.choice(UGLY))  # one that is changed later must not contain itself
    return task, body


def fault_of(response: httpx.Response, text: str, is_whole: bool) -> str | None:
    """Return what is wrong with an answer: its status, that it says nothing, or that it was cut off."""
    if response.status_code not in ALLOWED:
        return f"status {response.status_code}: {text}"
    if response.status_code != 200:
        try:
            return None if json.loads(text)["error"] else "an empty sentence"
        except (ValueError, KeyError, TypeError):
            return f"status {response.status_code} without a sentence: {text}"
    if "unexpected" in text:
        return text[-400:]
    if is_whole and response.headers["content-type"] == "application/x-ndjson":
        answer = json.loads(text.strip().splitlines()[-1])
        return None if "result" in answer or "error" in answer else f"cut off: {text[-100:]}"
    return None


def send(page: Page, task: str, body: dict[str, Any], patience: float = 5.0) -> str | None:
    """Post a request and return what is wrong with the answer; what is still at work after a while is hung up on."""
    content = json.dumps(body)
    end, text = time.monotonic() + patience, b""
    try:
        with page.client.stream(
            "POST",
            f"{page.address}api/{task}",
            content=content,
            headers={"content-type": "application/json"},
            timeout=60,
        ) as response:
            for chunk in response.iter_bytes():
                text += chunk
                if time.monotonic() > end:
                    return fault_of(response, text.decode("latin-1"), is_whole=False)
            return fault_of(response, text.decode("latin-1"), is_whole=True)
    except httpx.HTTPError as error:
        return f"no answer to {task} {content[:300]}: {error!r}"


def uploaded(page: Page, name: str, content: bytes) -> str:
    """Send a file, and return what the server calls it."""
    headers = {"content-type": "application/octet-stream"}
    answer = page.client.post(
        page.address + "api/upload", params={"name": name}, content=content, headers=headers, timeout=60
    )
    file: str = answer.raise_for_status().json()["file"]
    return file


def damaged_content(choose: random.Random, content: bytes) -> bytes:
    """A file that was cut off, changed, emptied or replaced, or that holds numbers beyond all bounds."""
    changed = bytearray(content)
    for _ in range(choose.choice((1, 1, 3))):
        changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
    numbers = re.sub(
        rb"\d+", lambda _: choose.choice((b"1e300", b"-1", b"nan", b"9" * 400, b"x", b"")), content, count=9
    )
    return choose.choice(
        [bytes(changed), bytes(changed), content[: choose.randrange(len(content))], numbers, b"", choose.randbytes(300)]
    )


def damaged_files(page: Page, choose: random.Random, count: int) -> None:
    """Files that are in order, which must be read, and files that are damaged, which must be read or refused."""
    headers = {"content-type": "application/octet-stream"}
    for name, (task, content) in FILES.items():
        file = uploaded(page, name, content)
        answer = page.client.post(f"{page.address}api/{task}", json=REQUESTS[task] | {"file": file}, timeout=60)
        is_read = '"result"' in answer.text
        page.count("files in order", fault_of(answer, answer.text, is_whole=True) if is_read else f"{name}: not read")
    for _ in range(count):
        name, (task, content) = choose.choice(list(FILES.items()))
        file = uploaded(page, name, damaged_content(choose, content))
        page.count("damaged files", send(page, task, REQUESTS[task] | {"file": file}, patience=60))
    for name in ("", "x" * 3000, "../../etc/passwd", "\x00", "\U0001f600"):
        given = {"name": name} if name else {}
        answer = page.client.post(page.address + "api/upload", params=given, content=b"x", headers=headers, timeout=60)
        page.count("uploads with odd names, types and sizes", fault_of(answer, answer.text, is_whole=True))
    odd = ((b"x", {"content-type": "text/html"}), (b"x", {}), (b"", headers), (b"x" * 65 * 2**20, headers))
    for content, given in odd:
        try:
            answer = page.client.post(page.address + "api/upload", content=content, headers=given, timeout=60)
            fault = fault_of(answer, answer.text, is_whole=True)
        except httpx.HTTPError as error:
            fault = repr(error)
        page.count("uploads with odd names, types and sizes", fault)


LARGE: dict[str, Callable[[], bytes]] = {
    "many short rows": lambda: b"a,b\n" + b"1,2\n" * 16_000_000,
    "many columns": lambda: b",".join([b"1"] * 30_000_000),
    "one long line": lambda: b"a,b\n1,2\n" + b"1," * 30_000_000,
    "a square": lambda: _packed(np.zeros((2000, 2000)), np.zeros(2000)),
    "zeros that unpack to 3 GB": lambda: _packed(np.zeros((400_000, 1000), dtype=np.int64), np.zeros(400_000)),
}
"""Files within the limit of bytes, which must be refused in seconds and little memory."""


def _packed(x: Any, y: Any) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, x=x, y=y)
    return content.getvalue()


def large_files(page: Page) -> None:
    """Two of each at a time, and the memory that they take at most."""
    for what, make in LARGE.items():
        content = make()
        with ThreadPoolExecutor(2) as threads:
            sent = [threads.submit(uploaded, page, "large", content) for _ in range(2)]
            names = [each.result() for each in sent]
            asked = [
                threads.submit(page.client.post, f"{page.address}api/data", json={"file": name}, timeout=90)
                for name in names
            ]
            while not all(each.done() for each in asked):
                page.note_memory()
                time.sleep(0.05)
        for each in asked:
            text = each.result().text
            is_refused = '"error"' in text and "took longer" not in text and "unexpected" not in text
            page.count("files that are too large to be read", None if is_refused else f"{what}: {text[-200:]}")


def malformed(page: Page, choose: random.Random, count: int) -> None:
    """Requests with wrong values, some of them about files that the server has."""
    for task, name in (("measured", "curves.csv"), ("data", "rows.npz")):
        REQUESTS[task]["file"] = uploaded(page, name, FILES[name][1])
    requests = [mutated(choose) for _ in range(count)]
    with ThreadPoolExecutor(4) as threads:
        for fault in threads.map(lambda each: send(page, *each), requests):
            page.count("malformed values", fault)


RAW = [
    b"\x00" * 100, b"GET\r\n\r\n", b"POST /api/solve HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n", b"DELETE /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /page/%2e%2e/app.py HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n{}",
    b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://evil.example\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /api/load HTTP/1.1\r\nhost: 127.0.0.1\r\nsec-fetch-site: cross-site\r\n\r\n",
    b"GET /api/load HTTP/1.1\r\nhost: 127.0.0.1:8911@evil.example\r\n\r\n",
    b"GET /api/load HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /?token=x HTTP/1.1\r\nhost: localhost\r\n\r\n",
]  # fmt: skip


def raw(page: Page) -> None:
    """Bytes that are no request, and requests that are too large."""
    for data in RAW:
        data = data.replace(b"host: 127.0.0.1\r\n", page.host)
        with page.connection() as connection:
            received = b""
            fault = None
            connection.settimeout(40)
            try:
                connection.sendall(data)
                received = connection.recv(65536)
            except TimeoutError:
                fault = f"no end to {data[:60]!r}"
            except ConnectionError as error:
                fault = f"{data[:60]!r}: {error!r}"
            status = re.match(rb"HTTP/1.1 (\d+)", received)
            if status and status[1] == b"200" and b"HTTP/9.9" not in data:
                fault = f"{data[:60]!r} was answered"
            if received and (not status or int(status[1]) not in ALLOWED):
                fault = f"{data[:60]!r} got {received[:100]!r}"
            page.count("malformed HTTP", fault)
    for size, content in ((300_000, b" "), (300_000, b"["), (250_000, b"["), (250_000, b"9")):
        answer = page.client.post(
            page.address + "api/solve", content=content * size, headers={"content-type": "application/json"}, timeout=60
        )
        page.count("huge requests", fault_of(answer, answer.text, is_whole=True))


def half_sent(page: Page, count: int = 220) -> None:
    """Requests that never end."""
    body = json.dumps(REQUESTS["solve"]).encode()
    whole = b"POST /api/solve HTTP/1.1\r\n" + page.host + b"content-type: application/json\r\n"
    whole += b"content-length: %d\r\n\r\n" % len(body) + body
    opened = [page.connection() for _ in range(count)]
    for index, connection in enumerate(opened):
        connection.sendall(whole[: index * (len(whole) - 1) // count])
    page.count("answers beside half-sent requests", None if page.load() else "no answer")
    for connection in opened:
        connection.settimeout(40)
        try:
            while connection.recv(4096):
                pass
            page.count("half-sent requests", None)
        except TimeoutError:
            page.count("half-sent requests", "not closed")
        except ConnectionError:
            page.count("half-sent requests", None)
        connection.close()


def disconnected(page: Page, choose: random.Random, count: int = 24) -> None:
    """Requests of which nobody waits for the answer."""
    tasks = ["solve", "correlations", "rates", "sharpness", "experiment", "netcdf", "python"]
    for index in range(count):
        task = tasks[index % len(tasks)]
        body = json.dumps(REQUESTS[task] | ({"problem": LONG} if task != "python" else {})).encode()
        with page.connection() as connection:
            head = b"POST /api/%s HTTP/1.1\r\n" % task.encode() + page.host + b"content-type: application/json\r\n"
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(choose.random() / 2)
    is_idle = page.until(lambda: page.load() == {"short": 0, "long": 0}, 60)
    for _ in range(count):
        page.count("hung up on", None if is_idle else f"work goes on: {page.load()}")


def at_once(page: Page, count: int = 200) -> None:
    """Many requests at the same time."""
    limits = httpx.Limits(max_connections=count)
    start = threading.Barrier(count)
    with (
        httpx.Client(base_url=page.address, cookies=page.cookies, timeout=120, limits=limits) as client,
        ThreadPoolExecutor(count) as threads,
    ):

        def ask(_: int) -> str | None:
            start.wait()
            try:
                answer = client.post("api/solve", json=REQUESTS["solve"])
            except httpx.HTTPError as error:
                return repr(error)
            return fault_of(answer, answer.text, is_whole=True)

        for fault in threads.map(ask, range(count)):
            page.count("at once", fault)


def slow(page: Page) -> None:
    """Requests that arrive byte by byte, and answers that nobody reads."""
    head = b"POST /api/solve HTTP/1.1\r\n" + page.host + b"content-type: application/json\r\n"
    head += b"content-length: 100000\r\n\r\n"
    senders = [page.connection() for _ in range(10)]
    readers = [page.connection() for _ in range(10)]
    for reader in readers:
        reader.sendall((b"GET /plotly.js HTTP/1.1\r\n" + page.host + b"\r\n") * 4)  # and never reads
    closed = set()
    end = time.monotonic() + 40
    sent = 0
    while len(closed) < len(senders) and time.monotonic() < end:
        for sender in senders:
            try:
                sender.sendall((head + b" " * 1000)[sent : sent + 4])
            except OSError:
                closed.add(sender)
        sent += 4
        time.sleep(0.2)
    for sender in senders:
        page.count("slow senders", None if sender in closed else "not closed")
    for _ in readers:
        page.count("answers beside slow readers", send(page, "solve", REQUESTS["solve"]))
    for each in (*senders, *readers):
        each.close()


def killed(page: Page, folder: Path) -> None:
    """Kill the server, and see that the next one deletes its folder."""
    os.kill(page.process.pid, signal.SIGKILL)
    page.process.wait()
    left = list(folder.glob("deeplinear-explore-*"))
    after = Page(folder)
    gone = not any(each.exists() for each in left)
    page.count("folders of killed servers", None if left and gone else f"{left} left behind")
    after.process.send_signal(signal.SIGINT)
    after.process.wait(30)
    page.count("folders of killed servers", None if not list(folder.glob("deeplinear-explore-*")) else "left behind")


def main() -> int:
    """Try everything and say how much held."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--requests", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    choose = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = Page(folder)
        try:
            for what, phase in {
                "damaged files": lambda: damaged_files(page, choose, given.requests),
                "large files": lambda: large_files(page),
                "malformed values": lambda: malformed(page, choose, given.requests),
                "malformed HTTP": lambda: raw(page),
                "half-sent requests": lambda: half_sent(page),
                "hang-ups": lambda: disconnected(page, choose),
                "200 at once": lambda: at_once(page),
                "slow ones": lambda: slow(page),
            }.items():
                phase()
                page.still_answers(what)
            page.errors.seek(0)
            errors = page.errors.read()
            page.count("nothing on stderr", errors[-500:] or None)
            was_run = (folder / "current folder" / "it was run").exists()
            page.count("modules in the current folder", "one was run" if was_run else None)
            killed(page, folder)
        finally:
            if page.process.poll() is None:
                page.process.kill()
                page.process.wait()
    print("| fault | tried | held |\n|---|---|---|")
    for what, count in page.tried.items():
        print(f"| {what} | {count} | {count - page.faults[what]} |")
    print(f"\nmost memory of server and processes: {page.most_bytes / 1e9:.2f} GB")
    return 1 if any(page.faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
