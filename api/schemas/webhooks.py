"""Request bodies about webhooks."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.common import Body
from core.protocol.webhook import EVENTS, WebhookEvent, WebhookFormat
from core.public_address import MAX_URL_CHARS

Url = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_URL_CHARS),
    Field(description="https://host[:port]/path, at a public address"),
]
Events = Annotated[
    list[WebhookEvent], Field(min_length=1, max_length=len(EVENTS), description="What it is told")
]
Format = Annotated[
    WebhookFormat,
    Field(
        description="What is sent: standard: the payload itself; slack, teams: a message as "
        "incoming webhooks take it"
    ),
]
Model = Annotated[
    Annotated[str, StringConstraints(min_length=1, max_length=63)] | None,
    Field(description="Id or name of the only model that it is told of; null: all"),
]


class WebhookIn(Body):
    """A new webhook."""

    url: Url
    format: Format = "standard"
    events: Events = Field(default_factory=lambda: list(EVENTS))
    model: Model = None


class WebhookPatch(Body):
    """Changes of a webhook.

    `enabled`: true resumes sending, with pending deliveries; false stops it, and events that occur
    meanwhile are not sent later.
    """

    url: Url | None = None
    format: Format | None = None
    events: Events | None = None
    model: Model = None
    enabled: bool | None = None
