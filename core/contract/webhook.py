"""Types of webhook events and the contents of their payloads."""

from typing import Literal, get_args

from typing_extensions import TypedDict

from core.contract.gate import Verdict

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
"""Format of messages: plain payloads, or messages for Slack's and Teams' incoming webhooks."""
FORMATS: tuple[WebhookFormat, ...] = get_args(WebhookFormat)
EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
"""Events that a webhook can subscribe to."""
TEST = "webhook.test"
"""Type of a delivery requested by POST …/test, which every webhook receives."""


class WebhookData(TypedDict, total=False):
    """Data of a webhook event: ids, numbers and the gate's verdict. The type of the event
    determines the fields.

    - `model`: id of the model.
    - `name`: name of the model at the time of the event.
    - `error`: kind of a job's error.
    - `previous`: previous version of the alias; null: the alias is new.
    - `version`: null if the alias was deleted.
    - `gate`: the verdict; one of more than 16 KiB has only `passed`, without its checks.
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
    """JSON body that is sent to a webhook; `timestamp` is the time of the event."""

    type: str
    timestamp: str
    data: WebhookData
