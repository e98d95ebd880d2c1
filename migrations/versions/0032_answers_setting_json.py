"""The column `models.answers` is JSON on PostgreSQL too, as all others; 0026 made it JSONB
there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; SQLite has one type for both."""
    _change(sa.JSON(), "answers::json")


def downgrade() -> None:
    """Take back."""
    _change(sa.dialects.postgresql.JSONB(), "answers::jsonb")


def _change(to: "sa.types.TypeEngine[object]", using: str) -> None:
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("models", "answers", type_=to, postgresql_using=using)
