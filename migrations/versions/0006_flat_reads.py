"""Indexes by which every read stays as fast with a million tasks as with a hundred."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UNFINISHED = "state IN ('cancelling', 'paused', 'pausing', 'queued', 'running', 'validating')"
INDEXES: tuple[tuple[str, str, list[str], str | None], ...] = (
    ("ix_models_owner_id_id", "models", ["owner_id", "id"], None),
    ("ix_models_name", "models", ["name", "id"], "deleted_at IS NULL"),
    ("ix_tasks_archive_key", "tasks", ["archive_key"], "archive_key IS NOT NULL"),
    (
        "ix_tasks_train_sha256",
        "tasks",
        ["train_sha256"],
        "train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
    ),
    (
        "ix_tasks_held_out_sha256",
        "tasks",
        ["held_out_sha256"],
        "held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
    ),
    ("ix_jobs_owner_id_state_id", "jobs", ["owner_id", "state", "id"], None),
    ("ix_jobs_state_id", "jobs", ["state", "id"], None),
    ("ix_jobs_unfinished", "jobs", ["model_id", "place"], UNFINISHED),
    ("ix_jobs_snapshot", "jobs", ["id"], "snapshot IS NOT NULL"),
    ("ix_jobs_anytime", "jobs", ["id"], "anytime IS NOT NULL"),
    ("ix_versions_status", "versions", ["status"], None),
    ("ix_exports_sha256", "exports", ["sha256"], None),
    ("ix_bases_sha256", "bases", ["sha256"], None),
)
"""Name, table, columns and, of a partial index, its condition."""


def upgrade() -> None:
    """Apply."""
    for name, table, columns, where in INDEXES:
        condition = None if where is None else sa.text(where)
        op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
    op.drop_index("ix_models_owner_id", "models")


def downgrade() -> None:
    """Take back."""
    op.create_index("ix_models_owner_id", "models", ["owner_id"])
    for name, table, _, _ in reversed(INDEXES):
        op.drop_index(name, table)
