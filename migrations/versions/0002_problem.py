"""A model may predict something else than classes: `problem`, null where it does not."""

import sqlalchemy as sa
from alembic import op

revision = "0002_problem"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; older models learn classification."""
    op.add_column("models", sa.Column("problem", sa.String(40)))


def downgrade() -> None:
    """Take back; older code takes every model for one of classification."""
    op.drop_column("models", "problem")
