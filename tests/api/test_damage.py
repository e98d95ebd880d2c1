"""A damaged database, which `/readyz` reports, and deletion and cancellation on a full disk."""

import errno
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DatabaseError
from starlette.testclient import TestClient

from core.database import sqlite_damage
from core.files import disk_reserve
from core.settings import Settings
from tests.api.conftest import KeyOf, Make, create_model, serve_api
from tests.damaged_database import damage_table


def wait_for_database_check(client: TestClient) -> None:
    client.app.state.damage.start_database_check().join()  # type: ignore[attr-defined]


def test_a_damaged_table_is_told_with_its_name_and_what_to_do(settings: Settings) -> None:
    damage_table(settings.data_dir / "perennial.db", "audit")
    with serve_api(settings) as client:
        wait_for_database_check(client)
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["database"]) == (503, "corrupt")
        assert (
            "table audit" in answer.json()["detail"]
            and "perennial restore" in answer.json()["detail"]
        )
        refused = client.get("/v1/audit")
        assert (refused.status_code, refused.json()["type"]) == (500, "/problems/database-corrupt")
        assert client.get("/v1/models").status_code == 200


def test_a_sound_database_is_up_and_has_no_detail(client: TestClient) -> None:
    wait_for_database_check(client)
    answer = client.get("/readyz")
    assert answer.status_code == 200 and "detail" not in answer.json()


def test_damage_that_a_read_meets_later_is_told_from_then_on(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_database_check(client)
    original = sqlite3.DatabaseError("database disk image is malformed")
    original.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    assert sqlite_damage.is_sqlite_damage_error(original)

    def raise_database_error() -> None:
        raise DatabaseError("SELECT", {}, original)

    with monkeypatch.context() as patch:
        patch.setattr(client.app.state.database, "check_row_readable", raise_database_error)  # type: ignore[attr-defined]
        assert client.get("/readyz").status_code == 503
    answer = client.get("/readyz")
    assert answer.status_code == 503 and "malformed" in answer.json()["detail"]


@pytest.fixture
def full(settings: Settings, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the reserve of a service whose disk is full."""
    assert disk_reserve.make_disk_reserve_file(settings.data_dir, 1 << 16)
    monkeypatch.setattr(disk_reserve, "_count_free_disk_bytes", lambda _folder: 0)
    return settings.data_dir / disk_reserve.NAME


def change_model_or_job(client: TestClient, kind: str, job: str) -> Any:
    calls = {"delete": ("DELETE", "/v1/models/birds"), "cancel": ("POST", f"/v1/jobs/{job}/cancel")}
    return client.request(*calls[kind])


@pytest.fixture
def job(client: TestClient, archive: Make) -> str:
    create_model(client)
    sent = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2))
    return str(sent.json()["job"]["id"])


@pytest.mark.parametrize("kind", ["delete", "cancel"])
def test_on_a_full_disk_the_reserve_is_released_for_what_makes_room(
    client: TestClient, job: str, full: Path, kind: str
) -> None:
    client.get("/v1/models")
    client.post(
        "/v1/models", json={"name": "more", "scenario": "class", "architecture": "small-cnn"}
    )
    assert full.exists()
    assert change_model_or_job(client, kind, job).status_code in (200, 204)
    assert not full.exists()


def test_where_only_the_write_shows_that_there_is_no_room_it_is_sent_again(
    client: TestClient, job: str, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_given: object, **_named: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(disk_reserve, "remove_disk_reserve_if_disk_full", lambda _folder: False)
        patch.setattr("core.jobs.jobs.apply_job_action", no_room)
        refused = change_model_or_job(client, "cancel", job)
        assert (refused.status_code, refused.headers["retry-after"]) == (507, "1")
        assert "send this again" in refused.json()["detail"] and not full.exists()
        refused = change_model_or_job(client, "cancel", job)  # nothing is left to release
        assert (refused.status_code, refused.headers["retry-after"]) == (507, "60")
    assert change_model_or_job(client, "cancel", job).status_code == 200


def test_a_stranger_releases_nothing(
    client: TestClient, key_of: KeyOf, job: str, full: Path
) -> None:
    assert client.delete("/v1/models/birds", headers={"Authorization": ""}).status_code == 401
    assert client.delete("/v1/models/birds", headers=key_of("mine", "read")).status_code == 403
    assert full.exists()
