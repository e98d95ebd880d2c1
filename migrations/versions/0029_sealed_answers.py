"""Answers of an update are one blob, in which those on each task have a key of the task: `answers_key`.

Answers from before are blobs of their own, which need no key.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("tasks", sa.Column("answers_key", sa.String(64), nullable=True))


def downgrade() -> None:
    """Take back; what is encrypted is forgotten: the next job asks its parent again."""
    op.execute(
        "UPDATE results SET answers = NULL, answers_bytes = NULL WHERE EXISTS (SELECT 1 FROM tasks "
        "WHERE tasks.model_id = results.model_id AND tasks.number = results.task AND answers_key IS NOT NULL)"
    )
    op.drop_column("tasks", "answers_key")
