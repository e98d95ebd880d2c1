"""A model may promise how many of its sure answers are right: `answers`, null where it does not."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column(
        "models",
        sa.Column("answers", sa.JSON().with_variant(sa.dialects.postgresql.JSONB(), "postgresql")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_column("models", "answers")
