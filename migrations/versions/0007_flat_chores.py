"""Sweeps and sums of what models have go over indexes; owners carry their sums, null until they are
measured.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INDEXES: tuple[tuple[str, str, list[str], str | None], ...] = (
    ("ix_tasks_waiting", "tasks", ["model_id", "bytes"], "archive_key IS NOT NULL"),
    (
        "ix_tasks_train",
        "tasks",
        ["model_id", "n_train"],
        "train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
    ),
    (
        "ix_tasks_held_out",
        "tasks",
        ["model_id", "n_held_out"],
        "held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL",
    ),
    ("ix_tasks_data_deleted", "tasks", ["model_id"], "data_deleted_at IS NOT NULL"),
    ("ix_jobs_model_id_state_id", "jobs", ["model_id", "state", "id"], None),
    ("ix_versions_model_id_number_id", "versions", ["model_id", "number", "id"], None),
    ("ix_parts_kept", "parts", ["version_id", "deleted_at", "sha256", "bytes"], None),
)
"""Name, table, columns and, of a partial index, its condition."""


def upgrade() -> None:
    """Apply."""
    op.add_column("owners", sa.Column("usage", sa.JSON(), nullable=True))
    op.add_column("owners", sa.Column("usage_at", sa.Float(precision=53), nullable=True))
    for name, table, columns, where in INDEXES:
        condition = None if where is None else sa.text(where)
        op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    """Take back."""
    for name, table, _, _ in reversed(INDEXES):
        op.drop_index(name, table)
    op.drop_column("owners", "usage_at")
    op.drop_column("owners", "usage")
