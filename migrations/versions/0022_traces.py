"""Hashes and paths by which a task's images are recognised; tasks from before have none."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

KEPT = sa.text("traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL")
INDEXES = (
    ("ix_tasks_traces_sha256", ["traces_sha256"]),
    ("ix_tasks_traces", ["model_id", "traces_bytes"]),
)


def upgrade() -> None:
    """Apply."""
    op.add_column("tasks", sa.Column("traces_sha256", sa.String(64), nullable=True))
    op.add_column("tasks", sa.Column("traces_bytes", sa.BigInteger(), nullable=True))
    for name, columns in INDEXES:
        op.create_index(name, "tasks", columns, sqlite_where=KEPT, postgresql_where=KEPT)


def downgrade() -> None:
    """Take back; the blobs are swept, since nothing names them."""
    for name, _ in reversed(INDEXES):
        op.drop_index(name, "tasks")
    op.drop_column("tasks", "traces_bytes")
    op.drop_column("tasks", "traces_sha256")
