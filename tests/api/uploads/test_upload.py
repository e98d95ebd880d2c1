"""Submitting a batch: as a body or a form, checked on the way, and nothing left behind when it
fails.
"""

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from api.uploads import batch_request
from api.uploads.body import FLUSH_BYTES
from core.settings import Settings
from tests import openapi
from tests.api.conftest import Make, create_model

TASKS = "/v1/models/birds/tasks"


@pytest.fixture(autouse=True)
def birds(client: TestClient) -> None:
    create_model(client, recipe={"method": "er"})


def list_stored_files(settings: Settings) -> list[Path]:
    """Return all files of the store."""
    folder = settings.data_dir / "store"
    return [p for p in folder.rglob("*") if p.is_file()] if folder.exists() else []


def list_spooled_files(settings: Settings) -> list[Path]:
    return list(settings.make_folder("spool").iterdir())


def format_digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def test_a_batch_becomes_a_task_and_a_queued_job(
    client: TestClient, settings: Settings, archive: Make
) -> None:
    body = archive(cat=3, dog=4)
    answer = client.post(
        f"{TASKS}?name=week-1", content=body, headers={"content-type": "application/zip"}
    )
    assert answer.status_code == 202, answer.text
    task, job = answer.json()["task"], answer.json()["job"]
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert int(answer.headers["retry-after"]) > 0
    assert task["number"] == 1
    assert task["name"] == "week-1"
    assert task["sha256"] == hashlib.sha256(body).hexdigest()
    assert task["classes"] == {"cat": 3, "dog": 4}
    assert task["job"] == job["id"]
    assert job["state"] == "queued"
    assert [p.read_bytes() for p in list_stored_files(settings)] == [body]
    assert list_spooled_files(settings) == []
    assert client.get(TASKS).json()["items"] == [task]
    assert client.get(f"{TASKS}/1").json() == task
    assert client.get(f"{TASKS}/2").status_code == 404


def test_a_tar_is_taken(client: TestClient, archive: Make) -> None:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive(a=2, b=2))) as source,
        tarfile.open(fileobj=out, mode="w") as tar,
    ):
        for name in source.namelist():
            info = tarfile.TarInfo(name)
            info.size = len(source.read(name))
            tar.addfile(info, io.BytesIO(source.read(name)))
    answer = client.post(
        TASKS, content=out.getvalue(), headers={"content-type": "application/x-tar"}
    )
    assert answer.status_code == 202, answer.text


