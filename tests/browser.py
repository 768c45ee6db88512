"""A real browser for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one the test is skipped, or fails where DEEPLINEAR_REQUIRE names chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if "chromium" in os.environ.get("DEEPLINEAR_REQUIRE", "").split(","):
            pytest.fail("Chromium is required here and was not found")
        pytest.skip("Chromium was not found: install it to test pages (on Debian: apt install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
