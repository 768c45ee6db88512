"""The explorer in this process, and in a process of its own with a browser, for the tests of this folder."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from deeplinear._explore.app import make_app
from explorer import running_explorer, served
from explorer_page import Explorer


@pytest.fixture(scope="module")
def app() -> Starlette:
    return make_app()


@pytest.fixture(scope="module")
def client(app: Starlette) -> Iterator[httpx.Client]:
    """A client of a server in this process, so that tests can look inside and change its limits."""
    with served(app) as connected:
        yield connected


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where an explorer runs that all tests in a browser share."""
    with running_explorer() as (url, _):
        yield url


@pytest.fixture(scope="session")
def window(browser: Any) -> Iterator[Any]:
    """A window of the browser that tests share, which then reads the scripts of the page once."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def explorer(window: Any, address: str) -> Iterator[Explorer]:
    page = window.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    yield Explorer(page)
    for each in window.pages:
        each.close()
    assert errors == []
    ours = (address, "about:", "blob:", "data:")
    assert [url for url in requested if not url.startswith(ours)] == []  # works without a network


@pytest.fixture
def phone(browser: Any, address: str) -> Iterator[Explorer]:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    explorer = Explorer(context.new_page())
    explorer.open(address)
    yield explorer
    context.close()
