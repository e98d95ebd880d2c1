"""An outbox on a desk, and who empties it: for tests of webhooks."""

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from core.contract.webhook import EVENTS
from core.database import deliveries
from core.database.session import Database
from core.database.tables import Owner, Webhook, WebhookDelivery
from core.ids import new_id
from core.requests.actor import Actor
from core.settings import Settings
from core.webhooks import outbox, webhooks
from core.webhooks.deliver import WebhookDeliverer
from core.webhooks.outbox import DeliveryAttemptOutcome, LeasedWebhook


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
        requested = webhooks.RequestedWebhook(url, **{"events": EVENTS, **given})
        made = webhooks.create_webhook(self.db, self.settings, self.actor(owner), requested)
        return made["id"], made["secret"]

    def happen(
        self, model: str, version: int, *, owner: str | None = None, fails: bool = False
    ) -> None:
        """An alias of a model is moved, in a transaction."""
        with self.db.write() as session:
            owner = owner or self.desk.owner
            data: Any = {
                "alias": "production",
                "version": version,
                "previous": None,
                "cause": "set",
            }
            deliveries.collect_webhook_event_until_commit(
                session, "alias.moved", owner, model, data, self.db.now(session)
            )
            if fails:
                raise ZeroDivisionError

    def rows(self, hook: str) -> list[WebhookDelivery]:
        return sorted(self.desk.all(WebhookDelivery, webhook_id=hook), key=lambda row: row.number)

    def row(self, hook: str) -> Webhook:
        return self.desk.all(Webhook, id=hook)[0]  # type: ignore[no-any-return]

    def set(self, hook: str, **values: Any) -> None:
        with self.db.write() as session:
            session.execute(update(Webhook).where(Webhook.id == hook).values(**values))

    def all_due(self, hook: str) -> None:
        """As if the time of every next attempt had come."""
        with self.db.write() as session:
            waiting = update(WebhookDelivery).where(
                WebhookDelivery.webhook_id == hook, WebhookDelivery.state == "pending"
            )
            session.execute(waiting.values(next_at=1.0))
        self.set(hook, due_at=1.0)

    def lease(self, hook: str) -> LeasedWebhook:
        (lease,) = [
            one for one in outbox.lease_webhooks(self.db, (), 8, 8) if one.webhook_id == hook
        ]
        return lease

    def fail(self, hook: str, status: int | None = 500) -> None:
        """An attempt that fails now."""
        self.all_due(hook)
        lease = self.lease(hook)
        outgoing = outbox.find_next_delivery_or_release_webhook(self.db, lease)
        assert outgoing is not None
        outbox.record_delivery_outcome(
            self.db, lease, outgoing, DeliveryAttemptOutcome(status, "no", None, 0.1)
        )
        outbox.release_webhook_lease(self.db, lease)

    def empty(self, seconds: float = 60.0) -> None:
        """Deliver what is due until nothing is."""
        sender = WebhookDeliverer(self.db, self.settings)
        end = time.monotonic() + seconds
        while sender.start_due_webhook_deliveries() or sender._serving:
            assert time.monotonic() < end
            time.sleep(0.01)
