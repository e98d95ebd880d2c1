"""Fixtures for tests of the pages without a browser.

A client logs in and sends its requests as a browser would.
"""

import re
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.api.routes.conftest import model, publish  # noqa: F401


@pytest.fixture
def browser(client: TestClient) -> TestClient:
    """Return the client without its key, on a loopback address.

    Redirects are not followed automatically.
    """
    client.browser_key = client.headers.pop("Authorization").removeprefix("Bearer ")  # type: ignore[attr-defined]
    client.base_url = "http://127.0.0.1:8000"
    client.headers.update({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8000"})
    client.follow_redirects = False
    return client


@pytest.fixture
def logged_in(browser: TestClient) -> TestClient:
    """Return the browser after logging in with the first admin key."""
    answer = browser.post("/ui/login", data={"key": browser.browser_key, "next": ""})  # type: ignore[attr-defined]
    assert answer.status_code == 303, answer.text
    return browser


@pytest.fixture
def text() -> Callable[[str], str]:
    """Return a function that extracts the text of a page, without tags and with single spaces."""
    return lambda html: re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
