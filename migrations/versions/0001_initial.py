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


def _required(name: str, type_: Any, *more: Any, **options: Any) -> "sa.Column[Any]":
    """Return a column that has a value in every row."""
    return sa.Column(name, type_, *more, nullable=False, **options)


def _optional(name: str, type_: Any, *more: Any, **options: Any) -> "sa.Column[Any]":
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
        _required("id", sa.String(40), primary_key=True),
        _required("name", sa.String(63), unique=True),
        _required("created_at", REAL),
        _optional("bytes", sa.BigInteger()),
        _optional("bytes_at", REAL),
        _optional("usage", sa.JSON()),
        _optional("usage_at", REAL),
        _optional("claimed_at", REAL),
        _required("overtook", sa.Boolean(), server_default=sa.false()),
    )
    op.create_table(
        "keys",
        _required("id", sa.String(40), primary_key=True),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _required("name", sa.String(100)),
        _required("prefix", sa.String(16), unique=True),
        _required("hash", sa.String(64)),
        _required("scope", sa.String(8)),
        _optional("expires_at", REAL),
        _optional("revoked_at", REAL),
        _optional("last_used_at", REAL),
        _required("created_at", REAL),
    )
    _create_index("keys", "ix_keys_owner_id", "owner_id")
    op.create_table(
        "sessions",
        _required("hash", sa.String(64), primary_key=True),
        _required("key_id", sa.String(40), sa.ForeignKey("keys.id")),
        _required("created_at", REAL),
        _required("seen_at", REAL),
        _required("expires_at", REAL),
    )
    _create_index("sessions", "ix_sessions_key_id", "key_id")
    _create_index("sessions", "ix_sessions_expires_at", "expires_at")
    op.create_table(
        "idempotency",
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id"), primary_key=True),
        _required("route", sa.String(200), primary_key=True),
        _required("key", sa.String(255), primary_key=True),
        _required("fingerprint", sa.String(64)),
        _optional("content_sha256", sa.String(64)),
        _optional("status", sa.BigInteger()),
        _required("headers", sa.JSON()),
        _optional("body", sa.JSON()),
        _required("created_at", REAL),
    )
    _create_index("idempotency", "ix_idempotency_created_at", "created_at")
    op.create_table(
        "audit",
        _required("id", SERIAL, primary_key=True, autoincrement=True),
        _required("at", REAL),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _optional("actor", sa.String(40)),
        _required("action", sa.String(40)),
        _required("object", sa.String(120)),
        _required("data", sa.JSON()),
        _optional("model_id", sa.String(40)),
        sqlite_autoincrement=True,
    )
    _create_index("audit", "ix_audit_owner_id", "owner_id")
    _create_index("audit", "ix_audit_model_id_id", "model_id id")
    _create_index("audit", "ix_audit_action_id", "action id")
    _create_index("audit", "ix_audit_at_id", "at id")


