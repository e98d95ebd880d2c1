"""Whose turn it is: when each owner was last served; null: not yet."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("owners", sa.Column("claimed_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("owners", "claimed_at")
