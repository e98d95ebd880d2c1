"""Measurements as rows: what manifests told of a version's figures, and what its row of the
accuracy matrix says.

The figures of a manifest become rows, one per task where they are told by task; in the manifest
stays null. Each cell of the matrix learns the best accuracy of the version's ancestors since they
learned the task, and each version its primary accuracy and its forgetting.
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NAMES = ("update_norm", "drift", "changes", "knn_probe", "adp", "forecast")
BY_TASK = {"knn_probe": "tasks", "forecast": "tasks"}
VALUE = {"update_norm": "backbone", "forecast": "predicted"}
REAL = sa.Float(precision=53)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "measurements",
        sa.Column("model_id", sa.String(40), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(20), nullable=False),
        sa.Column("task", sa.BigInteger(), nullable=False),
        sa.Column("value", REAL, nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_measurements_model_id"),
        sa.PrimaryKeyConstraint("model_id", "version", "name", "task", name="pk_measurements"),
    )
    op.add_column("results", sa.Column("best", REAL, nullable=True))
    connection = op.get_bind()
    for model, scenario in _rows(connection, "SELECT id, scenario FROM models ORDER BY id"):
        _fill(connection, model, scenario)
    _index("ix_measurements_all_tasks", "measurements", ["model_id", "name", "version"], "task = 0")
    first = ["model_id", "version", "task", "correct", "total"]
    _index("ix_results_first", "results", first, "best IS NULL")


def downgrade() -> None:
    """Take back: the figures return to the manifests."""
    connection = op.get_bind()
    for id_, model, number, text in _rows(
        connection, "SELECT id, model_id, number, CAST(manifest AS TEXT) FROM versions ORDER BY id"
    ):
        query = (
            "SELECT name, task, value, CAST(detail AS TEXT) FROM measurements WHERE model_id = "
            ":m AND version = :v"
        )
        found = [
            (name, task, value if detail is None else json.loads(detail))
            for name, task, value, detail in _rows(connection, query, m=model, v=number)
            if name in NAMES
        ]
        if found:
            _put(connection, id_, {**json.loads(text), **_documents(found)})
    op.drop_index("ix_results_first", "results")
    op.drop_column("results", "best")
    op.drop_table("measurements")


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def _rows(connection: sa.Connection, query: str, **values: Any) -> Iterator[Any]:
    yield from connection.execute(sa.text(query), values).all()


def _put(connection: sa.Connection, version: str, manifest: dict[str, Any]) -> None:
    type_ = "JSON" if connection.dialect.name == "postgresql" else "TEXT"
    statement = f"UPDATE versions SET manifest = CAST(:manifest AS {type_}) WHERE id = :id"  # noqa: S608
    connection.execute(sa.text(statement), {"manifest": json.dumps(manifest), "id": version})


def _fill(connection: sa.Connection, model: str, scenario: str) -> None:
    """The rows of one model's versions, and the best accuracies of their cells."""
    line = "SELECT number, parent FROM versions WHERE model_id = :m ORDER BY number"
    last_child = {parent: number for number, parent in _rows(connection, line, m=model)}
    best_of: dict[int, dict[int, float]] = {}  # of versions that still have children
    query = (
        "SELECT id, number, parent, CAST(manifest AS TEXT) FROM versions WHERE model_id = :m "
        "ORDER BY number"
    )
    for id_, number, parent, text in connection.execute(sa.text(query), {"m": model}).all():
        manifest = json.loads(text)
        rows = _apart(manifest)
        if rows:
            _put(
                connection,
                id_,
                {key: None if key in NAMES else value for key, value in manifest.items()},
            )
        before = best_of.get(parent, {})
        cells = _cells(connection, model, number)
        _set_best(connection, model, number, before.keys() & cells.keys(), before)
        told = _figures(manifest["tasks"], cells, before, scenario)
        rows.append(("row", 0, told["last"], told))
        _add(connection, model, number, rows)
        if number in last_child:
            best_of[number] = _best(manifest["tasks"], cells, before)
        if last_child.get(parent) == number:
            best_of.pop(parent, None)


def _cells(connection: sa.Connection, model: str, version: int) -> dict[int, tuple[int, int]]:
    query = "SELECT task, correct, total FROM results WHERE model_id = :m AND version = :v"
    return {
        task: (correct, total)
        for task, correct, total in _rows(connection, query, m=model, v=version)
    }


