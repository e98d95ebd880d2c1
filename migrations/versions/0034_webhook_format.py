"""Add `format` to webhooks: what is sent is the payload itself, or a message for Slack or Teams."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; older webhooks are sent payloads as they are."""
    op.add_column(
        "webhooks", sa.Column("format", sa.String(10), nullable=False, server_default="standard")
    )


def downgrade() -> None:
    """Take back; receivers of messages are sent payloads again, which Slack and Teams refuse."""
    op.drop_column("webhooks", "format")
