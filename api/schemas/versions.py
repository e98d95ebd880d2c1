"""Shapes of versions, their parts, aliases and metrics."""

from typing import Annotated

from fastapi import Path
from pydantic import Field, StringConstraints

from api.schemas.common import Body, Json, Shape

VersionPath = Annotated[str, Path(description="Number or alias of the version", max_length=63)]
AliasPath = Annotated[str, Path(description="Name of the alias", max_length=63)]
Reason = Annotated[str, StringConstraints(max_length=1000)]


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
    """An immutable version; `accuracy` is its row of the accuracy matrix."""

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    gate: Json
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
    """Why an alias is rolled back."""

    reason: Reason | None = None


class AliasOut(Shape):
    """An alias."""

    name: str
    version: int
    updated_at: str


class AliasMoveOut(Shape):
    """One move of an alias; `cause` is create, publish, set or rollback, `key` null for a worker."""

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
    """The accuracy matrix, and figures along the ancestors of `version`; undefined is null."""

    version: int
    rows: list[Json]
    columns: list[Json]
    accuracy_matrix: list[list[float | None]]
    summary: Json
    definitions: dict[str, str]
