"""Recipes that name `analytic` say its former defaults: a ridge on random features, which keeps sums alone.

A model stores what was sent, and defaults are filled in when its next batch arrives. Without this, an existing model
would get another head, and its projection could not continue the sums of its earlier tasks.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

FORMER: dict[str, dict[str, Any]] = {
    "analytic": {"head": "ridge", "projection": 1000, "balanced": False, "keep": "sums"},
}
"""Method → hyper-parameters whose default changes here, and the former one."""


def upgrade() -> None:
    """Apply."""
    for id_, recipe in _naming_one("models", "recipe"):
        _write("models", "recipe", id_, add_former_defaults(recipe))
    for id_, override in _naming_one("jobs", "recipe_override"):
        if not _says_the_same_method(id_, override):
            _write("jobs", "recipe_override", id_, add_former_defaults(override))


def downgrade() -> None:
    """Remove `keep`, which older code does not know; the other values mean the same there."""
    for table, column in (("models", "recipe"), ("jobs", "recipe_override")):
        for id_, recipe in _naming_one(table, column):
            method = recipe.get("method")
            if isinstance(method, dict) and "keep" in method:
                rest = {key: value for key, value in method.items() if key != "keep"}
                _write(table, column, id_, {**recipe, "method": rest})


def add_former_defaults(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a patch with the former defaults of the method that it names, where it says nothing else."""
    name = _method_of(recipe)
    if name not in FORMER:
        return recipe
    method = recipe["method"]
    given = method if isinstance(method, dict) else {"name": name}
    unsaid = {key: value for key, value in FORMER[name].items() if given.get(key) is None}
    return {**recipe, "method": {**given, **unsaid}}


def _method_of(recipe: Any) -> str | None:
    """Return the name of the method in a patch; None where it names none."""
    method = recipe.get("method") if isinstance(recipe, dict) else None
    name = method.get("name") if isinstance(method, dict) else method
    return name if isinstance(name, str) else None


def _says_the_same_method(job: str, override: Any) -> bool:
    """Tell if a job's override names the method of its model, whose hyper-parameters then count."""
    query = "SELECT CAST(m.recipe AS TEXT) FROM models m JOIN jobs j ON j.model_id = m.id WHERE j.id = :id"
    found = op.get_bind().scalar(sa.text(query), {"id": job})
    return found is not None and _method_of(json.loads(found)) == _method_of(override)


def _naming_one(table: str, column: str) -> list[tuple[str, Any]]:
    """Return (id, patch) of the rows whose patch names one of the methods."""
    text = f"CAST({column} AS TEXT)"
    likely = " OR ".join(f"{text} LIKE '%\"{name}\"%'" for name in FORMER)
    found = op.get_bind().execute(sa.text(f"SELECT id, {text} FROM {table} WHERE {likely}"))  # noqa: S608
    rows = [(id_, json.loads(value)) for id_, value in found]
    return [(id_, patch) for id_, patch in rows if _method_of(patch) in FORMER]


def _write(table: str, column: str, id_: str, value: Any) -> None:
    connection = op.get_bind()
    type_ = "JSON" if connection.dialect.name == "postgresql" else "TEXT"
    statement = f"UPDATE {table} SET {column} = CAST(:value AS {type_}) WHERE id = :id"  # noqa: S608
    connection.execute(sa.text(statement), {"id": id_, "value": json.dumps(value)})
