"""Delivery of the outbox to webhooks in threads of a worker, beside its jobs.

A worker serves eight webhooks at once, each in one thread; a webhook is served by one worker at a
time. Slow and failing webhooks share four of the eight places, so that they do not delay the
others.
"""

import json
import threading
import time
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.database.session import Database
from core.errors import PerennialError
from core.failpoints import hit_failpoint
from core.settings import Settings
from core.telemetry import DELIVERY_SECONDS
from core.webhooks import chat_messages, outbox, webhook_secret
from core.webhooks.outbox import LEASE_S, DeliveryAttemptOutcome, LeasedWebhook, OutgoingDelivery
from perennial.public_address import (
    AddressRefused,
    Resolver,
    parse_ip_networks,
    parse_url_target,
)

log = structlog.get_logger(__name__)

AT_ONCE, SLOW_AT_ONCE = 8, 4
"""Number of webhooks that a worker serves at once, and how many of them may be slow or failing."""
REQUEST_S = 15.0
"""Seconds for one attempt, from the resolution of the name to the response."""
LOOK_S = 1.0
"""Seconds between looks for due deliveries."""
TURN_S = 5.0
"""Seconds after which a webhook gives up its place to others."""
CLOSE_S = 2.0
USER_AGENT = "Perennial-Webhooks/1"


