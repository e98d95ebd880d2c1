"""Webhooks, and the outbox of what they are to be told."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_PENDING = sa.text("state = 'pending'")
_DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("model_id", sa.String(40)),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("previous_until", sa.Float(53)),
        sa.Column("disabled_at", sa.Float(53)),
        sa.Column("disabled_because", sa.String(300)),
        sa.Column("failing_since", sa.Float(53)),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(53)),
        sa.Column("lease_until", sa.Float(53)),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("served_at", sa.Float(53)),
        sa.Column("last_s", sa.Float(53)),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_webhooks_owner_id"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_webhooks_model_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_owner_id", "webhooks", ["owner_id"])
    op.create_index(
        "ix_webhooks_due", "webhooks", ["due_at"], sqlite_where=_DUE, postgresql_where=_DUE
    )
    op.create_table(
        "deliveries",
        sa.Column("number", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("model_id", sa.String(40)),
        sa.Column("type", sa.String(24), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Float(53)),
        sa.Column("status", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.Column("answer", sa.Text()),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("sent_at", sa.Float(53)),
        sa.Column("finished_at", sa.Float(53)),
        sa.PrimaryKeyConstraint("number", name="pk_deliveries"),
        sa.UniqueConstraint("id", name="uq_deliveries_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_created_at", "deliveries", ["created_at"])
    op.create_index("ix_deliveries_webhook_id_number", "deliveries", ["webhook_id", "number"])
    waiting = {"sqlite_where": _PENDING, "postgresql_where": _PENDING}
    op.create_index("ix_deliveries_pending", "deliveries", ["webhook_id", "number"], **waiting)
    op.create_index("ix_deliveries_owner_pending", "deliveries", ["owner_id"], **waiting)


def downgrade() -> None:
    """Take back; webhooks and what waited for them are gone."""
    op.drop_table("deliveries")
    op.drop_table("webhooks")
