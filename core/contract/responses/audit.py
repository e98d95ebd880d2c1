"""The audit trail."""

from typing_extensions import TypedDict

from core.contract.responses.model_change import ModelChange

_Moved = TypedDict("_Moved", {"from": str, "to": str}, total=False)
"""The state or standing before and after."""


class AuditData(ModelChange, _Moved, total=False):
    """Recorded details of an audited change. The action determines the fields.

    - `retry_of`: the job that failed or whose version was held.
    - `published`: versions that a gate passed because of the change.
    - `host`: host of a webhook's URL.
    - `changed`: names of the webhook's changed fields.
    - `former_name`: previous name of a model that took another one's name.
    - `judged`: "again" if a gate passed a version later.
    - `left_out`: names of the fields of a change that is too large to be recorded; `bytes`: its
      size.
    """

    name: str
    former_name: str
    host: str
    events: list[str]
    changed: list[str]
    owner: str
    scope: str
    scenario: str
    model: str
    number: int
    edit: int
    trial: int
    operations: int
    tasks: list[int]
    task: int
    job: str
    sha256: str
    bytes: int
    version: int
    versions: list[int]
    status: str
    judged: str
    alias: str
    previous: int | None
    reason: str | None
    note: str | None
    lost_tasks: list[int]
    published: list[int]
    retry_of: str
    left_out: list[str]


class AuditOut(TypedDict):
    """One entry of the audit trail: a change, and the key that made it.

    - `key`: null for a worker.
    - `model`: id of the model concerned; null if there is none.
    """

    id: int
    at: str
    owner: str
    key: str | None
    action: str
    object: str
    model: str | None
    data: AuditData


class AuditPage(TypedDict):
    """A page of the audit trail, in the requested order."""

    items: list[AuditOut]
    next_cursor: str | None
