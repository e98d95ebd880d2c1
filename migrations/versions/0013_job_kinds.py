"""Jobs of other kinds than learning: without a task, beside the line of their model, with a report
of their own.

Older jobs are all of the kind `learn`. SQLite cannot make a column nullable; its stored schema is
edited instead, as its documentation describes for changes that leave the rows as they are: a copy
of the table would take long with a million jobs, and cannot be put in the place of one that others
refer to.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NULLABLE = {"task_id": sa.String(40), "task_number": sa.BigInteger(), "place": sa.BigInteger()}
LEASED = "state IN ('cancelling', 'pausing', 'running', 'validating')"
ARCHIVE = "archive_key IS NOT NULL"
INDEXES: tuple[tuple[str, list[str], str | None], ...] = (
    ("ix_jobs_owner_id_state_kind_id", ["owner_id", "state", "kind", "id"], None),
    ("ix_jobs_owner_id_kind_id", ["owner_id", "kind", "id"], None),
    ("ix_jobs_kind_id", ["kind", "id"], None),
    ("ix_jobs_archive_key", ["archive_key"], ARCHIVE),
    ("ix_jobs_archives", ["model_id", "archive_bytes"], ARCHIVE),
)
"""Name, columns and, of a partial index, its condition."""


def upgrade() -> None:
    """Apply."""
    op.add_column("jobs", sa.Column("kind", sa.String(12), nullable=False, server_default="learn"))
    op.add_column("jobs", sa.Column("report", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("archive_key", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("archive_sha256", sa.String(64), nullable=True))
    op.add_column("jobs", sa.Column("archive_bytes", sa.BigInteger(), nullable=True))
    op.add_column(
        "owners", sa.Column("overtook", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    _nullable(True)
    _one_leased(f"{LEASED} AND place IS NOT NULL")
    for name, columns, where in INDEXES:
        condition = None if where is None else sa.text(where)
        op.create_index(name, "jobs", columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    """Take back; jobs of other kinds go, with their events."""
    op.execute("DELETE FROM events WHERE job_id IN (SELECT id FROM jobs WHERE kind <> 'learn')")
    op.execute("DELETE FROM jobs WHERE kind <> 'learn'")
    for name, _, _ in reversed(INDEXES):
        op.drop_index(name, "jobs")
    _one_leased(LEASED)
    _nullable(False)
    op.drop_column("owners", "overtook")
    for column in ("archive_bytes", "archive_sha256", "archive_key", "report", "kind"):
        op.drop_column("jobs", column)


def _one_leased(condition: str) -> None:
    op.drop_index("uq_jobs_model_id_leased", "jobs")
    where = sa.text(condition)
    op.create_index(
        "uq_jobs_model_id_leased",
        "jobs",
        ["model_id"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )


def _nullable(nullable: bool) -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        for column, kind in NULLABLE.items():
            op.alter_column("jobs", column, existing_type=kind, nullable=nullable)
        return
    table = "type = 'table' AND name = 'jobs'"
    sql = connection.scalar(sa.text(f"SELECT sql FROM sqlite_master WHERE {table}"))  # noqa: S608
    columns = "|".join(NULLABLE)
    column_sql = rf"^(\s*(?:{columns}) [A-Z]+(?:\(\d+\))?)( NOT NULL)?(?=,)"
    sql, changed = re.subn(
        column_sql, r"\1" if nullable else r"\1 NOT NULL", str(sql), flags=re.MULTILINE
    )
    if changed != len(NULLABLE):
        raise RuntimeError(f"The table jobs is not as expected: {sql}")
    version = connection.scalar(sa.text("PRAGMA schema_version"))
    connection.execute(sa.text("PRAGMA writable_schema = ON"))
    connection.execute(sa.text(f"UPDATE sqlite_master SET sql = :sql WHERE {table}"), {"sql": sql})  # noqa: S608
    connection.execute(sa.text(f"PRAGMA schema_version = {int(version or 0) + 1}"))
    connection.execute(sa.text("PRAGMA writable_schema = OFF"))
