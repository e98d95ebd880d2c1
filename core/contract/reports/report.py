"""Report of a batch: by names and sizes at the submit, by its images once a job has decoded it."""

from typing import Literal, NotRequired, Required

from typing_extensions import TypedDict

from core.contract.patch import RecipePatch
from core.contract.reports.data_report import DataReport, FindingKind
from core.contract.responses.recipe import RecipeOut

ReportBasis = Literal["names and sizes", "images"]
"""Basis of a report: the archive's directory, or every image."""
ConflictsPolicy = Literal["reject", "keep"]
"""Treatment of images with the same pixels under two labels.

reject: a batch is rejected if one of its images has another label in it or in a batch that the
model was taught. keep: it is learned as it is.
"""
DuplicatesPolicy = Literal["keep", "drop"]
"""Treatment of equal images of one class.

keep: every image counts. drop: the first in the archive's order counts, in the training part and in
the archive's own test part each. An image in both parts stays in both with a warning; equal images
of different classes all stay, and are conflicts.
"""


class FileReason(TypedDict):
    """A file of an uploaded archive that was left out, and why."""

    path: str
    reason: str


class EntryReason(TypedDict):
    """An entry of a label table that was left out: file and line, and the reason."""

    where: str
    reason: str


class Duplicate(TypedDict):
    """An image, and the first image of the batch with the same bytes."""

    path: str
    same_as: str


class Conflict(TypedDict):
    """The same image under two different labels: its two paths and both labels, in the same order.

    The second path is of the batch. `task`: the earlier task of the first. `picture`: the second as
    a small JPEG, a data URL; of the first ten.
    """

    paths: list[str]
    labels: list[str]
    task: NotRequired[int]
    picture: NotRequired[str]


class LookAlike(TypedDict):
    """A new class name, and the similar name (in the model or the same batch) that may be meant."""

    label: str
    like: str


class ClassNames(TypedDict):
    """Comparison of a batch's class names with those that the model knows (task scenario: with each
    other).
    """

    new: list[str]
    known: list[str]
    look_alike: list[LookAlike]


class ByteIdenticalImages(TypedDict):
    """Images with equal bytes in a batch: the number that repeat an earlier one, and the first 100."""

    duplicates: int
    duplicate_paths: list[Duplicate]


class StoredReading(TypedDict, total=False):
    """Options by which an archive is read, stored so that the job reads it as the request did.

    It has the options of the request, the labels known to the model that decided between two
    readings, and former class names that were read as present ones.
    """

    options: dict[str, str]
    known: list[str]
    former_names: dict[str, str | None]


class BatchReport(TypedDict, total=False):
    """Report on a batch: at first from file names and sizes, later from the decoded images.

    Lists are bounded (1,000 rejected files and bad entries, 100 of the others), counts are
    complete. Older tasks lack newer fields. `conflicts`: equal pixels under two classes;
    `near_conflicts`: nearly equal ones, which do not hold a batch; `conflicts_not_compared`:
    learned tasks without stored digests of pixels. `settled`: findings of `data` that held the
    batch until a person learned it as it is; they hold it no longer. `reading`: how the files
    became classes; `bad_entries`: entries of a label table that were left out. `small`: images
    whose longer side has fewer than 48 pixels.
    """

    checked: ReportBasis
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
    """An existing task with the same content as the batch; submitting the batch returns that task.

    `version`: the version it made; null: none yet.
    """

    task: int
    standing: str
    version: int | None


class TrialPlan(TypedDict):
    """A recipe that submitting the batch would try, with the reason for it."""

    trial: int
    recipe: RecipePatch
    reason: str


class BatchCheckFindings(TypedDict):
    """Result of checking a batch without submitting it; refusals and `warnings` are those of a
    submission.

    `warnings` also covers new classes with few images. `expected_s`: seconds that the job is
    expected to take, by the model's earlier jobs, else on one core by its base; null: nothing was
    measured. `repeats`: a task that a submit would return instead of learning the batch. `trials`:
    candidates that it would compare.
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
    trials: NotRequired[list[TrialPlan]]


class Report(BatchCheckFindings):
    """Result of `?validate=only`: findings in the archive's directory, without decoding images."""

    valid: bool
    checked: Literal["names and sizes"]


class BatchCheck(BatchCheckFindings):
    """Result of `?validate=full`: findings after decoding all images of the batch.

    `valid`: whether a submit would accept the batch; null: the job ended before that was known, and
    `checked` names the basis of the other fields. `n_train`, `n_held_out`: images that would be
    learned and held out; `n_test`: images of the archive's own test part.
    """

    valid: bool | None
    checked: ReportBasis
    n_held_out: int | None


class ExportReport(TypedDict, total=False):
    """Request of an export job, and its result once it has succeeded.

    `version`, `format`: of the download; `sha256`, `bytes`: of its file. For ONNX: `opset`;
    `max_difference`: the largest difference of a probability between the graph in ONNX Runtime and
    the version, over `images` images of noise and `held_out_images` of its tasks, in batches of the
    sizes `batches`; `tolerance`: its limit; `exporter`: the packages that made it, with their
    versions.
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
