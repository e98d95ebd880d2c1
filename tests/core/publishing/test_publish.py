"""Publishing: all or nothing, once, in order, and only by the worker that owns the job."""

import hashlib
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.database.states import JobAction, JobState
from core.database.tables import (
    AliasMove,
    AuditEntry,
    Model,
    StoredJobEvent,
    StoredObjectDamageMark,
    Task,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.errors import LeaseLost, WrongState
from core.publishing import publish as publishing
from core.publishing import version_rows
from core.publishing.publish import JobVersionStatus, publish_or_hold_job_result
from core.recipe.code_version import compute_learning_code_digest
from core.retention import damage
from core.scheduling import claim as claims
from core.storage import Blobs
from tests.core.at_once import run_at_once

FIRST = {"backbone.1": "b1", "backbone.2": "b2", "head": "h1"}
CELLS = [("base", 1, 1, 10), ("new", 1, 9, 10)]


def publish_next_task(
    desk: Any, model: str, parts: dict[str, str] = FIRST, cells: Any = None, **more: Any
) -> int:
    """Submit, claim and publish one task."""
    _, claim = desk.begin(model)
    number = claim.task_number
    cells = cells or [("base", number, 1, 10), ("parent", number, 1, 10), ("new", number, 9, 10)]
    return desk.publish(parts, cells, claim=claim, **more).number


@pytest.fixture
def ready(desk: Any) -> tuple[str, Any, Path]:
    """A job, its claim, and what it has learned."""
    return *desk.begin(), desk.result(FIRST, CELLS)


@pytest.mark.both_databases
def test_a_published_job_has_its_version_parts_results_and_events(desk: Any) -> None:
    model = desk.model()
    job_id = desk.submit(model)
    assert desk.publish(FIRST, CELLS, warnings=["weak"]).number == 1
    job = desk.job(job_id)
    assert (job.state, job.version, job.fence) == ("succeeded", 1, None)
    version = desk.all(Version, model_id=model)[1]
    assert (version.parent, version.task_number) == (0, 1)
    assert (version.status, version.job_id) == ("published", job_id)
    assert [part.name for part in desk.all(VersionPart, version_id=version.id)] == list(FIRST)
    results = desk.all(VersionTaskResult, model_id=model)
    assert [(r.version, r.task, r.correct) for r in results] == [(0, 1, 1), (1, 1, 9)]
    assert desk.aliases(model) == {"production": 1, "latest": 1}
    assert [(m.alias, m.previous) for m in desk.all(AliasMove)] == [
        ("latest", None),
        ("production", 0),
    ]
    assert [audit.action for audit in desk.all(AuditEntry)] == ["version.publish"]
    states = [e.data["state"] for e in desk.all(StoredJobEvent, job_id=job_id) if e.type == "state"]
    assert states == ["running", "succeeded"]
    assert desk.task(job_id).warnings == ["weak"]
    assert all(desk.blobs.has(part.sha256) for part in desk.all(VersionPart))


def test_the_manifest_says_everything_about_the_version(desk: Any) -> None:
    model = desk.model()
    publish_next_task(desk, model)
    manifest = desk.manifests(model)[1]
    assert manifest["version"] == 1
    assert manifest["parent"] == 0
    assert manifest["init"] == {"kind": "random", "seed": 0}
    assert manifest["normalise"] == {"mean": [0.5], "std": [0.25]}
    assert manifest["threads"] == 1
    assert manifest["update_norm"]["backbone"] == 1.0
    assert [part["name"] for part in manifest["parts"]] == list(FIRST)
    assert set(manifest) >= {
        "format", "model", "task", "scenario", "architecture", "image", "classes", "heads", "recipe", "method",
        "datasets", "seed", "environment",
    }  # fmt: skip
    assert (
        manifest["code_version"] == compute_learning_code_digest()
    )  # by which the catalogue's file is named


def test_the_manifest_says_what_the_method_made_of_the_network(desk: Any) -> None:
    model, prompted = desk.model(), {"family": "vpt", "prompts": 3, "deep": True, "tasks": None}
    for network in (None, prompted):
        publish_next_task(desk, model, network=network)
    manifests = [version.manifest.to_json() for version in desk.all(Version, model_id=model)]
    assert [manifest.get("network", "plain") for manifest in manifests] == [
        "plain",
        "plain",
        prompted,
    ]


def test_only_parts_with_new_bytes_count_as_new(desk: Any) -> None:
    model = desk.model()
    publish_next_task(desk, model)
    publish_next_task(desk, model, {**FIRST, "head": "another head"})
    versions = desk.all(Version, model_id=model)
    assert (versions[1].bytes, versions[1].bytes_new) == (6, 6)
    assert (versions[2].bytes, versions[2].bytes_new) == (
        4 + len("another head"),
        len("another head"),
    )


def test_bytes_that_were_deleted_count_as_new_again(desk: Any) -> None:
    model = desk.model()
    publish_next_task(desk, model, {"head": "h", "buffer": "images"})
    with desk.db.write() as session:
        session.query(VersionPart).filter_by(name="buffer").one().deleted_at = 1.0
    publish_next_task(desk, model, {"head": "h", "buffer": "images"})
    assert desk.all(Version, model_id=model)[2].bytes_new == len("images")


def _store_parts_of_next_task(desk: Any, model: str, patch: pytest.MonkeyPatch) -> list[str]:
    """Publish a task with another head; return the parts for which the store was asked."""
    names = {hashlib.sha256(content.encode()).hexdigest(): content for content in FIRST.values()}
    stat, asked = desk.store.stat, list[str]()

    def record_stat(key: str) -> Any:
        asked.append(names.get(key[-64:], "other"))
        return stat(key)

    with patch.context() as within:
        within.setattr(desk.store, "stat", record_stat)
        publish_next_task(desk, model, {**FIRST, "head": "h2"})
    return [name for name in asked if name != "other"]


def test_the_store_is_not_asked_for_parts_that_the_parent_has(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = desk.model()
    publish_next_task(desk, model)
    assert _store_parts_of_next_task(desk, model, monkeypatch) == []
    assert len(desk.all(VersionPart, sha256=hashlib.sha256(b"b1").hexdigest())) == 2


def test_a_part_of_the_parent_that_is_marked_as_damaged_is_stored_again(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = desk.model()
    publish_next_task(desk, model)
    key = Blobs.make_blob_key(hashlib.sha256(b"b1").hexdigest())
    desk.store.put_bytes(key, b"XX")
    damage.DatabaseDamageMarks(desk.db).mark_damaged(key)
    assert "b1" in _store_parts_of_next_task(desk, model, monkeypatch)
    assert b"".join(desk.store.read(key)) == b"b1"
    assert desk.all(StoredObjectDamageMark) == []


def test_publishing_again_returns_the_same_version(desk: Any, ready: Any) -> None:
    _, claim, result = ready
    first, again = (
        publish_or_hold_job_result(desk.db, desk.store, claim, result),
        publish_or_hold_job_result(desk.db, desk.store, claim, result),
    )
    assert first == again == JobVersionStatus(1, "published")
    assert len(desk.all(Version)) == 2
    assert len(desk.all(StoredJobEvent, type="state")) == 2
    assert (
        publish_or_hold_job_result(desk.db, desk.store, claim, desk.folder / "gone") == first
    )  # the commit is enough


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (version_rows, "store_version_measurements"),
        (version_rows, "judge_version_by_gate"),
        (version_rows, "_add_next_version"),
        (publishing, "_end_job_that_made_version"),
        (publishing, "change_job_state"),
        (version_rows, "lock_claimed_job"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_crash_inside_leaves_nothing_but_blobs_and_can_be_repeated(
    desk: Any, ready: Any, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    job_id, claim, result = ready
    with monkeypatch.context() as patched:
        original = getattr(module, step)

        def call_and_interrupt(*args: Any, **kwargs: Any) -> Any:
            original(*args, **kwargs)
            raise KeyboardInterrupt

        patched.setattr(module, step, call_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            publish_or_hold_job_result(desk.db, desk.store, claim, result)
    assert desk.state(job_id) is JobState.RUNNING
    assert len(desk.all(Version)) == 1
    assert (
        not desk.all(VersionPart)
        and not desk.all(VersionTaskResult)
        and not desk.all(AliasMove)
        and not desk.all(AuditEntry)
    )
    assert desk.all(Model)[0].next_version == 1
    assert publish_or_hold_job_result(desk.db, desk.store, claim, result).number == 1


def test_a_crash_at_the_commit_itself_is_repeated_without_a_gap(
    desk: Any, ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, claim, result = ready
    commit = Session.commit
    with monkeypatch.context() as patched:

        def committed_but_not_told(session: Session) -> None:
            commit(session)
            raise ConnectionError("the answer was lost")

        patched.setattr(Session, "commit", committed_but_not_told)
        with pytest.raises(ConnectionError):
            publish_or_hold_job_result(desk.db, desk.store, claim, result)
    assert publish_or_hold_job_result(desk.db, desk.store, claim, result).number == 1
    assert publish_next_task(desk, claim.model_id) == 2
    assert [version.number for version in desk.all(Version)] == [0, 1, 2]


def test_a_crash_after_the_commit_leaves_the_rest_to_a_repeat(
    desk: Any, ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim, result = ready
    desk.register(claim)
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "_delete_states_and_unneeded_task_blobs", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_or_hold_job_result(desk.db, desk.store, claim, result)
    assert desk.state(job_id) is JobState.SUCCEEDED
    assert desk.keys("snapshots/")
    assert publish_or_hold_job_result(desk.db, desk.store, claim, result).number == 1
    assert not desk.keys("snapshots/")


def test_a_zombie_cannot_publish(desk: Any) -> None:
    model = desk.model()
    job_id = desk.submit(model)
    zombie = desk.claim("zombie")
    desk.lose(zombie)
    owner = desk.claim("owner")
    with pytest.raises(LeaseLost):
        desk.publish({"head": "wrong"}, CELLS, claim=zombie)
    assert desk.state(job_id) is JobState.RUNNING
    assert desk.publish(FIRST, CELLS, claim=owner).number == 1
    # After the fact it only learns which version there is.
    assert desk.publish({"head": "wrong"}, CELLS, claim=zombie).number == 1
    assert [part.name for part in desk.all(VersionPart)] == list(FIRST)


@pytest.mark.parametrize(
    ("asked", "ends"), [(JobAction.PAUSE, JobState.PAUSED), (JobAction.CANCEL, JobState.CANCELLED)]
)
def test_a_stop_that_came_first_wins_over_publishing(
    desk: Any, ready: Any, asked: JobAction, ends: JobState
) -> None:
    job_id, claim, result = ready
    desk.act(job_id, asked)
    with pytest.raises(WrongState):
        publish_or_hold_job_result(desk.db, desk.store, claim, result)
    assert len(desk.all(Version)) == 1
    assert claims.complete_pause_or_cancellation(desk.db, claim) is ends


@pytest.mark.both_databases
@pytest.mark.parametrize("asked", [JobAction.PAUSE, JobAction.CANCEL])
def test_publishing_and_a_stop_at_the_same_moment_end_in_exactly_one(
    desk: Any, asked: JobAction
) -> None:
    for _ in range(3):
        job_id, claim = desk.begin()
        result = desk.result(FIRST, CELLS)
        ways = {
            "published": partial(publish_or_hold_job_result, desk.db, desk.store, claim, result),
            "stopped": partial(desk.act, job_id, asked),
        }

        def try_publish_or_stop(way: str, ways: Any = ways, claim: Any = claim) -> str | None:
            try:
                ways[way]()
                return way
            except WrongState:
                if way == "published":
                    claims.complete_pause_or_cancellation(desk.db, claim)
                return None

        (outcome,) = filter(None, run_at_once(try_publish_or_stop, ways))
        published = len(desk.all(Version, model_id=claim.model_id)) == 2
        assert published == (outcome == "published") == (desk.state(job_id) is JobState.SUCCEEDED)


def test_version_numbers_have_no_gaps_whatever_fails_between(desk: Any) -> None:
    model = desk.model()
    assert publish_next_task(desk, model) == 1
    desk.submit(model)
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "x")
    desk.submit(model)
    claim = desk.claim()
    with pytest.raises(ValueError, match="complete result"):
        publish_or_hold_job_result(desk.db, desk.store, claim, desk.folder / "nothing")
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    assert publish_next_task(desk, model) == 2


def test_base_and_parent_are_written_once(desk: Any) -> None:
    model = desk.model(gate={"min_acc": 0.95})
    publish_next_task(
        desk, model, cells=[("base", 1, 1, 10), ("parent", 1, 5, 10), ("new", 1, 2, 10)]
    )
    first = desk.all(Version, model_id=model)[1]
    assert first.status == "held"
    desk.again(first.job_id)
    desk.publish(FIRST, [("base", 1, 7, 10), ("new", 1, 10, 10)])
    cells = {(r.version, r.task): r.correct for r in desk.all(VersionTaskResult, model_id=model)}
    assert cells == {(0, 1): 1, (1, 1): 2, (2, 1): 10}


def test_a_version_that_fails_its_gate_is_held_and_moves_no_alias(desk: Any) -> None:
    model = desk.model(gate={"max_forgetting": 0.1, "min_new_task": 0.5, "min_acc": None})
    publish_next_task(desk, model)
    publish_next_task(desk, model, {"head": "h2"}, [("new", 1, 3, 10), ("new", 2, 9, 10)])
    held = desk.all(Version, model_id=model)[2]
    assert held.status == "held"
    assert held.gate == {
        "passed": False,
        "checks": [
            {"name": "max_forgetting", "limit": 0.1, "value": pytest.approx(0.6), "passed": False},
            {"name": "min_new_task", "limit": 0.5, "value": 0.9, "passed": True},
            {
                "name": "lost_tasks",
                "limit": 0,
                "value": 0,
                "passed": True,
                "tasks": [],
                "classes": [],
            },
            {"name": "parent_rolled_back", "limit": 1, "value": 1, "passed": True},
        ],
    }
    assert desk.aliases(model) == {"production": 1, "latest": 1}
    task = desk.task(held.job_id)
    assert (task.standing, task.stops, task.train_deleted_at) == ("held", True, None)
    logged = [
        e.data["message"] for e in desk.all(StoredJobEvent, job_id=held.job_id) if e.type == "log"
    ]
    assert any("is held by its gate: forgetting of earlier tasks is 0.6" in text for text in logged)
    # The line waits; the next task will not start from what was held.
    desk.submit(model)
    assert claims.claim_job(desk.db, "w", 60) is None


def test_a_job_is_judged_by_the_gate_it_was_submitted_under(desk: Any) -> None:
    model = desk.model(gate={"min_acc": 0.99})
    job_id = desk.submit(model, gate={"min_acc": 0.5})
    desk.publish(FIRST, CELLS)
    assert [v.status for v in desk.all(Version, job_id=job_id)] == ["published"]
    assert desk.all(Version, job_id=job_id)[0].gate["checks"][0]["limit"] == 0.5


def test_undefined_figures_pass_the_gate(desk: Any) -> None:
    model = desk.model(gate={"max_forgetting": 0.0})
    publish_next_task(desk, model)
    check = {"name": "max_forgetting", "limit": 0.0, "value": None, "passed": True}
    assert desk.all(Version, model_id=model)[1].gate["checks"][0] == check


@pytest.mark.parametrize(
    ("values", "train", "held_out"),
    [
        ({}, True, True),
        ({"training_data_days": 0.0}, False, True),
        ({"keep_training_data": True}, True, True),
        ({"held_out": "counts"}, True, False),
    ],
    ids=str,
)
def test_publishing_keeps_the_parts_of_a_task_as_its_model_says(
    desk: Any, values: dict[str, Any], train: bool, held_out: bool
) -> None:
    publish_next_task(desk, model := desk.model(**values))
    (task,) = desk.all(Task, model_id=model)
    assert (task.train_deleted_at is None) is desk.blobs.has(task.train_sha256) is train
    assert (task.held_out_deleted_at is None) is desk.blobs.has(task.held_out_sha256) is held_out
    assert desk.all(VersionTaskResult, model_id=model)


def test_the_training_part_is_kept_for_a_week_so_that_a_rollback_can_be_mended(desk: Any) -> None:
    publish_next_task(desk, desk.model())
    (task,) = desk.all(Task)
    assert task.train_until - desk.now() == pytest.approx(7 * 86_400, abs=600)


def test_bytes_that_another_task_still_needs_are_not_deleted(desk: Any) -> None:
    first, second = (desk.submit(desk.model(training_data_days=0.0)) for _ in range(2))
    shared = desk.task(first).train_sha256
    desk.change(Task, desk.task(second).id, train_sha256=shared)
    desk.publish(FIRST, CELLS)
    assert desk.blobs.has(shared)
    desk.publish(FIRST, CELLS)
    assert not desk.blobs.has(shared)


def test_a_blob_that_vanished_before_the_transaction_is_stored_again(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(desk.model())
    desk.lose_blobs_before_hold(monkeypatch)
    desk.publish(FIRST, CELLS)
    assert all(desk.blobs.has(part.sha256) for part in desk.all(VersionPart))


def test_results_of_a_task_whose_data_was_deleted_meanwhile_are_left_out(desk: Any) -> None:
    model = desk.model()
    publish_next_task(desk, model)
    desk.change(Task, desk.all(Task, model_id=model)[0].id, data_deleted_at=1.0)
    change = {"regressed": 0, "improved": 1, "total": 10}
    probe = {"all": [1, 2], "tasks": {"1": [1, 2], "2": [1, 2]}, "before": {}}
    cells = [("new", 1, 3, 10), ("new", 2, 9, 10)]
    publish_next_task(
        desk, model, FIRST, cells, changes={"1": change, "2": change}, knn_probe=probe
    )
    assert (2, 1) not in {(r.version, r.task) for r in desk.all(VersionTaskResult, model_id=model)}
    manifest = desk.manifests(model)[2]
    assert list(manifest["changes"]) == list(manifest["knn_probe"]["tasks"]) == ["2"]


def test_numbers_that_json_does_not_have_become_null(desk: Any) -> None:
    model = desk.model()
    publish_next_task(
        desk, model, update_norm={"backbone": 1.0, "head": 0.5, "relative": float("nan")}
    )
    assert desk.manifests(model)[1]["update_norm"]["relative"] is None


@pytest.mark.parametrize("file", ["../../outside", "/etc/hostname", "parts/none"])
def test_a_part_must_be_a_file_of_the_result(desk: Any, file: str) -> None:
    desk.submit(desk.model())
    result = desk.result(FIRST, CELLS)
    text = (result / "result.json").read_text().replace("parts/head.safetensors", file)
    (result / "result.json").write_text(text)
    with pytest.raises(ValueError, match="not a file of its result"):
        publish_or_hold_job_result(desk.db, desk.store, desk.claim(), result)
