"""Owners carry the bytes they have in the store, for their quota; null until they are measured."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("owners", sa.Column("bytes", sa.BigInteger(), nullable=True))
    op.add_column("owners", sa.Column("bytes_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("owners", "bytes_at")
    op.drop_column("owners", "bytes")
