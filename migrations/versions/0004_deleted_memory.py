"""Parts that held images of the training data can be deleted while their version stays."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("parts", sa.Column("deleted_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("parts", "deleted_at")
