"""Figures by task lie in one row of a version, not in one for each task: a version of 1,000 tasks
wrote 2,000 rows.

Those of `adp` stay rows: their means are read of many versions without the rest. No number passes
through SQL: documents are put together and taken apart as texts.
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

EACH_TASK = -1
COLUMNS = "INSERT INTO measurements (model_id, version, name, task, value, detail)"
TOGETHER = {
    "sqlite": "json_group_object(CAST(task AS TEXT), json(detail))",
    "postgresql": "json_object_agg(CAST(task AS TEXT), detail)",
}


def upgrade() -> None:
    """Apply."""
    together = TOGETHER[op.get_bind().dialect.name]
    by_task = "task > 0 AND name <> 'adp'"
    op.execute(
        f"{COLUMNS} SELECT model_id, version, name, {EACH_TASK}, NULL, {together} FROM measurements"  # noqa: S608
        f" WHERE {by_task} GROUP BY model_id, version, name"
    )
    op.execute(f"DELETE FROM measurements WHERE {by_task}")  # noqa: S608


def downgrade() -> None:
    """Take back."""
    op.execute(
        f"{COLUMNS} SELECT m.model_id, m.version, m.name, CAST(e.key AS INTEGER), NULL, e.value"  # noqa: S608
        f" FROM measurements m, json_each(m.detail) e WHERE m.task = {EACH_TASK}"
    )
    op.execute(f"DELETE FROM measurements WHERE task = {EACH_TASK}")  # noqa: S608
