"""Numbers of classes after an edit, so that the sums of tasks that it does not change stay."""

import sqlalchemy as sa
from alembic import op

revision = "0005_class_numbers"
down_revision = "0004_trials"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; edits before stored the sums of all tasks again, under the new numbers."""
    op.add_column("versions", sa.Column("class_numbers", sa.JSON()))


def downgrade() -> None:
    """Take back; models with such an edit cannot go on with their earlier sums."""
    op.drop_column("versions", "class_numbers")
