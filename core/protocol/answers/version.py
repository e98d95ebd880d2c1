"""Versions and their files."""

from typing_extensions import TypedDict

from core.protocol.answers.manifest import ManifestOut
from core.protocol.gate import Verdict


class FileOut(TypedDict):
    """A part that can be fetched."""

    name: str
    type: str
    sha256: str
    bytes: int


class PartOut(FileOut):
    """One stored part; `shared_with` is the lowest earlier version that holds the same bytes.

    `deleted_at`: when the memory of the model was deleted, and this part's bytes with it.
    """

    shared_with: int | None
    deleted_at: str | None


class VersionOut(TypedDict):
    """An immutable version; `accuracy` is its row of the accuracy matrix, `tasks` are those that it was
    taught, in order.

    `status` is published or held: a held one becomes published when a person promotes it, or when what its gate missed
    is settled. `note`: what a person wrote of it (`PATCH`).
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    tasks: list[int]
    status: str
    gate: Verdict
    warnings: list[str]
    parts: list[PartOut]
    bytes: int
    bytes_new: int
    accuracy: list[float | None]
    manifest: ManifestOut
    note: str | None
    created_at: str


class VersionItem(TypedDict):
    """A version in a list: what is as long for the last one as for the first. The version itself has the rest.

    `passed`: its gate. `mean_accuracy`: over the tasks that it was measured on; null: on none.
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    passed: bool
    mean_accuracy: float | None
    bytes: int
    bytes_new: int
    note: str | None
    created_at: str


class VersionPage(TypedDict):
    """A page of versions by rising number."""

    items: list[VersionItem]
    next_cursor: str | None


class TaskResult(TypedDict):
    """How a version answers the held-out images of one task: right answers, images, and both by label
    [correct, total]."""

    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


class ResultPage(TypedDict):
    """A page of a version's results by rising task, of all tasks on which it was measured."""

    items: list[TaskResult]
    next_cursor: str | None


class FileList(TypedDict):
    """All parts that can be fetched."""

    items: list[FileOut]
    next_cursor: str | None
