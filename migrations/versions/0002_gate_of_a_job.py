"""A job is judged by the gate that its model had when it was submitted, so it remembers it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("jobs", sa.Column("gate", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("jobs", "gate")
