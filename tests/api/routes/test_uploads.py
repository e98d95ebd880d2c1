"""tus 1.0.0 over HTTP: begin, send pieces, ask where it is, remove; and batches that are made of
uploads.
"""

import base64
import hashlib
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.settings import Settings
from core.uploads.uploads import LEAST_BYTES
from tests import openapi
from tests.api.conftest import KeyOf, Make, fail_when_read

TASKS = "/v1/models/birds/tasks"
PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 100 bytes are long enough here."""
    monkeypatch.setattr("api.uploads.piece.LEAST_BYTES", 100)


def begin_upload(client: TestClient, length: int, **headers: str) -> str:
    """Begin an upload and return its path."""
    named = {"Upload-Length": str(length), "Tus-Resumable": "1.0.0", **headers}
    answer = client.post("/v1/uploads", headers=named)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def send_piece(client: TestClient, where: str, at: int, data: Any, **headers: str) -> Any:
    return client.patch(where, content=data, headers={**PIECE, "Upload-Offset": str(at), **headers})


def complete_upload(client: TestClient, data: bytes, **headers: str) -> str:
    """Upload bytes in two pieces and return the id of the upload."""
    where, half = begin_upload(client, len(data), **headers), len(data) // 2
    for at, part in ((0, data[:half]), (half, data[half:])):
        assert send_piece(client, where, at, part).status_code == 204
    return where.rpartition("/")[2]


def encode_sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def list_folder_files(settings: Settings, folder: str) -> list[Path]:
    return [path for path in (settings.data_dir / folder).rglob("*") if path.is_file()]


def test_a_client_learns_what_uploads_may_be(shared: TestClient, settings: Settings) -> None:
    answer = shared.options(
        "/v1/uploads", headers={"Tus-Resumable": "0.1.0"}
    )  # which is not looked at
    assert answer.status_code == 204
    headers = answer.headers
    assert headers["tus-version"] == headers["tus-resumable"] == "1.0.0"
    assert headers["tus-extension"] == "creation,expiration,termination,checksum"
    assert headers["tus-max-size"] == str(settings.max_body_bytes)
    assert headers["tus-checksum-algorithm"] == "sha256,sha1"
    limits = f"max-size={settings.max_body_bytes}, min-append-size={LEAST_BYTES}, max-age=86400"
    assert headers["upload-limit"] == limits


def test_a_file_comes_in_pieces_and_every_answer_says_where_it_is(
    client: TestClient, settings: Settings
) -> None:
    data = bytes(range(256))
    named = {"Upload-Length": "256", "Upload-Metadata": "filename YS56aXA=,flag"}
    made = client.post("/v1/uploads", headers=named)
    assert made.status_code == 201
    openapi.check_schema(client, "UploadOut", made.json())
    where = made.headers["location"]
    assert where == f"/v1/uploads/{made.json()['id']}" and made.headers["tus-resumable"] == "1.0.0"
    for at, end in ((0, 100), (100, 256)):
        asked = client.head(where)
        assert asked.status_code == 200 and asked.headers["cache-control"] == "no-store"
        assert (asked.headers["upload-offset"], asked.headers["upload-length"]) == (str(at), "256")
        assert asked.headers["upload-metadata"] == "filename YS56aXA=,flag"
        sent = send_piece(client, where, at, data[at:end])
        assert sent.status_code == 204, sent.text
        assert sent.headers["upload-offset"] == str(end)
        assert parsedate_to_datetime(sent.headers["upload-expires"]).year >= 2024
    assert (
        b"".join(path.read_bytes() for path in sorted(list_folder_files(settings, "store"))) == data
    )
    assert list_folder_files(settings, "spool") == []


def test_a_piece_of_the_drafts_media_type_says_whether_it_is_the_last(client: TestClient) -> None:
    where = begin_upload(client, 300)
    kind = {"Content-Type": "application/partial-upload"}
    asked = {**kind, "Upload-Offset": "0", "Upload-Complete": "?0"}
    first = client.patch(where, content=bytes(200), headers=asked)
    assert (first.status_code, first.headers["upload-complete"]) == (204, "?0")
    asked = {**kind, "Upload-Offset": "200", "Upload-Complete": "?1"}
    assert client.patch(where, content=bytes(99), headers=asked).status_code == 422
    last = client.patch(where, content=bytes(100), headers=asked)
    assert (last.status_code, last.headers["upload-complete"]) == (204, "?1")


def test_a_removed_upload_is_gone_with_its_bytes(client: TestClient, settings: Settings) -> None:
    where = begin_upload(client, 300)
    send_piece(client, where, 0, bytes(200))
    assert client.delete(where).status_code == 204
    assert list_folder_files(settings, "store") == []
    for answer in (
        client.head(where),
        client.delete(where),
        send_piece(client, where, 200, bytes(100)),
    ):
        assert answer.status_code == 404
        assert answer.headers["tus-resumable"] == "1.0.0"


@pytest.mark.parametrize(
    ("offset", "length", "headers", "status", "code"),
    [
        ("1", 200, {}, 409, "offset-mismatch"),
        ("0", 301, {}, 413, "body-too-large"),
        ("0", 99, {}, 422, "invalid"),
        ("0", 0, {}, 422, "invalid"),
        ("-1", 200, {}, 422, "invalid"),
        ("1e2", 200, {}, 422, "invalid"),
        ("9" * 30, 200, {}, 422, "invalid"),
        ("0", 200, {"Tus-Resumable": "0.2.2"}, 412, "protocol-version"),
        ("0", 200, {"Content-Type": "application/zip"}, 415, "unsupported-type"),
        ("0", 200, {"Content-Encoding": "gzip"}, 415, "unsupported-type"),
        ("0", 200, {"Upload-Checksum": "md5 AAAA"}, 422, "invalid"),
        ("0", 200, {"Upload-Checksum": "sha256 AAAA"}, 422, "invalid"),
        ("0", 200, {"Upload-Complete": "yes"}, 422, "invalid"),
        ("0", 200, {"Upload-Complete": "?1"}, 422, "invalid"),
    ],
)  # fmt: skip
def test_a_wrong_piece_is_refused_before_its_body(
    client: TestClient, offset: str, length: int, headers: dict[str, str], status: int, code: str
) -> None:
    where = begin_upload(client, 300)
    named = {**PIECE, "Upload-Offset": offset, "Content-Length": str(length), **headers}
    answer = client.patch(where, content=fail_when_read(), headers=named)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{code}"), answer.text
    assert answer.headers["tus-version"] == "1.0.0"
    assert send_piece(client, where, 0, bytes(300)).status_code == 204  # nobody holds it any more


def test_without_an_offset_nothing_is_taken(client: TestClient) -> None:
    where = begin_upload(client, 300)
    refused = client.patch(where, content=bytes(300), headers=PIECE).json()
    assert refused["errors"][0]["field"] == "Upload-Offset"
    twice = [*PIECE.items(), ("Upload-Offset", "0"), ("Upload-Offset", "1")]
    assert client.patch(where, content=bytes(300), headers=twice).status_code == 422


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_a_piece_with_another_checksum_is_460_and_not_kept(
    client: TestClient, settings: Settings, algorithm: str
) -> None:
    data, where = b"x" * 300, begin_upload(client, 300)
    right = base64.b64encode(hashlib.new(algorithm, data).digest()).decode()
    wrong = base64.b64encode(hashlib.new(algorithm, b"y").digest()).decode()
    refused = send_piece(client, where, 0, data, **{"Upload-Checksum": f"{algorithm} {wrong}"})
    assert (refused.status_code, refused.json()["type"]) == (460, "/problems/checksum-mismatch")
    assert (
        client.head(where).headers["upload-offset"] == "0"
        and list_folder_files(settings, "store") == []
    )
    assert (
        send_piece(
            client, where, 0, data, **{"Upload-Checksum": f"{algorithm} {right}"}
        ).status_code
        == 204
    )


def test_a_content_digest_of_a_piece_is_verified_too(client: TestClient) -> None:
    where = begin_upload(client, 300)
    answer = send_piece(
        client, where, 0, bytes(300), **{"Content-Digest": f"sha-256=:{encode_sha256(b'other')}:"}
    )
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/digest-mismatch")
    assert client.head(where).headers["upload-offset"] == "0"


def test_a_piece_without_a_length_is_kept_however_short_and_refused_when_too_long(
    client: TestClient,
) -> None:
    where = begin_upload(client, 300)
    assert send_piece(client, where, 0, iter([b"x" * 10])).status_code == 204
    assert send_piece(client, where, 10, iter([b"x" * 200, b"x" * 200])).status_code == 413
    assert client.head(where).headers["upload-offset"] == "10"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload-Length": "-1"},
        {"Upload-Length": "many"},
        {"Upload-Length": "9" * 19},
        {"Upload-Length": "１２"},
        {"Upload-Defer-Length": "1"},
        {"Upload-Length": "1", "Upload-Metadata": "name not~base64"},
        {"Upload-Length": "1", "Upload-Metadata": "name YQ==,name YQ=="},
        {"Upload-Length": "1", "Upload-Metadata": ","},
        {"Upload-Length": "1", "Upload-Metadata": "a" * 5000},
        {"Upload-Length": "1", "Upload-Metadata": ",".join(f"k{n} YQ==" for n in range(21))},
        {"Upload-Length": "1", "Repr-Digest": "sha-256=:AAAA:"},
    ],
)
def test_a_wrong_begin_is_422_and_leaves_nothing(
    shared: TestClient, headers: dict[str, str]
) -> None:
    sent = {name: value.encode() for name, value in headers.items()}
    answer = shared.post("/v1/uploads", headers=sent)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid"), answer.text
    assert not [
        row for row in shared.get("/v1/audit").json()["items"] if row["action"] == "upload.create"
    ]


def test_more_than_an_upload_may_have_is_413_and_a_body_415(
    shared: TestClient, settings: Settings
) -> None:
    large = {"Upload-Length": str(settings.max_body_bytes + 1)}
    assert shared.post("/v1/uploads", headers=large).status_code == 413
    assert (
        shared.post("/v1/uploads", headers={"Upload-Length": "1"}, content=b"x").status_code == 415
    )


def test_an_upload_that_is_begun_again_with_its_key_is_the_same(client: TestClient) -> None:
    headers = {"Upload-Length": "300", "Idempotency-Key": "k"}
    first, again = (client.post("/v1/uploads", headers=headers) for _ in range(2))
    assert again.json() == first.json() and again.headers["idempotency-replayed"] == "true"
    assert client.post("/v1/uploads", headers={**headers, "Upload-Length": "3"}).status_code == 422


def test_a_method_that_hides_in_a_header_is_not_looked_for(client: TestClient) -> None:
    where = begin_upload(client, 300)
    for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        assert client.post(where, headers={name: "DELETE"}).status_code == 405
        assert client.head(where, headers={name: "DELETE"}).status_code == 200
    assert client.head(where).status_code == 200


def test_an_owner_has_so_many_open_uploads(client: TestClient, settings: Settings) -> None:
    settings.max_open_uploads = 1
    where = begin_upload(client, 300)
    answer = client.post("/v1/uploads", headers={"Upload-Length": "300"})
    assert (answer.status_code, answer.json()["uploads"]) == (429, [where.rpartition("/")[2]])
    client.delete(where)
    begin_upload(client, 300)


def test_another_owner_finds_no_upload(
    client: TestClient, key_of: KeyOf, birds: str, archive: Make
) -> None:
    foreign, body = key_of("stranger"), archive(a=2)
    where = f"/v1/uploads/{complete_upload(client, body)}"
    for method in ("HEAD", "PATCH", "DELETE"):
        assert client.request(method, where, headers=foreign).status_code == 404
    birds = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
    assert client.post("/v1/models", headers=foreign, json=birds).status_code == 201
    named = {"upload": where.rpartition("/")[2]}
    assert client.post(TASKS, json=named, headers=foreign).status_code == 404
    assert client.head(where).headers["upload-complete"] == "?1"


# Batches of uploads.


@pytest.fixture
def birds(client: TestClient) -> str:
    model = {
        "name": "birds",
        "scenario": "class",
        "architecture": "small-cnn",
        "recipe": {"method": "er"},
    }
    assert client.post("/v1/models", json=model).status_code == 201
    return "birds"


def test_a_complete_upload_becomes_a_task_and_is_spent(
    client: TestClient, settings: Settings, archive: Make, birds: str
) -> None:
    body = archive(cat=3, dog=4)
    name = complete_upload(client, body)
    answer = client.post(TASKS, json={"upload": name, "name": "week-1", "recipe": {"epochs": 3}})
    assert answer.status_code == 202, answer.text
    task, job = answer.json()["task"], answer.json()["job"]
    assert (task["sha256"], task["bytes"]) == (hashlib.sha256(body).hexdigest(), len(body))
    assert task["classes"] == {"cat": 3, "dog": 4} and task["name"] == "week-1"
    assert client.get(f"/v1/jobs/{job['id']}").json()["recipe"]["epochs"] == 3
    assert [
        path.read_bytes()
        for path in list_folder_files(settings, "store")
        if "archives" in path.parts
    ] == [body]
    assert (
        not (settings.data_dir / "store" / "uploads").exists()
        and list_folder_files(settings, "spool") == []
    )
    assert client.post(TASKS, json={"upload": name}).status_code == 404


@pytest.mark.parametrize("way", ["only", "full"])
def test_a_check_keeps_the_upload(client: TestClient, archive: Make, birds: str, way: str) -> None:
    name = complete_upload(client, archive(cat=3, dog=4))
    checked = client.post(f"{TASKS}?validate={way}", json={"upload": name})
    assert checked.status_code == {"only": 200, "full": 202}[way], checked.text
    assert client.get(TASKS).json()["items"] == []
    assert client.post(TASKS, json={"upload": name}).status_code == 202


def test_an_incomplete_upload_is_409_with_its_offset(
    client: TestClient, archive: Make, birds: str
) -> None:
    body = archive(a=2, b=2)
    where = begin_upload(client, len(body))
    send_piece(client, where, 0, body[:200])
    answer = client.post(TASKS, json={"upload": where.rpartition("/")[2]})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/upload-incomplete")
    assert (answer.json()["offset"], answer.json()["length"]) == (200, len(body))


def test_a_repeated_submit_is_the_first_answer_though_its_upload_is_spent(
    client: TestClient, archive: Make, birds: str
) -> None:
    named, headers = (
        {"upload": complete_upload(client, archive(a=2, b=2))},
        {"Idempotency-Key": "k"},
    )
    first = client.post(TASKS, json=named, headers=headers)
    again = client.post(TASKS, json=named, headers=headers)
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert client.post(TASKS, json={**named, "name": "x"}, headers=headers).status_code == 422
    assert len(client.get(TASKS).json()["items"]) == 1


def test_a_batch_that_is_refused_keeps_its_upload(
    client: TestClient, settings: Settings, archive: Make, birds: str
) -> None:
    name, none = (
        complete_upload(client, archive(a=2, b=2)),
        complete_upload(client, b"no archive" * 50),
    )
    assert client.post(TASKS, json={"upload": none}).status_code == 415
    assert client.post(TASKS, json={"upload": name, "recipe": {"epochs": 0}}).status_code == 422
    settings.max_open_jobs = 0
    assert client.post(TASKS, json={"upload": name}).status_code == 429
    settings.max_open_jobs = 10
    assert list_folder_files(settings, "spool") == []
    assert client.post(TASKS, json={"upload": name}).status_code == 202


def test_an_announced_digest_of_the_whole_is_compared(
    client: TestClient, archive: Make, birds: str
) -> None:
    body = archive(a=2, b=2)
    wrong = complete_upload(client, body, **{"Repr-Digest": f"sha-256=:{encode_sha256(b'other')}:"})
    answer = client.post(TASKS, json={"upload": wrong})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/digest-mismatch")
    right = complete_upload(client, body, **{"Repr-Digest": f"sha-256=:{encode_sha256(body)}:"})
    assert client.post(TASKS, json={"upload": right}).status_code == 202


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "upload"),
        ({"upload": 3}, "upload"),
        ({"upload": "x" * 41}, "upload"),
        ({"upload": "upl_x", "colour": 1}, "colour"),
        ({"upload": "upl_x", "name": ""}, "name"),
        ({"upload": "upl_x", "recipe": []}, "recipe"),
    ],
)
def test_a_wrong_body_names_its_field(
    client: TestClient, birds: str, body: dict[str, Any], field: str
) -> None:
    answer = client.post(TASKS, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_name_and_recipe_are_said_in_one_place(client: TestClient, birds: str) -> None:
    assert client.post(f"{TASKS}?name=a", json={"upload": "upl_x", "name": "b"}).status_code == 422
    twice = client.post(
        TASKS, json={"upload": "upl_x", "recipe": {}}, headers={"Perennial-Recipe": "{}"}
    )
    assert twice.json()["type"] == "/problems/invalid-recipe"
    assert (
        client.post(TASKS, content=b"{", headers={"Content-Type": "application/json"}).status_code
        == 422
    )
    large = {"Content-Type": "application/json"}
    assert client.post(TASKS, content=b" " * (1 << 20) + b"{}", headers=large).status_code == 413


def test_the_quota_counts_an_upload_once(
    client: TestClient, settings: Settings, archive: Make, birds: str
) -> None:
    body = archive(a=2, b=2)
    settings.max_owner_bytes = len(body) * 3 // 2
    name = complete_upload(client, body)
    more = client.post("/v1/uploads", headers={"Upload-Length": str(len(body))})
    assert (more.status_code, more.json()["type"]) == (429, "/problems/storage-full")
    assert client.post(TASKS, json={"upload": name}).status_code == 202
    assert client.post("/v1/uploads", headers={"Upload-Length": str(len(body))}).status_code == 429


# Pieces that are cut off.


def send_incomplete_piece(
    client: TestClient, where: str, came: list[bytes], *, stalls: bool = False, **headers: str
) -> int:
    """Send a part of a piece of 300 bytes, then disconnect, or send nothing more (`stalls`).
    Return the status of the response.
    """
    key = {"Authorization": client.headers["Authorization"]}
    sent = {**PIECE, **key, "Upload-Offset": "0", "Content-Length": "300", **headers}
    messages = iter([{"type": "http.request", "body": body, "more_body": True} for body in came])
    statuses: list[int] = []

    async def receive_message() -> Any:
        message = next(messages, None)
        if message is None and stalls:
            # As the limit on its pauses does: `tests/api/uploads/test_slow_bodies.py`
            raise TimeoutError
        return message or {"type": "http.disconnect"}

    async def send_back(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "PATCH", "scheme": "http",
        "path": where, "raw_path": where.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    assert client.portal is not None
    client.portal.call(client.app, scope, receive_message, send_back)
    return statuses[0]


def test_what_came_of_a_piece_whose_client_left_is_kept(
    client: TestClient, settings: Settings
) -> None:
    where = begin_upload(client, 300)
    assert send_incomplete_piece(client, where, [b"a" * 20, b"b" * 3]) == 400
    assert client.head(where).headers["upload-offset"] == "23"
    assert [path.read_bytes() for path in list_folder_files(settings, "store")] == [
        b"a" * 20 + b"b" * 3
    ]
    assert list_folder_files(settings, "spool") == []
    assert send_piece(client, where, 23, bytes(277)).status_code == 204


def test_what_came_of_a_piece_that_stalls_is_kept(client: TestClient) -> None:
    where = begin_upload(client, 300)
    assert send_incomplete_piece(client, where, [b"a" * 20], stalls=True) == 408
    assert client.head(where).headers["upload-offset"] == "20"


def test_nothing_is_kept_of_a_cut_piece_whose_checksum_cannot_be_told(
    client: TestClient, settings: Settings
) -> None:
    where = begin_upload(client, 300)
    for said in (
        {"Upload-Checksum": f"sha256 {encode_sha256(b'x')}"},
        {"Content-Digest": f"sha-256=:{encode_sha256(b'x')}:"},
    ):
        assert send_incomplete_piece(client, where, [b"a" * 20], **said) == 400
    assert (
        client.head(where).headers["upload-offset"] == "0"
        and list_folder_files(settings, "store") == []
    )


def test_a_client_that_leaves_before_the_first_byte_holds_nothing(client: TestClient) -> None:
    where = begin_upload(client, 300)
    assert send_incomplete_piece(client, where, []) == 400
    assert send_piece(client, where, 0, bytes(300)).status_code == 204


@pytest.mark.parametrize("header", ["Upload-Concat", "Upload-Defer-Length"])
@pytest.mark.parametrize("value", ["partial", "final;/v1/uploads/upl_a /v1/uploads/upl_b", "1", ""])
def test_an_extension_that_is_not_spoken_is_refused_by_its_name(
    shared: TestClient, header: str, value: str
) -> None:
    named = {"Upload-Length": "10", "Tus-Resumable": "1.0.0", header: value}
    answer = shared.post("/v1/uploads", headers=named)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == header
    assert answer.json()["detail"].startswith(f"{header} is not supported")