class WebhookDeliverer:
    """Delivers due webhook events to their receivers, in threads of a worker.

    Args:
        db: database with the outbox.
        settings: settings with the allowed networks and the key file.
        lease_s: seconds for which a webhook belongs to this worker without a renewal.
        resolve: function that returns the addresses of a name; None for the system's resolver.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        *,
        lease_s: float = LEASE_S,
        resolve: Resolver | None = None,
    ) -> None:
        self._db, self._settings, self._lease_s, self._resolve = db, settings, lease_s, resolve
        self._allow = parse_ip_networks(settings.webhook_allow)
        self._serving: set[LeasedWebhook] = set()
        self._changed = threading.Condition()
        self._end = threading.Event()
        self._failing = False
        self._thread = threading.Thread(
            target=self._deliver_until_stopped, name="deliver", daemon=True
        )

    def start_delivery_thread(self) -> None:
        """Start the thread that delivers due webhook events."""
        self._thread.start()

    def stop_delivering(self) -> None:
        """Stop beginning further deliveries of webhooks."""
        self._end.set()

    def close(self) -> None:
        """Stop delivering webhooks, and wait a short time for deliveries under way.

        An interrupted one is sent again under the same id.
        """
        self.stop_delivering()
        # A thread that was never started cannot be waited for.
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        with self._changed:
            self._changed.wait_for(lambda: not self._serving, CLOSE_S)

    def start_due_webhook_deliveries(self) -> int:
        """Lease due webhooks while threads are free, deliver each in a thread, and return their
        number.
        """
        with self._changed:
            # A copy, since threads discard their leases at any time.
            serving = set(self._serving)
        slow = sum(one.is_slow for one in serving)
        places = AT_ONCE - len(serving)
        if places <= 0:
            return 0
        leases = outbox.lease_webhooks(
            self._db, serving, places, SLOW_AT_ONCE - slow, self._lease_s
        )
        if leases:
            hit_failpoint("delivery-claimed")
        for lease in leases:
            with self._changed:
                # Before the thread begins, because it discards the lease when it ends.
                self._serving.add(lease)
            threading.Thread(
                target=self._deliver_leased_webhook,
                args=(lease,),
                name="delivery",
                # Threads that hang in a request must not keep the worker from ending.
                daemon=True,
            ).start()
        return len(leases)

    def _deliver_until_stopped(self) -> None:
        while not self._end.is_set():
            self._run_and_log_errors("look", self.start_due_webhook_deliveries)
            self._end.wait(LOOK_S)

    def _deliver_leased_webhook(self, lease: LeasedWebhook) -> None:
        try:
            self._run_and_log_errors("serve", lambda: self._send_due_deliveries(lease))
        finally:
            with self._changed:
                # Also after an error, or the worker would lose a place with each of them.
                self._serving.discard(lease)
                self._changed.notify_all()

    def _send_due_deliveries(self, lease: LeasedWebhook) -> None:
        """Send a webhook's deliveries one after another until none is due or its time is over."""
        until = time.monotonic() + TURN_S
        while not self._end.is_set() and time.monotonic() < until:
            outgoing = outbox.find_next_delivery_or_release_webhook(self._db, lease, self._lease_s)
            if outgoing is None:
                return  # nothing is due, and `find_next_delivery_or_release_webhook` has released it
            outcome = self._send_delivery_and_return_outcome(lease, outgoing)
            hit_failpoint("delivery-sent")
            outbox.record_delivery_outcome(self._db, lease, outgoing, outcome)
            kind = "delivered" if outcome.error is None else "failed"
            DELIVERY_SECONDS.labels(kind).observe(outcome.seconds)
            if outcome.error is not None:
                log.info(
                    "delivery failed",
                    webhook=lease.webhook_id,
                    delivery=outgoing.id,
                    status=outcome.status,
                )
        # A long queue gives up its place after its turn, so that others are served too.
        outbox.release_webhook_lease(self._db, lease)

    def _send_delivery_and_return_outcome(
        self, lease: LeasedWebhook, outgoing: OutgoingDelivery
    ) -> DeliveryAttemptOutcome:
        """Attempt to send a webhook delivery once, and return the outcome."""
        # imported here, since a worker without webhooks never needs it
        from core.webhooks.guarded_http import (
            GuardedRequestSettings,
            NoHttpResponseError,
            post_guarded_request,
        )

        begin = time.monotonic()
        status, response_body, error = None, None, None
        try:
            target, body = parse_url_target(outgoing.url), self._build_delivery_body(outgoing)
            headers = self._build_delivery_headers(lease.webhook_id, outgoing, body)
            response = post_guarded_request(
                target, headers, body, GuardedRequestSettings(self._allow, REQUEST_S, self._resolve)
            )
            status, response_body, error = (
                response.status,
                response.body or None,
                explain_rejected_delivery(response.status),
            )
        except (NoHttpResponseError, AddressRefused) as refused:
            error = str(refused)
        except PerennialError as refused:
            error = refused.detail
        return DeliveryAttemptOutcome(status, error, response_body, time.monotonic() - begin)

    def _build_delivery_body(self, outgoing: OutgoingDelivery) -> bytes:
        """Build the HTTP body of a delivery: the stored payload, or a chat message."""
        if outgoing.format == "standard":
            return outgoing.payload.encode()
        return chat_messages.build_chat_body(
            outgoing.format, json.loads(outgoing.payload), self._settings.public_url
        )

    def _build_delivery_headers(
        self, webhook_id: str, outgoing: OutgoingDelivery, body: bytes
    ) -> dict[str, str]:
        """Build the HTTP headers of a delivery by Standard Webhooks, signed with each valid secret.

        Raises:
            WebhooksNotSetUp: the secrets cannot be made here.
        """
        key, now = webhook_secret.load_or_create_webhook_key(self._settings), int(time.time())
        secrets = [
            webhook_secret.derive_webhook_secret(key, webhook_id, number)
            for number in outgoing.generations
        ]
        # A worker with another key file would sign with secrets that no receiver knows.
        if webhook_secret.hash_webhook_secret(secrets[0]) != outgoing.secret_sha256:
            raise webhook_secret.build_changed_webhook_key_error()
        # During a rotation both secrets are valid, and a receiver needs only one of them.
        signed = (webhook_secret.sign_delivery_body(one, outgoing.id, now, body) for one in secrets)
        return {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "webhook-id": outgoing.id,
            # The time of this attempt: receivers refuse old ones, which could be replays.
            "webhook-timestamp": str(now),
            "webhook-signature": " ".join(signed),
        }

    def _run_and_log_errors(self, action: str, work: Callable[[], object]) -> None:
        """Run a piece of work, and log errors so that the thread continues."""
        try:
            work()
        except (SQLAlchemyError, PerennialError, OSError) as error:
            if not self._failing:  # log only once per outage
                log.warning("cannot deliver", doing=action, error=str(error).partition("\n")[0])
            self._failing = True
        # A mistake must not end the thread that looks for deliveries: nothing starts it again.
        except Exception:
            log.exception("cannot deliver", doing=action)
        else:
            self._failing = False


def explain_rejected_delivery(status: int) -> str | None:
    """Explain why a receiver's HTTP response does not accept a delivery, or None if it does."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return (
            f"The receiver answered {status}: redirects are not followed; name the address "
            f"where it is."
        )
    return f"The receiver answered {status}."
