"""Webhooks and their deliveries."""

from typing import Literal

from typing_extensions import TypedDict

from core.protocol.webhook import WebhookEvent, WebhookFormat, WebhookPayload

DeliveryState = Literal["pending", "delivered", "failed"]


class LastDelivery(TypedDict):
    """The newest delivery that was tried. `status`: of the answer, null where none came."""

    id: str
    type: str
    state: DeliveryState
    status: int | None
    sent_at: str


class WebhookOut(TypedDict):
    """A webhook, without its secret.

    `format`: standard: payloads as they are; slack, teams: messages that say the same. `model`: the id of the
    only one that it is told of, null: all; `state`: failing where the last attempt failed;
    `disabled_because`: null where a person did it; `pending`: deliveries that wait; `dropped`: events that
    found no room beside so many that wait; `old_secret_until`: the secret from before the last rotation signs
    too until then.
    """

    id: str
    owner: str
    url: str
    format: WebhookFormat
    events: list[WebhookEvent]
    model: str | None
    model_name: str | None
    state: Literal["enabled", "failing", "disabled"]
    disabled_at: str | None
    disabled_because: str | None
    failing_since: str | None
    pending: int
    dropped: int
    last: LastDelivery | None
    old_secret_until: str | None
    created_at: str


class WebhookChange(TypedDict, total=False):
    """Fields of a webhook that a request sets. `model`: null: all models; null elsewhere: as it is."""

    url: str | None
    format: WebhookFormat | None
    events: list[WebhookEvent] | None
    model: str | None
    enabled: bool | None


class NewWebhook(WebhookOut):
    """A webhook with its secret, shown this once."""

    secret: str


class WebhookPage(TypedDict):
    """A page of webhooks, oldest first."""

    items: list[WebhookOut]
    next_cursor: str | None


class DeliveryOut(TypedDict):
    """One event for one webhook. `id`: the header webhook-id; `attempts`: made so far; `next_at`: of the next
    one, null: none follows; `status`: of the last answer; `error`: why it does not count as taken."""

    id: str
    webhook: str
    type: str
    model: str | None
    state: DeliveryState
    attempts: int
    next_at: str | None
    status: int | None
    error: str | None
    created_at: str
    sent_at: str | None
    finished_at: str | None


class DeliveryDetail(DeliveryOut):
    """The same with what is sent, in the webhook's format. `answer`: the first 4 kB of the last answer's body;
    null for who is no administrator."""

    payload: WebhookPayload
    answer: str | None


class DeliveryPage(TypedDict):
    """A page of deliveries, newest first."""

    items: list[DeliveryOut]
    next_cursor: str | None
