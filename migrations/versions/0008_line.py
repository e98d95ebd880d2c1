"""The line of a model: where each task stands, which version the next one starts from, what a
person has to settle.

Old rows get what they would have now: `manifest.tasks` along the parents; the head that production
names, which follows unless its last move was by hand and back; tasks that production was not taught
though a version of them was published are rolled back; a held version stops the line where no later
one was published. A held version that a person once put in production is published, with the reason
that he gave, as it is now.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UNFINISHED = "state IN ('cancelling', 'paused', 'pausing', 'queued', 'running', 'validating')"
QUEUE = ("state", "created_at")
INDEXES: tuple[tuple[str, str, list[str], str | None], ...] = (
    ("ix_tasks_model_id_standing_number", "tasks", ["model_id", "standing", "number"], None),
    ("ix_tasks_stops", "tasks", ["model_id", "number"], "stops"),
    (
        "ix_tasks_train_undated",
        "tasks",
        ["model_id"],
        "train_until IS NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
    ),
    (
        "ix_tasks_train_until",
        "tasks",
        ["train_until"],
        "train_until IS NOT NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL",
    ),
    ("ix_versions_model_id_task_number", "versions", ["model_id", "task_number"], None),
    ("ix_jobs_state_created_at_id", "jobs", [*QUEUE, "id"], None),
)
"""Name, table, columns and, of a partial index, its condition."""
TRAINING_DATA_DAYS = 7.0
ENDED = ("rejected", "failed", "cancelled")


def _columns() -> tuple[tuple[str, "sa.Column[Any]"], ...]:
    def text(name: str, default: str) -> "sa.Column[Any]":
        return sa.Column(name, sa.String(8), nullable=False, server_default=default)

    def flag(name: str, default: Any) -> "sa.Column[Any]":
        return sa.Column(name, sa.Boolean(), nullable=False, server_default=default)

    def words(name: str) -> "sa.Column[Any]":
        return sa.Column(name, sa.JSON(), nullable=False, server_default="[]")

    real = sa.Float(precision=53)
    days = sa.Column(
        "training_data_days", real, nullable=False, server_default=str(TRAINING_DATA_DAYS)
    )
    return (
        ("models", days),
        ("models", text("on_held", "stop")),
        ("models", text("on_rejected", "continue")),
        ("models", text("on_failed", "continue")),
        ("models", flag("allow_lost_classes", sa.false())),
        ("models", sa.Column("head", sa.BigInteger(), nullable=False, server_default="0")),
        ("models", flag("production_follows", sa.true())),
        ("tasks", sa.Column("train_until", real, nullable=True)),
        ("tasks", sa.Column("standing", sa.String(12), nullable=True)),
        ("tasks", sa.Column("standing_at", real, nullable=True)),
        ("tasks", flag("stops", sa.false())),
        ("jobs", flag("again", sa.false())),
        ("jobs", words("warnings")),
        ("versions", words("warnings")),
    )


def upgrade() -> None:
    """Apply."""
    for table, column in _columns():
        op.add_column(table, column)
    _index_unfinished("task_number")
    for name, table, columns, where in INDEXES:
        condition = None if where is None else sa.text(where)
        words = sa.text("stops = 1") if where == "stops" else condition  # SQLite compares words
        op.create_index(name, table, columns, sqlite_where=words, postgresql_where=condition)
    op.drop_index("ix_jobs_state_created_at", "jobs")
    connection = op.get_bind()
    retried = f"retry_of IS NOT NULL AND {UNFINISHED}"
    connection.execute(sa.text(f"UPDATE jobs SET again = true WHERE {retried}"))  # noqa: S608
    for (model,) in connection.execute(sa.text("SELECT id FROM models ORDER BY id")).all():
        _fill(connection, model)


def downgrade() -> None:
    """Take back; `manifest.tasks` stays, which older code does not read, and what a person
    published stays published."""
    for name, table, _, _ in reversed(INDEXES):
        op.drop_index(name, table)
    op.create_index("ix_jobs_state_created_at", "jobs", list(QUEUE))
    _index_unfinished("place")
    for table, column in reversed(_columns()):
        op.drop_column(table, column.name)


def _index_unfinished(column: str) -> None:
    op.drop_index("ix_jobs_unfinished", "jobs")
    where = sa.text(UNFINISHED)
    op.create_index(
        "ix_jobs_unfinished",
        "jobs",
        ["model_id", column],
        sqlite_where=where,
        postgresql_where=where,
    )


def _rows(connection: sa.Connection, query: str, **values: Any) -> Iterator[Any]:
    yield from connection.execute(sa.text(query), values).all()


def _fill(connection: sa.Connection, model: str) -> None:
    _publish_overruled(connection, model)
    versions = list(
        _rows(
            connection,
            "SELECT id, number, parent, task_number, status FROM versions WHERE model_id = :m "
            "ORDER BY number",
            m=model,
        )
    )
    taught = _taught(versions)
    _put(connection, "manifest", "tasks", [(v.id, taught[v.number]) for v in versions])
    production = next(
        _rows(
            connection,
            "SELECT version FROM aliases WHERE model_id = :m AND name = 'production'",
            m=model,
        ),
        None,
    )
    head = production.version if production is not None else 0
    connection.execute(
        sa.text("UPDATE models SET head = :head, production_follows = :follows WHERE id = :m"),
        {"head": head, "follows": _follows(connection, model, head, versions), "m": model},
    )
    _stand(connection, model, versions, set(taught.get(head, [])))


def _taught(versions: list[Any]) -> dict[int, list[int]]:
    """Number of a version → the tasks along its parents and its own."""
    taught: dict[int, list[int]] = {}
    for version in versions:  # a parent comes before its children
        before = taught.get(version.parent, []) if version.parent is not None else []
        own = version.task_number
        taught[version.number] = before if own is None or own in before else [*before, own]
    return taught


def _publish_overruled(connection: sa.Connection, model: str) -> None:
    """Held versions that a person put in production are published."""
    query = (
        "SELECT v.id, a.actor, a.reason FROM alias_moves a"
        " JOIN versions v ON v.model_id = a.model_id AND v.number = a.version"
        " WHERE a.model_id = :m AND a.alias = 'production' AND a.cause = 'set' AND v.status = "
        "'held' ORDER BY a.id"
    )
    found = {
        row.id: {"key": row.actor, "reason": row.reason}
        for row in _rows(connection, query, m=model)
    }
    _put(connection, "gate", "overruled", list(found.items()))
    for version in found:
        connection.execute(
            sa.text("UPDATE versions SET status = 'published' WHERE id = :id"), {"id": version}
        )


def _put(connection: sa.Connection, column: str, key: str, values: list[tuple[str, Any]]) -> None:
    """Set a key of a JSON column of versions, given by id."""
    changed = {
        "sqlite": f"json_set({column}, '$.{key}', json(:value))",
        "postgresql": f"CAST({column} AS jsonb) || jsonb_build_object('{key}', CAST(:value AS "
        f"jsonb))",
    }[connection.dialect.name]
    if values:
        statement = sa.text(f"UPDATE versions SET {column} = {changed} WHERE id = :id")  # noqa: S608
        connection.execute(
            statement, [{"id": id_, "value": json.dumps(value)} for id_, value in values]
        )


def _follows(connection: sa.Connection, model: str, head: int, versions: list[Any]) -> bool:
    """Whether nobody has put production back by hand."""
    published = [v.number for v in versions if v.status == "published"]
    if not published or head >= published[-1]:
        return True
    last = next(
        _rows(
            connection,
            "SELECT cause FROM alias_moves WHERE model_id = :m AND alias = 'production' ORDER BY "
            "id DESC LIMIT 1",
            m=model,
        ),
        None,
    )
    return last is None or last.cause in ("create", "publish")


def _stand(connection: sa.Connection, model: str, versions: list[Any], covered: set[int]) -> None:
    jobs: dict[int, list[Any]] = {}
    query = "SELECT task_number, state, finished_at FROM jobs WHERE model_id = :m ORDER BY place"
    for job in _rows(connection, query, m=model):
        jobs.setdefault(job.task_number, []).append(job)
    newest_published = max((v.number for v in versions if v.status == "published"), default=0)
    now = time.time()
    query = (
        "SELECT id, number, created_at, train_sha256, train_deleted_at FROM tasks WHERE "
        "model_id = :m"
    )
    for task in _rows(connection, query, m=model):
        of_task = jobs.get(task.number, [])
        standing = _standing(
            task.number,
            [v for v in versions if v.task_number == task.number],
            of_task,
            covered,
            newest_published,
        )
        if standing is None:
            continue
        kept = task.train_sha256 is not None and task.train_deleted_at is None
        dated = kept and standing in ("learned", "rolled_back", "skipped")
        connection.execute(
            sa.text(
                "UPDATE tasks SET standing = :standing, standing_at = :at, stops = :stops, "
                "train_until = :until WHERE id = :id"
            ),
            {
                "standing": standing,
                "at": max((j.finished_at or 0.0 for j in of_task), default=0.0) or task.created_at,
                "stops": standing == "held",
                "until": now + TRAINING_DATA_DAYS * 86_400.0 if dated else None,
                "id": task.id,
            },
        )


def _standing(
    number: int, versions: list[Any], jobs: list[Any], covered: set[int], newest_published: int
) -> str | None:
    if number in covered:
        return "learned"
    if any(v.status == "published" for v in versions):
        return "rolled_back"
    if versions:
        return "skipped" if versions[-1].number < newest_published else "held"
    last = jobs[-1].state if jobs else None
    return last if last in ENDED else None
