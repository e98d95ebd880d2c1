"""The service of today starts on data of the last commit with the former migrations, and goes on.

`tests/migrations/data/make_head_before.py` says what the data is. On SQLite the start itself brings
it over; on PostgreSQL `perennial migrate` does so first. Each test that changes something has a
model of its own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest

from core.database.migrate import get_newest_schema_revision
from tests.e2e import small
from tests.migrations import databases
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow
SETTINGS = {"PERENNIAL_THREADS": "1", "PERENNIAL_DEVICE": "cpu"}


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        # tests/migrations/test_former_data.py shows in each build that the rows are the same on both
        pytest.param(
            "postgresql", marks=[pytest.mark.services("postgresql"), pytest.mark.campaign]
        ),
    ],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[service.RunningService]:
    """The present service on the former data directory and database."""
    dialect: str = request.param
    data = tmp_path_factory.mktemp("former") / "data"
    url = databases.restore_former(dialect, data)
    databases.unpack_former(dialect, data)
    databases.move_times_to_today(url)
    settings = {**SETTINGS, "PERENNIAL_DATABASE_URL": url}
    try:
        if dialect == "postgresql":
            environment = {**os.environ, **settings, "PERENNIAL_DATA_DIR": str(data)}
            code = "from tools.commands import migrate; migrate()"
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        with service.run_temporary_service(data, settings) as found:
            yield found
    finally:
        if dialect == "postgresql":
            postgresql.drop_database(url)


@pytest.fixture(scope="module")
def client(admin: Rest) -> Rest:
    return admin


def list_standings(client: Rest, model: str) -> list[str]:
    return [task["standing"] for task in client.items(f"/v1/models/{model}/tasks")]


def test_a_copy_of_the_database_lies_beside_it(running: service.RunningService) -> None:
    assert len(list(running.data_dir.glob(f"before-{get_newest_schema_revision()}.*"))) == 1


def test_everything_is_listed_as_it_was_left(client: Rest) -> None:
    models = {model["name"]: model for model in client.items("/v1/models")}
    assert models.keys() == {
        "child", "digits", "digits-rebased", "failed", "held", "paused", "rolled",
    }  # fmt: skip
    digits = client.get("/v1/models/digits")
    assert (digits["description"], digits["tags"]) == ("Of the till", ["shop", "till"])
    assert digits["answers"] == {"precision": 0.9}
    assert digits["aliases"] == {"canary": 1, "latest": 2, "production": 2}
    assert client.get("/v1/models/digits/versions/2")["note"] == "the good one"
    assert list_standings(client, "rolled") == ["learned", "rolled_back"]
    assert list_standings(client, "held") == ["learned", "held", "queued"]
    assert list_standings(client, "failed") == ["learned", "failed"]
    states = {job["state"] for job in client.items("/v1/jobs")}
    assert states >= {"succeeded", "failed", "paused", "queued"}
    (upload,) = client.items("/v1/uploads")
    assert upload["offset"] == upload["length"] == len(small.WEEKS[3])


def test_keys_webhooks_and_the_audit_trail_are_there(client: Rest) -> None:
    keys = {key["name"]: key for key in client.items("/v1/keys")}
    assert keys["gone"]["revoked_at"] and not keys["theirs"]["revoked_at"]
    bound = keys["page"]["bound"]
    assert (bound["model"], bound["alias"], bound["images_per_day"]) == (
        "digits",
        "production",
        1000,
    )
    (webhook,) = client.items("/v1/webhooks")
    deliveries = client.items(f"/v1/webhooks/{webhook['id']}/deliveries")
    assert {"version.published", "job.failed", "webhook.test"} <= {
        one["type"] for one in deliveries
    }
    actions = {row["action"] for row in client.items("/v1/audit")}
    assert {"model.create", "alias.rollback", "key.revoke"} <= actions
    assert client.get("/v1/usage?by=owner")["items"] and client.items("/v1/events")


def test_metrics_results_and_comparisons_can_be_read(client: Rest) -> None:
    metrics = client.get("/v1/models/digits/metrics")
    assert [row["version"] for row in metrics["rows"]] == [0, 1, 2]
    assert len(client.items("/v1/models/digits/versions/2/results")) == 2
    compared = client.get("/v1/models/digits/compare?a=1&b=2")
    assert {"a", "b"} <= compared.keys()
    assert client.get("/v1/models/digits/rebase")["new"]["name"] == "digits-rebased"
    assert client.get("/v1/models/digits/memory")["items"] == 20
    assert client.items("/v1/models/digits/aliases/canary/history")


def test_former_versions_are_downloaded_and_predict(client: Rest, tmp_path: Path) -> None:
    folder = small.unpack_version(client, "digits", 2, tmp_path)
    assert {"model.safetensors", "config.json", "README.md"} <= {p.name for p in folder.iterdir()}
    image = {"image": small.take_first_image(small.WEEKS[0])}
    answer = client.call("POST", "/v1/models/digits/versions/canary/predict", files=image).json()
    assert set(answer["predictions"][0]["probabilities"]) == {"0", "1"}


def test_a_model_learns_a_further_batch_from_the_former_upload(client: Rest) -> None:
    (upload,) = client.items("/v1/uploads")
    job = client.call("POST", "/v1/models/digits/tasks", json={"upload": upload["id"]}).json()
    end = client.wait(job["job"]["id"])
    assert (end.state, end.outcome, end.version) == ("succeeded", "published", 3)
    version = client.get("/v1/models/digits/versions/production")
    assert version["manifest"]["tasks"] == [1, 2, 3]
    assert len(client.items("/v1/models/digits/versions/3/results")) == 3


def test_a_paused_job_goes_on_from_its_snapshot(client: Rest) -> None:
    job = client.get("/v1/models/paused/tasks/2")["job"]
    client.call("POST", f"/v1/jobs/{job}/resume")
    assert client.wait(job).outcome == "published"
    logs = client.get(f"/v1/jobs/{job}/events?type=log&limit=200")["items"]
    messages = [event["data"]["message"] for event in logs]
    assert any(text.startswith("Going on from a snapshot") for text in messages), messages


def test_a_version_that_was_held_stops_the_line_until_it_is_settled(client: Rest) -> None:
    waits = client.get("/v1/models/held/tasks/3")["job"]
    waiting_for = client.get(f"/v1/jobs/{waits}")["waiting_for"]
    assert (waiting_for["kind"], waiting_for["task"]) == ("held", 2)
    client.call("POST", "/v1/models/held/tasks/2/continue", json={"reason": "the next is better"})
    assert client.wait(waits).outcome == "held", "by the gate of its submission"
    assert list_standings(client, "held") == ["learned", "skipped", "held"]


def test_a_failed_job_is_tried_again(client: Rest) -> None:
    job = client.get("/v1/models/failed/tasks/2")["job"]
    client.call("POST", f"/v1/jobs/{job}/retry", json={"recipe": {}})
    assert client.wait(job).outcome == "published"


def test_a_model_that_was_rolled_back_loses_nothing_silently_and_goes_on(client: Rest) -> None:
    submitted = client.submit("rolled", small.WEEKS[2])
    (missing,) = client.get(f"/v1/jobs/{submitted.id}")["warnings"]
    assert "will not contain task 2 (classes 2 and 3), which was rolled back" in missing
    assert client.wait(submitted).outcome == "held"
    gate = client.get("/v1/models/rolled/versions/3")["gate"]
    assert [check["name"] for check in gate["checks"] if not check["passed"]] == ["lost_tasks"]
    again = client.call("POST", "/v1/models/rolled/tasks/2/relearn", json={}).json()
    assert client.wait(again["id"]).outcome == "published"
    assert list_standings(client, "rolled") == ["learned", "learned", "held"]
    assert client.get("/v1/models/rolled")["aliases"]["production"] == 1, "where a person put it"
    moved = client.call("POST", "/v1/models/rolled/aliases/production/follow").json()
    assert (moved["version"], moved["follows"]) == (4, True)


def test_a_model_that_started_from_anothers_version_owes_nothing_of_it_and_outlives_it(
    client: Rest,
) -> None:
    assert client.get("/v1/models/child/versions/0")["manifest"]["tasks"] == []
    client.models.delete("digits")
    assert client.wait(client.submit("child", small.WEEKS[4])).outcome == "published"
    version = client.get("/v1/models/child/versions/production")
    assert version["manifest"]["tasks"] == [1, 2]
    assert version["manifest"]["classes"] == ["4", "5", "8", "9"]
