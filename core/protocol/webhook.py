"""What a webhook is told: the types of events, and what their payloads hold."""

from typing import Literal, get_args

from typing_extensions import TypedDict

from core.protocol.gate import Verdict

WebhookEvent = Literal[
    "job.succeeded",
    "job.failed",
    "job.rejected",
    "job.cancelled",
    "version.published",
    "version.held",
    "alias.moved",
    "task.data_deleted",
    "export.ready",
]
WebhookFormat = Literal["standard", "slack", "teams"]
"""What a receiver reads: payloads as they are, or messages as Slack's and Teams' incoming webhooks take them."""
FORMATS: tuple[WebhookFormat, ...] = get_args(WebhookFormat)
EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
"""What somebody can ask to be told."""
TEST = "webhook.test"
"""The type of a delivery that was asked for by POST …/test; every webhook gets it."""


class WebhookData(TypedDict, total=False):
    """Ids, numbers and the gate's verdict; which fields are there depends on the type.

    `model`: its id, `name`: its name when it happened; `error`: the kind of a job's error; `previous`: where
    the alias was, null: it is new; `version` null: the alias was deleted; `gate`: of more than 16 KiB only
    `passed`, without its checks.
    """

    model: str
    name: str
    job: str | None
    kind: str
    task: int | None
    version: int | None
    outcome: str
    error: str
    status: str
    gate: Verdict
    alias: str
    previous: int | None
    cause: str
    format: str
    sha256: str
    bytes: int
    webhook: str


class WebhookPayload(TypedDict):
    """The body of a delivery; `timestamp`: when it happened."""

    type: str
    timestamp: str
    data: WebhookData
