"""Workers killed around a webhook delivery: events are sent under one id, and no job waits.

The workers are real. Every committed event is delivered.
"""

import signal
import threading
from typing import Any

import pytest
from receiver import Receiver
from sqlalchemy import select, update

from core.database.tables import Webhook, WebhookDelivery
from core.versions import aliases
from core.webhooks import webhooks
from tests.faults.conftest import PATIENCE_S, Backend

pytestmark = pytest.mark.slow


def create_webhook_of_model(
    shared: Backend, receiver: Receiver, model: str, *events: str, path: str = "/"
) -> Any:
    """Create a webhook that informs a receiver about a model, and return it with its secret."""
    url = f"{receiver.url}{path}"
    requested = webhooks.RequestedWebhook(url, events, model)
    return webhooks.create_webhook(shared.db, shared.settings, shared.actor, requested)


def move_own_alias(shared: Backend, model: str) -> None:
    aliases.set_alias(
        shared.db, shared.actor, model, "mine", 0, aliases.AliasMoveReasonAndSeenVersion(None)
    )


def wait_until_delivered(shared: Backend, hook: Any) -> None:
    shared.until(lambda: webhooks.read_webhook(shared.db, shared.actor, hook["id"])["pending"] == 0)


@pytest.mark.campaign  # the next test kills a worker around a delivery
def test_a_worker_killed_after_the_publish_and_before_any_delivery_leaves_them_to_the_next(
    shared: Backend, receiver: Receiver, batches: list[bytes]
) -> None:
    model, worker = shared.create(), shared.standing_worker()
    hook = create_webhook_of_model(shared, receiver, model, "version.published", "job.succeeded")
    shared.arm("publish-committed")
    job = shared.submit(model, batches[0])
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    assert shared.job(job).state == "succeeded" and receiver.seen == []
    shared.standing_worker()
    told = [one.verified(hook["secret"]) for one in receiver.wait(2, seconds=60)]
    assert [one["type"] for one in told] == ["version.published", "job.succeeded"]
    wait_until_delivered(shared, hook)


@pytest.mark.parametrize(
    ("point", "before"),
    [pytest.param("delivery-claimed", 0, marks=pytest.mark.campaign), ("delivery-sent", 1)],
)
def test_a_worker_killed_around_a_delivery_sends_it_again_under_its_id(
    shared: Backend, receiver: Receiver, point: str, before: int
) -> None:
    model, worker = shared.create(), shared.standing_worker()
    hook = create_webhook_of_model(shared, receiver, model, "alias.moved")
    shared.arm(point)
    move_own_alias(shared, model)
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    set_lease_end(shared, hook, 4e9)
    shared.standing_worker()
    other = shared.create()
    create_webhook_of_model(shared, receiver, other, "alias.moved", path="/other")
    move_own_alias(shared, other)
    receiver.wait(1, "/other", 60)  # the next worker has looked for what is due
    assert len(receiver.of("/")) == before, "while the dead worker's lease lasts, nobody sends"
    set_lease_end(shared, hook, 1.0)
    arrived = receiver.wait(before + 1, seconds=60)
    assert len({one.headers["webhook-id"] for one in arrived}) == 1
    assert arrived[-1].verified(hook["secret"])["data"]["alias"] == "mine"
    wait_until_delivered(shared, hook)
    assert len(receiver.of("/")) == before + 1


def set_lease_end(shared: Backend, hook: Any, until: float) -> None:
    """Set the end of a worker's lease on a webhook, in Unix seconds."""
    with shared.db.write() as session:
        session.execute(update(Webhook).where(Webhook.id == hook["id"]).values(lease_until=until))


def test_a_slow_receiver_delays_no_job(
    shared: Backend, receiver: Receiver, batches: list[bytes]
) -> None:
    model, may_answer = shared.create(), threading.Event()
    receiver.status = lambda _path, _number: 204 if may_answer.wait(60) else 500
    hook = create_webhook_of_model(shared, receiver, model, "alias.moved")
    move_own_alias(shared, model)
    shared.standing_worker()
    shared.until(lambda: receiver.seen)
    assert shared.is_run_finished(shared.submit(model, batches[0])).state == "succeeded"
    with shared.db.read() as session:
        is_held = session.get_one(Webhook, hook["id"]).lease_until is not None
        tries = session.scalar(
            select(WebhookDelivery.attempts).where(WebhookDelivery.webhook_id == hook["id"])
        )
    assert is_held or tries, "the job waited for the answer"
    may_answer.set()
    webhooks.remove_webhook(shared.db, shared.actor, hook["id"])
