"""A model may be made from another one, to move it to a better base: `rebased_from`, and since when
it stands in its place."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

MADE = sa.text("rebased_from IS NOT NULL")


def upgrade() -> None:
    """Apply."""
    op.add_column("models", sa.Column("rebased_from", sa.String(40), nullable=True))
    op.add_column("models", sa.Column("rebased_at", sa.Float(53), nullable=True))
    op.create_index(
        "ix_models_rebased_from",
        "models",
        ["rebased_from", "id"],
        sqlite_where=MADE,
        postgresql_where=MADE,
    )


def downgrade() -> None:
    """Take back; the models stay, and no one knows any more what they were made from."""
    op.drop_index("ix_models_rebased_from", "models")
    op.drop_column("models", "rebased_at")
    op.drop_column("models", "rebased_from")
