"""Jobs ask for a device, and workers report theirs: `device`, `gpus`, `resume_on` and
`out_of_memory` of a job, and the table `workers`."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; older jobs run anywhere, and their snapshots may be continued anywhere."""
    op.add_column(
        "jobs", sa.Column("out_of_memory", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("jobs", sa.Column("device", sa.String(4), nullable=False, server_default="any"))
    op.add_column("jobs", sa.Column("gpus", sa.BigInteger(), nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("resume_on", sa.String(4), nullable=True))
    op.create_table(
        "workers",
        sa.Column("worker", sa.String(120), nullable=False),
        sa.Column("device", sa.String(4), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("seen_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("worker", name="pk_workers"),
    )
    op.create_index("ix_workers_device_seen_at", "workers", ["device", "seen_at"])


def downgrade() -> None:
    """Take back; jobs wait for no device any more."""
    op.drop_index("ix_workers_device_seen_at", "workers")
    op.drop_table("workers")
    for column in ("resume_on", "gpus", "device", "out_of_memory"):
        op.drop_column("jobs", column)
