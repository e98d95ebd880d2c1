"""Webhooks and their deliveries."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.webhook import WebhookEvent, WebhookFormat, WebhookPayload

DeliveryState = Literal["pending", "delivered", "failed"]


class LastDelivery(TypedDict):
    """The newest attempted delivery of a webhook. `status`: HTTP status of the response; null: no
    response.
    """

    id: str
    type: str
    state: DeliveryState
    status: int | None
    sent_at: str


class WebhookOut(TypedDict):
    """A webhook (URL that receives events), without its secret.

    - `format`: standard: payloads as they are; slack, teams: messages with the same content.
    - `model`: id of the only model that it reports; null: all models.
    - `state`: failing if the last attempt failed.
    - `disabled_because`: null if a person disabled it.
    - `pending`: deliveries that wait.
    - `dropped`: events that were dropped because too many deliveries were waiting.
    - `old_secret_until`: time until which the secret before the last rotation also signs.
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
    """Fields of a webhook that a request sets.

    `model`: null means all models. For the other fields, null means no change.
    """

    url: str | None
    format: WebhookFormat | None
    events: list[WebhookEvent] | None
    model: str | None
    enabled: bool | None


class NewWebhook(WebhookOut):
    """A webhook with its secret, which is shown only once."""

    secret: str


class WebhookPage(TypedDict):
    """A page of webhooks, oldest first."""

    items: list[WebhookOut]
    next_cursor: str | None


class DeliveryOut(TypedDict):
    """Delivery of one event to one webhook, with the attempts so far.

    - `id`: value of the header webhook-id.
    - `attempts`: attempts so far.
    - `next_at`: time of the next attempt; null: none follows.
    - `status`: HTTP status of the last response.
    - `error`: why that response does not count as accepted.
    """

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
    """Delivery of an event to a webhook, with the payload as sent.

    `answer`: first 4 kB of the last response's body; null for callers who are not administrators.
    """

    payload: WebhookPayload
    answer: str | None


class DeliveryPage(TypedDict):
    """A page of a webhook's deliveries, newest first."""

    items: list[DeliveryOut]
    next_cursor: str | None
