"""What happened to the models of an owner: their jobs, versions and aliases."""

from typing import Literal, get_args

from typing_extensions import TypedDict

OwnerEventType = Literal["job", "version", "alias"]
OWNER_EVENT_TYPES: tuple[OwnerEventType, ...] = get_args(OwnerEventType)


class JobMoved(TypedDict):
    """A job came into another state. `version`, `outcome`: what it made, and whether that was published or held."""

    state: str
    kind: str
    task: int | None
    version: int | None
    outcome: str | None


class VersionMade(TypedDict):
    """A version was published or held; one that was held may be published later."""

    version: int
    task: int | None
    status: str


class AliasMoved(TypedDict):
    """An alias came to another version; `version` null: it was deleted, `previous` null: it is new.

    `cause`: create, publish, set, rollback, follow, delete or rebase: the model took the name, and so the place, of
    another one.
    """

    alias: str
    version: int | None
    previous: int | None
    cause: str


OwnerEventData = JobMoved | VersionMade | AliasMoved


class OwnerEventOut(TypedDict):
    """One event; ids rise. What `data` holds depends on `type`; `model`, `job`: their ids."""

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