def test_a_form_larger_than_the_buffers_is_taken(client: TestClient, archive: Make) -> None:
    first = archive(a=2, b=2)
    content = io.BytesIO(first)
    with zipfile.ZipFile(content, "a") as file:
        file.writestr("readme.txt", bytes(3 * FLUSH_BYTES))
    answer = client.post(TASKS, files={"file": ("a.zip", content.getvalue(), "application/zip")})
    assert answer.status_code == 202, answer.text
    assert answer.json()["task"]["sha256"] == hashlib.sha256(content.getvalue()).hexdigest()


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_form_is_read_however_it_is_cut(client: TestClient, archive: Make, piece: int) -> None:
    data = archive(a=1, b=1)
    body = (
        b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'
        + data
        + b'\r\n--xx\r\nContent-Disposition: form-data; name="recipe"\r\n\r\n{"epochs": '
        b"2}\r\n--xx--\r\n"
    )

    def yield_pieces() -> Iterator[bytes]:
        for start in range(0, len(body), piece):
            yield body[start : start + piece]

    headers = {"content-type": "multipart/form-data; boundary=xx"}
    answer = client.post(TASKS, content=yield_pieces(), headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.json()["task"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert answer.json()["job"]["recipe"]["epochs"] == 2


def test_validate_only_reports_and_submits_nothing(
    client: TestClient, settings: Settings, archive: Make
) -> None:
    answer = client.post(f"{TASKS}?validate=only", content=archive(test=1, a=3, b=2))
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["classes"] == {"a": 4, "b": 3} or report["classes"] == {"a": 3, "b": 2}
    assert (report["n_train"], report["n_test"]) == (5, 2)
    assert client.get(TASKS).json()["items"] == []
    assert list_spooled_files(settings) == list_stored_files(settings) == []


def test_a_check_names_classes_ignored_files_and_what_it_could_not_see(
    client: TestClient, archive: Make
) -> None:
    assert client.post(TASKS, content=archive(**{"t-shirt": 2})).status_code == 202
    body = io.BytesIO(archive(tshirt=2))
    with zipfile.ZipFile(body, "a") as file:
        file.writestr("train/tshirt/notes.txt", "words")
    answer = client.post(
        f"{TASKS}?validate=only&duplicates_policy=drop", content=body.getvalue()
    ).json()
    assert answer["checked"] == "names and sizes" and len(answer["not_checked"]) == 3
    report = answer["report"]
    alike = [{"label": "tshirt", "like": "t-shirt"}]
    assert report["classes"] == {"new": ["tshirt"], "known": [], "look_alike": alike}
    ignored = {"path": "train/tshirt/notes.txt", "reason": "not an image, by its name"}
    assert report["ignored_files"] == [ignored]
    assert report["duplicates_policy"] == "drop"
    assert (
        report["notes"] == answer["notes"] == ["the folder “train” was taken as the training part"]
    )
    assert any("looks like “t-shirt”" in text for text in answer["warnings"])
    openapi.check_schema(client, "Report", answer)
    for task in client.get(TASKS).json()["items"]:
        openapi.check_schema(client, "TaskOut", task)


def test_the_policy_for_equal_images_is_kept_with_the_task(
    client: TestClient, archive: Make
) -> None:
    for query, policy in (
        ("?again=true", "keep"),
        ("?again=true&duplicates_policy=keep", "keep"),
        ("?again=true&duplicates_policy=drop", "drop"),
    ):
        answer = client.post(TASKS + query, content=archive(a=2, b=2))
        assert answer.json()["task"]["report"]["duplicates_policy"] == policy
    refused = client.post(f"{TASKS}?duplicates_policy=merge", content=archive(a=2))
    assert refused.status_code == 422
    assert "keep" in refused.text and "drop" in refused.text


def test_a_wrong_labels_csv_says_what_was_found_and_what_to_send(client: TestClient) -> None:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as file:
        file.writestr("labels.csv", "file;what\r\nb.png;hat\r\n")
        file.writestr("a.png", "x")
    answer = client.post(TASKS, content=body.getvalue())
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        "“labels.csv” has the columns “file”, “what”; its first entry is “b.png,hat”, and none of "
        "them names images of the batch, or nothing stands beside them. Expected is a column of "
        "images and one of labels, such as “path,label” and then “images/1.jpg,cat”; ?image=COLUMN "
        "?label=COLUMN name them."
    )


def test_more_bad_entries_are_taken_where_the_request_allows_them(
    client: TestClient, archive: Make
) -> None:
    body = io.BytesIO(archive(cat=4, dog=4))
    with zipfile.ZipFile(body, "a") as file:
        rows = "".join(
            f"{name},{name.split('/')[-2]},{number % 2}\n"
            for number, name in enumerate(file.namelist())
        )
        file.writestr("t.csv", f"file,animal,side\n{rows}no1.png,cat,0\nno2.png,cat,0\n")
    for query, status in (("", 422), ("&label=animal", 422), ("&label=animal&max_bad=20%25", 200)):
        answer = client.post(f"{TASKS}?validate=only&table=t.csv{query}", content=body.getvalue())
        assert answer.status_code == status, answer.text
    assert answer.json()["classes"] == {"cat": 4, "dog": 4}
    assert [row["where"] for row in answer.json()["report"]["bad_entries"]] == [
        "line 10 of t.csv",
        "line 11 of t.csv",
    ]


def test_a_repeated_batch_is_answered_with_its_task_and_learned_only_as_asked(
    client: TestClient, archive: Make
) -> None:
    body = archive(a=2, b=2)
    first = client.post(f"{TASKS}?name=first", content=body).json()
    client.post(TASKS, content=archive(a=3, b=2))
    repeats = {"task": 1, "standing": "queued", "version": None}
    check = client.post(f"{TASKS}?validate=only", content=body)
    assert (check.status_code, check.json()["repeats"]) == (200, repeats)
    again = client.post(TASKS, content=body)
    assert (again.status_code, again.json()["repeats"]) == (200, repeats)
    assert again.headers["location"] == f"/v1/jobs/{first['job']['id']}"
    assert again.json()["task"]["id"] == first["task"]["id"]
    asked = client.post(f"{TASKS}?again=true", content=body)
    assert (asked.status_code, asked.json()["task"]["number"]) == (202, 3)
    assert any(
        "task 1 (“first”, classes a and b)" in text for text in asked.json()["task"]["warnings"]
    )


def test_a_repeated_batch_that_came_in_pieces_spends_its_upload(
    client: TestClient, archive: Make
) -> None:
    body = archive(a=2, b=2)
    client.post(TASKS, content=body)
    begun = client.post(
        "/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": str(len(body))}
    )
    where = begun.headers["location"]
    piece = {
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
    }
    assert client.patch(where, content=body, headers=piece).status_code == 204
    answer = client.post(TASKS, json={"upload": where.rpartition("/")[2]})
    assert (answer.status_code, answer.json()["repeats"]["task"]) == (200, 1)
    assert client.head(where, headers={"Tus-Resumable": "1.0.0"}).status_code in (404, 410)


