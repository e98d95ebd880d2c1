"""The outbox of webhooks, on both databases: recipients, retries, sending workers and removal."""

import json
from typing import Any

import pytest
from sqlalchemy import update

from core.database import deliveries
from core.database.tables import Model, Version, WebhookDelivery
from core.execution.kinds.kind import JobOutcome
from core.scheduling import claim as claims
from core.tasks import tasks
from core.webhooks import deliver, outbox, webhooks
from core.webhooks.outbox import RETRY_S, DeliveryAttemptOutcome
from tests.core.post import Post

DAY_S = 86_400.0


def test_each_end_of_a_job_a_held_version_and_deleted_data_have_their_type(post: Post) -> None:
    desk = post.desk
    model = desk.model(gate={"min_acc": 0.9})
    hook, _ = post.hook("http://127.0.0.1:9/")
    desk.submit(model)
    claim = desk.claim()
    desk.publish({"head": "h"}, [("new", 1, 1, 4)], claim=claim)
    tasks.delete_task_data(desk.db, desk.store, desk.blobs, post.actor(), model, 1)
    other = desk.model()
    desk.submit(other)
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "broken")
    check = desk.check(other)
    claims.finish_job_without_version(desk.db, desk.claim(), JobOutcome({"valid": True}, []))
    told = [json.loads(row.payload) for row in post.rows(hook)]
    assert [one["type"] for one in told] == [
        "version.held", "job.succeeded", "task.data_deleted", "job.failed", "job.succeeded"
    ]  # fmt: skip
    assert told[0]["data"]["gate"]["passed"] is False and told[0]["data"]["status"] == "held"
    assert told[1]["data"]["outcome"] == "held" and told[2]["data"]["task"] == 1
    assert told[3]["data"]["error"] == "code" and told[4]["data"]["job"] == check


def test_an_export_is_told_with_its_version_and_digest(post: Post) -> None:
    desk = post.desk
    model = desk.model()
    hook, _ = post.hook("http://127.0.0.1:9/", events=["export.ready"])
    job = desk.check(model, kind="export", report={"version": 3, "format": "onnx"})
    found: Any = {"version": 3, "format": "onnx", "sha256": "a" * 64, "bytes": 9}
    claims.finish_job_without_version(desk.db, desk.claim(), JobOutcome(found, []))
    (row,) = post.rows(hook)
    assert json.loads(row.payload)["data"].items() >= {"job": job, **found}.items()


def test_what_was_rolled_back_is_told_to_nobody(post: Post) -> None:
    model = post.desk.model()
    hook, _ = post.hook("http://127.0.0.1:9/")
    with pytest.raises(ZeroDivisionError):
        post.happen(model, 1, fails=True)
    assert post.rows(hook) == []


def test_a_webhook_hears_of_its_own_model_and_its_own_owner_alone(post: Post) -> None:
    one, two = post.desk.model(), post.desk.model()
    own, _ = post.hook("http://127.0.0.1:9/", model=one)
    foreign, _ = post.hook("http://127.0.0.1:9/", owner=post.other_owner())
    post.happen(one, 1)
    post.happen(two, 2)
    assert [row.model_id for row in post.rows(own)] == [one]
    assert post.rows(foreign) == []


def test_attempts_follow_the_schedule_and_end_after_ten(post: Post) -> None:
    hook, _ = post.hook("http://127.0.0.1:9/")
    post.happen(post.desk.model(), 1)
    for pause in RETRY_S:
        post.fail(hook)
        (row,) = post.rows(hook)
        assert pause <= row.next_at - row.sent_at <= pause * 1.1
        assert post.row(hook).due_at == row.next_at
    post.fail(hook)
    (row,) = post.rows(hook)
    assert (row.state, row.attempts, row.next_at) == ("failed", 10, None)
    assert webhooks.read_webhook(post.db, post.actor(), hook)["state"] == "failing"


