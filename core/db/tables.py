"""The tables: what Perennial remembers.

Times are seconds since 1970 (UTC) as float, taken from the database's clock wherever two machines
compare them. JSON columns hold what is only read and written whole. The jobs table is the queue.
"""

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from core.db.documents import DocumentColumn
from core.db.kinds import Kind
from core.db.states import LEASED, UNFINISHED, State
from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.answers.audit import AuditData
from core.protocol.answers.event import EventData
from core.protocol.answers.recipe import RecipeOut
from core.protocol.base import ModelBase, UploadedFor
from core.protocol.document import JsonObject
from core.protocol.error import JobError
from core.protocol.gate import GateOut, Verdict
from core.protocol.manifest import Manifest
from core.protocol.patch import RecipePatch
from core.protocol.report import BatchCheck, BatchReport
from core.protocol.snapshot import StoredAnytime, StoredSnapshot
from core.protocol.usage import OwnerMeasured

_JSON = JSON(none_as_null=True)
"""A missing value is SQL NULL, so that queries can ask for it."""
# SQLite gives rising ids only to INTEGER keys.
_Serial = BigInteger().with_variant(Integer(), "sqlite")
_LEASED_SQL = f"state IN ({', '.join(repr(str(s)) for s in sorted(LEASED))})"
_UNFINISHED_SQL = f"state IN ({', '.join(repr(str(s)) for s in sorted(UNFINISHED))})"


def _partial(name: str, *columns: str, where: str, sqlite: str | None = None) -> Index:
    """An index of the few rows that `where` leaves; `sqlite`: the same as SQLite is asked, which compares the words."""
    return Index(name, *columns, sqlite_where=text(sqlite or where), postgresql_where=text(where))


class Table(DeclarativeBase):
    """Base of all tables; names constraints so that migrations can address them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        float: Float(53),
        int: BigInteger,
    }


class Owner(Table):
    """A tenant: sees only what is its own."""

    __tablename__ = "owners"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    bytes: Mapped[int | None]  # in the store, see core.db.stored_bytes
    bytes_at: Mapped[float | None]  # when they were measured
    usage: Mapped[OwnerMeasured | None] = mapped_column(_JSON)  # rows and bytes, see core.db.usage
    usage_at: Mapped[float | None]  # when a worker last began to measure it
    claimed_at: Mapped[float | None]  # when a worker last claimed one of his jobs, see core.work.turns
    overtook: Mapped[bool] = mapped_column(default=False)  # that job was claimed before an older one of his
    created_at: Mapped[float]


class Key(Table):
    """An access key; only the sha256 of its secret is kept."""

    __tablename__ = "keys"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)  # public part of the secret
    hash: Mapped[str] = mapped_column(String(64))
    scope: Mapped[str] = mapped_column(String(8))  # scrape, read, write, admin
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    created_at: Mapped[float]


class Base(Table):
    """Uploaded weights that models may start from; the blob is a safetensors file."""

    __tablename__ = "bases"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    architecture: Mapped[UploadedFor] = mapped_column(_JSON)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    created_at: Mapped[float]


class Weights(Table):
    """Pretrained weights as they were brought last, of each repository of the Hub.

    The row remembers and keeps nothing: the blob goes with the last version that names it, and is brought
    again then.
    """

    __tablename__ = "weights"
    repository: Mapped[str] = mapped_column(String(200), primary_key=True)
    revision: Mapped[str | None] = mapped_column(String(64))  # commit; null: brought by hand
    sha256: Mapped[str | None] = mapped_column(String(64))  # null: never brought yet
    bytes: Mapped[int | None]
    job_id: Mapped[str | None] = mapped_column(String(40))  # brings them now, while a worker has it


class Model(Table):
    """A named lineage of versions."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    name: Mapped[str] = mapped_column(String(63))
    scenario: Mapped[str] = mapped_column(String(8))
    architecture: Mapped[ArchitectureChoice] = mapped_column(_JSON)
    image: Mapped[ImageOut] = mapped_column(_JSON)
    base: Mapped[ModelBase] = mapped_column(JSON)
    classes: Mapped[list[str] | None] = mapped_column(_JSON)  # data scenario: fixed at creation or by task 1
    recipe: Mapped[RecipePatch] = mapped_column(_JSON)  # as given; resolved per job
    gate: Mapped[GateOut] = mapped_column(_JSON)
    keep_training_data: Mapped[bool]
    training_data_days: Mapped[float] = mapped_column(default=7.0)  # after a task's version is published
    held_out: Mapped[str] = mapped_column(String(8))  # keep, counts
    # What the line does after a task whose version is held, whose batch is rejected, whose job fails: stop, continue.
    on_held: Mapped[str] = mapped_column(String(8), default="stop")
    on_rejected: Mapped[str] = mapped_column(String(8), default="continue")
    on_failed: Mapped[str] = mapped_column(String(8), default="continue")
    allow_lost_classes: Mapped[bool] = mapped_column(default=False)  # the gate's check lost_tasks is off
    head: Mapped[int] = mapped_column(default=0)  # the version that the next task starts from, see core.line
    production_follows: Mapped[bool] = mapped_column(default=True)  # then production names the head
    warnings: Mapped[list[str]] = mapped_column(_JSON)
    fence: Mapped[int] = mapped_column(default=0)  # rises with every claim of one of its jobs
    next_task: Mapped[int] = mapped_column(default=1)
    next_place: Mapped[int] = mapped_column(default=1)
    next_version: Mapped[int] = mapped_column(default=1)
    base_job: Mapped[str | None] = mapped_column(String(40))  # fetches its base; null: version 0 is there
    created_at: Mapped[float]
    deleted_at: Mapped[float | None]
    __table_args__ = (
        Index(
            "uq_models_owner_id_name",
            "owner_id",
            "name",
            unique=True,
            sqlite_where=text("deleted_at IS NULL"),
            postgresql_where=text("deleted_at IS NULL"),
        ),
        Index("ix_models_owner_id_id", "owner_id", "id"),
        _partial(
            "ix_models_name", "name", "id", where="deleted_at IS NULL"
        ),  # an administrator's look-up by name
        _partial("ix_models_base_job", "id", where="base_job IS NOT NULL"),
        CheckConstraint("scenario IN ('data', 'task', 'class')", name="scenario"),
    )


