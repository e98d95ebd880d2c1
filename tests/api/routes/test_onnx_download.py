"""The download that a job makes: who asks first, who asks meanwhile, and when it cannot be had."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.tables import AuditEntry, ExportCapableWorker, ExportedDownload, Job
from core.versions import exporters
from tests.api.conftest import KeyOf

URL = "/v1/models/birds/versions/1/download?format=onnx"


@pytest.fixture
def learned(model: str, publish: Callable[..., int]) -> str:
    """A model with a version that knows two classes."""
    publish(model)
    return model


@pytest.fixture
def exporter(db: Database) -> None:
    """A worker with the extra."""
    with db.write() as session:
        exporters.record_exporting_worker(session, "w1", db.now(session))


def end_job(db: Database, job: str, state: str, detail: str | None = None) -> None:
    with db.write() as session:
        row = session.get_one(Job, job)
        row.state, row.finished_at = state, 1.0
        if detail is not None:
            row.error = {"kind": "export", "code": "job-export", "detail": detail}


@pytest.mark.usefixtures("learned")
def test_without_a_worker_that_can_the_answer_says_what_to_install(
    client: TestClient, db: Database
) -> None:
    answer = client.get(URL)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/export-unavailable")
    assert "pip install onnx onnxruntime onnxscript" in answer.json()["detail"]
    assert "take the version as format=safetensors" in answer.json()["detail"]
    with db.read() as session:
        assert session.query(Job).all() == []


@pytest.mark.usefixtures("learned")
def test_a_worker_that_was_not_seen_for_an_hour_does_not_count(
    client: TestClient, db: Database
) -> None:
    with db.write() as session:
        session.add(
            ExportCapableWorker(worker="gone", seen_at=db.now(session) - exporters.SEEN_S - 1)
        )
    assert client.get(URL).status_code == 422
    with db.write() as session:
        exporters.record_exporting_worker(session, "here", db.now(session))
    assert client.get(URL).status_code == 202
    with db.read() as session:
        assert [row.worker for row in session.query(ExportCapableWorker)] == ["here"]


@pytest.mark.usefixtures("learned", "exporter")
def test_the_first_request_begins_a_job_and_says_where_it_is(
    client: TestClient, db: Database
) -> None:
    answer = client.get(URL)
    job = answer.json()
    assert answer.status_code == 202, answer.text
    assert (answer.headers["Location"], answer.headers["Retry-After"]) == (
        f"/v1/jobs/{job['id']}",
        "1",
    )
    assert (job["kind"], job["state"], job["task"], job["version"]) == (
        "export",
        "queued",
        None,
        None,
    )
    assert [each["id"] for each in client.get("/v1/jobs?kind=export").json()["items"]] == [
        job["id"]
    ]
    said = client.get(f"/v1/jobs/{job['id']}/logs").json()["items"]
    assert said[0]["message"] == "Accepted: version 1 is exported as onnx."
    told = client.get("/v1/events?type=job").json()["items"][-1]
    assert (told["job"], told["data"]["kind"], told["data"]["state"]) == (
        job["id"],
        "export",
        "queued",
    )
    row = client.get("/v1/audit?model=birds&action=version.export").json()["items"][-1]
    assert row["object"] == job["id"]
    with db.read() as session:
        rows = session.query(AuditEntry).filter_by(action="version.export").all()
    assert [(row.object, row.data["version"]) for row in rows] == [(job["id"], 1)]


@pytest.mark.usefixtures("learned", "exporter")
def test_all_who_ask_meanwhile_are_shown_the_same_job(client: TestClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.get(URL), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    by_alias = client.get(URL.replace("/1/", "/production/"))
    assert by_alias.json()["id"] == answers[0].json()["id"]
    assert client.head(URL).headers["Location"] == answers[0].headers["Location"]


@pytest.mark.usefixtures("learned", "exporter")
def test_after_a_failure_the_reason_is_given_and_a_retry_exports_again(
    client: TestClient, db: Database
) -> None:
    job = client.get(URL).json()["id"]
    end_job(db, job, "failed", "The graph answers otherwise than the version: 0.5.")
    refused = client.get(URL).json()
    assert refused["status"] == 422
    assert f"failed (job {job}): The graph answers otherwise" in refused["detail"]
    assert "take the version as format=safetensors" in refused["detail"]
    assert f"POST /v1/jobs/{job}/retry tries again." in refused["detail"]
    again = client.post(f"/v1/jobs/{job}/retry")
    assert (again.status_code, again.json()["state"]) == (202, "queued")
    assert client.get(URL).json()["id"] == job


@pytest.mark.usefixtures("learned", "exporter")
def test_a_cancelled_export_says_so_and_begins_again_when_retried(client: TestClient) -> None:
    job = client.get(URL).json()["id"]
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert f"was cancelled (job {job})" in client.get(URL).json()["detail"]
    assert client.post(f"/v1/jobs/{job}/retry").json()["state"] == "queued"
    assert client.post(f"/v1/jobs/{job}/retry").status_code == 202


@pytest.mark.usefixtures("learned", "exporter")
def test_a_file_that_was_swept_is_made_again_by_a_new_job(client: TestClient, db: Database) -> None:
    first = client.get(URL).json()["id"]
    end_job(db, first, "succeeded")
    with db.read() as session:
        assert session.query(ExportedDownload).all() == []
    second = client.get(URL)
    assert second.status_code == 202 and second.json()["id"] != first
    assert client.post(f"/v1/jobs/{first}/retry").status_code == 409


@pytest.mark.usefixtures("learned", "exporter")
def test_an_owner_with_too_many_open_jobs_is_told_so(client: TestClient) -> None:
    client.app.state.settings.max_open_jobs = 1  # type: ignore[attr-defined]
    assert client.get(URL).status_code == 202
    publish_url = URL.replace("/1/", "/0/")
    assert client.get(publish_url).status_code == 422
    assert client.get(URL).status_code == 202, "the job that is open answers all the same"


@pytest.mark.usefixtures("exporter")
def test_a_version_that_knows_no_classes_is_refused(client: TestClient, learned: str) -> None:
    answer = client.get(f"/v1/models/{learned}/versions/0/download?format=onnx")
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/export-unavailable")


@pytest.mark.usefixtures("learned", "exporter")
def test_a_foreign_owner_sees_neither_version_nor_job(client: TestClient, key_of: KeyOf) -> None:
    job = client.get(URL).json()["id"]
    stranger = key_of("stranger", "read")
    assert client.get(URL, headers=stranger).status_code == 404
    assert client.get(f"/v1/jobs/{job}", headers=stranger).status_code == 404


@pytest.mark.usefixtures("learned", "exporter")
def test_a_deleted_model_takes_its_export_along(client: TestClient, db: Database) -> None:
    job = client.get(URL).json()["id"]
    assert client.delete("/v1/models/birds").status_code == 204
    with db.read() as session:
        assert session.get_one(Job, job).state == "cancelled"
