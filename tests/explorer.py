"""The explorer as its own process, for tests."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running_explorer() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start ``deeplinear explore`` on a free port; give its address and its process, and end it as a user would."""
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
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        yield found[0], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        process.stdout.close()
