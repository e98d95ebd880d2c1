"""`/` says where to go, to anybody."""

import threading

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from core.recipe.catalogue import LazyRecipeCatalogue
from core.settings import Settings

LIMIT_S = 60
"""Generous, since the machine may be busy."""


def test_the_root_names_where_to_go_without_a_key(client: TestClient) -> None:
    del client.headers["Authorization"]
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert told["name"] == "Perennial" and told["version"]
    assert "Authorization: Bearer" in told["key"] and "README.md" in told["readme"]
    for name in ("docs", "openapi", "health", "ready"):
        assert client.get(told[name]).status_code == 200, name
    for name in ("models", "methods"):
        assert client.get(told[name]).status_code == 401, name


def test_the_root_leads_a_browser_to_the_pages(client: TestClient) -> None:
    del client.headers["Authorization"]
    answer = client.get(
        "/", headers={"Accept": "text/html,application/xhtml+xml"}, follow_redirects=False
    )
    assert answer.status_code == 303 and answer.headers["location"] == "/ui"
    client.app.root_path = "/perennial"  # type: ignore[attr-defined]
    answer = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.headers["location"] == "/perennial/ui"


def test_the_root_answers_a_head(client: TestClient) -> None:
    del client.headers["Authorization"]
    answer = client.head("/")
    assert answer.status_code == 200 and int(answer.headers["content-length"]) > 100


def test_the_root_is_in_the_openapi_document_and_needs_no_key(client: TestClient) -> None:
    operations = client.get("/openapi.json").json()["paths"]["/"]
    assert set(operations) == {"get", "head"}
    assert not any("security" in operation for operation in operations.values())


def test_behind_a_proxy_the_root_names_the_paths_that_lead_to_it(client: TestClient) -> None:
    client.app.root_path = "/perennial"  # type: ignore[attr-defined]
    assert client.get("/").json()["docs"] == "/perennial/docs"


def test_the_root_takes_nothing_but_reads(client: TestClient) -> None:
    answer = client.post("/", json={})
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD"


def test_a_catalogue_that_cannot_be_built_at_the_start_is_logged_and_stops_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raise_os_error(_: LazyRecipeCatalogue) -> None:
        raise OSError("no process can be started")

    monkeypatch.setattr(LazyRecipeCatalogue, "__call__", raise_os_error)
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        for thread in threading.enumerate():
            if thread.name == "catalogue":
                thread.join(LIMIT_S)
        assert client.get("/healthz").status_code == 200
    assert "no process can be started" in capsys.readouterr().err