@pytest.mark.both_databases
def test_a_worker_that_lost_its_lease_notes_nothing_and_sends_nothing_more(post: Post) -> None:
    hook, _ = post.hook("http://127.0.0.1:9/")
    post.happen(post.desk.model(), 1)
    zombie = post.lease(hook)
    sent = outbox.find_next_delivery_or_release_webhook(post.db, zombie)
    assert sent is not None and outbox.lease_webhooks(post.db, (), 8, 8) == []
    post.set(hook, lease_until=1.0)
    heir = post.lease(hook)
    assert outbox.find_next_delivery_or_release_webhook(post.db, zombie) is None
    outbox.record_delivery_outcome(
        post.db, zombie, sent, DeliveryAttemptOutcome(200, None, None, 0.1)
    )
    outbox.release_webhook_lease(post.db, zombie)
    again = outbox.find_next_delivery_or_release_webhook(post.db, heir)
    assert again is not None and again.id == sent.id
    assert post.row(hook).lease_until is not None


@pytest.mark.both_databases
def test_an_owner_takes_at_most_half_of_the_places(post: Post) -> None:
    model, other = post.desk.model(), post.other_owner()
    for owner in (post.desk.owner, other):
        for number in range(6):
            post.hook(f"http://127.0.0.1:9/{number}", owner=owner)
        post.happen(model, 1, owner=owner)
    taken = outbox.lease_webhooks(post.db, (), deliver.AT_ONCE, deliver.SLOW_AT_ONCE)
    assert sorted(one.owner_id for one in taken) == sorted([post.desk.owner] * 4 + [other] * 4)
    assert outbox.lease_webhooks(post.db, taken, deliver.AT_ONCE, deliver.SLOW_AT_ONCE) == []


def test_beyond_the_bound_events_are_counted_and_the_change_is_made(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_PENDING", 2)
    hook, _ = post.hook("http://127.0.0.1:9/")
    model = post.desk.model()
    for version in range(5):
        post.happen(model, version)
    assert len(post.rows(hook)) == 2
    told = webhooks.read_webhook(post.db, post.actor(), hook)
    assert (told["pending"], told["dropped"]) == (2, 3)


def test_a_gate_of_many_kilobytes_is_told_without_its_checks(post: Post) -> None:
    desk = post.desk
    model = desk.model()
    hook, _ = post.hook("http://127.0.0.1:9/", events=["version.published"])
    with desk.db.write() as session:
        row = session.get_one(Model, model)
        version = session.query(Version).filter_by(model_id=model).one()
        check = {
            "name": "lost_tasks",
            "limit": None,
            "value": 1.0,
            "passed": True,
            "classes": ["c" * 90] * 500,
        }
        version.gate = {"passed": True, "checks": [check]}
        deliveries.collect_version_outcome_for_webhooks(session, row, version, 1.0)
    (one,) = post.rows(hook)
    assert len(one.payload) < 1000 and json.loads(one.payload)["data"]["gate"] == {
        "passed": True,
        "checks": [],
    }


def test_deliveries_that_are_over_are_swept_and_what_waits_stays(post: Post) -> None:
    model = post.desk.model()
    hook, _ = post.hook("http://127.0.0.1:9/")
    for version in range(3):
        post.happen(model, version)
    done, fresh, waiting = post.rows(hook)
    with post.db.write() as session:
        now = post.db.now(session)
        old = {"created_at": now - 9 * DAY_S}
        for row, values in (
            (done, {**old, "state": "delivered", "finished_at": now - 8 * DAY_S}),
            (fresh, {**old, "state": "failed", "finished_at": now - 6 * DAY_S}),
            (waiting, old),
        ):
            session.execute(
                update(WebhookDelivery).where(WebhookDelivery.number == row.number).values(**values)
            )
    outbox.remove_old_webhook_deliveries(post.db, 7.0)
    assert [row.id for row in post.rows(hook)] == [fresh.id, waiting.id]
    post.set(hook, disabled_at=1.0)
    outbox.remove_old_webhook_deliveries(post.db, 7.0)
    assert [row.id for row in post.rows(hook)] == [fresh.id]