@pytest.mark.parametrize(
    ("recipe", "field"),
    [('{"epochs": 0}', "recipe.epochs"), ('{"method": "none"}', "recipe.method.name")],
)
def test_a_wrong_recipe_of_a_batch_is_refused_by_its_field(
    client: TestClient, archive: Make, recipe: str, field: str
) -> None:
    answer = client.post(TASKS, content=archive(a=2), headers={"Perennial-Recipe": recipe})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


def test_a_class_that_the_model_does_not_know_is_refused_with_the_list(
    client: TestClient, settings: Settings, archive: Make
) -> None:
    create_model(client, "fixed", scenario="data", classes=["cat", "dog"])
    answer = client.post("/v1/models/fixed/tasks", content=archive(cat=2, bird=2))
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/labels-invalid"
    assert answer.json()["unknown"] == ["bird"]
    assert answer.json()["classes"] == ["cat", "dog"]
    assert list_stored_files(settings) == []


def test_a_replayed_upload_is_the_first_answer(
    client: TestClient, settings: Settings, archive: Make
) -> None:
    body, headers = archive(a=2, b=2), {"Idempotency-Key": "k"}
    first = client.post(TASKS, content=body, headers=headers)
    again = client.post(TASKS, content=body, headers=headers)
    assert again.status_code == 202
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    assert len(client.get(TASKS).json()["items"]) == 1
    assert len(list_stored_files(settings)) == 1
    assert list_spooled_files(settings) == []


def test_a_transaction_that_fails_leaves_no_archive(
    client: TestClient, settings: Settings, archive: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_operational_error(*_: object, **__: object) -> None:
        raise OperationalError("INSERT", {}, Exception("connection refused"))

    monkeypatch.setattr("core.tasks.submission.record_audit_entry", raise_operational_error)
    answer = client.post(TASKS, content=archive(a=2), headers={"Idempotency-Key": "k"})
    assert answer.status_code == 503
    assert list_spooled_files(settings) == list_stored_files(settings) == []
    assert client.get(TASKS).json()["items"] == []
    monkeypatch.undo()
    assert (
        client.post(TASKS, content=archive(a=2), headers={"Idempotency-Key": "k"}).status_code
        == 202
    )


def test_the_doorbell_rings_after_the_commit(
    client: TestClient, archive: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []

    def record_rung_job(job_id: str) -> None:
        assert client.app.state.database is not None  # type: ignore[attr-defined]
        rung.append(job_id)

    monkeypatch.setattr(client.app.state.doorbell, "notify_workers", record_rung_job)  # type: ignore[attr-defined]
    job = client.post(TASKS, content=archive(a=2)).json()["job"]["id"]
    assert rung == [job]


def test_a_tasks_data_can_be_deleted_when_its_job_is_over(
    client: TestClient, settings: Settings, archive: Make
) -> None:
    job = client.post(TASKS, content=archive(a=2)).json()["job"]["id"]
    assert client.delete(f"{TASKS}/1/data").status_code == 409
    client.post(f"/v1/jobs/{job}/cancel")
    assert client.delete(f"{TASKS}/1/data").status_code == 204
    assert client.delete(f"{TASKS}/1/data").status_code == 204
    assert client.get(f"{TASKS}/1").json()["data_deleted_at"] is not None
    assert list_stored_files(settings) == []


def test_an_outage_while_a_key_is_freed_does_not_replace_the_answer(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_operational_error(*_: object) -> None:
        raise OperationalError("DELETE", {}, Exception("gone"))

    monkeypatch.setattr(
        "core.requests.idempotency.release_idempotency_key", raise_operational_error
    )
    answer = client.post(TASKS, content=b"no archive at all", headers={"Idempotency-Key": "k"})
    assert answer.status_code in (415, 422), answer.text


def test_an_upload_outlives_an_outage_in_which_its_key_was_not_renewed(
    client: TestClient, archive: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def fail_key_renewal(*_: object) -> None:
        tried.set()
        raise OperationalError("UPDATE", {}, Exception("gone"))

    monkeypatch.setattr("core.requests.idempotency.renew_idempotent_request", fail_key_renewal)
    monkeypatch.setattr("core.requests.idempotency.RENEW_S", 0.01)
    inspect = batch_request.summarise_archive_and_digest_content

    def inspect_after_failed_renewal(*given: Any) -> Any:
        assert tried.wait(60)
        return inspect(*given)

    monkeypatch.setattr(
        batch_request, "summarise_archive_and_digest_content", inspect_after_failed_renewal
    )
    answer = client.post(TASKS, content=archive(a=2, b=2), headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202, answer.text
