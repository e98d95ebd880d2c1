"""Add `tasks.content_sha256` and `content_turn`, by which a batch that comes again is known; older
tasks have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

INDEX = "uq_tasks_model_id_content"


def upgrade() -> None:
    """Apply; older tasks are known by the digest of their archive."""
    op.add_column("tasks", sa.Column("content_sha256", sa.String(64), nullable=True))
    op.add_column("tasks", sa.Column("content_turn", sa.BigInteger(), nullable=True))
    op.create_index(INDEX, "tasks", ["model_id", "content_sha256", "content_turn"], unique=True)


def downgrade() -> None:
    """Take back; older code warns where an archive repeats."""
    op.drop_index(INDEX, "tasks")
    op.drop_column("tasks", "content_turn")
    op.drop_column("tasks", "content_sha256")
