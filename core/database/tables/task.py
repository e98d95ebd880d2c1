"""Tasks: one for each uploaded batch."""

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.reports.report import BatchReport
from core.database.tables.table import JSON_COLUMN, DatabaseTable, build_partial_index


class Task(DatabaseTable):
    """Database row of a task: a batch uploaded to a model; numbers count from 1 in the order of
    acceptance.
    """

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    name: Mapped[str | None] = mapped_column(String(100))
    sha256: Mapped[str] = mapped_column(String(64))  # digest of the raw archive
    # digest of images and labels, deleted with the data; see core.ingest.content
    content_sha256: Mapped[str | None] = mapped_column(String(64))
    # position among the model's tasks with the same content, from 0
    content_turn: Mapped[int | None]
    bytes: Mapped[int]  # size of the raw archive
    # key in the store until the archive is decoded or rejected
    archive_key: Mapped[str | None] = mapped_column(Text)
    media_type: Mapped[str] = mapped_column(String(32))  # the reader's name, as detected
    # {label: images found}; after decoding, {label: images retained}
    classes: Mapped[dict[str, int]] = mapped_column(JSON_COLUMN)
    n_train: Mapped[int | None]
    n_held_out: Mapped[int | None]
    report: Mapped[BatchReport] = mapped_column(JSON_COLUMN)
    train_sha256: Mapped[str | None] = mapped_column(String(64))  # dataset blobs, see core.ingest
    held_out_sha256: Mapped[str | None] = mapped_column(String(64))
    # blob of hashes and paths, deleted with the held-out images; see core.ingest.findings.traces
    traces_sha256: Mapped[str | None] = mapped_column(String(64))
    traces_bytes: Mapped[int | None]
    # blob of features of the held-out images, deleted with them; see core.execution.held_out_features
    features_sha256: Mapped[str | None] = mapped_column(String(64))
    features_bytes: Mapped[int | None]
    # digest of the backbone and the images that they belong to
    features_key: Mapped[str | None] = mapped_column(String(64))
    # blob of images that compare trials, never learned, deleted with the held-out images
    selection_sha256: Mapped[str | None] = mapped_column(String(64))
    n_selection: Mapped[int | None]
    # decrypts predictions on its held-out images, deleted with them; see core.ingest.stored_predictions
    answers_key: Mapped[str | None] = mapped_column(String(64))
    # end of the training images' retention; null: not settled, see core.retention.retention
    train_until: Mapped[float | None]
    train_deleted_at: Mapped[float | None]
    held_out_deleted_at: Mapped[float | None]
    data_deleted_at: Mapped[float | None]  # deleted on request: DELETE …/tasks/{n}/data
    # see core.lineage.standing; null: its first job is unfinished
    standing: Mapped[str | None] = mapped_column(String(12))
    standing_at: Mapped[float | None]
    # later jobs of the model wait until a person settles this task
    stops: Mapped[bool] = mapped_column(default=False, server_default=false())
    warnings: Mapped[list[str]] = mapped_column(JSON_COLUMN)
    created_at: Mapped[float]
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        Index("ix_tasks_model_id_sha256", "model_id", "sha256"),
        # A second safeguard: whatever a submission has read, two tasks never have the same turn of
        # one content.
        Index(
            "uq_tasks_model_id_content", "model_id", "content_sha256", "content_turn", unique=True
        ),
        Index("ix_tasks_model_id_standing_number", "model_id", "standing", "number"),
        build_partial_index(
            "ix_tasks_stops", "model_id", "number", where="stops", sqlite="stops = 1"
        ),
        build_partial_index(
            "ix_tasks_train_undated",
            "model_id",
            where="train_until IS NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_train_until",
            "train_until",
            where="train_until IS NOT NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS "
            "NULL",
        ),
        # Each deletion asks if a blob or an archive is still in use.
        build_partial_index("ix_tasks_archive_key", "archive_key", where="archive_key IS NOT NULL"),
        build_partial_index(
            "ix_tasks_train_sha256",
            "train_sha256",
            where="train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_held_out_sha256",
            "held_out_sha256",
            where="held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_traces_sha256",
            "traces_sha256",
            where="traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_features_sha256",
            "features_sha256",
            where="features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_selection_sha256",
            "selection_sha256",
            where="selection_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_data_deleted", "model_id", where="data_deleted_at IS NOT NULL"
        ),
        # The stored bytes of a model are summed up over these.
        build_partial_index(
            "ix_tasks_waiting", "model_id", "bytes", where="archive_key IS NOT NULL"
        ),
        build_partial_index(
            "ix_tasks_train",
            "model_id",
            "n_train",
            where="train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_held_out",
            "model_id",
            "n_held_out",
            where="held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_traces",
            "model_id",
            "traces_bytes",
            where="traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_selection",
            "model_id",
            "n_selection",
            where="selection_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
        build_partial_index(
            "ix_tasks_features",
            "model_id",
            "features_bytes",
            where="features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
        ),
    )

    @property
    def belongs_to_adopted_classifier(self) -> bool:
        """True for the task of an adopted classifier, whose training images the service never had."""
        return self.n_train == 0

    @property
    def blob_digests(self) -> tuple[str | None, ...]:
        """Digests of all stored files of the task, deleted or not."""
        return (
            self.train_sha256,
            self.held_out_sha256,
            self.traces_sha256,
            self.features_sha256,
            self.selection_sha256,
        )
