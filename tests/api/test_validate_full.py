"""`?validate=full`: a whole batch is decoded and reported as a submit would report it, and nothing
of it stays.
"""

import io
import zipfile
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.settings import Settings
from tests import openapi
from tests.api.conftest import KeyOf, Make, create_model
from worker.loop import Worker

TASKS = "/v1/models/birds/tasks"


@pytest.fixture(autouse=True)
def model(client: TestClient) -> None:
    create_model(client, recipe={"method": "finetune", "epochs": 1})


def start_full_check(
    client: TestClient, body: bytes, query: str = "", **headers: str
) -> dict[str, Any]:
    answer = client.post(f"{TASKS}?validate=full{query}", content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    openapi.check_schema(client, "JobOut", made)
    assert answer.headers["location"] == f"/v1/jobs/{made['id']}"
    return made


def run_and_read_job(client: TestClient, worker: Worker, job: str) -> dict[str, Any]:
    worker.run_jobs(lambda: False)
    found: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
    openapi.check_schema(client, "JobOut", found)
    assert found["is_terminal"]
    return found


def list_archives(settings: Settings) -> list[str]:
    return [path.name for path in (settings.data_dir / "store" / "archives").glob("*")]


def list_blobs(settings: Settings) -> list[str]:
    return sorted(path.name for path in (settings.data_dir / "store" / "blobs").glob("*/*"))


def add_bad_images(body: bytes, count: int, bad: bytes = b"no image") -> bytes:
    out = io.BytesIO(body)
    with zipfile.ZipFile(out, "a") as file:
        for number in range(count):
            file.writestr(f"train/a/bad-{number}.png", bad)
    return out.getvalue()


def test_a_good_batch_is_reported_as_valid_and_leaves_nothing(
    client: TestClient, settings: Settings, worker: Worker, archive: Make
) -> None:
    before, body = list_blobs(settings), add_bad_images(archive(a=30, b=30), 1)
    made = start_full_check(client, body)
    assert (made["kind"], made["task"], made["state"], made["report"]) == (
        "validate",
        None,
        "queued",
        None,
    )
    assert len(list_archives(settings)) == 1
    job = run_and_read_job(client, worker, made["id"])
    assert (job["state"], job["error"], job["version"], job["outcome"]) == (
        "succeeded",
        None,
        None,
        None,
    )
    report = job["report"]
    assert (report["valid"], report["checked"], report["layout"]) == (True, "images", "split")
    assert report["classes"] == {"a": 30, "b": 30}
    assert report["n_train"] + report["n_held_out"] == 60 and report["n_held_out"] > 0
    assert report["report"]["rejected_count"] == 1
    assert report["report"]["rejected"][0]["path"] == "train/a/bad-0.png"
    assert report["report"]["classes"] == {"new": ["a", "b"], "known": [], "look_alike": []}
    assert report["recipe"]["epochs"] == 1
    assert len(report["not_checked"]) == 1
    assert list_archives(settings) == []
    assert client.get(TASKS).json()["items"] == []
    assert list_blobs(settings) == before
    assert not list(settings.make_folder("work").rglob("*.safetensors"))


def test_the_report_is_that_of_a_submit(
    client: TestClient, worker: Worker, archive: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.execution.kinds import KINDS
    from core.execution.validate import decode_archive_and_start_job

    monkeypatch.setitem(
        KINDS, "learn", _build_decoding_only_kind(KINDS["learn"], decode_archive_and_start_job)
    )
    body = add_bad_images(archive(a=30, b=30, tshirt=2), 2)
    checked = run_and_read_job(client, worker, start_full_check(client, body)["id"])["report"]
    assert client.post(TASKS, content=body).status_code == 202
    worker.run_jobs(lambda: False)
    (task,) = client.get(TASKS).json()["items"]
    assert task["report"] == checked["report"] and task["report"]["checked"] == "images"
    for name in ("classes", "n_train", "n_held_out", "sha256", "bytes"):
        assert task[name] == checked[name], name
    *warnings, few = checked["warnings"]
    assert task["warnings"] == warnings and "fewer than 10 images" in few


def _build_decoding_only_kind(learn: Any, validate: Any) -> Any:
    """Return the kind `learn` that ends after its first half, since the other half needs torch."""
    from dataclasses import replace

    from core.errors import Invalid
    from core.ingest.ingest import DecodingCallbacks

    def decode_batch_only(work: Any) -> None:
        folder = work.folder / "ingest"
        folder.mkdir()
        monitor = DecodingCallbacks(stop=work.must_stop)
        validate(work.db, work.store, work.claim, work.settings, folder, monitor)
        raise Invalid("far enough")

    return replace(learn, run=decode_batch_only)


def test_an_unusable_batch_is_rejected_with_the_error_and_the_report(
    client: TestClient, settings: Settings, worker: Worker, archive: Make
) -> None:
    cut_off = b"\x89PNG\r\n\x1a\n and nothing more of it"  # only decoding finds that
    job = run_and_read_job(
        client,
        worker,
        start_full_check(client, add_bad_images(archive(a=5, b=5), 4, cut_off))["id"],
    )
    assert (job["state"], job["error"]["code"]) == ("rejected", "batch-rejected")
    assert "could not be decoded" in job["error"]["detail"]
    assert (job["report"]["valid"], job["report"]["report"]["rejected_count"]) == (False, 4)
    assert list_archives(settings) == []
    assert client.get("/v1/models/birds").json()["attention"] == []


def test_a_batch_whose_images_are_of_no_kind_that_is_read_is_refused_at_once(
    client: TestClient, archive: Make
) -> None:
    body = add_bad_images(archive(a=5, b=5), 4)
    for query in ("", "?validate=only", "?validate=full"):
        refused = client.post(f"{TASKS}{query}", content=body)
        assert refused.status_code == 422 and refused.json()["type"] == "/problems/archive-invalid"
        assert refused.json()["detail"].startswith(
            "4 of 14 images cannot be read, more than 5%; the first is “train/a/bad-0.png”: not a "
            "PNG"
        )
    few = client.post(
        f"{TASKS}?validate=only", content=add_bad_images(archive(a=30, b=30), 1)
    ).json()
    assert few["valid"] and few["report"]["rejected_count"] == 1
    assert "1 of 61 images cannot be read and is left out" in " ".join(few["warnings"])


def test_jobs_are_listed_by_kind(client: TestClient, archive: Make) -> None:
    made = start_full_check(client, archive(a=2, b=2))
    learn = client.post(TASKS, content=archive(a=2, b=2)).json()["job"]
    assert (learn["kind"], learn["report"]) == ("learn", None)
    for query, found in (
        ("", {made["id"], learn["id"]}),
        ("?kind=validate", {made["id"]}),
        ("?kind=learn", {learn["id"]}),
        ("?kind=validate&model=birds&state=queued", {made["id"]}),
        ("?kind=validate&state=failed", set()),
    ):
        items = client.get(f"/v1/jobs{query}").json()["items"]
        assert {item["id"] for item in items} == found, query
    assert client.get(f"/v1/jobs/{made['id']}").json() == made
    refused = client.get("/v1/jobs?kind=unlearn")
    assert refused.status_code == 422 and "learn" in refused.text


def test_a_check_takes_no_task_number_and_no_place(client: TestClient, archive: Make) -> None:
    start_full_check(client, archive(a=2, b=2))
    assert client.post(TASKS, content=archive(a=2, b=2)).json()["task"]["number"] == 1
    body = client.post(f"{TASKS}?validate=only", content=archive(c=2)).json()
    assert body["report"]["classes"]["new"] == ["c"]


def test_a_cancelled_check_ends_at_once_and_its_upload_is_swept(
    client: TestClient, settings: Settings, worker: Worker, archive: Make
) -> None:
    from core.uploads import upload_removal

    made = start_full_check(client, archive(a=2, b=2))
    answer = client.post(f"/v1/jobs/{made['id']}/cancel").json()
    assert answer["state"] == "cancelled"
    assert (answer["report"]["valid"], answer["report"]["checked"]) == (None, "names and sizes")
    upload_removal.delete_archives_of_finished_jobs(worker.db, worker.store)
    assert list_archives(settings) == []


def test_a_check_is_paused_and_goes_on(client: TestClient, worker: Worker, archive: Make) -> None:
    made = start_full_check(client, archive(a=4, b=4))
    assert client.post(f"/v1/jobs/{made['id']}/pause").json()["state"] == "paused"
    assert worker.run_jobs(lambda: False) == 0
    assert client.post(f"/v1/jobs/{made['id']}/resume").json()["state"] == "queued"
    assert run_and_read_job(client, worker, made["id"])["state"] == "succeeded"


def test_a_check_is_not_retried_and_has_no_state_to_download(
    client: TestClient, archive: Make
) -> None:
    made = start_full_check(client, archive(a=2, b=2))
    client.post(f"/v1/jobs/{made['id']}/cancel")
    refused = client.post(f"/v1/jobs/{made['id']}/retry")
    assert refused.status_code == 409
    assert (
        refused.json()["state"] == "cancelled"
        and "send the request again" in refused.json()["detail"]
    )
    other = start_full_check(client, archive(a=2, b=2))
    refused = client.get(f"/v1/jobs/{other['id']}/anytime/download")
    assert refused.status_code == 409 and "learns nothing" in refused.json()["detail"]


def test_the_log_and_the_events_of_a_check_tell_it_from_accepted_to_done(
    client: TestClient, worker: Worker, archive: Make
) -> None:
    made = start_full_check(client, archive(a=4, b=4))
    run_and_read_job(client, worker, made["id"])
    lines = [line["message"] for line in client.get(f"/v1/jobs/{made['id']}/logs").json()["items"]]
    assert lines[0].startswith("Accepted to be checked: 8 images of 2 classes by their names, ")
    assert lines[1] == "Attempt 1 began."
    assert lines[2].startswith("Decoded 8 images of 2 classes: ")
    assert lines[-1] == "A submit would take this batch. Nothing of it was kept."
    events = client.get(f"/v1/jobs/{made['id']}/events?type=state").json()["items"]
    assert [event["data"]["state"] for event in events] == ["queued", "validating", "succeeded"]
    stream = client.get(f"/v1/jobs/{made['id']}/events", headers={"Accept": "text/event-stream"})
    assert '"succeeded"' in stream.text


def test_a_check_counts_among_the_open_jobs_and_the_stored_bytes_of_its_owner(
    client: TestClient, settings: Settings, worker: Worker, archive: Make
) -> None:
    body = archive(a=2, b=2)
    settings.max_open_jobs, settings.max_owner_bytes = 1, len(body) * 3 // 2
    made = start_full_check(client, body)
    refused = client.post(f"{TASKS}?validate=full", content=body)
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-requests")
    settings.max_open_jobs = 5
    refused = client.post(f"{TASKS}?validate=full", content=body)
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/storage-full")
    run_and_read_job(client, worker, made["id"])
    _expire_owner_measurements(worker.db)
    start_full_check(client, body)


def _expire_owner_measurements(db: Database) -> None:
    """Expire the measurements of owners, so that the next refusal measures again."""
    from sqlalchemy import text

    with db.write() as session:
        session.execute(text("UPDATE owners SET bytes_at = 0"))


def test_another_owner_sees_no_check_and_starts_none(
    client: TestClient, archive: Make, key_of: KeyOf
) -> None:
    made = start_full_check(client, archive(a=2, b=2))
    stranger = key_of("stranger")
    assert (
        client.post(f"{TASKS}?validate=full", content=archive(a=2), headers=stranger).status_code
        == 404
    )
    assert client.get("/v1/jobs?kind=validate", headers=stranger).json()["items"] == []
    for path, method in (("", "GET"), ("/cancel", "POST"), ("/retry", "POST"), ("/events", "GET")):
        assert (
            client.request(method, f"/v1/jobs/{made['id']}{path}", headers=stranger).status_code
            == 404
        )
    reader = key_of("admin", "read")
    assert (
        client.post(f"{TASKS}?validate=full", content=archive(a=2), headers=reader).status_code
        == 403
    )


def test_in_the_data_scenario_a_class_that_is_fixed_meanwhile_rejects_the_check(
    client: TestClient, worker: Worker, archive: Make
) -> None:
    from sqlalchemy import update

    from core.database.tables import Model

    create_model(client, "fixed", scenario="data", recipe={"method": "finetune"})
    answer = client.post("/v1/models/fixed/tasks?validate=full", content=archive(a=2, b=2))
    assert answer.status_code == 202
    with worker.db.write() as session:
        session.execute(update(Model).where(Model.name == "fixed").values(classes=["a", "c"]))
    job = run_and_read_job(client, worker, answer.json()["id"])
    assert (job["state"], job["report"]["valid"]) == ("rejected", False)
    assert "its classes are fixed" in job["error"]["detail"]
