"""Forms of the pages do what the API's requests do, with the same row of the audit trail, and
refuse what is no form."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.tables import Job, Task
from tests.api.conftest import KeyOf, Make

Publish = Callable[..., int]


def get_newest_audit_row(browser: TestClient) -> tuple[str, Any]:
    """Return the action and the data of the newest row of the audit trail."""
    row = browser.get("/v1/audit?order=desc&limit=1").json()["items"][0]
    return row["action"], row["data"]


def test_production_is_moved_rolled_back_and_follows_again(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    for _ in range(2):
        publish(model)
    path = f"/ui/models/{model}/aliases/production"
    answer = logged_in.post(f"{path}/rollback", data={"reason": " worse on owls "})
    assert answer.status_code == 303 and answer.headers["location"] == f"/ui/models/{model}"
    assert (
        get_newest_audit_row(logged_in)[0] == "alias.rollback"
        and get_newest_audit_row(logged_in)[1]["reason"] == "worse on owls"
    )
    assert logged_in.post(f"{path}/follow").status_code == 303
    assert get_newest_audit_row(logged_in)[0] == "alias.follow"
    assert logged_in.post(path, data={"version": "2", "reason": ""}).status_code == 303
    assert (
        get_newest_audit_row(logged_in)[0] == "alias.set"
        and get_newest_audit_row(logged_in)[1]["reason"] is None
    )


def test_a_held_version_is_promoted_with_a_reason_alone(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    publish(model)
    publish(model, passed=False)
    path = f"/ui/models/{model}/aliases/production"
    refused = logged_in.post(path, data={"version": "2"})
    assert refused.status_code == 422 and "give a reason" in refused.text
    assert logged_in.post(path, data={"version": "2", "reason": "worth it"}).status_code == 303
    assert logged_in.get("/v1/models/birds").json()["aliases"]["production"] == 2


def test_the_state_of_a_job_is_in_the_part_of_its_page_that_is_refreshed(
    logged_in: TestClient, model: str, archive: Make
) -> None:
    sent = logged_in.post(f"/v1/models/{model}/tasks", content=archive(a=2, b=2)).json()
    page = logged_in.get(f"/ui/jobs/{sent['job']['id']}").text
    assert page.index('id="live"') < page.index('class="state queued"')


@pytest.mark.parametrize("verb", ["", "/rollback"])
def test_a_page_that_is_out_of_date_does_not_move_production(
    logged_in: TestClient, model: str, publish: Publish, verb: str
) -> None:
    for _ in range(3):
        publish(model)
    path = f"/ui/models/{model}/aliases/production{verb}"
    seen = {"version": "1", "reason": "worse", "production": "2"}
    refused = logged_in.post(path, data=seen)
    assert refused.status_code == 409 and "is version 3 by now, and was version 2" in refused.text
    assert f'href="/ui/models/{model}">Back to the model</a>' in refused.text
    assert logged_in.get("/v1/models/birds").json()["aliases"]["production"] == 3
    shown = logged_in.get(f"/ui/models/{model}").text
    assert 'name="production" value="3"' in shown and 'name="production" value="2"' not in shown
    assert logged_in.post(path, data={**seen, "production": "3"}).status_code == 303
    assert logged_in.get("/v1/models/birds").json()["aliases"]["production"] == 1


def test_a_button_that_is_pressed_twice_moves_production_once(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    for _ in range(2):
        publish(model)
    sent = {"version": "1", "reason": "", "production": "2"}
    for _ in range(2):
        assert (
            logged_in.post(f"/ui/models/{model}/aliases/production", data=sent).status_code == 303
        )


@pytest.mark.parametrize("verb", ["continue", "discard"])
def test_a_held_task_is_settled(
    logged_in: TestClient, model: str, publish: Publish, verb: str
) -> None:
    publish(model, passed=False)
    answer = logged_in.post(f"/ui/models/{model}/tasks/1/{verb}", data={"reason": "enough"})
    assert answer.status_code == 303
    assert (
        get_newest_audit_row(logged_in)[0] == f"task.{verb}"
        and get_newest_audit_row(logged_in)[1]["reason"] == "enough"
    )


def test_a_job_is_paused_goes_on_and_is_cancelled_and_learned_again(
    logged_in: TestClient, model: str, archive: Make
) -> None:
    zipped = {"Content-Type": "application/zip"}
    sent = logged_in.post(
        f"/v1/models/{model}/tasks", content=archive(a=2, b=2), headers=zipped
    ).json()
    job = sent["job"]["id"]
    assert "Cancel the job" in logged_in.get(f"/ui/jobs/{job}").text
    for verb in ("pause", "resume", "cancel", "retry"):
        answer = logged_in.post(f"/ui/jobs/{job}/{verb}")
        assert answer.status_code == 303 and answer.headers["location"] == f"/ui/jobs/{job}"
        assert get_newest_audit_row(logged_in)[0] == f"job.{verb}"
    assert logged_in.post(f"/ui/jobs/{job}/publish").status_code == 422


def test_a_task_that_was_passed_over_is_learned_again(
    logged_in: TestClient, model: str, archive: Make
) -> None:
    zipped = {"Content-Type": "application/zip"}
    sent = logged_in.post(
        f"/v1/models/{model}/tasks", content=archive(a=2, b=2), headers=zipped
    ).json()
    db: Database = logged_in.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        task = session.get_one(Task, sent["task"]["id"])
        task.train_sha256, task.standing = "c" * 64, "skipped"
        session.get_one(Job, sent["job"]["id"]).state = "succeeded"
    assert logged_in.post(f"/ui/models/{model}/tasks/1/relearn").status_code == 303
    assert get_newest_audit_row(logged_in)[0] == "task.relearn"


def test_images_are_deleted_by_whoever_says_that_he_means_it(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    publish(model)
    path = f"/ui/models/{model}/tasks/1/data"
    assert logged_in.post(path, data={}).status_code == 422
    assert logged_in.post(path, data={"sure": "yes"}).status_code == 303
    assert get_newest_audit_row(logged_in)[0] == "task.delete-data"
    assert "They were deleted" in logged_in.get(f"/ui/models/{model}/tasks/1").text


def test_a_model_is_deleted_by_whoever_types_its_name(
    logged_in: TestClient, model: str, text: Callable[[str], str]
) -> None:
    made = logged_in.get(f"/v1/models/{model}").json()["id"]
    path = f"/ui/models/{made}/delete"
    refused = logged_in.post(path, data={"name": "bird"})
    assert refused.status_code == 422 and "only with its name typed as it is: birds." in text(
        refused.text
    )
    assert "is deleted" not in logged_in.get(f"/ui?deleted={made}").text
    answer = logged_in.post(path, data={"name": " birds "})
    assert answer.status_code == 303 and answer.headers["location"] == f"/ui?deleted={made}"
    assert get_newest_audit_row(logged_in) == ("model.delete", {"name": "birds"})
    assert "The model birds is deleted." in text(logged_in.get(f"/ui?deleted={made}").text)
    assert logged_in.get(f"/ui/models/{made}").status_code == 404


NO_FORMS = (
    (b'{"version": 1}', "application/json", 415),
    (b"version=1&reason=\xff", "application/x-www-form-urlencoded", 422),
    (b"version=%31&reason=%00", "application/x-www-form-urlencoded", 422),
    (b"version=1&reason=a%E2%80%AEb", "application/x-www-form-urlencoded", 422),
    (b"version=one", "application/x-www-form-urlencoded", 422),
    (b"version=" + b"9" * 5000, "application/x-www-form-urlencoded", 422),
    (b"&".join(b"a%d=1" % n for n in range(50)), "application/x-www-form-urlencoded", 422),
    (b"a=" + b"x" * (17 << 10), "application/x-www-form-urlencoded", 413),
)


def test_what_is_no_form_is_refused_with_a_page(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    publish(model)
    path = f"/ui/models/{model}/aliases/production"
    for content, kind, status in NO_FORMS:
        answer = logged_in.post(path, content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, (content[:40], answer.text)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_a_key_that_reads_sees_no_button_and_changes_nothing(
    logged_in: TestClient, key_of: KeyOf, model: str, publish: Publish
) -> None:
    for _ in range(2):
        publish(model)
    assert logged_in.post(f"/ui/models/{model}/aliases/production/rollback").status_code == 303
    assert 'method="post"' in logged_in.get(f"/ui/models/{model}").text.replace("/ui/logout", "", 1)
    key = key_of("admin", "read")["Authorization"].removeprefix("Bearer ")
    assert logged_in.post("/ui/login", data={"key": key}).status_code == 303
    for path in (f"/ui/models/{model}", f"/ui/models/{model}/tasks/1"):
        forms = re.findall(r'method="post" action="([^"]+)"', logged_in.get(path).text)
        assert forms == ["/ui/logout"], path
    answer = logged_in.post(f"/ui/models/{model}/aliases/production", data={"version": "1"})
    assert answer.status_code == 403 and "needs a key of scope write" in answer.text
