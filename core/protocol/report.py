"""What is said of a batch: by names and sizes at the submit, by its images once a job has decoded it."""

from typing import Literal, NotRequired, Required

from typing_extensions import TypedDict

from core.protocol.answers.recipe import RecipeOut
from core.protocol.data_report import DataReport, FindingKind

Checked = Literal["names and sizes", "images"]
"""What a report rests on: the archive's directory, or every image."""
ConflictsPolicy = Literal["reject", "keep"]
"""reject: a batch with an image whose pixels have another label too, in it or in a batch that the model was taught, is
rejected. keep: it is learned as it is."""
DuplicatesPolicy = Literal["keep", "drop"]
"""keep: every image counts. drop: of equal images of one class, the first in the archive's order counts, in the
training part and in the archive's own test part each. An image that is in both parts stays in both and is warned
about; equal images of different classes all stay, and are conflicts."""


class FileReason(TypedDict):
    """A file of the archive, and why it was left out."""

    path: str
    reason: str


class EntryReason(TypedDict):
    """An entry of a label table that was left out: file and line, and why."""

    where: str
    reason: str


class Duplicate(TypedDict):
    """An image, and the first one with the same bytes."""

    path: str
    same_as: str


class Conflict(TypedDict):
    """The same image under two classes: two paths and their labels, in the same order; the second is of the batch.

    `task`: the earlier task that the first is of. `picture`: the second as a small JPEG, a data URL; of the first ten.
    """

    paths: list[str]
    labels: list[str]
    task: NotRequired[int]
    picture: NotRequired[str]


class LookAlike(TypedDict):
    """A new class, and the one that it looks like: known to the model, or in the same batch."""

    label: str
    like: str


class ClassNames(TypedDict):
    """The batch's classes beside those that the model has (task scenario: beside each other)."""

    new: list[str]
    known: list[str]
    look_alike: list[LookAlike]


class EqualBytes(TypedDict):
    """Images with the same bytes: how many repeat an earlier one, and the first 100."""

    duplicates: int
    duplicate_paths: list[Duplicate]


class StoredReading(TypedDict, total=False):
    """Way to read a batch, so that its job reads it as the submit did: options of the request, and the labels known to
    the model that decided between two readings."""

    options: dict[str, str]
    known: list[str]


class BatchReport(TypedDict, total=False):
    """What was found in a batch: after the submit by names and sizes, after the job's decoding by its images.

    Lists are bounded (1,000 rejected files and bad entries, 100 of the others), counts are whole. Tasks older than a
    field have none. `conflicts`: equal pixels under two classes; `near_conflicts`: nearly equal ones, which hold
    nothing; `conflicts_not_compared`: learned tasks that keep no digests of pixels. `settled`: findings of `data` that
    held the batch until a person learned it as it is; they hold it no more. `reading`: how the files became
    classes; `bad_entries`: of a label table, left out. `small`: images whose longer side has fewer than 48 pixels.
    """

    checked: Checked
    classes: ClassNames
    rejected: list[FileReason]
    rejected_count: int
    ignored: int
    ignored_files: list[FileReason]
    bad_entries: list[EntryReason]
    bad_entries_count: int
    duplicates: int
    duplicate_paths: list[Duplicate]
    duplicates_policy: DuplicatesPolicy
    duplicates_dropped: int
    reading: StoredReading
    small: int
    conflicts: list[Conflict]
    conflicts_count: int
    conflicts_policy: ConflictsPolicy
    near_conflicts: list[Conflict]
    near_conflicts_count: int
    conflicts_not_compared: list[int]
    settled: list[FindingKind]
    notes: list[str]
    data: DataReport


class Repeats(TypedDict):
    """The task that a batch repeats: it is queued, running, learned or held, and a submit answers with it.

    `version`: that it made; null: none yet.
    """

    task: int
    standing: str
    version: int | None


class BatchFound(TypedDict):
    """The result of a batch's check; `recipe` and refusals are those that a submit would give, and so are `warnings`,
    to which those of new classes with few images are added.

    `expected_s`: seconds that the job is expected to take, by the model's earlier jobs, else of one core by its base;
    null: nothing was measured. `repeats`: a task that a submit would answer with, instead of learning the batch.
    """

    sha256: str
    bytes: int
    media_type: str
    layout: str
    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    notes: list[str]
    report: BatchReport
    not_checked: list[str]
    recipe: RecipeOut
    warnings: list[str]
    expected_s: NotRequired[float | None]
    repeats: NotRequired[Repeats]


class Report(BatchFound):
    """What `?validate=only` found in the archive's directory."""

    valid: bool
    checked: Literal["names and sizes"]


class BatchCheck(BatchFound):
    """What `?validate=full` found.

    `valid`: whether a submit would take the batch; null: the job ended before that was known, and `checked`
    says what the rest is from. `n_train`, `n_held_out`: images that would be learned and held out; `n_test`:
    of the archive's own part.
    """

    valid: bool | None
    checked: Checked
    n_held_out: int | None


class ExportReport(TypedDict, total=False):
    """What a job of the kind `export` was asked for, and once it has succeeded what it made.

    `version`, `format`: of the download; `sha256`, `bytes`: of its file. Of ONNX: `opset`; `max_difference`:
    the largest difference of a probability between the graph in ONNX Runtime and the version, over `images`
    images of noise and `held_out_images` of its tasks, in batches of the sizes `batches`; `tolerance`: what
    it may be; `exporter`: the packages that made it, with their versions.
    """

    version: Required[int]
    format: Required[str]
    sha256: str
    bytes: int
    opset: int
    max_difference: float
    tolerance: float
    batches: list[int]
    images: int
    held_out_images: int
    exporter: dict[str, str]
