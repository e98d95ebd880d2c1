"""Versions and their files."""

from typing_extensions import TypedDict

from core.contract.gate import Verdict
from core.contract.responses.versions.manifest import ManifestOut


class FileOut(TypedDict):
    """A file of a version that can be downloaded."""

    name: str
    type: str
    sha256: str
    bytes: int


class PartOut(FileOut):
    """A stored part of a version: name, type, digest and size.

    - `shared_with`: lowest earlier version with the same bytes.
    - `deleted_at`: time when the model's memory, and this part's bytes with it, were deleted.
    """

    shared_with: int | None
    deleted_at: str | None


class CommonVersionFields(TypedDict):
    """Fields that the response about one version and the items of version lists share."""

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    bytes: int
    bytes_new: int
    note: str | None
    created_at: str


class VersionOut(CommonVersionFields):
    """A version of a model: manifest, parts, gate verdict and accuracies. It never changes, except
    for its note.

    - `accuracy`: its row of the accuracy matrix: a cell for each task that some version of the
      model learned, by ascending number. `/metrics` names the columns: rejected tasks have none.
    - `tasks`: tasks that it was taught, in order.
    - `status`: published or held. A held version becomes published when a person promotes it, or
      when the failed checks of its gate are settled.
    - `note`: a person's note (`PATCH`).
    """

    tasks: list[int]
    gate: Verdict
    warnings: list[str]
    parts: list[PartOut]
    accuracy: list[float | None]
    manifest: ManifestOut


class VersionItem(CommonVersionFields):
    """A version in a list, with the fields of constant size; the version itself has all fields.

    - `passed`: verdict of its gate.
    - `mean_accuracy`: over the tasks that it was measured on; null: none.
    - `images`: number of held-out images that `mean_accuracy` rests on; null: not measured.
    """

    passed: bool
    mean_accuracy: float | None
    images: int | None


class VersionPage(TypedDict):
    """A page of versions by rising number."""

    items: list[VersionItem]
    next_cursor: str | None


class TaskResult(TypedDict):
    """A version's result on one task's held-out images: the numbers of correct predictions and of
    all images.

    `per_class`: label → [correct, total].
    """

    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


class ResultPage(TypedDict):
    """A page of a version's results by rising task, over all tasks on which it was measured."""

    items: list[TaskResult]
    next_cursor: str | None


class FileList(TypedDict):
    """All files of a version that can be downloaded."""

    items: list[FileOut]
    next_cursor: str | None
