"""The explorer in this process, for the tests of this folder."""

from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette

from deeplinear._explore.app import make_app
from explorer import served


@pytest.fixture(scope="module")
def app() -> Starlette:
    return make_app()


@pytest.fixture(scope="module")
def client(app: Starlette) -> Iterator[httpx.Client]:
    """A client of a server in this process, so that tests can look inside and change its limits."""
    with served(app) as connected:
        yield connected
