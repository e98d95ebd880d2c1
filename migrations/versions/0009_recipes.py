"""Recipes without what says nothing: nulls of models' recipes, nulls of impossible names in
overrides, huge audit rows.

A patch was once stored as it came, with nulls of any name and any length, and kept in the audit
trail. What a recipe means does not change: a null in it counted as not said. In an override of one
batch a null resets, so there only names longer than any that exists go.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LONGEST_NAME = 40
MAX_AUDIT_BYTES = 16 << 10
ROWS = 500


def upgrade() -> None:
    """Apply."""
    connection = op.get_bind()
    null = "CAST({} AS TEXT) LIKE '%null%'"
    _rewrite(connection, "models", "recipe", null.format("recipe"), lambda recipe: _said(recipe, 0))
    override = "recipe_override"
    _rewrite(
        connection,
        "jobs",
        override,
        null.format(override),
        lambda recipe: _said(recipe, LONGEST_NAME),
    )
    long = f"length(CAST(data AS TEXT)) > {MAX_AUDIT_BYTES}"
    _rewrite(connection, "audit", "data", long, _shortened)


def downgrade() -> None:
    """Nothing to take back: what went said nothing."""


def _rewrite(connection: sa.Connection, table: str, column: str, where: str, change: Any) -> None:
    """Change a JSON column of the rows that `where` leaves, a few hundred at a time."""
    last: Any = "" if table != "audit" else 0
    rows = f"{where} AND id > :last ORDER BY id LIMIT {ROWS}"
    query = f"SELECT id, CAST({column} AS TEXT) FROM {table} WHERE {rows}"  # noqa: S608
    while found := connection.execute(sa.text(query), {"last": last}).all():
        last = found[-1][0]
        values = [
            {"id": id_, "value": json.dumps(change(json.loads(text)))}
            for id_, text in found
            if text
        ]
        type_ = "JSON" if connection.dialect.name == "postgresql" else "TEXT"
        statement = f"UPDATE {table} SET {column} = CAST(:value AS {type_}) WHERE id = :id"  # noqa: S608
        connection.execute(sa.text(statement), values)


def _said(recipe: Any, longest: int) -> Any:
    """A patch without nulls whose name has more than so many characters, at every depth."""
    if not isinstance(recipe, dict):
        return recipe
    return {
        key: _said(value, longest)
        for key, value in recipe.items()
        if value is not None or len(key) <= longest
    }


def _shortened(data: Any) -> Any:
    """As `core.requests.audit` shortens now; what is short in the words of today stays."""
    size = len(json.dumps(data, ensure_ascii=False).encode())
    return {"left_out": sorted(data)[:20], "bytes": size} if size > MAX_AUDIT_BYTES else data
