"""Every table of the first release, for SQLite and PostgreSQL."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "owners",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_owners")),
        sa.UniqueConstraint("name", name=op.f("uq_owners_name")),
    )
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("actor", sa.String(length=40), nullable=True),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("object", sa.String(length=120), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_audit_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_owner_id"), ["owner_id"], unique=False)

    op.create_table(
        "bases",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("architecture", sa.JSON(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_bases_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bases")),
    )
    with op.batch_alter_table("bases", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_bases_owner_id"), ["owner_id"], unique=False)

    op.create_table(
        "idempotency",
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("route", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=True),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_idempotency_owner_id")),
        sa.PrimaryKeyConstraint("owner_id", "route", "key", name=op.f("pk_idempotency")),
    )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_created_at"), ["created_at"], unique=False)

    op.create_table(
        "keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.Column("last_used_at", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_keys_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_keys_prefix")),
    )
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_keys_owner_id"), ["owner_id"], unique=False)

    op.create_table(
        "models",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("scenario", sa.String(length=8), nullable=False),
        sa.Column("architecture", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(), nullable=False),
        sa.Column("base", sa.JSON(), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=True),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("gate", sa.JSON(), nullable=False),
        sa.Column("keep_training_data", sa.Boolean(), nullable=False),
        sa.Column("held_out", sa.String(length=8), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("next_task", sa.BigInteger(), nullable=False),
        sa.Column("next_place", sa.BigInteger(), nullable=False),
        sa.Column("next_version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("deleted_at", sa.Float(precision=53), nullable=True),
        sa.CheckConstraint(
            "scenario IN ('data', 'task', 'class')", name=op.f("ck_models_scenario")
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_models_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_models_owner_id"), ["owner_id"], unique=False)
        batch_op.create_index(
            "uq_models_owner_id_name",
            ["owner_id", "name"],
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.create_table(
        "alias_moves",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("alias", sa.String(length=63), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.BigInteger(), nullable=True),
        sa.Column("cause", sa.String(length=12), nullable=False),
        sa.Column("actor", sa.String(length=40), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_alias_moves_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alias_moves")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("alias_moves", schema=None) as batch_op:
        batch_op.create_index(
            "ix_alias_moves_model_id_alias_id", ["model_id", "alias", "id"], unique=False
        )

    op.create_table(
        "aliases",
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_aliases_model_id")),
        sa.PrimaryKeyConstraint("model_id", "name", name=op.f("pk_aliases")),
    )
    op.create_table(
        "results",
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.BigInteger(), nullable=False),
        sa.Column("correct", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("per_class", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_results_model_id")),
        sa.PrimaryKeyConstraint("model_id", "version", "task", name=op.f("pk_results")),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("archive_key", sa.Text(), nullable=True),
        sa.Column("media_type", sa.String(length=32), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("n_train", sa.BigInteger(), nullable=True),
        sa.Column("n_held_out", sa.BigInteger(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("train_sha256", sa.String(length=64), nullable=True),
        sa.Column("held_out_sha256", sa.String(length=64), nullable=True),
        sa.Column("train_deleted_at", sa.Float(precision=53), nullable=True),
        sa.Column("held_out_deleted_at", sa.Float(precision=53), nullable=True),
        sa.Column("data_deleted_at", sa.Float(precision=53), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_tasks_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_tasks_model_id_number")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index("ix_tasks_model_id_sha256", ["model_id", "sha256"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("task_id", sa.String(length=40), nullable=False),
        sa.Column("task_number", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("recipe_override", sa.JSON(), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("retry_of", sa.String(length=40), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("strikes", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("worker", sa.String(length=120), nullable=True),
        sa.Column("lease_until", sa.Float(precision=53), nullable=True),
        sa.Column("rung_at", sa.Float(precision=53), nullable=True),
        sa.Column("not_before", sa.Float(precision=53), nullable=True),
        sa.Column("parent_version", sa.BigInteger(), nullable=True),
        sa.Column("snapshot", sa.JSON(), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("fk_jobs_owner_id")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_jobs_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("model_id", "place", name=op.f("uq_jobs_model_id_place")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_model_id_id", ["model_id", "id"], unique=False)
        batch_op.create_index("ix_jobs_owner_id_id", ["owner_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_retry_of"), ["retry_of"], unique=False)
        batch_op.create_index("ix_jobs_state_created_at", ["state", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_task_id"), ["task_id"], unique=False)
        batch_op.create_index(
            "uq_jobs_model_id_leased",
            ["model_id"],
            unique=True,
            sqlite_where=sa.text("state IN ('cancelling', 'pausing', 'running', 'validating')"),
            postgresql_where=sa.text("state IN ('cancelling', 'pausing', 'running', 'validating')"),
        )

    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_at"), ["at"], unique=False)
        batch_op.create_index("ix_events_job_id_id", ["job_id", "id"], unique=False)

    op.create_table(
        "versions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("parent", sa.BigInteger(), nullable=True),
        sa.Column("task_number", sa.BigInteger(), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("gate", sa.JSON(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("bytes_new", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_versions_job_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_versions_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("job_id", name=op.f("uq_versions_job_id")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_versions_model_id_number")),
    )
    op.create_table(
        "exports",
        sa.Column("version_id", sa.String(length=40), nullable=False),
        sa.Column("format", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name=op.f("fk_exports_version_id")
        ),
        sa.PrimaryKeyConstraint("version_id", "format", name=op.f("pk_exports")),
    )
    with op.batch_alter_table("exports", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_exports_created_at"), ["created_at"], unique=False)

    op.create_table(
        "parts",
        sa.Column("version_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name=op.f("fk_parts_version_id")),
        sa.PrimaryKeyConstraint("version_id", "name", name=op.f("pk_parts")),
    )
    with op.batch_alter_table("parts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_parts_sha256"), ["sha256"], unique=False)


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("parts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_parts_sha256"))

    op.drop_table("parts")
    with op.batch_alter_table("exports", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_exports_created_at"))

    op.drop_table("exports")
    op.drop_table("versions")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index("ix_events_job_id_id")
        batch_op.drop_index(batch_op.f("ix_events_at"))

    op.drop_table("events")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_jobs_model_id_leased",
            sqlite_where=sa.text("state IN ('cancelling', 'pausing', 'running', 'validating')"),
            postgresql_where=sa.text("state IN ('cancelling', 'pausing', 'running', 'validating')"),
        )
        batch_op.drop_index(batch_op.f("ix_jobs_task_id"))
        batch_op.drop_index("ix_jobs_state_created_at")
        batch_op.drop_index(batch_op.f("ix_jobs_retry_of"))
        batch_op.drop_index("ix_jobs_owner_id_id")
        batch_op.drop_index("ix_jobs_model_id_id")

    op.drop_table("jobs")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index("ix_tasks_model_id_sha256")

    op.drop_table("tasks")
    op.drop_table("results")
    op.drop_table("aliases")
    with op.batch_alter_table("alias_moves", schema=None) as batch_op:
        batch_op.drop_index("ix_alias_moves_model_id_alias_id")

    op.drop_table("alias_moves")
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_models_owner_id_name",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )
        batch_op.drop_index(batch_op.f("ix_models_owner_id"))

    op.drop_table("models")
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_keys_owner_id"))

    op.drop_table("keys")
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_created_at"))

    op.drop_table("idempotency")
    with op.batch_alter_table("bases", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_bases_owner_id"))

    op.drop_table("bases")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_owner_id"))

    op.drop_table("audit")
    op.drop_table("owners")
