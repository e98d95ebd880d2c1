"""Request bodies about an owner's keys and webhooks."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.common import FreeName, StrictRequestBody
from core.contract.webhook import EVENTS, WebhookEvent, WebhookFormat
from core.ids import NAME_PATTERN
from core.keys.predict_keys import LEAST_REQUESTS_PER_S, MOST_IMAGES_PER_DAY, MOST_REQUESTS_PER_S
from core.requests.actor import Scope
from perennial.public_address import MAX_URL_CHARS


class KeyIn(StrictRequestBody):
    """A new key. Without `owner` it belongs to the caller's owner; an unknown name creates an
    owner.

    `scope`: write covers read, and admin covers all. `scrape` allows only `/metrics`. `predict`
    allows only predictions by `alias` of `model`; `expires_at`, `requests_per_s` (on average) and
    `images_per_day` limit such a key, which belongs to the model's owner.
    """

    name: FreeName
    owner: Annotated[str, StringConstraints(pattern=NAME_PATTERN)] | None = None
    scope: Scope = "write"
    expires_at: Annotated[str, StringConstraints(max_length=40)] | None = None
    model: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    alias: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    requests_per_s: (
        Annotated[float, Field(ge=LEAST_REQUESTS_PER_S, le=MOST_REQUESTS_PER_S)] | None
    ) = None
    images_per_day: Annotated[int, Field(ge=1, le=MOST_IMAGES_PER_DAY)] | None = None


Url = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_URL_CHARS),
    Field(description="https://host[:port]/path, at a public address"),
]
Events = Annotated[
    list[WebhookEvent],
    Field(min_length=1, max_length=len(EVENTS), description="Events it receives"),
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
    Field(description="Id or name of the only model whose events it receives; null: all"),
]


class WebhookIn(StrictRequestBody):
    """A new webhook."""

    url: Url
    format: Format = "standard"
    events: Events = Field(default_factory=lambda: list(EVENTS))
    model: Model = None


class WebhookPatch(StrictRequestBody):
    """Changes of a webhook.

    `enabled`: true resumes sending, with pending deliveries; false stops it, and events that occur
    meanwhile are not sent later.
    """

    url: Url | None = None
    format: Format | None = None
    events: Events | None = None
    model: Model = None
    enabled: bool | None = None
