"""Webhook deliveries over real sockets, on both databases: signed, in order and only once.

Slow receivers delay no other owner.
"""

import json
import threading
import time
from pathlib import Path

import pytest
import receiver as receivers
from receiver import Receiver
from standardwebhooks.webhooks import WebhookVerificationError

from core.database.tables import AuditEntry, Webhook
from core.errors import WrongState
from core.publishing import publish
from core.requests.actor import Actor
from core.settings import Settings
from core.webhooks import chat_messages, deliver, webhook_deliveries, webhook_secret, webhooks
from core.webhooks.deliver import WebhookDeliverer
from core.webhooks.outbox import IN_ORDER
from tests.core.post import Post

DAY_S = 86_400.0
LIMIT_S = 60.0


def test_what_a_job_did_is_told_signed_and_in_few_bytes(post: Post, receiver: Receiver) -> None:
    desk = post.desk
    model = desk.model(name="birds")
    hook, secret = post.hook(f"{receiver.url}/all")
    _, other = post.hook(f"{receiver.url}/other", events=["job.failed"])
    desk.submit(model)
    claim = desk.claim()
    result = desk.result({"backbone": "b", "head": "h"}, [("new", 1, 3, 4)])
    published = publish.publish_or_hold_job_result(desk.db, desk.store, claim, result)
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
    assert [row.id for row in post.rows(hook)] == [
        one.headers["webhook-id"] for one in receiver.of("/all")
    ]
    assert {row.state for row in post.rows(hook)} == {"delivered"}
    assert post.row(hook).due_at is None and post.row(hook).lease_until is None


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_a_message_for_people_is_signed_too_and_the_payload_is_kept(
    post: Post, receiver: Receiver, format: str
) -> None:
    post.settings = post.settings.model_copy(update={"public_url": "https://perennial.example.org"})
    model = post.desk.model(name="birds")
    hook, secret = post.hook(f"{receiver.url}/", format=format)
    post.happen(model, 3)
    post.empty()
    [sent] = receiver.seen
    said = sent.verified(secret)
    payload = json.loads(post.rows(hook)[0].payload)
    assert said == json.loads(
        chat_messages.build_chat_body(format, payload, "https://perennial.example.org")
    )
    assert "birds: production is version 3 now." in sent.body.decode()
    assert payload["type"] == "alias.moved" and payload["data"]["version"] == 3


def test_what_waits_is_sent_in_the_format_that_the_webhook_has_then(
    post: Post, receiver: Receiver
) -> None:
    hook, secret = post.hook(f"{receiver.url}/", format="slack")
    post.happen(post.desk.model(), 3)
    webhooks.change_webhook(post.db, post.settings, post.actor(), hook, {"format": "standard"})
    post.empty()
    assert receiver.seen[0].verified(secret)["type"] == "alias.moved"


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


def test_after_five_attempts_later_events_of_the_model_overtake(
    post: Post, receiver: Receiver
) -> None:
    model = post.desk.model()
    hook, secret = post.hook(f"{receiver.url}/")
    post.happen(model, 1)
    for _ in range(IN_ORDER - 1):
        post.fail(hook)
    post.happen(model, 2)
    post.fail(hook)
    assert [(row.attempts, row.state) for row in post.rows(hook)] == [
        (5, "pending"),
        (0, "pending"),
    ]
    post.empty()
    assert [one.verified(secret)["data"]["version"] for one in receiver.seen] == [2]


