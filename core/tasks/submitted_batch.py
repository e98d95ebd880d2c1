"""A batch that is sent to a model: the complete upload, its task's row, and the response to it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from core.contract.patch import RecipePatch
from core.contract.reports.report import BatchReport, ConflictsPolicy, DuplicatesPolicy
from core.database.tables import Model, Task
from core.ingest.inspect import ArchiveSummary
from core.requests import idempotency
from core.retention import archives
from core.tasks import repeated_batches
from core.trials.plan import TrialsRequest

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class BatchSubmissionResponse(Generic[Answer]):
    """Response to a sent batch: the body, its job, and whether it is new.

    Attributes:
        job: id of the job.
        is_new: True if the job was added by this request.
        is_replay: True if this repeats the earlier response to the same idempotency key.
        needs_archive: True if an added row names the archive in the store.
    """

    response: Answer
    job: str
    is_new: bool = True
    is_replay: bool = False
    needs_archive: bool = True

    @property
    def status(self) -> int:
        """HTTP status of the response: 202 for accepted work, 200 if everything existed before."""
        return 202 if self.is_new else 200

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response: the location of the job, and when to ask for it."""
        return {"Location": f"/v1/jobs/{self.job}", **({"Retry-After": "1"} if self.is_new else {})}


@dataclass(frozen=True)
class SpooledBatch:
    """An uploaded batch, complete and checked, in a local file with its options.

    Attributes:
        path: spooled archive, which is moved into the store.
        sha256: digest of the archive.
        bytes: size of the archive.
        directory: content of the archive by names and sizes.
        name: name of the task, if it gets one.
        recipe: recipe override for this batch; None if the request says nothing about it.
        duplicates_policy: treatment of equal images, see `core.ingest.findings.equal_images`.
        conflicts_policy: treatment of images under two labels, see `core.ingest.findings.contradictions`.
        again: learn the batch even if the model has a task of the same content.
        trials: recipes to compare for it; None: it has one.
    """

    path: Path
    sha256: str
    bytes: int
    directory: ArchiveSummary
    name: str | None
    recipe: RecipePatch | None
    duplicates_policy: DuplicatesPolicy = "keep"
    conflicts_policy: ConflictsPolicy = "reject"
    again: bool = False
    trials: TrialsRequest | None = None

    @property
    def override(self) -> RecipePatch:
        """Recipe override that the request gives for this batch; empty if it gives none."""
        return self.recipe or {}

    @property
    def sent(self) -> repeated_batches.BatchIdentity:
        """Digests and options of the batch by which existing tasks are compared with it."""
        return repeated_batches.BatchIdentity(self.sha256, self.directory, self.duplicates_policy)


def build_batch_archive_key(name: str) -> str:
    """Return the store key of a batch's archive."""
    return f"{archives.PREFIX}{name}"


def create_task_row_with_next_number(
    row: Model,
    batch: SpooledBatch,
    task_id: str,
    report: BatchReport,
    warnings: list[str],
    now: float,
) -> Task:
    """Create the task of a batch, and take the model's next task number for it."""
    number = row.next_task
    row.next_task += 1
    directory = batch.directory
    return Task(
        id=task_id,
        model_id=row.id,
        number=number,
        name=batch.name,
        sha256=batch.sha256,
        content_sha256=directory.content,
        bytes=batch.bytes,
        archive_key=build_batch_archive_key(task_id),
        media_type=directory.media_type,
        classes=directory.classes,
        # Without a test part, the job splits the batch, and only then are the numbers known.
        n_train=directory.n_train if directory.has_test else None,
        n_held_out=directory.n_test if directory.has_test else None,
        report=report,
        train_sha256=None,
        held_out_sha256=None,
        train_deleted_at=None,
        held_out_deleted_at=None,
        data_deleted_at=None,
        warnings=warnings,
        created_at=now,
    )


def build_response_to_repeated_request(
    replay: idempotency.ReplayedResponse,
) -> BatchSubmissionResponse[Any]:
    """Return the first response to an idempotent request again."""
    job = replay.headers.get("Location", "").rpartition("/")[2]
    return BatchSubmissionResponse(replay.body, job, is_new=replay.status == 202, is_replay=True)
