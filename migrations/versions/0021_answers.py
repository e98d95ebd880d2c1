"""What versions answered on held-out images; cells from before it have no answers."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_KEPT = "answers IS NOT NULL"


def upgrade() -> None:
    """Apply."""
    op.add_column("results", sa.Column("answers", sa.String(64)))
    op.add_column("results", sa.Column("answers_bytes", sa.BigInteger))
    where = {"sqlite_where": sa.text(_KEPT), "postgresql_where": sa.text(_KEPT)}
    op.create_index("ix_results_answers", "results", ["answers"], **where)
    op.create_index(
        "ix_results_answers_of_a_task",
        "results",
        ["model_id", "task", "answers", "answers_bytes"],
        **where,
    )


def downgrade() -> None:
    """Take back; the blobs are removed as those that nothing names."""
    op.drop_index("ix_results_answers_of_a_task", "results")
    op.drop_index("ix_results_answers", "results")
    op.drop_column("results", "answers_bytes")
    op.drop_column("results", "answers")
