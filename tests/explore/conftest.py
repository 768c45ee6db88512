"""The explorer in this process, with and without a browser, for the tests of this folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from deeplinear._explore.app import make_app
from explorer import cookies_of, served
from explorer_page import Explorer


@pytest.fixture(scope="session")
def app() -> Starlette:
    return make_app()


@pytest.fixture(scope="session")
def client(app: Starlette) -> Iterator[httpx.Client]:
    """A client of a server in this process, so that tests can look inside and change its limits.

    All share it, since its processes take seconds to start; ``test_page_server`` has servers in processes of their own.
    """
    with served(app) as connected:
        yield connected


@pytest.fixture(scope="session")
def address(client: httpx.Client) -> str:
    """Where browsers find it."""
    return f"{client.base_url}/"


@pytest.fixture(scope="session")
def window(browser: Any, client: httpx.Client) -> Iterator[Any]:
    """A window of the browser that tests share, which then reads the scripts of the page once."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.add_cookies(cookies_of(client))
    yield context
    context.close()


@contextmanager
def watched(page: Any, address: str) -> Iterator[None]:
    """See that a page makes no error meanwhile, and asks nobody else for anything."""
    errors: list[str] = []
    requested: list[str] = []

    def on_error(error: Any) -> None:
        errors.append(str(error))

    def on_request(request: Any) -> None:
        requested.append(request.url)

    page.on("pageerror", on_error)
    page.on("request", on_request)
    yield
    page.remove_listener("pageerror", on_error)
    page.remove_listener("request", on_request)
    assert errors == []
    ours = (address, "about:", "blob:", "data:")
    assert [url for url in requested if not url.startswith(ours)] == []  # works without a network


@pytest.fixture
def own_explorer(window: Any, address: str) -> Iterator[Explorer]:
    """A page that is loaded for one test."""
    others = window.pages
    page = window.new_page()
    with watched(page, address):
        yield Explorer(page)
        for each in window.pages:
            if each not in others:
                each.close()


@pytest.fixture(scope="session")
def kept_page(window: Any) -> Any:
    return window.new_page()


@pytest.fixture
def explorer(kept_page: Any, address: str) -> Iterator[Explorer]:
    """A page that tests share if they leave neither networks nor files behind: to load one takes seconds."""
    with watched(kept_page, address):
        yield Explorer(kept_page)


@pytest.fixture(scope="session")
def kept_phone(browser: Any, client: httpx.Client) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    context.add_cookies(cookies_of(client))
    yield context.new_page()
    context.close()


@pytest.fixture
def phone(kept_phone: Any, address: str) -> Explorer:
    explorer = Explorer(kept_phone)
    explorer.open(address)
    return explorer
