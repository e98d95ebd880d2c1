"""All tables of version 0.1.0, for SQLite and PostgreSQL."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None

REAL = sa.Float(53)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TRAIN = "train_sha256 IS NOT NULL AND train_deleted_at IS NULL"
HELD_OUT = "held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL"
TRACES = "traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL"
FEATURES = "features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL"


def upgrade() -> None:
    """Create every table; names of constraints come from the convention of the metadata."""
    _create_owners()
    _create_models()
    _create_tasks()
    _create_jobs()
    _create_versions()
    _create_webhooks()
    _create_store_checks()


def downgrade() -> None:
    """Drop every table."""
    tables = sa.MetaData()
    tables.reflect(op.get_bind())
    tables.remove(tables.tables["alembic_version"])
    tables.drop_all(op.get_bind())


def _build_required_column(name: str, type_: Any, *more: Any, **options: Any) -> "sa.Column[Any]":
    """Return a column that has a value in every row."""
    return sa.Column(name, type_, *more, nullable=False, **options)


def _build_optional_column(name: str, type_: Any, *more: Any, **options: Any) -> "sa.Column[Any]":
    """Return a column that may be null."""
    return sa.Column(name, type_, *more, nullable=True, **options)


def _create_index(
    table: str,
    name: str,
    columns: str,
    where: str | None = None,
    sqlite: str | None = None,
    unique: bool = False,
) -> None:
    """Create an index, of the rows that match `where` if it is given.

    Args:
        columns: names with blanks between them.
        sqlite: the same condition for SQLite, which compares the text of conditions.
    """
    conditions: dict[str, Any] = {}
    if where is not None:
        conditions["postgresql_where"] = sa.text(where)
        conditions["sqlite_where"] = sa.text(sqlite or where)
    op.create_index(name, table, columns.split(), unique=unique, **conditions)


def _create_owners() -> None:
    op.create_table(
        "owners",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("name", sa.String(63), unique=True),
        _build_required_column("created_at", REAL),
        _build_optional_column("bytes", sa.BigInteger()),
        _build_optional_column("bytes_at", REAL),
        _build_optional_column("usage", sa.JSON()),
        _build_optional_column("usage_at", REAL),
        _build_optional_column("claimed_at", REAL),
        _build_required_column("overtook", sa.Boolean(), server_default=sa.false()),
    )
    op.create_table(
        "keys",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_required_column("name", sa.String(100)),
        _build_required_column("prefix", sa.String(16), unique=True),
        _build_required_column("hash", sa.String(64)),
        _build_required_column("scope", sa.String(8)),
        _build_optional_column("expires_at", REAL),
        _build_optional_column("revoked_at", REAL),
        _build_optional_column("last_used_at", REAL),
        _build_required_column("created_at", REAL),
    )
    _create_index("keys", "ix_keys_owner_id", "owner_id")
    op.create_table(
        "sessions",
        _build_required_column("hash", sa.String(64), primary_key=True),
        _build_required_column("key_id", sa.String(40), sa.ForeignKey("keys.id")),
        _build_required_column("created_at", REAL),
        _build_required_column("seen_at", REAL),
        _build_required_column("expires_at", REAL),
    )
    _create_index("sessions", "ix_sessions_key_id", "key_id")
    _create_index("sessions", "ix_sessions_expires_at", "expires_at")
    op.create_table(
        "idempotency",
        _build_required_column(
            "owner_id", sa.String(40), sa.ForeignKey("owners.id"), primary_key=True
        ),
        _build_required_column("route", sa.String(200), primary_key=True),
        _build_required_column("key", sa.String(255), primary_key=True),
        _build_required_column("fingerprint", sa.String(64)),
        _build_optional_column("content_sha256", sa.String(64)),
        _build_optional_column("status", sa.BigInteger()),
        _build_required_column("headers", sa.JSON()),
        _build_optional_column("body", sa.JSON()),
        _build_required_column("created_at", REAL),
    )
    _create_index("idempotency", "ix_idempotency_created_at", "created_at")
    op.create_table(
        "audit",
        _build_required_column("id", SERIAL, primary_key=True, autoincrement=True),
        _build_required_column("at", REAL),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_optional_column("actor", sa.String(40)),
        _build_required_column("action", sa.String(40)),
        _build_required_column("object", sa.String(120)),
        _build_required_column("data", sa.JSON()),
        _build_optional_column("model_id", sa.String(40)),
        sqlite_autoincrement=True,
    )
    _create_index("audit", "ix_audit_owner_id", "owner_id")
    _create_index("audit", "ix_audit_model_id_id", "model_id id")
    _create_index("audit", "ix_audit_action_id", "action id")
    _create_index("audit", "ix_audit_at_id", "at id")


def _create_models() -> None:
    op.create_table(
        "bases",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_required_column("architecture", sa.JSON()),
        _build_required_column("sha256", sa.String(64)),
        _build_required_column("bytes", sa.BigInteger()),
        _build_required_column("created_at", REAL),
    )
    _create_index("bases", "ix_bases_owner_id", "owner_id")
    _create_index("bases", "ix_bases_sha256", "sha256")
    op.create_table(
        "weights",
        _build_required_column("repository", sa.String(200), primary_key=True),
        _build_optional_column("revision", sa.String(64)),
        _build_optional_column("sha256", sa.String(64)),
        _build_optional_column("bytes", sa.BigInteger()),
        _build_optional_column("job_id", sa.String(40)),
    )
    op.create_table(
        "models",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_required_column("name", sa.String(63)),
        _build_required_column("scenario", sa.String(8)),
        _build_required_column("architecture", sa.JSON()),
        _build_required_column("image", sa.JSON()),
        _build_required_column("base", sa.JSON()),
        _build_optional_column("classes", sa.JSON()),
        _build_required_column("recipe", sa.JSON()),
        _build_required_column("gate", sa.JSON()),
        _build_required_column("keep_training_data", sa.Boolean()),
        _build_required_column("held_out", sa.String(8)),
        _build_required_column("warnings", sa.JSON()),
        _build_required_column("fence", sa.BigInteger()),
        _build_required_column("next_task", sa.BigInteger()),
        _build_required_column("next_place", sa.BigInteger()),
        _build_required_column("next_version", sa.BigInteger()),
        _build_required_column("created_at", REAL),
        _build_optional_column("deleted_at", REAL),
        _build_required_column("training_data_days", REAL, server_default="7.0"),
        _build_required_column("on_held", sa.String(8), server_default="stop"),
        _build_required_column("on_rejected", sa.String(8), server_default="continue"),
        _build_required_column("on_failed", sa.String(8), server_default="continue"),
        _build_required_column("allow_lost_classes", sa.Boolean(), server_default=sa.false()),
        _build_required_column("head", sa.BigInteger(), server_default="0"),
        _build_required_column("production_follows", sa.Boolean(), server_default=sa.true()),
        _build_optional_column("base_job", sa.String(40)),
        _build_optional_column("description", sa.Text()),
        _build_optional_column("tags", sa.JSON()),
        _build_optional_column("answers", sa.JSON()),
        _build_optional_column("rebased_from", sa.String(40)),
        _build_optional_column("rebased_at", REAL),
        _build_optional_column("totals_sha256", sa.String(64)),
        _build_optional_column("totals_bytes", sa.BigInteger()),
        _build_optional_column("totals_key", sa.String(64)),
        sa.CheckConstraint("scenario IN ('data', 'task', 'class')", name="scenario"),
    )
    _create_index(
        "models",
        "uq_models_owner_id_name",
        "owner_id name",
        unique=True,
        where="deleted_at IS NULL",
    )
    _create_index("models", "ix_models_owner_id_id", "owner_id id")
    _create_index("models", "ix_models_name", "name id", where="deleted_at IS NULL")
    _create_index("models", "ix_models_base_job", "id", where="base_job IS NOT NULL")
    _create_index(
        "models", "ix_models_rebased_from", "rebased_from id", where="rebased_from IS NOT NULL"
    )
    _create_index(
        "models", "ix_models_totals_sha256", "totals_sha256", where="totals_sha256 IS NOT NULL"
    )
    op.create_table(
        "aliases",
        _build_required_column(
            "model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True
        ),
        _build_required_column("name", sa.String(63), primary_key=True),
        _build_required_column("version", sa.BigInteger()),
        _build_required_column("updated_at", REAL),
    )
    op.create_table(
        "alias_moves",
        _build_required_column("id", SERIAL, primary_key=True, autoincrement=True),
        _build_required_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("alias", sa.String(63)),
        _build_required_column("version", sa.BigInteger()),
        _build_optional_column("previous", sa.BigInteger()),
        _build_required_column("cause", sa.String(12)),
        _build_optional_column("actor", sa.String(40)),
        _build_optional_column("reason", sa.Text()),
        _build_required_column("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("alias_moves", "ix_alias_moves_model_id_alias_id", "model_id alias id")
    op.create_table(
        "predict_keys",
        _build_required_column("key_id", sa.String(40), sa.ForeignKey("keys.id"), primary_key=True),
        _build_required_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("alias", sa.String(63)),
        _build_required_column("requests_per_s", REAL),
        _build_required_column("images_per_day", sa.BigInteger()),
        _build_required_column("day", sa.BigInteger()),
        _build_required_column("images", sa.BigInteger()),
        _build_required_column("free_at", REAL),
    )
    _create_index("predict_keys", "ix_predict_keys_model_id", "model_id")


def _create_tasks() -> None:
    op.create_table(
        "uploads",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_required_column("length", sa.BigInteger()),
        _build_required_column("offset", sa.BigInteger()),
        _build_optional_column("metadata", sa.Text()),
        _build_optional_column("sha256", sa.String(64)),
        _build_required_column("fence", sa.BigInteger()),
        _build_optional_column("held_until", REAL),
        _build_required_column("expires_at", REAL),
        _build_required_column("created_at", REAL),
    )
    _create_index("uploads", "ix_uploads_owner_id", "owner_id")
    _create_index("uploads", "ix_uploads_expires_at", "expires_at")
    op.create_table(
        "upload_chunks",
        _build_required_column(
            "upload_id", sa.String(40), sa.ForeignKey("uploads.id"), primary_key=True
        ),
        _build_required_column("offset", sa.BigInteger(), primary_key=True),
        _build_required_column("bytes", sa.BigInteger()),
        _build_required_column("sha256", sa.String(64)),
        _build_required_column("key", sa.String(120), unique=True),
    )
    op.create_table(
        "tasks",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("number", sa.BigInteger()),
        _build_optional_column("name", sa.String(100)),
        _build_required_column("sha256", sa.String(64)),
        _build_required_column("bytes", sa.BigInteger()),
        _build_optional_column("archive_key", sa.Text()),
        _build_required_column("media_type", sa.String(32)),
        _build_required_column("classes", sa.JSON()),
        _build_optional_column("n_train", sa.BigInteger()),
        _build_optional_column("n_held_out", sa.BigInteger()),
        _build_required_column("report", sa.JSON()),
        _build_optional_column("train_sha256", sa.String(64)),
        _build_optional_column("held_out_sha256", sa.String(64)),
        _build_optional_column("train_deleted_at", REAL),
        _build_optional_column("held_out_deleted_at", REAL),
        _build_optional_column("data_deleted_at", REAL),
        _build_required_column("warnings", sa.JSON()),
        _build_required_column("created_at", REAL),
        _build_optional_column("train_until", REAL),
        _build_optional_column("standing", sa.String(12)),
        _build_optional_column("standing_at", REAL),
        _build_required_column("stops", sa.Boolean(), server_default=sa.false()),
        _build_optional_column("traces_sha256", sa.String(64)),
        _build_optional_column("traces_bytes", sa.BigInteger()),
        _build_optional_column("features_sha256", sa.String(64)),
        _build_optional_column("features_bytes", sa.BigInteger()),
        _build_optional_column("features_key", sa.String(64)),
        _build_optional_column("answers_key", sa.String(64)),
        _build_optional_column("content_sha256", sa.String(64)),
        _build_optional_column("content_turn", sa.BigInteger()),
        sa.UniqueConstraint("model_id", "number"),
    )
    _create_index("tasks", "ix_tasks_model_id_sha256", "model_id sha256")
    _create_index("tasks", "ix_tasks_archive_key", "archive_key", where="archive_key IS NOT NULL")
    _create_index("tasks", "ix_tasks_train_sha256", "train_sha256", where=TRAIN)
    _create_index("tasks", "ix_tasks_held_out_sha256", "held_out_sha256", where=HELD_OUT)
    _create_index("tasks", "ix_tasks_waiting", "model_id bytes", where="archive_key IS NOT NULL")
    _create_index("tasks", "ix_tasks_train", "model_id n_train", where=TRAIN)
    _create_index("tasks", "ix_tasks_held_out", "model_id n_held_out", where=HELD_OUT)
    _create_index("tasks", "ix_tasks_data_deleted", "model_id", where="data_deleted_at IS NOT NULL")
    _create_index("tasks", "ix_tasks_model_id_standing_number", "model_id standing number")
    _create_index("tasks", "ix_tasks_stops", "model_id number", where="stops", sqlite="stops = 1")
    _create_index(
        "tasks", "ix_tasks_train_undated", "model_id", where=f"train_until IS NULL AND {TRAIN}"
    )
    _create_index(
        "tasks", "ix_tasks_train_until", "train_until", where=f"train_until IS NOT NULL AND {TRAIN}"
    )
    _create_index("tasks", "ix_tasks_traces_sha256", "traces_sha256", where=TRACES)
    _create_index("tasks", "ix_tasks_traces", "model_id traces_bytes", where=TRACES)
    _create_index("tasks", "ix_tasks_features_sha256", "features_sha256", where=FEATURES)
    _create_index("tasks", "ix_tasks_features", "model_id features_bytes", where=FEATURES)
    _create_index(
        "tasks", "uq_tasks_model_id_content", "model_id content_sha256 content_turn", unique=True
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_optional_column("task_id", sa.String(40), sa.ForeignKey("tasks.id")),
        _build_optional_column("task_number", sa.BigInteger()),
        _build_optional_column("place", sa.BigInteger()),
        _build_required_column("state", sa.String(12)),
        _build_required_column("revision", sa.BigInteger()),
        _build_required_column("recipe_override", sa.JSON()),
        _build_required_column("recipe", sa.JSON()),
        _build_optional_column("retry_of", sa.String(40)),
        _build_required_column("attempt", sa.BigInteger()),
        _build_required_column("strikes", sa.BigInteger()),
        _build_optional_column("fence", sa.BigInteger()),
        _build_optional_column("worker", sa.String(120)),
        _build_optional_column("lease_until", REAL),
        _build_optional_column("rung_at", REAL),
        _build_optional_column("not_before", REAL),
        _build_optional_column("parent_version", sa.BigInteger()),
        _build_optional_column("snapshot", sa.JSON()),
        _build_required_column("progress", sa.JSON()),
        _build_optional_column("error", sa.JSON()),
        _build_optional_column("version", sa.BigInteger()),
        _build_required_column("created_at", REAL),
        _build_optional_column("started_at", REAL),
        _build_optional_column("finished_at", REAL),
        _build_optional_column("gate", sa.JSON()),
        _build_optional_column("anytime", sa.JSON()),
        _build_required_column("again", sa.Boolean(), server_default=sa.false()),
        _build_required_column("warnings", sa.JSON(), server_default="[]"),
        _build_required_column("kind", sa.String(12), server_default="learn"),
        _build_optional_column("report", sa.JSON()),
        _build_optional_column("archive_key", sa.Text()),
        _build_optional_column("archive_sha256", sa.String(64)),
        _build_optional_column("archive_bytes", sa.BigInteger()),
        _build_required_column("out_of_memory", sa.BigInteger(), server_default="0"),
        _build_required_column("device", sa.String(4), server_default="any"),
        _build_required_column("gpus", sa.BigInteger(), server_default="1"),
        _build_optional_column("resume_on", sa.String(4)),
        sa.UniqueConstraint("model_id", "place"),
    )
    _create_index("jobs", "ix_jobs_model_id_id", "model_id id")
    _create_index("jobs", "ix_jobs_owner_id_id", "owner_id id")
    _create_index("jobs", "ix_jobs_retry_of", "retry_of")
    _create_index("jobs", "ix_jobs_task_id", "task_id")
    _create_index("jobs", "ix_jobs_owner_id_state_id", "owner_id state id")
    _create_index("jobs", "ix_jobs_state_id", "state id")
    _create_index("jobs", "ix_jobs_snapshot", "id", where="snapshot IS NOT NULL")
    _create_index("jobs", "ix_jobs_anytime", "id", where="anytime IS NOT NULL")
    _create_index("jobs", "ix_jobs_model_id_state_id", "model_id state id")
    _create_index(
        "jobs",
        "ix_jobs_unfinished",
        "model_id task_number",
        where="state IN ('cancelling', 'paused', 'pausing', 'queued', 'running', 'validating')",
    )
    _create_index("jobs", "ix_jobs_state_created_at_id", "state created_at id")
    _create_index(
        "jobs",
        "uq_jobs_model_id_leased",
        "model_id",
        unique=True,
        where="state IN ('cancelling', 'pausing', 'running', 'validating') AND place IS NOT NULL",
    )
    _create_index("jobs", "ix_jobs_owner_id_state_kind_id", "owner_id state kind id")
    _create_index("jobs", "ix_jobs_owner_id_kind_id", "owner_id kind id")
    _create_index("jobs", "ix_jobs_kind_id", "kind id")
    _create_index("jobs", "ix_jobs_archive_key", "archive_key", where="archive_key IS NOT NULL")
    _create_index(
        "jobs", "ix_jobs_archives", "model_id archive_bytes", where="archive_key IS NOT NULL"
    )
    op.create_table(
        "events",
        _build_required_column("id", SERIAL, primary_key=True, autoincrement=True),
        _build_required_column("job_id", sa.String(40), sa.ForeignKey("jobs.id")),
        _build_required_column("type", sa.String(16)),
        _build_required_column("data", sa.JSON()),
        _build_required_column("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("events", "ix_events_at", "at")
    _create_index("events", "ix_events_job_id_id", "job_id id")
    op.create_table(
        "owner_events",
        _build_required_column("id", SERIAL, primary_key=True, autoincrement=True),
        _build_required_column("owner_id", sa.String(40)),
        _build_required_column("model_id", sa.String(40)),
        _build_optional_column("job_id", sa.String(40)),
        _build_required_column("type", sa.String(16)),
        _build_required_column("data", sa.JSON()),
        _build_required_column("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("owner_events", "ix_owner_events_at", "at")
    _create_index("owner_events", "ix_owner_events_owner_id_type_id", "owner_id type id")
    _create_index("owner_events", "ix_owner_events_model_id_type_id", "model_id type id")
    _create_index("owner_events", "ix_owner_events_type_id", "type id")
    op.create_table(
        "workers",
        _build_required_column("worker", sa.String(120), primary_key=True),
        _build_required_column("device", sa.String(4)),
        _build_required_column("gpus", sa.BigInteger()),
        _build_optional_column("problem", sa.Text()),
        _build_required_column("seen_at", REAL),
        _build_optional_column("answers_since", REAL),
    )
    _create_index("workers", "ix_workers_device_seen_at", "device seen_at")


def _create_versions() -> None:
    op.create_table(
        "versions",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("number", sa.BigInteger()),
        _build_optional_column("parent", sa.BigInteger()),
        _build_optional_column("task_number", sa.BigInteger()),
        _build_optional_column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), unique=True),
        _build_required_column("status", sa.String(12)),
        _build_required_column("gate", sa.JSON()),
        _build_required_column("manifest", sa.JSON()),
        _build_required_column("bytes", sa.BigInteger()),
        _build_required_column("bytes_new", sa.BigInteger()),
        _build_required_column("created_at", REAL),
        _build_required_column("warnings", sa.JSON(), server_default="[]"),
        _build_optional_column("note", sa.Text()),
        sa.UniqueConstraint("model_id", "number"),
    )
    _create_index("versions", "ix_versions_status", "status")
    _create_index("versions", "ix_versions_model_id_number_id", "model_id number id")
    _create_index("versions", "ix_versions_model_id_task_number", "model_id task_number")
    op.create_table(
        "parts",
        _build_required_column(
            "version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True
        ),
        _build_required_column("name", sa.String(100), primary_key=True),
        _build_required_column("position", sa.BigInteger()),
        _build_required_column("type", sa.String(40)),
        _build_required_column("sha256", sa.String(64)),
        _build_required_column("bytes", sa.BigInteger()),
        _build_optional_column("deleted_at", REAL),
    )
    _create_index("parts", "ix_parts_sha256", "sha256")
    _create_index("parts", "ix_parts_kept", "version_id deleted_at sha256 bytes")
    op.create_table(
        "results",
        _build_required_column(
            "model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True
        ),
        _build_required_column("version", sa.BigInteger(), primary_key=True),
        _build_required_column("task", sa.BigInteger(), primary_key=True),
        _build_required_column("correct", sa.BigInteger()),
        _build_required_column("total", sa.BigInteger()),
        _build_required_column("per_class", sa.JSON()),
        _build_optional_column("best", REAL),
        _build_optional_column("answers", sa.String(64)),
        _build_optional_column("answers_bytes", sa.BigInteger()),
    )
    _create_index(
        "results", "ix_results_first", "model_id version task correct total", where="best IS NULL"
    )
    _create_index("results", "ix_results_answers", "answers", where="answers IS NOT NULL")
    _create_index(
        "results",
        "ix_results_answers_of_a_task",
        "model_id task answers answers_bytes",
        where="answers IS NOT NULL",
    )
    op.create_table(
        "measurements",
        _build_required_column(
            "model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True
        ),
        _build_required_column("version", sa.BigInteger(), primary_key=True),
        _build_required_column("name", sa.String(20), primary_key=True),
        _build_required_column("task", sa.BigInteger(), primary_key=True),
        _build_optional_column("value", REAL),
        _build_optional_column("detail", sa.JSON()),
    )
    _create_index(
        "measurements", "ix_measurements_all_tasks", "model_id name version", where="task = 0"
    )
    op.create_table(
        "exports",
        _build_required_column(
            "version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True
        ),
        _build_required_column("format", sa.String(20), primary_key=True),
        _build_required_column("sha256", sa.String(64)),
        _build_required_column("bytes", sa.BigInteger()),
        _build_required_column("created_at", REAL),
    )
    _create_index("exports", "ix_exports_created_at", "created_at")
    _create_index("exports", "ix_exports_sha256", "sha256")
    op.create_table(
        "export_jobs",
        _build_required_column(
            "version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True
        ),
        _build_required_column("format", sa.String(20), primary_key=True),
        _build_required_column("job_id", sa.String(40), sa.ForeignKey("jobs.id"), unique=True),
        _build_optional_column("fence", sa.BigInteger()),
    )
    op.create_table(
        "exporters",
        _build_required_column("worker", sa.String(120), primary_key=True),
        _build_required_column("seen_at", REAL),
    )


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        _build_required_column("id", sa.String(40), primary_key=True),
        _build_required_column("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _build_required_column("url", sa.Text()),
        _build_required_column("events", sa.JSON()),
        _build_optional_column("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _build_required_column("generation", sa.BigInteger()),
        _build_required_column("secret_sha256", sa.String(64)),
        _build_optional_column("previous_until", REAL),
        _build_optional_column("disabled_at", REAL),
        _build_optional_column("disabled_because", sa.String(300)),
        _build_optional_column("failing_since", REAL),
        _build_required_column("dropped", sa.BigInteger()),
        _build_optional_column("due_at", REAL),
        _build_optional_column("lease_until", REAL),
        _build_required_column("fence", sa.BigInteger()),
        _build_optional_column("served_at", REAL),
        _build_optional_column("last_s", REAL),
        _build_required_column("created_at", REAL),
        _build_required_column("format", sa.String(10), server_default="standard"),
    )
    _create_index("webhooks", "ix_webhooks_owner_id", "owner_id")
    _create_index("webhooks", "ix_webhooks_due", "due_at", where="due_at IS NOT NULL")
    op.create_table(
        "deliveries",
        _build_required_column("number", SERIAL, primary_key=True, autoincrement=True),
        _build_required_column("id", sa.String(40), unique=True),
        _build_required_column("webhook_id", sa.String(40)),
        _build_required_column("owner_id", sa.String(40)),
        _build_optional_column("model_id", sa.String(40)),
        _build_required_column("type", sa.String(24)),
        _build_required_column("payload", sa.Text()),
        _build_required_column("state", sa.String(10)),
        _build_required_column("attempts", sa.BigInteger()),
        _build_optional_column("next_at", REAL),
        _build_optional_column("status", sa.BigInteger()),
        _build_optional_column("error", sa.Text()),
        _build_optional_column("answer", sa.Text()),
        _build_required_column("created_at", REAL),
        _build_optional_column("sent_at", REAL),
        _build_optional_column("finished_at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("deliveries", "ix_deliveries_created_at", "created_at")
    _create_index("deliveries", "ix_deliveries_webhook_id_number", "webhook_id number")
    _create_index(
        "deliveries", "ix_deliveries_pending", "webhook_id number", where="state = 'pending'"
    )
    _create_index(
        "deliveries", "ix_deliveries_owner_pending", "owner_id", where="state = 'pending'"
    )


def _create_store_checks() -> None:
    op.create_table(
        "damage",
        _build_required_column("key", sa.String(512), primary_key=True),
        _build_required_column("kind", sa.String(8)),
        _build_required_column("tag", sa.String(200)),
        _build_required_column("found_at", REAL),
    )
    op.create_table(
        "scrub",
        _build_required_column("id", sa.BigInteger(), primary_key=True),
        _build_optional_column("worker", sa.String(120)),
        _build_required_column("fence", sa.BigInteger()),
        _build_required_column("lease_until", REAL),
        _build_required_column("cursor", sa.String(512)),
        _build_optional_column("began_at", REAL),
        _build_optional_column("ended_at", REAL),
        _build_required_column("objects", sa.BigInteger()),
        _build_required_column("bytes", sa.BigInteger()),
    )
