"""Uploads that can be resumed, and their pieces."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=True),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_uploads_owner_id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_owner_id", "uploads", ["owner_id"])
    op.create_index("ix_uploads_expires_at", "uploads", ["expires_at"])
    op.create_table(
        "upload_chunks",
        sa.Column("upload_id", sa.String(40), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("key", sa.String(120), nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], name="fk_upload_chunks_upload_id"),
        sa.PrimaryKeyConstraint("upload_id", "offset", name="pk_upload_chunks"),
        sa.UniqueConstraint("key", name="uq_upload_chunks_key"),
    )


def downgrade() -> None:
    """Take back; unfinished uploads begin again."""
    op.drop_table("upload_chunks")
    op.drop_table("uploads")
