"""Add `predict_keys`: what each key of scope predict asks, its limits, and what it has taken of
them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; older keys are of other scopes."""
    op.create_table(
        "predict_keys",
        sa.Column("key_id", sa.String(40), sa.ForeignKey("keys.id"), primary_key=True),
        sa.Column("model_id", sa.String(40), sa.ForeignKey("models.id"), nullable=False),
        sa.Column("alias", sa.String(63), nullable=False),
        sa.Column("requests_per_s", sa.Float(53), nullable=False),
        sa.Column("images_per_day", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("images", sa.BigInteger, nullable=False),
        sa.Column("free_at", sa.Float(53), nullable=False),
    )
    op.create_index("ix_predict_keys_model_id", "predict_keys", ["model_id"])


def downgrade() -> None:
    """Take back; keys of this scope open nothing in older code."""
    op.drop_table("predict_keys")
