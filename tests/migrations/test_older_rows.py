"""Every migration on what older code wrote: its rows keep what they have, up and down again, and go
on.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.db import deliveries, migrate, workers
from core.db.session import Database
from core.db.tables import (
    Chunk,
    Delivery,
    Event,
    Export,
    Exporter,
    ExportJob,
    Job,
    Key,
    Model,
    PredictKey,
    Scrub,
    Task,
    Upload,
    UserSession,
    Version,
    Webhook,
    Weights,
)
from core.ingest.inspect import Directory
from core.protocol.webhook import EVENTS
from core.requests import repeats
from core.requests.jobs import beside_the_line
from core.settings import Settings
from core.store.folder import FolderStore
from core.work import claim as claims
from core.work import eligible
from core.work.kinds import Done
from core.work.scrub import Scrubber
from tests.migrations.databases import Row, read_rows, read_tables

BEFORE = "0008"  # older manifests keep what it writes on the way back: `test_line.py`
CHANGED: dict[str, dict[str, set[str]]] = {
    "0012": {"versions": {"manifest"}, "results": {"best"}},
    "0016": {"measurements": {"value"}, "audit": {"model_id"}},
}
"""Migration → columns that it fills in older rows; with what, `test_measurements.py` and
`test_reads.py` show.
"""
MOVED = {"0023": {"measurements"}}
"""Migration → tables whose rows it puts together."""
ADDED: dict[str, dict[str, Row]] = {
    "0011": {"owners": {"claimed_at": None}},
    "0013": {
        "jobs": dict.fromkeys(("report", "archive_key", "archive_sha256", "archive_bytes"))
        | {"kind": "learn"},
        "owners": {"overtook": False},
    },
    "0015": {"models": {"base_job": None}},
    "0016": {"models": {"description": None, "tags": None}, "versions": {"note": None}},
    "0021": {"results": {"answers": None, "answers_bytes": None}},
    "0022": {"tasks": {"traces_sha256": None, "traces_bytes": None}},
    "0026": {"models": {"answers": None}},
    "0027": {"models": {"rebased_from": None, "rebased_at": None}},
    "0028": {"jobs": {"device": "any", "gpus": 1, "resume_on": None, "out_of_memory": 0}},
    "0029": {
        "models": dict.fromkeys(("totals_sha256", "totals_bytes", "totals_key")),
        "tasks": dict.fromkeys(
            ("answers_key", "features_sha256", "features_bytes", "features_key")
        ),
    },
    "0030": {"workers": {"answers_since": None}},
    "0033": {"tasks": {"content_sha256": None, "content_turn": None}},
    "0034": {"webhooks": {"format": "standard"}},
}
"""Migration → its new columns, and what they hold in older rows."""


def list_revisions() -> list[str]:
    """List all revisions from `BEFORE` to the newest."""
    found, earlier = [migrate.find_head()], migrate._read_revisions()
    while found[0] != BEFORE:
        found.insert(0, str(earlier[found[0]]))
    return found


@pytest.mark.slow
def test_older_rows_keep_what_they_have_up_and_down_again(older: Database) -> None:
    steps = list(pairwise(list_revisions()))
    seen = {BEFORE: read_tables(older)}
    assert len(seen[BEFORE][0]["jobs"]) > 20 and len(seen[BEFORE][0]["events"]) > 100
    for former, revision in steps:
        migrate.upgrade(older, revision)
        seen[revision] = read_tables(older)
        for table in seen[former][0].keys() - MOVED.get(revision, set()):
            added = ADDED.get(revision, {}).get(table, {})
            changed = CHANGED.get(revision, {}).get(table, set())
            expected = [leave_out({**row, **added}, changed) for row in seen[former][0][table]]
            found = [leave_out(row, changed) for row in seen[revision][0][table]]
            assert found == expected, (revision, table)
    for former, revision in reversed(steps):
        migrate.downgrade(older, former)
        assert read_tables(older) == seen[former], f"back from {revision}"


def leave_out(row: Row, columns: set[str]) -> Row:
    return {name: value for name, value in row.items() if name not in columns}


def test_rows_that_older_code_does_not_know_go_on_the_way_back(older: Database) -> None:
    before = read_tables(older)
    migrate.upgrade(older)
    with older.write() as session:
        version = session.scalars(select(Version)).first()
        assert version is not None
        model = session.get_one(Model, version.model_id)
        _add_jobs(session, model, version)
        _add_model_that_waits(session, model)
        _add_upload(session, model)
        _add_webhook(session, model)
        _add_session(session, model)
        _add_predict_key(session, model)
    with older.read() as session:
        assert session.scalars(select(Model.id).where(eligible.awaits_base(Model.id))).all() == [
            "mdl_new"
        ]
        (row,) = session.scalars(select(Delivery))
        assert (row.webhook_id, row.state, row.next_at) == ("whk_1", "pending", 1.5)
        assert session.get_one(Webhook, "whk_1").due_at == 1.5
    migrate.downgrade(older, BEFORE)
    assert read_rows(older, "SELECT id FROM keys ORDER BY id") == [
        ("key_1",),
        ("key_2",),
    ]  # a table that older code knows
    with older.write() as session:
        session.execute(text("DELETE FROM keys"))
    assert read_tables(older) == before


def test_an_older_report_of_a_worker_does_not_say_since_when_the_database_has_answered(
    older: Database,
) -> None:
    migrate.upgrade(older, "0028")
    with older.write() as session:
        session.execute(text("INSERT INTO workers VALUES ('w', 'cpu', 0, NULL, 5.0)"))
    migrate.upgrade(older)
    with older.write() as session:
        assert workers.answers_since(session, 1.0, 2.0) is None
        workers.record_presence(session, "w", workers.Device("cpu"), 6.0, 2.0)
    migrate.downgrade(older, "0028")
    assert read_rows(older, "SELECT worker, seen_at FROM workers") == [("w", 6.0)]


def test_an_older_task_is_known_again_by_its_archive(older: Database) -> None:
    migrate.upgrade(older)
    with older.write() as session:
        task = session.scalars(select(Task).where(Task.data_deleted_at.is_(None))).first()
        assert task is not None and task.content_sha256 is None
        model = session.get_one(Model, task.model_id)
        options = task.report.get("reading", {})
        found = Directory(
            {"a": 1}, 1, 0, 0, "zip", "folders", False, reading=options, content="c" * 64
        )
        policy = task.report.get("duplicates_policy", "keep")
        same = repeats.find_same(session, model, repeats.Sent(task.sha256, found, policy))
        assert task.number in {one.task.number for one in same}
        assert repeats.find_same(session, model, repeats.Sent("f" * 64, found, policy)) == []


def test_which_answers_are_sure_is_kept_where_its_column_changes_its_type(older: Database) -> None:
    migrate.upgrade(older, "0031")
    setting = {"max_error": 0.05}
    with older.write() as session:
        session.execute(
            text("UPDATE models SET answers = :setting"), {"setting": json.dumps(setting)}
        )
    for change in (migrate.upgrade, lambda db: migrate.downgrade(db, "0031"), migrate.upgrade):
        change(older)
        found = [row for (row,) in read_rows(older, "SELECT answers FROM models")]
        assert found and all(row in (setting, json.dumps(setting)) for row in found)


def _add_jobs(session: Session, model: Model, version: Version) -> None:
    """A check and an export with what they have made."""
    for kind in ("validate", "export"):
        job = beside_the_line(model, kind, {}, {}, 0.5)
        session.add(job)
        session.flush()
        session.add(Event(job_id=job.id, type="state", data={"state": "queued"}, at=0.5))
    made = {"version_id": version.id, "format": "onnx"}
    session.add(ExportJob(**made, job_id=job.id, fence=None))
    session.add(Exporter(worker="w1", seen_at=0.5))
    session.add(Export(**made, sha256="0" * 64, bytes=1, created_at=0.5))


def _add_model_that_waits(session: Session, model: Model) -> None:
    """A model like another one, and the job that fetches its weights."""
    names = {column.key for column in Model.__mapper__.column_attrs} - {"id", "name"}
    new = Model(id="mdl_new", name="new", **{name: getattr(model, name) for name in names})
    session.add(new)
    session.flush()
    job = beside_the_line(new, "fetch", {}, {}, 0.5)
    new.base_job = job.id
    session.add_all([job, Weights(repository="timm/net", sha256="0" * 64, bytes=1)])


def _add_upload(session: Session, model: Model) -> None:
    large = 1 << 40
    times = {"expires_at": 1.5, "created_at": 0.5}
    session.add(Upload(id="upl_1", owner_id=model.owner_id, length=large, offset=large, **times))
    session.flush()
    session.add(
        Chunk(upload_id="upl_1", offset=large - 1, bytes=1, sha256="0" * 64, key="uploads/upl_1/1")
    )


def _add_webhook(session: Session, model: Model) -> None:
    """A webhook and something that it is to be told."""
    values = {"owner_id": model.owner_id, "url": "https://example.org/", "events": list(EVENTS)}
    session.add(
        Webhook(id="whk_1", secret_sha256="0" * 64, model_id=model.id, created_at=0.5, **values)
    )
    session.flush()
    deliveries.record_event(
        session, "task.data_deleted", model.owner_id, model.id, {"task": 1}, 1.5
    )


def _add_session(session: Session, model: Model) -> None:
    named = {"name": "k", "prefix": "p", "hash": "0" * 64, "scope": "read", "created_at": 0.5}
    session.add(Key(id="key_1", owner_id=model.owner_id, **named))
    session.flush()
    times = {"created_at": 0.5, "seen_at": 1.5, "expires_at": 2.5}
    session.add(UserSession(hash="f" * 64, key_id="key_1", **times))


def _add_predict_key(session: Session, model: Model) -> None:
    """A key of a scope that older code does not know, which opens nothing there."""
    named = {
        "name": "k",
        "prefix": "q",
        "hash": "1" * 64,
        "scope": "predict",
        "created_at": 0.5,
        "expires_at": 9.5,
    }
    session.add(Key(id="key_2", owner_id=model.owner_id, **named))
    session.flush()
    limits = {"requests_per_s": 5.0, "images_per_day": 1000}
    session.add(PredictKey(key_id="key_2", model_id=model.id, alias="production", **limits))


def test_older_jobs_are_claimed_after_a_check_beside_them(older: Database) -> None:
    migrate.upgrade(older)
    with older.write() as session:
        model = session.scalars(select(Model)).all()[0]
        check = beside_the_line(model, "validate", {}, {}, older.now(session))
        session.add(check)
        session.flush()
        job_id = check.id
    claim = claims.claim_job(older, "w", 60)
    assert claim is not None and claim.job_id == job_id
    assert read_rows(older, "SELECT count(*) FROM owners WHERE claimed_at IS NOT NULL") == [(1,)]
    claims.finish(older, claim, Done({"valid": True}))
    with older.read() as session:
        assert session.get_one(Job, job_id).report == {"valid": True}
    learning = claims.claim_job(older, "w", 60)
    assert learning is not None and learning.kind == "learn"


def test_references_of_jobs_are_still_checked(older: Database) -> None:
    migrate.upgrade(older)
    ((job,),) = read_rows(older, "SELECT min(id) FROM jobs")
    for statement in (
        "UPDATE jobs SET task_id = 'tsk_none' WHERE id = :job",
        "UPDATE jobs SET model_id = 'mdl_none' WHERE id = :job",
        "UPDATE events SET job_id = 'job_none' WHERE job_id = :job",
    ):
        with pytest.raises(IntegrityError), older.write() as session:
            session.execute(text(statement), {"job": job})
    if older.dialect == "sqlite":
        assert read_rows(older, "PRAGMA integrity_check") == [("ok",)]
        assert read_rows(older, "PRAGMA foreign_key_check") == []


def test_what_older_rows_name_is_scrubbed(older: Database, tmp_path: Path) -> None:
    migrate.upgrade(older)
    store = FolderStore(tmp_path / "store")
    store.prepare()
    Scrubber(older, store, Settings(data_dir=tmp_path), "w", lambda _seconds: False).round()
    with older.read() as session:
        objects = session.get_one(Scrub, 1).objects
    assert objects > 10
    # The old store is not there: all that rows name is missing.
    assert read_rows(older, "SELECT count(*) FROM damage WHERE kind = 'missing'") == [(objects,)]