def _create_models() -> None:
    op.create_table(
        "bases",
        _required("id", sa.String(40), primary_key=True),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _required("architecture", sa.JSON()),
        _required("sha256", sa.String(64)),
        _required("bytes", sa.BigInteger()),
        _required("created_at", REAL),
    )
    _create_index("bases", "ix_bases_owner_id", "owner_id")
    _create_index("bases", "ix_bases_sha256", "sha256")
    op.create_table(
        "weights",
        _required("repository", sa.String(200), primary_key=True),
        _optional("revision", sa.String(64)),
        _optional("sha256", sa.String(64)),
        _optional("bytes", sa.BigInteger()),
        _optional("job_id", sa.String(40)),
    )
    op.create_table(
        "models",
        _required("id", sa.String(40), primary_key=True),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _required("name", sa.String(63)),
        _required("scenario", sa.String(8)),
        _required("architecture", sa.JSON()),
        _required("image", sa.JSON()),
        _required("base", sa.JSON()),
        _optional("classes", sa.JSON()),
        _required("recipe", sa.JSON()),
        _required("gate", sa.JSON()),
        _required("keep_training_data", sa.Boolean()),
        _required("held_out", sa.String(8)),
        _required("warnings", sa.JSON()),
        _required("fence", sa.BigInteger()),
        _required("next_task", sa.BigInteger()),
        _required("next_place", sa.BigInteger()),
        _required("next_version", sa.BigInteger()),
        _required("created_at", REAL),
        _optional("deleted_at", REAL),
        _required("training_data_days", REAL, server_default="7.0"),
        _required("on_held", sa.String(8), server_default="stop"),
        _required("on_rejected", sa.String(8), server_default="continue"),
        _required("on_failed", sa.String(8), server_default="continue"),
        _required("allow_lost_classes", sa.Boolean(), server_default=sa.false()),
        _required("head", sa.BigInteger(), server_default="0"),
        _required("production_follows", sa.Boolean(), server_default=sa.true()),
        _optional("base_job", sa.String(40)),
        _optional("description", sa.Text()),
        _optional("tags", sa.JSON()),
        _optional("answers", sa.JSON()),
        _optional("rebased_from", sa.String(40)),
        _optional("rebased_at", REAL),
        _optional("totals_sha256", sa.String(64)),
        _optional("totals_bytes", sa.BigInteger()),
        _optional("totals_key", sa.String(64)),
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
        _required("model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True),
        _required("name", sa.String(63), primary_key=True),
        _required("version", sa.BigInteger()),
        _required("updated_at", REAL),
    )
    op.create_table(
        "alias_moves",
        _required("id", SERIAL, primary_key=True, autoincrement=True),
        _required("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("alias", sa.String(63)),
        _required("version", sa.BigInteger()),
        _optional("previous", sa.BigInteger()),
        _required("cause", sa.String(12)),
        _optional("actor", sa.String(40)),
        _optional("reason", sa.Text()),
        _required("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("alias_moves", "ix_alias_moves_model_id_alias_id", "model_id alias id")
    op.create_table(
        "predict_keys",
        _required("key_id", sa.String(40), sa.ForeignKey("keys.id"), primary_key=True),
        _required("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("alias", sa.String(63)),
        _required("requests_per_s", REAL),
        _required("images_per_day", sa.BigInteger()),
        _required("day", sa.BigInteger()),
        _required("images", sa.BigInteger()),
        _required("free_at", REAL),
    )
    _create_index("predict_keys", "ix_predict_keys_model_id", "model_id")


def _create_tasks() -> None:
    op.create_table(
        "uploads",
        _required("id", sa.String(40), primary_key=True),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _required("length", sa.BigInteger()),
        _required("offset", sa.BigInteger()),
        _optional("metadata", sa.Text()),
        _optional("sha256", sa.String(64)),
        _required("fence", sa.BigInteger()),
        _optional("held_until", REAL),
        _required("expires_at", REAL),
        _required("created_at", REAL),
    )
    _create_index("uploads", "ix_uploads_owner_id", "owner_id")
    _create_index("uploads", "ix_uploads_expires_at", "expires_at")
    op.create_table(
        "upload_chunks",
        _required("upload_id", sa.String(40), sa.ForeignKey("uploads.id"), primary_key=True),
        _required("offset", sa.BigInteger(), primary_key=True),
        _required("bytes", sa.BigInteger()),
        _required("sha256", sa.String(64)),
        _required("key", sa.String(120), unique=True),
    )
    op.create_table(
        "tasks",
        _required("id", sa.String(40), primary_key=True),
        _required("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("number", sa.BigInteger()),
        _optional("name", sa.String(100)),
        _required("sha256", sa.String(64)),
        _required("bytes", sa.BigInteger()),
        _optional("archive_key", sa.Text()),
        _required("media_type", sa.String(32)),
        _required("classes", sa.JSON()),
        _optional("n_train", sa.BigInteger()),
        _optional("n_held_out", sa.BigInteger()),
        _required("report", sa.JSON()),
        _optional("train_sha256", sa.String(64)),
        _optional("held_out_sha256", sa.String(64)),
        _optional("train_deleted_at", REAL),
        _optional("held_out_deleted_at", REAL),
        _optional("data_deleted_at", REAL),
        _required("warnings", sa.JSON()),
        _required("created_at", REAL),
        _optional("train_until", REAL),
        _optional("standing", sa.String(12)),
        _optional("standing_at", REAL),
        _required("stops", sa.Boolean(), server_default=sa.false()),
        _optional("traces_sha256", sa.String(64)),
        _optional("traces_bytes", sa.BigInteger()),
        _optional("features_sha256", sa.String(64)),
        _optional("features_bytes", sa.BigInteger()),
        _optional("features_key", sa.String(64)),
        _optional("answers_key", sa.String(64)),
        _optional("content_sha256", sa.String(64)),
        _optional("content_turn", sa.BigInteger()),
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
        _required("id", sa.String(40), primary_key=True),
        _required("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _optional("task_id", sa.String(40), sa.ForeignKey("tasks.id")),
        _optional("task_number", sa.BigInteger()),
        _optional("place", sa.BigInteger()),
        _required("state", sa.String(12)),
        _required("revision", sa.BigInteger()),
        _required("recipe_override", sa.JSON()),
        _required("recipe", sa.JSON()),
        _optional("retry_of", sa.String(40)),
        _required("attempt", sa.BigInteger()),
        _required("strikes", sa.BigInteger()),
        _optional("fence", sa.BigInteger()),
        _optional("worker", sa.String(120)),
        _optional("lease_until", REAL),
        _optional("rung_at", REAL),
        _optional("not_before", REAL),
        _optional("parent_version", sa.BigInteger()),
        _optional("snapshot", sa.JSON()),
        _required("progress", sa.JSON()),
        _optional("error", sa.JSON()),
        _optional("version", sa.BigInteger()),
        _required("created_at", REAL),
        _optional("started_at", REAL),
        _optional("finished_at", REAL),
        _optional("gate", sa.JSON()),
        _optional("anytime", sa.JSON()),
        _required("again", sa.Boolean(), server_default=sa.false()),
        _required("warnings", sa.JSON(), server_default="[]"),
        _required("kind", sa.String(12), server_default="learn"),
        _optional("report", sa.JSON()),
        _optional("archive_key", sa.Text()),
        _optional("archive_sha256", sa.String(64)),
        _optional("archive_bytes", sa.BigInteger()),
        _required("out_of_memory", sa.BigInteger(), server_default="0"),
        _required("device", sa.String(4), server_default="any"),
        _required("gpus", sa.BigInteger(), server_default="1"),
        _optional("resume_on", sa.String(4)),
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
        _required("id", SERIAL, primary_key=True, autoincrement=True),
        _required("job_id", sa.String(40), sa.ForeignKey("jobs.id")),
        _required("type", sa.String(16)),
        _required("data", sa.JSON()),
        _required("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("events", "ix_events_at", "at")
    _create_index("events", "ix_events_job_id_id", "job_id id")
    op.create_table(
        "owner_events",
        _required("id", SERIAL, primary_key=True, autoincrement=True),
        _required("owner_id", sa.String(40)),
        _required("model_id", sa.String(40)),
        _optional("job_id", sa.String(40)),
        _required("type", sa.String(16)),
        _required("data", sa.JSON()),
        _required("at", REAL),
        sqlite_autoincrement=True,
    )
    _create_index("owner_events", "ix_owner_events_at", "at")
    _create_index("owner_events", "ix_owner_events_owner_id_type_id", "owner_id type id")
    _create_index("owner_events", "ix_owner_events_model_id_type_id", "model_id type id")
    _create_index("owner_events", "ix_owner_events_type_id", "type id")
    op.create_table(
        "workers",
        _required("worker", sa.String(120), primary_key=True),
        _required("device", sa.String(4)),
        _required("gpus", sa.BigInteger()),
        _optional("problem", sa.Text()),
        _required("seen_at", REAL),
        _optional("answers_since", REAL),
    )
    _create_index("workers", "ix_workers_device_seen_at", "device seen_at")


def _create_versions() -> None:
    op.create_table(
        "versions",
        _required("id", sa.String(40), primary_key=True),
        _required("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("number", sa.BigInteger()),
        _optional("parent", sa.BigInteger()),
        _optional("task_number", sa.BigInteger()),
        _optional("job_id", sa.String(40), sa.ForeignKey("jobs.id"), unique=True),
        _required("status", sa.String(12)),
        _required("gate", sa.JSON()),
        _required("manifest", sa.JSON()),
        _required("bytes", sa.BigInteger()),
        _required("bytes_new", sa.BigInteger()),
        _required("created_at", REAL),
        _required("warnings", sa.JSON(), server_default="[]"),
        _optional("note", sa.Text()),
        sa.UniqueConstraint("model_id", "number"),
    )
    _create_index("versions", "ix_versions_status", "status")
    _create_index("versions", "ix_versions_model_id_number_id", "model_id number id")
    _create_index("versions", "ix_versions_model_id_task_number", "model_id task_number")
    op.create_table(
        "parts",
        _required("version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True),
        _required("name", sa.String(100), primary_key=True),
        _required("position", sa.BigInteger()),
        _required("type", sa.String(40)),
        _required("sha256", sa.String(64)),
        _required("bytes", sa.BigInteger()),
        _optional("deleted_at", REAL),
    )
    _create_index("parts", "ix_parts_sha256", "sha256")
    _create_index("parts", "ix_parts_kept", "version_id deleted_at sha256 bytes")
    op.create_table(
        "results",
        _required("model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True),
        _required("version", sa.BigInteger(), primary_key=True),
        _required("task", sa.BigInteger(), primary_key=True),
        _required("correct", sa.BigInteger()),
        _required("total", sa.BigInteger()),
        _required("per_class", sa.JSON()),
        _optional("best", REAL),
        _optional("answers", sa.String(64)),
        _optional("answers_bytes", sa.BigInteger()),
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
        _required("model_id", sa.String(40), sa.ForeignKey("models.id"), primary_key=True),
        _required("version", sa.BigInteger(), primary_key=True),
        _required("name", sa.String(20), primary_key=True),
        _required("task", sa.BigInteger(), primary_key=True),
        _optional("value", REAL),
        _optional("detail", sa.JSON()),
    )
    _create_index(
        "measurements", "ix_measurements_all_tasks", "model_id name version", where="task = 0"
    )
    op.create_table(
        "exports",
        _required("version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True),
        _required("format", sa.String(20), primary_key=True),
        _required("sha256", sa.String(64)),
        _required("bytes", sa.BigInteger()),
        _required("created_at", REAL),
    )
    _create_index("exports", "ix_exports_created_at", "created_at")
    _create_index("exports", "ix_exports_sha256", "sha256")
    op.create_table(
        "export_jobs",
        _required("version_id", sa.String(40), sa.ForeignKey("versions.id"), primary_key=True),
        _required("format", sa.String(20), primary_key=True),
        _required("job_id", sa.String(40), sa.ForeignKey("jobs.id"), unique=True),
        _optional("fence", sa.BigInteger()),
    )
    op.create_table(
        "exporters",
        _required("worker", sa.String(120), primary_key=True),
        _required("seen_at", REAL),
    )


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        _required("id", sa.String(40), primary_key=True),
        _required("owner_id", sa.String(40), sa.ForeignKey("owners.id")),
        _required("url", sa.Text()),
        _required("events", sa.JSON()),
        _optional("model_id", sa.String(40), sa.ForeignKey("models.id")),
        _required("generation", sa.BigInteger()),
        _required("secret_sha256", sa.String(64)),
        _optional("previous_until", REAL),
        _optional("disabled_at", REAL),
        _optional("disabled_because", sa.String(300)),
        _optional("failing_since", REAL),
        _required("dropped", sa.BigInteger()),
        _optional("due_at", REAL),
        _optional("lease_until", REAL),
        _required("fence", sa.BigInteger()),
        _optional("served_at", REAL),
        _optional("last_s", REAL),
        _required("created_at", REAL),
        _required("format", sa.String(10), server_default="standard"),
    )
    _create_index("webhooks", "ix_webhooks_owner_id", "owner_id")
    _create_index("webhooks", "ix_webhooks_due", "due_at", where="due_at IS NOT NULL")
    op.create_table(
        "deliveries",
        _required("number", SERIAL, primary_key=True, autoincrement=True),
        _required("id", sa.String(40), unique=True),
        _required("webhook_id", sa.String(40)),
        _required("owner_id", sa.String(40)),
        _optional("model_id", sa.String(40)),
        _required("type", sa.String(24)),
        _required("payload", sa.Text()),
        _required("state", sa.String(10)),
        _required("attempts", sa.BigInteger()),
        _optional("next_at", REAL),
        _optional("status", sa.BigInteger()),
        _optional("error", sa.Text()),
        _optional("answer", sa.Text()),
        _required("created_at", REAL),
        _optional("sent_at", REAL),
        _optional("finished_at", REAL),
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
        _required("key", sa.String(512), primary_key=True),
        _required("kind", sa.String(8)),
        _required("tag", sa.String(200)),
        _required("found_at", REAL),
    )
    op.create_table(
        "scrub",
        _required("id", sa.BigInteger(), primary_key=True),
        _optional("worker", sa.String(120)),
        _required("fence", sa.BigInteger()),
        _required("lease_until", REAL),
        _required("cursor", sa.String(512)),
        _optional("began_at", REAL),
        _optional("ended_at", REAL),
        _required("objects", sa.BigInteger()),
        _required("bytes", sa.BigInteger()),
    )
