"""Events of an owner's models: their jobs, versions and aliases."""

from typing import Literal, get_args

from typing_extensions import TypedDict

OwnerEventType = Literal["job", "version", "alias"]
OWNER_EVENT_TYPES: tuple[OwnerEventType, ...] = get_args(OwnerEventType)


class JobMoved(TypedDict):
    """Data of an owner event: a job changed its state.

    - `version`: the version that it made.
    - `outcome`: whether that was published or held.
    """

    state: str
    kind: str
    task: int | None
    version: int | None
    outcome: str | None


class VersionMade(TypedDict):
    """Data of an owner event: a version was published or held; a held one may be published later."""

    version: int
    task: int | None
    status: str


class AliasMoved(TypedDict):
    """Data of an owner event: an alias moved to another version.

    - `version`: null: the alias was deleted.
    - `previous`: null: the alias is new.
    - `cause`: create, publish, set, rollback, follow, delete or rebase. After a rebase the model
      has the name, and so the place, of another one.
    """

    alias: str
    version: int | None
    previous: int | None
    cause: str


OwnerEventData = JobMoved | VersionMade | AliasMoved


class OwnerEventOut(TypedDict):
    """One event of an owner's models: a job, a version or an alias changed.

    Ids increase. `type` determines the fields of `data`; `model` and `job` are ids.
    """

    id: int
    type: OwnerEventType
    model: str
    job: str | None
    at: str
    data: OwnerEventData


class OwnerEventPage(TypedDict):
    """A page of an owner's events, oldest first."""

    items: list[OwnerEventOut]
    next_cursor: str | None
