"""Stored recipes keep the defaults that they were made with, for migrations in which a default
changes.

A model stores what was sent, and defaults are filled in when its next batch arrives. Without this,
existing models would learn by another recipe from one day to the next. A job's own recipe is stored
complete and stays as it is.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

Former = Mapping[str, Mapping[str, Any]]
"""Method → hyper-parameters whose default changes, and the former one."""
UNFINISHED = "state NOT IN ('succeeded', 'rejected', 'failed', 'cancelled')"
READ_LATER = (
    ("models", "recipe", "1 = 1"),
    ("jobs", "recipe_override", "1 = 1"),
    ("jobs", "recipe", UNFINISHED),
)
"""Table, column and condition of the recipes that jobs still read. A retry resolves its recipe
again.
"""


def write_former_defaults(former: Former) -> None:
    """Write the former defaults into the recipes and overrides that name one of the methods."""
    for id_, recipe in _find_recipes("models", "recipe", former):
        _write("models", "recipe", id_, add_former_defaults(recipe, former))
    for id_, override in _find_recipes("jobs", "recipe_override", former):
        if not _names_method_of_model(id_, override):
            _write("jobs", "recipe_override", id_, add_former_defaults(override, former))


def add_former_defaults(recipe: dict[str, Any], former: Former) -> dict[str, Any]:
    """Return a patch with the former defaults of the method that it names, where it says nothing
    else.
    """
    name = _method_of(recipe)
    if name not in former:
        return recipe
    method = recipe["method"]
    given = method if isinstance(method, dict) else {"name": name}
    unsaid = {key: value for key, value in former[name].items() if given.get(key) is None}
    return {**recipe, "method": {**given, **unsaid}}


def remove_hyperparameter(former: Former, name: str) -> None:
    """Remove a hyper-parameter that older code does not know from the recipes of these methods that
    jobs still read.
    """
    for table, column, condition in READ_LATER:
        for id_, recipe in _find_recipes(table, column, former, condition):
            method = recipe.get("method")
            if isinstance(method, dict) and name in method:
                rest = {key: value for key, value in method.items() if key != name}
                _write(table, column, id_, {**recipe, "method": rest})


def remove_field(name: str) -> None:
    """Remove a field that older code does not know from all recipes that jobs still read."""
    for table, column, condition in READ_LATER:
        for id_, recipe in _find_naming(table, column, [name], condition):
            if isinstance(recipe, dict) and name in recipe:
                rest = {key: value for key, value in recipe.items() if key != name}
                _write(table, column, id_, rest)


def _method_of(recipe: Any) -> str | None:
    """Return the name of the method in a patch; None where it names none."""
    method = recipe.get("method") if isinstance(recipe, dict) else None
    name = method.get("name") if isinstance(method, dict) else method
    return name if isinstance(name, str) else None


def _names_method_of_model(job: str, override: Any) -> bool:
    """Return True if a job's override names the method of its model, whose hyper-parameters then
    count.
    """
    query = (
        "SELECT CAST(m.recipe AS TEXT) FROM models m JOIN jobs j ON j.model_id = m.id WHERE "
        "j.id = :id"
    )
    found = op.get_bind().scalar(sa.text(query), {"id": job})
    return found is not None and _method_of(json.loads(found)) == _method_of(override)


def _find_recipes(
    table: str, column: str, former: Former, condition: str = "1 = 1"
) -> list[tuple[str, Any]]:
    """Return (id, patch) of the rows whose patch names one of the methods."""
    rows = _find_naming(table, column, former, condition)
    return [(id_, patch) for id_, patch in rows if _method_of(patch) in former]


def _find_naming(
    table: str, column: str, names: Iterable[str], condition: str
) -> list[tuple[str, Any]]:
    """Return (id, patch) of the rows that fulfil an SQL condition and have one of the names
    anywhere in their patch.
    """
    text = f"CAST({column} AS TEXT)"
    likely = " OR ".join(f"{text} LIKE '%\"{name}\"%'" for name in names)
    query = f"SELECT id, {text} FROM {table} WHERE ({likely}) AND {condition}"  # noqa: S608
    return [(id_, json.loads(value)) for id_, value in op.get_bind().execute(sa.text(query))]


def _write(table: str, column: str, id_: str, value: Any) -> None:
    connection = op.get_bind()
    type_ = "JSON" if connection.dialect.name == "postgresql" else "TEXT"
    statement = f"UPDATE {table} SET {column} = CAST(:value AS {type_}) WHERE id = :id"  # noqa: S608
    connection.execute(sa.text(statement), {"id": id_, "value": json.dumps(value)})
