"""Versions, their parts and downloads, and their measurements."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.gate import Verdict
from core.contract.manifest import Manifest
from core.database.documents import DocumentColumn
from core.database.tables.table import JSON_COLUMN, DatabaseTable, build_partial_index


class Version(DatabaseTable):
    """Database row of a version of a model, made by a finished job; immutable except for its note."""

    __tablename__ = "versions"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    parent: Mapped[int | None]
    task_number: Mapped[int | None]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    status: Mapped[str] = mapped_column(String(12))  # published, held
    gate: Mapped[Verdict] = mapped_column(JSON_COLUMN)
    # tasks that it was not taught, with the reason
    warnings: Mapped[list[str]] = mapped_column(JSON_COLUMN, default=list, server_default="[]")
    manifest: Mapped[Manifest] = mapped_column(DocumentColumn(Manifest))
    # of an edit that numbers classes otherwise: new number of each of its parent's, -1: none
    class_numbers: Mapped[list[int] | None] = mapped_column(JSON_COLUMN)
    bytes: Mapped[int]
    bytes_new: Mapped[int]
    created_at: Mapped[float]
    note: Mapped[str | None] = mapped_column(Text)  # a person's note, which may change
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        Index("ix_versions_status", "status"),
        Index("ix_versions_model_id_number_id", "model_id", "number", "id"),
        Index("ix_versions_model_id_task_number", "model_id", "task_number"),
    )


class VersionPart(DatabaseTable):
    """Database row of a part of a version: a named safetensors blob; equal bytes share one blob."""

    __tablename__ = "parts"
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    position: Mapped[int]
    type: Mapped[str] = mapped_column(String(40))  # backbone, head, buffer, curvature, own …
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    # deleted on request: DELETE …/memory; the blob is gone, the version remains
    deleted_at: Mapped[float | None]
    # It has all columns from which stored bytes are summed up, so that no row is read.
    __table_args__ = (Index("ix_parts_kept", "version_id", "deleted_at", "sha256", "bytes"),)


class ExportedDownload(DatabaseTable):
    """Database row of a downloadable export of a version, made on the first request.

    The sweep removes it after some days.
    """

    __tablename__ = "exports"
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    format: Mapped[str] = mapped_column(String(20), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    created_at: Mapped[float] = mapped_column(index=True)


class ExportJob(DatabaseTable):
    """Database row of the job that last made an export of a version in a slow format."""

    __tablename__ = "export_jobs"
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"), primary_key=True)
    format: Mapped[str] = mapped_column(String(20), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    # fence of the claim under which it is being made; null: waiting or finished
    fence: Mapped[int | None]


class ExportCapableWorker(DatabaseTable):
    """Database row of a worker with the packages for slow export formats."""

    __tablename__ = "exporters"
    worker: Mapped[str] = mapped_column(String(120), primary_key=True)
    seen_at: Mapped[float]


class VersionTaskResult(DatabaseTable):
    """Database row of an accuracy-matrix cell: a version measured on a task's held-out images."""

    __tablename__ = "results"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[int] = mapped_column(primary_key=True)
    correct: Mapped[int]
    total: Mapped[int]
    per_class: Mapped[dict[str, list[int]]] = mapped_column(
        JSON_COLUMN
    )  # {label: [correct, total]}
    # best accuracy of the version's ancestors since they learned the task; null if none has
    best: Mapped[float | None]
    # blob of predictions, retained as long as the images; see core.ingest.stored_predictions
    answers: Mapped[str | None] = mapped_column(String(64))
    answers_bytes: Mapped[int | None]
    # Each task's results just before and just after it was learned: a few cells of a
    # large matrix.
    __table_args__ = (
        build_partial_index(
            "ix_results_first",
            "model_id",
            "version",
            "task",
            "correct",
            "total",
            where="best IS NULL",
        ),
        build_partial_index("ix_results_answers", "answers", where="answers IS NOT NULL"),
        build_partial_index(
            "ix_results_answers_of_a_task",
            "model_id",
            "task",
            "answers",
            "answers_bytes",
            where="answers IS NOT NULL",
        ),
    )


class VersionMeasurement(DatabaseTable):
    """Database row of a figure of a version outside of the accuracy matrix."""

    __tablename__ = "measurements"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    # 0: all tasks together; -1: each task, in `detail`
    task: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    # document of the manifest, if there is one
    detail: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    __table_args__ = (
        build_partial_index(
            "ix_measurements_all_tasks", "model_id", "name", "version", where="task = 0"
        ),
    )
