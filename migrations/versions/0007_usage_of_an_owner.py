"""Owners carry the sums of what they have; null until they are measured."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("owners", sa.Column("usage", sa.JSON(), nullable=True))
    op.add_column("owners", sa.Column("usage_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("owners", "usage_at")
    op.drop_column("owners", "usage")
