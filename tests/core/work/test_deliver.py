"""Deliveries to webhooks over real sockets, on both databases: signed, in order, once, and nobody waits for
the slow."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import receiver as receivers
from receiver import Receiver
from sqlalchemy import update
from standardwebhooks.webhooks import WebhookVerificationError

from core import webhook_secret
from core.db import deliveries as outbox
from core.db.session import Database
from core.db.tables import Audit, Delivery, Model, Owner, Version, Webhook
from core.errors import WrongState
from core.ids import new_id
from core.protocol.webhook import EVENTS
from core.requests import tasks, webhook_deliveries, webhooks
from core.requests.actor import Actor
from core.settings import Settings
from core.work import claim as claims
from core.work import deliver, deliveries, publish
from core.work.deliver import Deliverer
from core.work.deliveries import IN_ORDER, RETRY_S, Lease, Outcome
from core.work.kinds.kind import Done

DAY_S = 86_400.0


@dataclass
class Post:
    """An outbox on a desk, and who empties it."""

    desk: Any
    settings: Settings

    @property
    def db(self) -> Database:
        return self.desk.db  # type: ignore[no-any-return]

    def actor(self, owner: str | None = None) -> Actor:
        return Actor(owner or self.desk.owner, None, "write")

    def other_owner(self) -> str:
        with self.db.write() as session:
            row = Owner(id=new_id("own"), name=new_id("own")[4:], created_at=0.0)
            session.add(row)
            return row.id

    def hook(self, url: str, *, owner: str | None = None, **given: Any) -> tuple[str, str]:
        """Make a webhook; its id and secret."""
        given = {"events": EVENTS, "model": None, **given}
        made = webhooks.create(self.db, self.settings, self.actor(owner), url=url, **given)
        return made["id"], made["secret"]

    def happen(self, model: str, version: int, *, owner: str | None = None, fails: bool = False) -> None:
        """An alias of a model is moved, in a transaction."""
        with self.db.write() as session:
            owner = owner or self.desk.owner
            data: Any = {"alias": "production", "version": version, "previous": None, "cause": "set"}
            outbox.tell(session, "alias.moved", owner, model, data, self.db.now(session))
            if fails:
                raise ZeroDivisionError

    def rows(self, hook: str) -> list[Delivery]:
        return sorted(self.desk.all(Delivery, webhook_id=hook), key=lambda row: row.number)

    def row(self, hook: str) -> Webhook:
        return self.desk.all(Webhook, id=hook)[0]  # type: ignore[no-any-return]

    def set(self, hook: str, **values: Any) -> None:
        with self.db.write() as session:
            session.execute(update(Webhook).where(Webhook.id == hook).values(**values))

    def all_due(self, hook: str) -> None:
        """As if the time of every next attempt had come."""
        with self.db.write() as session:
            waiting = update(Delivery).where(Delivery.webhook_id == hook, Delivery.state == "pending")
            session.execute(waiting.values(next_at=1.0))
        self.set(hook, due_at=1.0)

    def lease(self, hook: str) -> Lease:
        (lease,) = [one for one in deliveries.take(self.db, (), 8, 8) if one.webhook_id == hook]
        return lease

    def fail(self, hook: str, status: int | None = 500) -> None:
        """An attempt that fails now."""
        self.all_due(hook)
        lease = self.lease(hook)
        outgoing = deliveries.next_of(self.db, lease)
        assert outgoing is not None
        deliveries.note(self.db, lease, outgoing, Outcome(status, "no", None, 0.1))
        deliveries.leave(self.db, lease)

    def empty(self, seconds: float = 20.0) -> None:
        """Deliver what is due until nothing is."""
        sender = Deliverer(self.db, self.settings)
        end = time.monotonic() + seconds
        while sender.look() or sender._serving:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def post(desk: Any) -> Post:
    desk.model()  # its owner
    return Post(desk, desk.settings.model_copy(update={"webhook_allow": "127.0.0.0/8"}))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receivers.running() as made:
        yield made


def test_what_a_job_did_is_told_signed_and_in_few_bytes(post: Post, receiver: Receiver) -> None:
    desk = post.desk
    model = desk.model(name="birds")
    hook, secret = post.hook(f"{receiver.url}/all")
    _, other = post.hook(f"{receiver.url}/other", events=["job.failed"])
    desk.submit(model)
    claim = desk.claim()
    result = desk.result({"backbone": "b", "head": "h"}, [("new", 1, 3, 4)])
    published = publish.publish(desk.db, desk.store, claim, result)
    post.empty()
    told = [one.verified(secret) for one in receiver.of("/all")]
    assert [one["type"] for one in told] == [
        "version.published",
        "alias.moved",
        "alias.moved",
        "job.succeeded",
    ]
    assert all(one["data"]["model"] == model and one["data"]["name"] == "birds" for one in told)
    assert told[0]["data"]["version"] == published.number == 1
    assert told[0]["data"]["gate"]["passed"] is True and told[0]["data"]["job"] == claim.job_id
    assert {one["data"]["alias"]: one["data"]["version"] for one in told[1:3]} == {
        "production": 1,
        "latest": 1,
    }
    assert told[3]["data"] == {"model": model, "name": "birds", "job": claim.job_id, "kind": "learn", "task": 1,
                               "version": 1, "outcome": "published"}  # fmt: skip
    assert all(len(one.body) < 20_000 for one in receiver.seen)
    assert receiver.of("/other") == []
    with pytest.raises(WebhookVerificationError):
        receiver.of("/all")[0].verified(other)
    assert [row.id for row in post.rows(hook)] == [one.headers["webhook-id"] for one in receiver.of("/all")]
    assert {row.state for row in post.rows(hook)} == {"delivered"}
    assert post.row(hook).due_at is None and post.row(hook).lease_until is None


def test_each_end_of_a_job_a_held_version_and_deleted_data_have_their_type(post: Post) -> None:
    desk = post.desk
    model = desk.model(gate={"min_acc": 0.9})
    hook, _ = post.hook("http://127.0.0.1:9/")
    desk.submit(model)
    claim = desk.claim()
    publish.publish(desk.db, desk.store, claim, desk.result({"head": "h"}, [("new", 1, 1, 4)]))
    tasks.delete_data(desk.db, desk.store, desk.blobs, post.actor(), model, 1)
    other = desk.model()
    desk.submit(other)
    claims.fail(desk.db, desk.claim(), "code", "broken")
    check = desk.check(other)
    claims.finish(desk.db, desk.claim(), Done({"valid": True}, []))
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
    claims.finish(desk.db, desk.claim(), Done(found, []))
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


def test_events_of_a_model_wait_for_the_one_before_and_those_of_others_do_not(
    post: Post, receiver: Receiver
) -> None:
    one, two = post.desk.model(), post.desk.model()
    hook, secret = post.hook(f"{receiver.url}/")
    receiver.status = lambda path, number: 500 if number == 0 else 200
    for model, version in ((one, 1), (one, 2), (two, 7), (one, 3)):
        post.happen(model, version)
    post.empty()
    assert [one.verified(secret)["data"]["version"] for one in receiver.seen] == [1, 7]
    post.all_due(hook)
    post.empty()
    assert [one.verified(secret)["data"]["version"] for one in receiver.seen] == [1, 7, 1, 2, 3]
    assert receiver.seen[0].headers["webhook-id"] == receiver.seen[2].headers["webhook-id"]


def test_after_five_attempts_later_events_of_the_model_overtake(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, secret = post.hook(f"{receiver.url}/")
    post.happen(model, 1)
    for _ in range(IN_ORDER - 1):
        post.fail(hook)
    post.happen(model, 2)
    post.fail(hook)
    assert [(row.attempts, row.state) for row in post.rows(hook)] == [(5, "pending"), (0, "pending")]
    post.empty()
    assert [one.verified(secret)["data"]["version"] for one in receiver.seen] == [2]


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
    assert webhooks.read(post.db, post.actor(), hook)["state"] == "failing"


def test_two_workers_send_each_delivery_once(post: Post, receiver: Receiver) -> None:
    models = [post.desk.model() for _ in range(3)]
    hooks = [post.hook(f"{receiver.url}/{number}")[0] for number in range(4)]
    for version in range(8):
        for model in models:
            post.happen(model, version)
    end = time.monotonic() + 60

    def work() -> None:
        sender = Deliverer(post.db, post.settings)
        while time.monotonic() < end and any(row.due_at is not None for row in post.desk.all(Webhook)):
            sender.look()
            time.sleep(0.01)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sent = [one.headers["webhook-id"] for one in receiver.seen]
    assert len(sent) == len(set(sent)) == 4 * 24
    for number, hook in enumerate(hooks):
        assert [row.id for row in post.rows(hook)] == [
            one.headers["webhook-id"] for one in receiver.of(f"/{number}")
        ]


def test_a_worker_that_lost_its_lease_notes_nothing_and_sends_nothing_more(post: Post) -> None:
    hook, _ = post.hook("http://127.0.0.1:9/")
    post.happen(post.desk.model(), 1)
    zombie = post.lease(hook)
    sent = deliveries.next_of(post.db, zombie)
    assert sent is not None and deliveries.take(post.db, (), 8, 8) == []
    post.set(hook, lease_until=1.0)
    heir = post.lease(hook)
    assert deliveries.next_of(post.db, zombie) is None
    deliveries.note(post.db, zombie, sent, Outcome(200, None, None, 0.1))
    deliveries.leave(post.db, zombie)
    again = deliveries.next_of(post.db, heir)
    assert again is not None and again.id == sent.id
    assert post.row(hook).lease_until is not None


def test_410_disables_at_once_and_is_audited(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, _ = post.hook(f"{receiver.url}/")
    receiver.status = lambda path, number: 410
    post.happen(model, 1)
    post.happen(model, 2)
    post.empty()
    assert len(receiver.seen) == 1
    told = webhooks.read(post.db, post.actor(), hook)
    assert told["state"] == "disabled" and "410" in (told["disabled_because"] or "")
    (row,) = post.desk.all(Audit, action="webhook.disable")
    assert (row.object, row.actor, row.owner_id) == (hook, None, post.desk.owner)
    post.happen(model, 3)
    assert [one.state for one in post.rows(hook)] == ["failed", "pending"]
    with pytest.raises(WrongState, match="disabled"):
        webhooks.test(post.db, post.actor(), hook)
    receiver.status = lambda path, number: 200
    webhooks.change(post.db, post.settings, post.actor(), hook, {"enabled": True})
    post.empty()
    assert [one.state for one in post.rows(hook)] == ["failed", "delivered"]


def test_five_days_of_failures_disable_and_one_success_ends_them(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, _ = post.hook(f"{receiver.url}/")
    post.happen(model, 1)
    post.fail(hook)
    since = post.row(hook).failing_since
    assert since is not None
    post.set(hook, failing_since=since - 4.9 * DAY_S)
    post.fail(hook)
    assert post.row(hook).disabled_at is None
    post.all_due(hook)
    post.empty()
    assert post.row(hook).failing_since is None
    post.happen(model, 2)
    post.fail(hook)
    post.set(hook, failing_since=since - 5.1 * DAY_S)
    post.fail(hook)
    assert post.row(hook).disabled_at is not None
    assert "five days" in post.desk.all(Audit, action="webhook.disable")[0].data["reason"]


def test_for_a_day_after_a_rotation_both_secrets_verify(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, old = post.hook(f"{receiver.url}/")
    new = webhooks.rotate(post.db, post.settings, post.actor(), hook)["secret"]
    post.happen(model, 1)
    post.empty()
    (one,) = receiver.seen
    assert len(one.headers["webhook-signature"].split(" ")) == 2
    assert one.verified(old) == one.verified(new)
    post.set(hook, previous_until=1.0)
    post.happen(model, 2)
    post.empty()
    assert receiver.seen[1].verified(new)
    with pytest.raises(WebhookVerificationError):
        receiver.seen[1].verified(old)


def test_no_secret_is_in_the_database_and_another_key_file_signs_nothing(
    post: Post, receiver: Receiver
) -> None:
    hook, secret = post.hook(f"{receiver.url}/")
    post.happen(post.desk.model(), 1)
    row = post.row(hook)
    assert secret not in str(vars(row)) and row.secret_sha256 == webhook_secret.digest(secret)
    file = post.settings.data_dir / webhook_secret.KEY_NAME
    assert file.stat().st_mode & 0o777 == 0o600
    right = file.read_text()
    file.write_text("another key of at least 32 bytes, as after a restore\n")
    post.empty()
    assert receiver.seen == []
    assert "is not the one with which this webhook was made" in (post.rows(hook)[0].error or "")
    file.write_text(right)
    post.all_due(hook)
    post.empty()
    assert receiver.seen[0].verified(secret)


def test_slow_receivers_keep_no_other_owner_waiting(post: Post, receiver: Receiver) -> None:
    """Two owners with twenty receivers that take 1.5 s each; of a third owner all arrives meanwhile."""
    model = post.desk.model()
    _, secret = post.hook(f"{receiver.url}/quick")
    with receivers.running() as slow:
        slow.delay_s = 1.5
        for owner in (post.other_owner(), post.other_owner()):
            for number in range(10):
                hook, _ = post.hook(f"{slow.url}/{number}", owner=owner)
                post.set(hook, last_s=10.0)  # as the last attempt took
                for version in range(3):
                    post.happen(model, version, owner=owner)
        sender = Deliverer(post.db, post.settings)
        sender.start()
        while len(slow.seen) < deliver.SLOW_AT_ONCE:
            time.sleep(0.01)
        for version in range(3):
            post.happen(model, version)
        begin = time.monotonic()
        arrived = receiver.wait(3, "/quick", 10)
        waited, under_way = time.monotonic() - begin, len(sender._serving)
        sender.close()
    assert [one.verified(secret)["data"]["version"] for one in arrived] == [0, 1, 2]
    assert waited < 5 and under_way <= deliver.SLOW_AT_ONCE + 1


def test_an_owner_takes_at_most_half_of_the_places(post: Post) -> None:
    model, other = post.desk.model(), post.other_owner()
    for owner in (post.desk.owner, other):
        for number in range(6):
            post.hook(f"http://127.0.0.1:9/{number}", owner=owner)
        post.happen(model, 1, owner=owner)
    taken = deliveries.take(post.db, (), deliver.AT_ONCE, deliver.SLOW_AT_ONCE)
    assert sorted(one.owner_id for one in taken) == sorted([post.desk.owner] * 4 + [other] * 4)
    assert deliveries.take(post.db, taken, deliver.AT_ONCE, deliver.SLOW_AT_ONCE) == []


def test_a_name_that_leads_inside_by_now_gets_nothing(post: Post, receiver: Receiver) -> None:
    """It was public when the webhook was made: DNS rebinding."""
    hook, _ = post.hook(f"{receiver.url}/")
    post.set(hook, url="https://receiver.test/")
    post.happen(post.desk.model(), 1)
    sender = Deliverer(post.db, post.settings, resolve=lambda host, port: ["169.254.169.254"])
    sender.look()
    while sender._serving:
        time.sleep(0.01)
    assert "169.254.169.254 is a link-local address" in (post.rows(hook)[0].error or "")
    assert receiver.seen == []


def test_beyond_the_bound_events_are_counted_and_the_change_is_made(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_PENDING", 2)
    hook, _ = post.hook("http://127.0.0.1:9/")
    model = post.desk.model()
    for version in range(5):
        post.happen(model, version)
    assert len(post.rows(hook)) == 2
    told = webhooks.read(post.db, post.actor(), hook)
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
        outbox.of_version(session, row, version, 1.0)
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
            session.execute(update(Delivery).where(Delivery.number == row.number).values(**values))
    deliveries.forget_old(post.db, 7.0)
    assert [row.id for row in post.rows(hook)] == [fresh.id, waiting.id]
    post.set(hook, disabled_at=1.0)
    deliveries.forget_old(post.db, 7.0)
    assert [row.id for row in post.rows(hook)] == [fresh.id]


def test_a_delivery_is_sent_again_under_its_id(post: Post, receiver: Receiver) -> None:
    hook, secret = post.hook(f"{receiver.url}/")
    test = webhooks.test(post.db, post.actor(), hook)
    assert webhooks.test(post.db, post.actor(), hook)["id"] == test["id"]
    post.empty()
    asked = webhook_deliveries.redeliver(post.db, post.actor(), hook, test["id"])
    assert (asked["state"], asked["attempts"]) == ("pending", 0)
    post.empty()
    assert [one.headers["webhook-id"] for one in receiver.seen] == [test["id"]] * 2
    assert receiver.seen[1].verified(secret)["type"] == "webhook.test"


def test_what_a_receiver_says_is_kept_for_administrators_alone(post: Post, receiver: Receiver) -> None:
    hook, _ = post.hook(f"{receiver.url}/")
    receiver.status, receiver.body = lambda path, number: 500, b"internal \x00 secret" + b"x" * 5000
    post.happen(post.desk.model(), 1)
    post.empty()
    (row,) = post.rows(hook)
    assert webhook_deliveries.read(post.db, post.actor(), hook, row.id)["answer"] is None
    admin = Actor(post.desk.owner, None, "admin")
    told = webhook_deliveries.read(post.db, admin, hook, row.id)["answer"] or ""
    assert told.startswith("internal") and len(told) == 4096


def test_the_key_of_one_machine_is_made_once_by_whoever_is_first(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    found: list[bytes] = []
    makers = [threading.Thread(target=lambda: found.append(webhook_secret.key(settings))) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [webhook_secret.KEY_NAME]
