"""Jobs, their place in the queue, their trials and their events."""

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.document import JsonObject
from core.contract.error import JobError
from core.contract.gate import GateOut
from core.contract.jobs.snapshot import StoredBestState, StoredSnapshot
from core.contract.jobs.trial import Choose, TrialMeasurements
from core.contract.patch import RecipePatch
from core.contract.reports.report import BatchCheck, ExportReport
from core.contract.responses.event import EventData
from core.contract.responses.owner_event import OwnerEventData
from core.contract.responses.recipe import RecipeOut
from core.database.documents import DocumentColumn
from core.database.kinds import JobKind
from core.database.states import LEASED, UNFINISHED, JobState
from core.database.tables.table import JSON_COLUMN, SERIAL, DatabaseTable, build_partial_index

_LEASED_SQL = f"state IN ({', '.join(repr(str(s)) for s in sorted(LEASED))})"
_UNFINISHED_SQL = f"state IN ({', '.join(repr(str(s)) for s in sorted(UNFINISHED))})"


class Job(DatabaseTable):
    """Database row of a job, a piece of long work with its place in the queue; kind `learn` learns
    a task.

    A job with a place in the lineage of its model waits for its turn there; a job without one runs
    independently.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    # see core.execution.kinds
    kind: Mapped[str] = mapped_column(
        String(12), default=str(JobKind.LEARN), server_default=str(JobKind.LEARN)
    )
    task_id: Mapped[str | None] = mapped_column(ForeignKey("tasks.id"), index=True)
    task_number: Mapped[int | None]
    # Rises with each job and retry of its model, so the newest job of a task has the highest; null
    # outside of the lineage.
    place: Mapped[int | None]
    # learns a task that was settled before, and so runs before all others
    again: Mapped[bool] = mapped_column(default=False, server_default=false())
    state: Mapped[str] = mapped_column(String(12), default=str(JobState.QUEUED))
    revision: Mapped[int] = mapped_column(default=1)  # rises with every change; used as the ETag
    recipe_override: Mapped[RecipePatch] = mapped_column(JSON_COLUMN)
    recipe: Mapped[RecipeOut] = mapped_column(JSON_COLUMN)  # resolved at submission or retry
    # the model's gate at submission or retry; null in the oldest rows
    gate: Mapped[GateOut | None] = mapped_column(JSON_COLUMN)
    # job whose version was held
    retry_of: Mapped[str | None] = mapped_column(String(40), index=True)
    attempt: Mapped[int] = mapped_column(default=0)  # number of starts
    strikes: Mapped[int] = mapped_column(default=0)  # lost attempts since the last snapshot
    # attempts that ran out of memory
    out_of_memory: Mapped[int] = mapped_column(default=0, server_default="0")
    # From the recipe's `resources`: any, cpu or cuda, and the minimum number of CUDA devices.
    device: Mapped[str] = mapped_column(String(4), default="any", server_default="any")
    gpus: Mapped[int] = mapped_column(default=1, server_default="1")
    # Kind of device on which its snapshot must be continued; null: any.
    resume_on: Mapped[str | None] = mapped_column(String(4))
    fence: Mapped[int | None]
    worker: Mapped[str | None] = mapped_column(String(120))
    lease_until: Mapped[float | None]
    rung_at: Mapped[float | None]
    not_before: Mapped[float | None]
    parent_version: Mapped[int | None]  # fixed at the first claim
    snapshot: Mapped[StoredSnapshot | None] = mapped_column(DocumentColumn(StoredSnapshot))
    # The best validated state so far.
    anytime: Mapped[StoredBestState | None] = mapped_column(DocumentColumn(StoredBestState))
    progress: Mapped[JsonObject] = mapped_column(JSON_COLUMN)  # see core.contract.jobs.progress
    error: Mapped[JobError | None] = mapped_column(JSON_COLUMN)
    # tasks that its version will lack, and what to do
    warnings: Mapped[list[str]] = mapped_column(JSON_COLUMN, default=list, server_default="[]")
    version: Mapped[int | None]
    # findings of a job that makes no version
    report: Mapped[BatchCheck | ExportReport | None] = mapped_column(JSON_COLUMN)
    # Decision between the candidates of a batch: best or manual; null: it has one recipe.
    choose: Mapped[Choose | None] = mapped_column(String(8))
    chosen_trial: Mapped[int | None]
    # time at which the best candidate is chosen, while a person may choose
    choose_until: Mapped[float | None]
    trial_budget_s: Mapped[float | None]  # seconds after which no further candidate begins
    # an upload that belongs to the job until it ends
    archive_key: Mapped[str | None] = mapped_column(Text)
    archive_sha256: Mapped[str | None] = mapped_column(String(64))
    archive_bytes: Mapped[int | None]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    __table_args__ = (
        UniqueConstraint("model_id", "place"),
        # A second safeguard: whatever the claim query does, no two workers run the lineage of one
        # model.
        Index(
            "uq_jobs_model_id_leased",
            "model_id",
            unique=True,
            sqlite_where=text(f"{_LEASED_SQL} AND place IS NOT NULL"),
            postgresql_where=text(f"{_LEASED_SQL} AND place IS NOT NULL"),
        ),
        Index("ix_jobs_state_created_at_id", "state", "created_at", "id"),
        Index("ix_jobs_owner_id_id", "owner_id", "id"),
        Index("ix_jobs_owner_id_state_id", "owner_id", "state", "id"),
        Index("ix_jobs_state_id", "state", "id"),
        build_partial_index("ix_jobs_unfinished", "model_id", "task_number", where=_UNFINISHED_SQL),
        build_partial_index("ix_jobs_snapshot", "id", where="snapshot IS NOT NULL"),
        build_partial_index("ix_jobs_anytime", "id", where="anytime IS NOT NULL"),
        build_partial_index(
            "ix_jobs_choose_until", "choose_until", where="choose_until IS NOT NULL"
        ),
        # Finds each owner's oldest waiting job of each kind in one step.
        Index("ix_jobs_owner_id_state_kind_id", "owner_id", "state", "kind", "id"),
        Index("ix_jobs_owner_id_kind_id", "owner_id", "kind", "id"),
        Index("ix_jobs_kind_id", "kind", "id"),
        build_partial_index("ix_jobs_archive_key", "archive_key", where="archive_key IS NOT NULL"),
        build_partial_index(
            "ix_jobs_archives", "model_id", "archive_bytes", where="archive_key IS NOT NULL"
        ),
        Index("ix_jobs_model_id_id", "model_id", "id"),
        Index("ix_jobs_model_id_state_id", "model_id", "state", "id"),
    )


class StoredJobEvent(DatabaseTable):
    """Database row of one event of a job; `type` is state, progress, metric, log or snapshot."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    type: Mapped[str] = mapped_column(String(16))
    data: Mapped[EventData] = mapped_column(JSON_COLUMN)
    at: Mapped[float] = mapped_column(index=True)
    # Otherwise SQLite could give ids of deleted rows again, which readers have passed already.
    __table_args__ = (Index("ix_events_job_id_id", "job_id", "id"), {"sqlite_autoincrement": True})