@pytest.mark.slow
@pytest.mark.both_databases
def test_two_workers_send_each_delivery_once(post: Post, receiver: Receiver) -> None:
    models = [post.desk.model() for _ in range(3)]
    hooks = [post.hook(f"{receiver.url}/{number}")[0] for number in range(4)]
    for version in range(4):
        for model in models:
            post.happen(model, version)
    end = time.monotonic() + LIMIT_S

    def deliver_until_done() -> None:
        sender = WebhookDeliverer(post.db, post.settings)
        while time.monotonic() < end and any(
            row.due_at is not None for row in post.desk.all(Webhook)
        ):
            sender.start_due_webhook_deliveries()
            time.sleep(0.01)

    workers = [threading.Thread(target=deliver_until_done) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sent = [one.headers["webhook-id"] for one in receiver.seen]
    assert len(sent) == len(set(sent)) == 4 * 12
    for number, hook in enumerate(hooks):
        assert [row.id for row in post.rows(hook)] == [
            one.headers["webhook-id"] for one in receiver.of(f"/{number}")
        ]


def test_410_disables_at_once_and_is_audited(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, _ = post.hook(f"{receiver.url}/")
    receiver.status = lambda path, number: 410
    post.happen(model, 1)
    post.happen(model, 2)
    post.empty()
    assert len(receiver.seen) == 1
    told = webhooks.read_webhook(post.db, post.actor(), hook)
    assert told["state"] == "disabled" and "410" in (told["disabled_because"] or "")
    (row,) = post.desk.all(AuditEntry, action="webhook.disable")
    assert (row.object, row.actor, row.owner_id) == (hook, None, post.desk.owner)
    post.happen(model, 3)
    assert [one.state for one in post.rows(hook)] == ["failed", "pending"]
    with pytest.raises(WrongState, match="disabled"):
        webhooks.queue_test_delivery(post.db, post.actor(), hook)
    receiver.status = lambda path, number: 200
    webhooks.change_webhook(post.db, post.settings, post.actor(), hook, {"enabled": True})
    post.empty()
    assert [one.state for one in post.rows(hook)] == ["failed", "delivered"]


def test_five_days_of_failures_disable_and_one_success_ends_them(
    post: Post, receiver: Receiver
) -> None:
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
    assert "five days" in post.desk.all(AuditEntry, action="webhook.disable")[0].data["reason"]


def test_for_a_day_after_a_rotation_both_secrets_verify(post: Post, receiver: Receiver) -> None:
    model = post.desk.model()
    hook, old = post.hook(f"{receiver.url}/")
    new = webhooks.rotate_secret(post.db, post.settings, post.actor(), hook)["secret"]
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
    assert secret not in str(vars(row)) and row.secret_sha256 == webhook_secret.hash_webhook_secret(
        secret
    )
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


@pytest.mark.slow
def test_slow_receivers_keep_no_other_owner_waiting(post: Post, receiver: Receiver) -> None:
    """Two owners have twenty receivers that do not answer.

    Meanwhile all events of a third owner arrive.
    """
    release = threading.Event()
    model = post.desk.model()
    _, secret = post.hook(f"{receiver.url}/quick")
    with receivers.run_receiver() as slow:
        slow.status = lambda path, number: 204 if release.wait(LIMIT_S) else 500
        for owner in (post.other_owner(), post.other_owner()):
            for number in range(10):
                hook, _ = post.hook(f"{slow.url}/{number}", owner=owner)
                post.set(hook, last_s=10.0)  # as the last attempt took
                for version in range(3):
                    post.happen(model, version, owner=owner)
        sender = WebhookDeliverer(post.db, post.settings)
        sender.start_delivery_thread()
        while len(slow.seen) < deliver.SLOW_AT_ONCE:
            time.sleep(0.01)
        for version in range(3):
            post.happen(model, version)
        arrived, under_way = receiver.wait(3, "/quick", LIMIT_S), len(sender._serving)
        answered = [one for one in slow.seen if one.answered]
        sender.stop_delivering()
        release.set()
        sender.close()
    assert [one.verified(secret)["data"]["version"] for one in arrived] == [0, 1, 2]
    assert answered == [] and under_way <= deliver.SLOW_AT_ONCE + 1


def test_a_name_that_leads_inside_by_now_gets_nothing(post: Post, receiver: Receiver) -> None:
    """DNS rebinding: the address was public when the webhook was created."""
    hook, _ = post.hook(f"{receiver.url}/")
    post.set(hook, url="https://receiver.test/")
    post.happen(post.desk.model(), 1)
    sender = WebhookDeliverer(
        post.db, post.settings, resolve=lambda host, port: ["169.254.169.254"]
    )
    sender.start_due_webhook_deliveries()
    while sender._serving:
        time.sleep(0.01)
    assert "169.254.169.254 is a link-local address" in (post.rows(hook)[0].error or "")
    assert receiver.seen == []


def test_a_delivery_is_sent_again_under_its_id(post: Post, receiver: Receiver) -> None:
    hook, secret = post.hook(f"{receiver.url}/")
    test = webhooks.queue_test_delivery(post.db, post.actor(), hook)
    assert webhooks.queue_test_delivery(post.db, post.actor(), hook)["id"] == test["id"]
    post.empty()
    asked = webhook_deliveries.requeue_delivery(post.db, post.actor(), hook, test["id"])
    assert (asked["state"], asked["attempts"]) == ("pending", 0)
    post.empty()
    assert [one.headers["webhook-id"] for one in receiver.seen] == [test["id"]] * 2
    assert receiver.seen[1].verified(secret)["type"] == "webhook.test"


def test_what_a_receiver_says_is_kept_for_administrators_alone(
    post: Post, receiver: Receiver
) -> None:
    hook, _ = post.hook(f"{receiver.url}/")
    receiver.status, receiver.body = lambda path, number: 500, b"internal \x00 secret" + b"x" * 5000
    post.happen(post.desk.model(), 1)
    post.empty()
    (row,) = post.rows(hook)
    assert webhook_deliveries.read_delivery(post.db, post.actor(), hook, row.id)["answer"] is None
    admin = Actor(post.desk.owner, None, "admin")
    told = webhook_deliveries.read_delivery(post.db, admin, hook, row.id)["answer"] or ""
    assert told.startswith("internal") and len(told) == 4096


def test_the_key_of_one_machine_is_made_once_by_whoever_is_first(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    found: list[bytes] = []
    makers = [
        threading.Thread(
            target=lambda: found.append(webhook_secret.load_or_create_webhook_key(settings))
        )
        for _ in range(8)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [webhook_secret.KEY_NAME]
