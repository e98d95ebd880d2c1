"""Events of an owner's models: their jobs, versions and aliases."""

from typing import Literal, get_args

from typing_extensions import TypedDict

OwnerEventType = Literal["job", "version", "alias"]
OWNER_EVENT_TYPES: tuple[OwnerEventType, ...] = get_args(OwnerEventType)


class JobMoved(TypedDict):
    """A job's change of state.

    - `version`: the version that it made.
    - `outcome`: whether that was published or held.
    """

    state: str
    kind: str
    task: int | None
    version: int | None
    outcome: str | None


class VersionMade(TypedDict):
    """A published or held version; a held one may be published later."""

    version: int
    task: int | None
    status: str


class AliasMoved(TypedDict):
    """A move of an alias to another version.

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
    """One event.

    Ids increase. `type` determines the fields of `data`; `model` and `job` are ids.
    """

    id: int
    type: OwnerEventType
    model: str
    job: str | None
    at: str
    data: OwnerEventData


class OwnerEventPage(TypedDict):
    """A page of events, oldest first."""

    items: list[OwnerEventOut]
    next_cursor: str | None
