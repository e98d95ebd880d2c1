"""The storage quota over HTTP: 429 with Retry-After, before the body is read where its length is
declared.
"""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from core.settings import Settings
from tests.api.conftest import Make, create_model, fail_when_read, serve_api

TASKS = "/v1/models/birds/tasks"


@pytest.fixture
def limited(settings: Settings, archive: Make) -> Iterator[TestClient]:
    """An API in which an owner may store one and a half archives."""
    settings.max_owner_bytes = len(archive(a=2, b=2)) * 3 // 2
    with serve_api(settings) as client:
        create_model(client)
        yield client


def test_an_upload_over_the_quota_is_429_before_its_body(
    limited: TestClient, archive: Make
) -> None:
    body = archive(a=2, b=2)
    assert limited.post(TASKS, content=body).status_code == 202
    answer = limited.post(
        TASKS, content=fail_when_read(), headers={"Content-Length": str(len(body))}
    )
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    problem = answer.json()
    assert problem["type"] == "/problems/storage-full"
    assert (problem["used"], problem["limit"]) == (len(body), len(body) * 3 // 2)
    assert "Delete" in problem["detail"]


def test_a_chunked_upload_over_the_quota_is_refused_when_its_size_is_known(
    limited: TestClient, archive: Make
) -> None:
    assert limited.post(TASKS, content=iter([archive(a=2, b=2)])).status_code == 202
    assert limited.post(TASKS, content=iter([archive(c=2, d=2)])).status_code == 429
    assert len(limited.get(TASKS).json()["items"]) == 1
