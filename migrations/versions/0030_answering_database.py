"""A worker reports since when the database has answered it: `answers_since` of `workers`."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; of older reports it is not known."""
    op.add_column("workers", sa.Column("answers_since", sa.Float(53), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("workers", "answers_since")
