"""Downloads that jobs make: which job makes which, and which workers can.

Older downloads were all made by the API, and need no row here.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "export_jobs",
        sa.Column("version_id", sa.String(40), nullable=False),
        sa.Column("format", sa.String(20), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name="fk_export_jobs_version_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_export_jobs_job_id"),
        sa.PrimaryKeyConstraint("version_id", "format", name="pk_export_jobs"),
        sa.UniqueConstraint("job_id", name="uq_export_jobs_job_id"),
    )
    op.create_table(
        "exporters",
        sa.Column("worker", sa.String(120), nullable=False),
        sa.Column("seen_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("worker", name="pk_exporters"),
    )


def downgrade() -> None:
    """Take back; jobs that export go, with their events, and what they made."""
    op.drop_table("exporters")
    op.drop_table("export_jobs")
    op.execute("DELETE FROM exports WHERE format = 'onnx'")
    op.execute("DELETE FROM events WHERE job_id IN (SELECT id FROM jobs WHERE kind = 'export')")
    op.execute("DELETE FROM jobs WHERE kind = 'export'")
