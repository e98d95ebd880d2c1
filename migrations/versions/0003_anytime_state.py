"""A running job's best validated state can be downloaded, so the job's row names it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("jobs", sa.Column("anytime", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("jobs", "anytime")
