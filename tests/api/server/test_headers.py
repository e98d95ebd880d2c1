"""Every kind of answer carries the security headers; only pages for browsers let one run
anything.
"""

import re

import pytest
from starlette.testclient import TestClient

from tests.api.conftest import Make

STRICT = "default-src 'none'; frame-ancestors 'none'"


def assert_security_headers(answer: object, cache: str = "no-store", policy: str = STRICT) -> None:
    headers = answer.headers  # type: ignore[attr-defined]
    assert headers.get_list("x-content-type-options") == ["nosniff"]
    assert headers.get_list("x-frame-options") == ["DENY"]
    assert headers.get_list("referrer-policy") == ["no-referrer"]
    assert headers.get_list("cache-control") == [cache]
    assert headers.get_list("content-security-policy") == [policy]


@pytest.fixture
def job(client: TestClient, archive: Make) -> str:
    client.post(
        "/v1/models", json={"name": "birds", "scenario": "class", "architecture": "small-cnn"}
    )
    return client.post("/v1/models/birds/tasks", content=archive(a=2, b=2)).json()["job"]["id"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/healthz", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/metrics", 200),
        ("POST", "/v1/keys", 201),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/models", 405),
        ("GET", "/v1/models?limt=1", 422),
        ("GET", "/v1/models/shared/versions/0/download", 422),
    ],
)
def test_answers_and_problems_are_secured(
    shared: TestClient, method: str, path: str, status: int
) -> None:
    key = {"name": "k", "owner": "o", "scope": "read"}  # whose secret the answer holds
    answer = shared.request(method, path, json=key if method == "POST" else None)
    assert answer.status_code == status, answer.text
    assert_security_headers(answer)


def test_an_unexpected_error_is_secured(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_runtime_error(*_: object, **__: object) -> None:
        raise RuntimeError("not to be told")

    monkeypatch.setattr("core.keys.keys.list_keys", raise_runtime_error)
    answer = client.get("/v1/keys")
    assert answer.status_code == 500
    assert "not to be told" not in answer.text
    assert_security_headers(answer)


def test_answers_with_an_etag_are_kept_by_the_client_alone(client: TestClient, job: str) -> None:
    answer = client.get(f"/v1/jobs/{job}")
    assert_security_headers(answer, "private, no-cache")
    unchanged = client.get(f"/v1/jobs/{job}", headers={"If-None-Match": answer.headers["etag"]})
    assert unchanged.status_code == 304
    assert_security_headers(unchanged, "private, no-cache")


def test_an_event_stream_is_secured(client: TestClient, job: str) -> None:
    client.post(f"/v1/jobs/{job}/cancel")  # its stream then ends
    answer = client.get(f"/v1/jobs/{job}/events", headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert_security_headers(answer)


def test_docs_load_nothing_from_another_host(shared: TestClient) -> None:
    answer = shared.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert_security_headers(answer, policy=policy)
    assert "unsafe" not in policy and "//" not in policy
    loaded = re.findall(r'(?:src|href|data-document)="([^"]+)"', answer.text)
    assert len(loaded) == 5 and all(place.startswith("/") for place in loaded)
    assert all(shared.get(place).status_code == 200 for place in loaded)
    assert "<script>" not in answer.text and "style=" not in answer.text