class Task(Table):
    """One uploaded batch, in the order accepted, from 1."""

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    name: Mapped[str | None] = mapped_column(String(100))
    sha256: Mapped[str] = mapped_column(String(64))  # of the raw archive
    bytes: Mapped[int]  # of the raw archive
    archive_key: Mapped[str | None] = mapped_column(Text)  # in the store until decoded or rejected
    media_type: Mapped[str] = mapped_column(String(32))  # zip, tar, gzip, npz: what was sniffed
    classes: Mapped[dict[str, int]] = mapped_column(
        _JSON
    )  # {label: images found}; after decoding: images kept
    n_train: Mapped[int | None]
    n_held_out: Mapped[int | None]
    report: Mapped[BatchReport] = mapped_column(_JSON)
    train_sha256: Mapped[str | None] = mapped_column(String(64))  # dataset blobs, see core.ingest
    held_out_sha256: Mapped[str | None] = mapped_column(String(64))
    train_until: Mapped[
        float | None
    ]  # when the training part may go; null: not settled, see core.work.retention
    train_deleted_at: Mapped[float | None]
    held_out_deleted_at: Mapped[float | None]
    data_deleted_at: Mapped[float | None]  # by request: DELETE …/tasks/{n}/data
    standing: Mapped[str | None] = mapped_column(
        String(12)
    )  # see core.line.standing; null: its first job is open
    standing_at: Mapped[float | None]
    stops: Mapped[bool] = mapped_column(
        default=False
    )  # later jobs of the model wait until a person settles it
    warnings: Mapped[list[str]] = mapped_column(_JSON)
    created_at: Mapped[float]
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        Index("ix_tasks_model_id_sha256", "model_id", "sha256"),
        Index("ix_tasks_model_id_standing_number", "model_id", "standing", "number"),
        _partial("ix_tasks_stops", "model_id", "number", where="stops", sqlite="stops = 1"),
        _partial(
            "ix_tasks_train_undated",
            "model_id",
            where="train_until IS NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        _partial(
            "ix_tasks_train_until",
            "train_until",
            where="train_until IS NOT NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        # Whether a blob or an archive is still in use is asked for each that is deleted.
        _partial("ix_tasks_archive_key", "archive_key", where="archive_key IS NOT NULL"),
        _partial(
            "ix_tasks_train_sha256",
            "train_sha256",
            where="train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        _partial(
            "ix_tasks_held_out_sha256",
            "held_out_sha256",
            where="held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        _partial("ix_tasks_data_deleted", "model_id", where="data_deleted_at IS NOT NULL"),
        # What a model has in the store is summed up over these.
        _partial("ix_tasks_waiting", "model_id", "bytes", where="archive_key IS NOT NULL"),
        _partial(
            "ix_tasks_train",
            "model_id",
            "n_train",
            where="train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        _partial(
            "ix_tasks_held_out",
            "model_id",
            "n_held_out",
            where="held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
    )


class Job(Table):
    """A piece of long work, and its place in the queue. Of the kind `learn`: the work of learning one task.

    A job that has a place in the line of its model waits for its turn there; one without runs beside the line.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    kind: Mapped[str] = mapped_column(String(12), default=str(Kind.LEARN))  # see core.work.kinds
    task_id: Mapped[str | None] = mapped_column(ForeignKey("tasks.id"), index=True)
    task_number: Mapped[int | None]
    # Rises with each job and retry of its model: of a task's jobs the newest has the highest. Null: beside the line.
    place: Mapped[int | None]
    again: Mapped[bool] = mapped_column(
        default=False
    )  # of a task that was settled before: runs before all others
    state: Mapped[str] = mapped_column(String(12), default=str(State.QUEUED))
    revision: Mapped[int] = mapped_column(default=1)  # rises with every change: the ETag
    recipe_override: Mapped[RecipePatch] = mapped_column(_JSON)
    recipe: Mapped[RecipeOut] = mapped_column(_JSON)  # resolved at submit (or retry)
    gate: Mapped[GateOut | None] = mapped_column(
        _JSON
    )  # the model's at submit (or retry); null in rows from before 0002
    retry_of: Mapped[str | None] = mapped_column(String(40), index=True)  # job whose version was held
    attempt: Mapped[int] = mapped_column(default=0)  # starts so far
    strikes: Mapped[int] = mapped_column(default=0)  # lost attempts since the last snapshot
    fence: Mapped[int | None]
    worker: Mapped[str | None] = mapped_column(String(120))
    lease_until: Mapped[float | None]
    rung_at: Mapped[float | None]
    not_before: Mapped[float | None]
    parent_version: Mapped[int | None]  # fixed at the first claim
    snapshot: Mapped[StoredSnapshot | None] = mapped_column(DocumentColumn(StoredSnapshot))
    # The best validated state so far.
    anytime: Mapped[StoredAnytime | None] = mapped_column(DocumentColumn(StoredAnytime))
    progress: Mapped[JsonObject] = mapped_column(_JSON)  # see core.protocol.progress
    error: Mapped[JobError | None] = mapped_column(_JSON)
    warnings: Mapped[list[str]] = mapped_column(
        _JSON, default=list
    )  # what its version will lack, and what to do
    version: Mapped[int | None]
    report: Mapped[BatchCheck | None] = mapped_column(_JSON)  # what a job found that makes no version
    archive_key: Mapped[str | None] = mapped_column(Text)  # an upload that is the job's own, until it is over
    archive_sha256: Mapped[str | None] = mapped_column(String(64))
    archive_bytes: Mapped[int | None]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    __table_args__ = (
        UniqueConstraint("model_id", "place"),
        # The belt: whatever the claim query does, no two workers run the line of one model.
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
        _partial("ix_jobs_unfinished", "model_id", "task_number", where=_UNFINISHED_SQL),
        _partial("ix_jobs_snapshot", "id", where="snapshot IS NOT NULL"),
        _partial("ix_jobs_anytime", "id", where="anytime IS NOT NULL"),
        # Each owner's oldest waiting job of each kind is one step in it.
        Index("ix_jobs_owner_id_state_kind_id", "owner_id", "state", "kind", "id"),
        Index("ix_jobs_owner_id_kind_id", "owner_id", "kind", "id"),
        Index("ix_jobs_kind_id", "kind", "id"),
        _partial("ix_jobs_archive_key", "archive_key", where="archive_key IS NOT NULL"),
        _partial("ix_jobs_archives", "model_id", "archive_bytes", where="archive_key IS NOT NULL"),
        Index("ix_jobs_model_id_id", "model_id", "id"),
        Index("ix_jobs_model_id_state_id", "model_id", "state", "id"),
    )


class Event(Table):
    """What happened to a job, in order. `type` is state, progress, metric, log or snapshot."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    type: Mapped[str] = mapped_column(String(16))
    data: Mapped[EventData] = mapped_column(_JSON)
    at: Mapped[float] = mapped_column(index=True)
    __table_args__ = (Index("ix_events_job_id_id", "job_id", "id"), {"sqlite_autoincrement": True})


class Version(Table):
    """What a finished job published: immutable."""

    __tablename__ = "versions"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    parent: Mapped[int | None]
    task_number: Mapped[int | None]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    status: Mapped[str] = mapped_column(String(12))  # published, held
    gate: Mapped[Verdict] = mapped_column(_JSON)
    warnings: Mapped[list[str]] = mapped_column(_JSON, default=list)  # which tasks it was not taught, and why
    manifest: Mapped[Manifest] = mapped_column(DocumentColumn(Manifest))
    bytes: Mapped[int]
    bytes_new: Mapped[int]
    created_at: Mapped[float]
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        Index("ix_versions_status", "status"),
        Index("ix_versions_model_id_number_id", "model_id", "number", "id"),
        Index("ix_versions_model_id_task_number", "model_id", "task_number"),
    )


class Part(Table):
    """One named safetensors blob of a version; the same bytes are one blob."""

    __tablename__ = "parts"
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    position: Mapped[int]
    type: Mapped[str] = mapped_column(String(40))  # backbone, head, buffer, curvature, own …
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    deleted_at: Mapped[float | None]  # by request: DELETE …/memory; the blob is gone, the version stays
    __table_args__ = (Index("ix_parts_kept", "version_id", "deleted_at", "sha256", "bytes"),)


class Export(Table):
    """A downloadable file made from a version on first request; swept after some days."""

    __tablename__ = "exports"
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    format: Mapped[str] = mapped_column(String(20), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    created_at: Mapped[float] = mapped_column(index=True)


class Damage(Table):
    """A stored object that was found missing or with another digest than it is named by, see core.damage."""

    __tablename__ = "damage"
    key: Mapped[str] = mapped_column(String(512), primary_key=True)  # in the store
    kind: Mapped[str] = mapped_column(String(8))  # missing, digest
    tag: Mapped[str] = mapped_column(String(200))  # of the object as it was read: with another look again
    found_at: Mapped[float]


class Scrub(Table):
    """How far the scrub of all stored objects is, see core.work.scrub: one row, under a lease."""

    __tablename__ = "scrub"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # 1
    worker: Mapped[str | None] = mapped_column(String(120))
    fence: Mapped[int] = mapped_column(default=0)  # rises whenever a worker takes it
    lease_until: Mapped[float] = mapped_column(default=0.0)
    cursor: Mapped[str] = mapped_column(
        String(512), default=""
    )  # key of the last object that was hashed; empty: begin
    began_at: Mapped[float | None]  # the pass under way, or the last one
    ended_at: Mapped[float | None]  # the last whole pass
    objects: Mapped[int] = mapped_column(default=0)  # hashed, in all passes
    bytes: Mapped[int] = mapped_column(default=0)


class Alias(Table):
    """A movable name for a version."""

    __tablename__ = "aliases"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    version: Mapped[int]
    updated_at: Mapped[float]


class AliasMove(Table):
    """One move of an alias; the history is append-only."""

    __tablename__ = "alias_moves"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    alias: Mapped[str] = mapped_column(String(63))
    version: Mapped[int]
    previous: Mapped[int | None]
    cause: Mapped[str] = mapped_column(String(12))  # create, publish, set, rollback, follow
    actor: Mapped[str | None] = mapped_column(String(40))  # key id
    reason: Mapped[str | None] = mapped_column(Text)
    at: Mapped[float]
    __table_args__ = (
        Index("ix_alias_moves_model_id_alias_id", "model_id", "alias", "id"),
        {"sqlite_autoincrement": True},
    )


class Result(Table):
    """One cell of the accuracy matrix: a version measured on a task's held-out part."""

    __tablename__ = "results"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[int] = mapped_column(primary_key=True)
    correct: Mapped[int]
    total: Mapped[int]
    per_class: Mapped[dict[str, list[int]]] = mapped_column(_JSON)  # {label: [correct, total]}
    best: Mapped[float | None]  # of the version's ancestors since they learned the task; null where none has
    # Of each task what was measured before it was learned, and when: a few cells of a large matrix.
    __table_args__ = (
        _partial("ix_results_first", "model_id", "version", "task", "correct", "total", where="best IS NULL"),
    )


class Measurement(Table):
    """One figure of a version beside the accuracy matrix, see core.db.measurements."""

    __tablename__ = "measurements"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    task: Mapped[int] = mapped_column(primary_key=True)  # 0: of all tasks together
    value: Mapped[float | None]
    detail: Mapped[Any] = mapped_column(
        JSON(none_as_null=True), nullable=True
    )  # what the manifest tells beside it
    __table_args__ = (_partial("ix_measurements_all_tasks", "model_id", "name", "version", where="task = 0"),)


class Idempotency(Table):
    """The answer to a request that carried an Idempotency-Key; `status` is null while in flight."""

    __tablename__ = "idempotency"
    KEPT_S: ClassVar[float] = 24 * 3600.0
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    route: Mapped[str] = mapped_column(String(200), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    content_sha256: Mapped[str | None] = mapped_column(String(64))
    status: Mapped[int | None]
    headers: Mapped[dict[str, str]] = mapped_column(_JSON)
    body: Mapped[Any] = mapped_column(_JSON, nullable=True)  # an answer of whatever route it is
    created_at: Mapped[float] = mapped_column(index=True)


class Audit(Table):
    """Who changed what."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    at: Mapped[float]
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    actor: Mapped[str | None] = mapped_column(String(40))  # key id; null: a worker
    action: Mapped[str] = mapped_column(String(40))  # such as model.create, alias.set
    object: Mapped[str] = mapped_column(String(120))
    data: Mapped[AuditData] = mapped_column(_JSON)
    __table_args__ = ({"sqlite_autoincrement": True},)