def _best(
    tasks: list[int], cells: dict[int, tuple[int, int]], before: dict[int, float]
) -> dict[int, float]:
    """What the children of a version are measured by: of each task that it was taught."""
    own = {
        task: cells[task][0] / cells[task][1] for task in tasks if task in cells and cells[task][1]
    }
    return before | {task: max(accuracy, before.get(task, 0.0)) for task, accuracy in own.items()}


def _set_best(
    connection: sa.Connection, model: str, version: int, tasks: set[int], best: dict[int, float]
) -> None:
    statement = (
        "UPDATE results SET best = :best WHERE model_id = :m AND version = :v AND task = :task"
    )
    values = [
        {"best": best[task], "m": model, "v": version, "task": task} for task in sorted(tasks)
    ]
    if values:
        connection.execute(sa.text(statement), values)


def _figures(
    tasks: list[int], cells: dict[int, tuple[int, int]], before: dict[int, float], scenario: str
) -> dict[str, float | None]:
    row = {task: cells[task] for task in tasks if task in cells and cells[task][1]}
    shares = {task: correct / total for task, (correct, total) in row.items()}
    pooled = sum(c for c, _ in row.values()) / sum(n for _, n in row.values()) if row else None
    lost = [before[task] - share for task, share in shares.items() if task in before]
    return {
        "last": _mean(list(shares.values())) if scenario == "task" else pooled,
        "forgetting": _mean(lost),
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _add(connection: sa.Connection, model: str, version: int, rows: list[tuple[Any, ...]]) -> None:
    type_ = "JSON" if connection.dialect.name == "postgresql" else "TEXT"
    statement = (
        "INSERT INTO measurements (model_id, version, name, task, value, detail)"  # noqa: S608
        f" VALUES (:m, :v, :name, :task, :value, CAST(:detail AS {type_}))"
    )
    values = [
        {
            **{"m": model, "v": version, "name": name, "task": task, "value": value},
            "detail": None if detail is None else json.dumps(detail),
        }
        for name, task, value, detail in rows
    ]
    if values:
        connection.execute(sa.text(statement), values)


def _apart(manifest: dict[str, Any]) -> list[tuple[str, int, float | None, Any]]:
    """(name, task or 0, value, detail) of what a manifest tells."""
    rows: list[tuple[str, int, float | None, Any]] = []
    for name in NAMES:
        document = manifest.get(name)
        if document is None:
            continue
        rest, by_task = document, {}
        if name == "changes":
            rest, by_task = {}, document
        elif name == "adp":
            rest, by_task = _curves_apart(document)
        elif name in BY_TASK:
            rest, by_task = {**document, BY_TASK[name]: {}}, document[BY_TASK[name]]
        rows.append(
            (name, 0, _number(rest, VALUE.get(name)), rest if isinstance(rest, dict) else None)
        )
        key = "mean" if name == "adp" else None
        rows += [(name, int(task), _number(told, key), told) for task, told in by_task.items()]
    return rows


def _curves_apart(adp: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    curve, means = adp["curve"], adp["mean"]
    tasks = dict.fromkeys(means) | dict.fromkeys(
        task for point in curve for task in point["accuracy"]
    )
    return {"curve": [{**point, "accuracy": {}} for point in curve]}, {
        task: {"mean": means.get(task), "curve": [point["accuracy"].get(task) for point in curve]}
        for task in tasks
    }


def _number(told: Any, key: str | None) -> float | None:
    value = told.get(key) if isinstance(told, dict) else told
    return float(value) if isinstance(value, int | float) else None


def _documents(rows: list[tuple[str, int, Any]]) -> dict[str, Any]:
    """What `_apart` took apart, by name."""
    rest = {name: detail for name, task, detail in rows if task == 0}
    found: dict[str, Any] = {}
    for name in rest:
        told = {str(task): detail for of, task, detail in rows if of == name and task != 0}
        told = {task: told[task] for task in sorted(told)}
        found[name] = {**rest[name], BY_TASK[name]: told} if name in BY_TASK else rest[name]
        if name == "changes":
            found[name] = told
        elif name == "adp":
            found[name] = _curves_together(rest[name]["curve"], told)
    return found


def _curves_together(curve: list[dict[str, Any]], told: dict[str, Any]) -> dict[str, Any]:
    points = [
        {
            **point,
            "accuracy": {
                task: of["curve"][i] for task, of in told.items() if of["curve"][i] is not None
            },
        }
        for i, point in enumerate(curve)
    ]
    return {
        "mean": {task: of["mean"] for task, of in told.items() if of["mean"] is not None},
        "curve": points,
    }
