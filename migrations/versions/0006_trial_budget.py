"""Seconds after which a job begins no further trial."""

import sqlalchemy as sa
from alembic import op

revision = "0006_trial_budget"
down_revision = "0005_class_numbers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; jobs before have no such budget, and learn all of their trials."""
    op.add_column("jobs", sa.Column("trial_budget_s", sa.Float(53)))


def downgrade() -> None:
    """Take back; trials that were skipped are listed in a state that older code does not know."""
    op.drop_column("jobs", "trial_budget_s")