class Trial(DatabaseTable):
    """Database row of a trial: one of several recipes that a job compares, and its result."""

    __tablename__ = "trials"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # from 1
    recipe_override: Mapped[RecipePatch] = mapped_column(JSON_COLUMN)
    recipe: Mapped[RecipeOut] = mapped_column(JSON_COLUMN)  # resolved
    reason: Mapped[str] = mapped_column(Text)
    # waiting, running, measured or failed
    state: Mapped[str] = mapped_column(String(12))
    # version that it was learned from; null while it waits
    parent: Mapped[int | None]
    # seconds that its job had run when it began, and seconds that it took
    began_s: Mapped[float | None]
    seconds: Mapped[float | None]
    figures: Mapped[TrialMeasurements | None] = mapped_column(DocumentColumn(TrialMeasurements))
    error: Mapped[JobError | None] = mapped_column(JSON_COLUMN)


class TrialFile(DatabaseTable):
    """Database row of a file of a measured trial's result, kept until its job ends."""

    __tablename__ = "trial_files"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)  # path in the result's folder
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[int]
    __table_args__ = (Index("ix_trial_files_sha256", "sha256"),)


class OwnerEvent(DatabaseTable):
    """Database row of an event of an owner's models, in the order of commits.

    There are no foreign keys: checking one locks another row, and these rows are written after all
    other locks.
    """

    __tablename__ = "owner_events"
    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    owner_id: Mapped[str] = mapped_column(String(40))
    model_id: Mapped[str] = mapped_column(String(40))
    job_id: Mapped[str | None] = mapped_column(String(40))
    type: Mapped[str] = mapped_column(String(16))  # job, version, alias
    data: Mapped[OwnerEventData] = mapped_column(JSON_COLUMN)
    at: Mapped[float] = mapped_column(index=True)
    __table_args__ = (
        Index("ix_owner_events_owner_id_type_id", "owner_id", "type", "id"),
        Index("ix_owner_events_model_id_type_id", "model_id", "type", "id"),
        Index("ix_owner_events_type_id", "type", "id"),
        {"sqlite_autoincrement": True},
    )


class WorkerReport(DatabaseTable):
    """Database row of a worker: its last report, and the device that it runs jobs on."""

    __tablename__ = "workers"
    worker: Mapped[str] = mapped_column(String(120), primary_key=True)
    device: Mapped[str] = mapped_column(String(4))  # cpu or cuda
    gpus: Mapped[int]  # number of CUDA devices; 0 for a CPU worker
    # reason why its device cannot be used; null: it claims jobs
    problem: Mapped[str | None] = mapped_column(Text)
    seen_at: Mapped[float]
    # time since when the database has responded to it, up to `seen_at`; null: unknown
    answers_since: Mapped[float | None]
    __table_args__ = (Index("ix_workers_device_seen_at", "device", "seen_at"),)
