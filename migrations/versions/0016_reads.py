"""Columns that clients read: notes, descriptions and tags, the ACC of each version, the model of an audit
row, events by owner.

ACC is computed once of the cells that are there. Rows of the audit trail learn their model from
what they are about. Events by owner begin now: of jobs from before, `GET /v1/jobs/{id}/events`
tells.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
AUDIT_INDEXES = {
    "ix_audit_model_id_id": ["model_id", "id"],
    "ix_audit_action_id": ["action", "id"],
    "ix_audit_at_id": ["at", "id"],
}
ACC = (
    "SELECT avg(CAST(r.correct AS DOUBLE PRECISION) / r.total) FROM results r"
    " JOIN versions v ON v.model_id = r.model_id AND v.number = r.version"
    " WHERE r.model_id = measurements.model_id AND r.version = measurements.version AND r.total > 0"
    " AND (r.best IS NOT NULL OR r.task = v.task_number)"
)
"""Over the tasks that a version was taught: those that an ancestor had learned, and its own."""


def upgrade() -> None:
    """Apply."""
    op.add_column("versions", sa.Column("note", sa.Text(), nullable=True))
    op.add_column("models", sa.Column("description", sa.Text(), nullable=True))
    op.add_column("models", sa.Column("tags", sa.JSON(), nullable=True))
    op.add_column("audit", sa.Column("model_id", sa.String(40), nullable=True))
    op.execute("UPDATE audit SET model_id = object WHERE substr(object, 1, 4) = 'mdl_'")
    for table, prefix in (("tasks", "tsk_"), ("jobs", "job_"), ("versions", "ver_")):
        model_of = f"SELECT model_id FROM {table} WHERE {table}.id = audit.object"  # noqa: S608
        op.execute(
            f"UPDATE audit SET model_id = ({model_of}) WHERE substr(object, 1, 4) = '{prefix}'"  # noqa: S608
        )
    for name, columns in AUDIT_INDEXES.items():
        op.create_index(name, "audit", columns)
    op.execute(f"UPDATE measurements SET value = ({ACC}) WHERE name = 'row' AND task = 0")  # noqa: S608
    op.create_table(
        "owner_events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("model_id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=True),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_owner_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_owner_events_owner_id_id", "owner_events", ["owner_id", "id"])
    op.create_index("ix_owner_events_model_id_id", "owner_events", ["model_id", "id"])
    op.create_index("ix_owner_events_at", "owner_events", ["at"])


def downgrade() -> None:
    """Take back; notes, descriptions and tags go."""
    op.drop_table("owner_events")
    for name in AUDIT_INDEXES:
        op.drop_index(name, "audit")
    op.drop_column("audit", "model_id")
    op.drop_column("models", "tags")
    op.drop_column("models", "description")
    op.drop_column("versions", "note")
