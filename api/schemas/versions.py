"""Shapes of versions, their parts, aliases and metrics."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from api.schemas.common import Body, Json, Reason, Shape

VersionPath = Annotated[str, Path(description="Number or alias of the version", max_length=63)]
AliasPath = Annotated[str, Path(description="Name of the alias", max_length=63)]


class PartOut(Shape):
    """One stored part; `shared_with` is the lowest earlier version that holds the same bytes.

    `deleted_at`: when the memory of the model was deleted, and this part's bytes with it.
    """

    name: str
    type: str
    sha256: str
    bytes: int
    shared_with: int | None
    deleted_at: str | None


class VersionOut(Shape):
    """An immutable version; `accuracy` is its row of the accuracy matrix, `tasks` are those that it was taught, in order.

    `status` is published or held: a held one becomes published when a person promotes it, or when what its gate missed
    is settled.
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    tasks: list[int]
    status: str
    gate: Json
    warnings: list[str]
    parts: list[PartOut]
    bytes: int
    bytes_new: int
    accuracy: list[float | None]
    manifest: Json
    created_at: str


class VersionPage(Shape):
    """A page of versions by rising number."""

    items: list[VersionOut]
    next_cursor: str | None


class FileOut(Shape):
    """A part that can be fetched."""

    name: str
    type: str
    sha256: str
    bytes: int


class FileList(Shape):
    """All parts that can be fetched."""

    items: list[FileOut]
    next_cursor: str | None


class AliasIn(Body):
    """Where an alias shall point."""

    version: Annotated[int, Field(ge=0, lt=2**31)]
    reason: Reason | None = None


class RollbackIn(Body):
    """Where an alias goes back to (null: its previous target whose gate passed), and why."""

    version: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    reason: Reason | None = None


class LostTask(Shape):
    """A task that production was taught before a move of it and is not now.

    `training_data_until`: until when it can be learned again, while `can_relearn`.
    """

    task: int
    name: str | None
    classes: list[str]
    lost_classes: list[str]
    standing: str
    training_data_until: str | None
    can_relearn: bool


class AliasOut(Shape):
    """An alias. Of `production` also whether it follows the line, and what its move has cost."""

    name: str
    version: int
    updated_at: str
    follows: bool | None
    line_head: int | None
    lost_tasks: list[LostTask]
    warnings: list[str]


class AliasMoveOut(Shape):
    """One move of an alias; `cause` is create, publish, set, rollback or follow, `key` null for a worker."""

    id: int
    version: int
    previous: int | None
    cause: str
    key: str | None
    reason: str | None
    at: str


class AliasHistory(Shape):
    """A page of moves, oldest first."""

    items: list[AliasMoveOut]
    next_cursor: str | None


class MetricsOut(Shape):
    """The accuracy matrix, and figures along the ancestors of `version`; undefined is null.

    A row is a version `{version, task, parent, status}`, held ones among them; a column a task `{task, name, classes, n}`.
    In a window only its rows, columns and cells are there; `summary` is of all.
    """

    version: int
    rows: list[Json]
    columns: list[Json]
    accuracy_matrix: list[list[float | None]]
    summary: Json
    definitions: dict[str, str]
