"""Pretrained weights: where they lie once they were brought, and models that wait for theirs.

Older models have their version 0 and wait for nothing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "weights",
        sa.Column("repository", sa.String(200), nullable=False),
        sa.Column("revision", sa.String(64), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("job_id", sa.String(40), nullable=True),
        sa.PrimaryKeyConstraint("repository", name="pk_weights"),
    )
    op.add_column("models", sa.Column("base_job", sa.String(40), nullable=True))
    where = sa.text("base_job IS NOT NULL")
    op.create_index(
        "ix_models_base_job", "models", ["id"], sqlite_where=where, postgresql_where=where
    )


def downgrade() -> None:
    """Take back; jobs that fetch go, with their events, and models without a version 0 with their
    tasks and jobs."""
    waiting = "SELECT id FROM models WHERE base_job IS NOT NULL"
    gone = f"kind = 'fetch' OR model_id IN ({waiting})"
    op.execute(f"DELETE FROM events WHERE job_id IN (SELECT id FROM jobs WHERE {gone})")  # noqa: S608
    op.execute(f"DELETE FROM jobs WHERE {gone}")  # noqa: S608
    op.execute(f"DELETE FROM tasks WHERE model_id IN ({waiting})")  # noqa: S608
    op.execute("DELETE FROM models WHERE base_job IS NOT NULL")
    op.drop_index("ix_models_base_job", "models")
    op.drop_column("models", "base_job")
    op.drop_table("weights")
