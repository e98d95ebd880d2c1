"""The list of uploads that are neither submitted nor removed: what a person looks at when the quota
is full.
"""

import base64

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from core.database.tables import Upload
from core.settings import Settings
from tests import openapi
from tests.api.conftest import KeyOf


def begin_upload(
    client: TestClient, length: int = 300, name: str | None = None, **headers: str
) -> str:
    """Begin an upload and return its id."""
    if name is not None:
        headers["Upload-Metadata"] = (
            f"model YQ==,filename {base64.b64encode(name.encode()).decode()}"
        )
    answer = client.post("/v1/uploads", headers={"Upload-Length": str(length), **headers})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_open_uploads_are_listed_newest_first_with_what_has_come(client: TestClient) -> None:
    first, second = begin_upload(client, 300, "week-31.zip"), begin_upload(client, 500)
    piece = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    assert (
        client.patch(f"/v1/uploads/{first}", content=bytes(300), headers=piece).status_code == 204
    )
    answer = client.get("/v1/uploads")
    openapi.check_schema(client, "UploadPage", answer.json())
    items = answer.json()["items"]
    shown = [(item["id"], item["filename"], item["offset"], item["length"]) for item in items]
    assert shown == [(second, None, 0, 500), (first, "week-31.zip", 300, 300)]
    assert items[0]["created_at"] < items[0]["expires_at"]


def test_the_list_comes_in_pages(client: TestClient) -> None:
    made = [begin_upload(client) for _ in range(3)]
    page = client.get("/v1/uploads?limit=2").json()
    rest = client.get(f"/v1/uploads?limit=2&cursor={page['next_cursor']}").json()
    assert [item["id"] for item in [*page["items"], *rest["items"]]] == made[::-1]
    assert rest["next_cursor"] is None


def test_what_is_removed_or_expired_is_not_listed(client: TestClient) -> None:
    removed, expired = begin_upload(client), begin_upload(client)
    client.delete(f"/v1/uploads/{removed}")
    with client.app.state.database.write() as session:  # type: ignore[attr-defined]
        session.execute(update(Upload).where(Upload.id == expired).values(expires_at=0.0))
    assert client.get("/v1/uploads").json()["items"] == []


def test_everybody_sees_his_own(client: TestClient, key_of: KeyOf) -> None:
    foreign = key_of("stranger")
    begin_upload(client)
    assert client.get("/v1/uploads", headers=foreign).json()["items"] == []
    own = begin_upload(client, **foreign)
    assert [item["id"] for item in client.get("/v1/uploads", headers=foreign).json()["items"]] == [
        own
    ]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("Käfer – Woche 31.zip", "Käfer – Woche 31.zip"),
        ("a\x1b[31m\nb\u202e.zip", "a\ufffd[31m\ufffdb\ufffd.zip"),
        ("x" * 300, "x" * 255),
        ("", None),
    ],
)
def test_a_file_name_is_text_that_can_be_printed(
    client: TestClient, sent: str, shown: str | None
) -> None:
    begin_upload(client, name=sent)
    assert client.get("/v1/uploads").json()["items"][0]["filename"] == shown


def test_a_file_name_that_is_no_utf8_is_shown_with_marks(client: TestClient) -> None:
    begin_upload(client, **{"Upload-Metadata": "filename /w==, x"})
    assert client.get("/v1/uploads").json()["items"][0]["filename"] == "\ufffd"


def test_who_has_too_many_open_uploads_is_told_where_they_are(
    client: TestClient, settings: Settings
) -> None:
    settings.max_open_uploads = 1
    begin_upload(client)
    refused = client.post("/v1/uploads", headers={"Upload-Length": "1"})
    assert refused.status_code == 429 and "GET /v1/uploads" in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) < 10, "nothing changes by waiting: a client need not"
