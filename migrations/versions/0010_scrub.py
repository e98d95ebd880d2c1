"""Stored objects are hashed again and again: how far that is, and which were found damaged."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

REAL = sa.Float(precision=53)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "damage",
        sa.Column("key", sa.String(512), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("tag", sa.String(200), nullable=False),
        sa.Column("found_at", REAL, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_damage"),
    )
    op.create_table(
        "scrub",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.String(120), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", REAL, nullable=False),
        sa.Column("cursor", sa.String(512), nullable=False),
        sa.Column("began_at", REAL, nullable=True),
        sa.Column("ended_at", REAL, nullable=True),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scrub"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("scrub")
    op.drop_table("damage")
