"""The series of numbers that `fill` makes rows of: what each number stands for, and what its rows
are called.

Row n is task n // models + 1 of model n % models, so that the rows of one model lie far apart, as
they do after years of service.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Column,
    Float,
    Integer,
    Join,
    MetaData,
    String,
    Table,
    Text,
    case,
    cast,
    column,
    func,
    insert,
    literal,
    select,
    text,
)
from sqlalchemy.schema import CreateTable

FIRST_OWNERS_MODELS = 60
"""The first owner has the first models, so that its pages are as full in a small database as in a
large one."""
BASES = 5
SECONDS_APART = 30.0
WAITING, STOPPED, PINNED = 7, 7, 9
"""Models n with n % 10 = 7 have waiting jobs; with n % 100 = 7 these wait for a person; with n % 50
= 9 production is pinned."""
KEPT_TASKS = 4
"""The last tasks of each model have their training part."""
_DIGITS = 100_000_000_000


@dataclass(frozen=True)
class GeneratedRowCounts:
    """Numbers of rows to generate: models, tasks per model, owners, keys, full accuracy matrices."""

    models: int
    tasks: int = 103
    owners: int = 20
    measured: int = 100
    keys: int = 100

    @property
    def task_count(self) -> int:
        """Number of tasks of all generated models."""
        return self.models * self.tasks


SMALL = GeneratedRowCounts(FIRST_OWNERS_MODELS, measured=10)
"""So few models that every first page is just full: what "an empty database" can be compared by."""
MILLION = GeneratedRowCounts(10_000)

SERIES = Table(
    "bench_series",
    MetaData(),
    Column("n", Integer, primary_key=True),
    Column("model", Integer),
    Column("number", Integer),
    Column("state", String(12)),
    Column("version", Integer),  # of jobs that succeeded
    Column("standing", String(12)),
    Column("parent", Integer),  # the newest version published before
    Column("taught", Text),  # the tasks of that version, such as 1,2
    Column("at", Float(53)),
)
S = SERIES.c
HELD = ["held", "skipped"]
"""Standings of tasks whose versions are held; below: of those whose versions are published."""
OF_PUBLISHED = ["learned", "rolled_back"]
PUBLISHED = S.standing.in_(OF_PUBLISHED)
STOPS = case((S.standing == "held", literal(True)), else_=literal(False))
_NUMBERS = {
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {last})"
    " SELECT n FROM s",
    "postgresql": "SELECT n FROM generate_series(0, {last}) AS s(n)",
}


def make_generated_row_id(prefix: str, n: int) -> str:
    """Return the id of generated row n, such as `mdl_…` for a model."""
    return f"{prefix}_{n:026d}"


def make_generated_sha256(kind: str, n: int) -> str:
    """Return the made-up SHA-256 of row n by kind of file, such as `b` for training data."""
    return kind * 52 + str(_DIGITS + n)


def make_owner_name(number: int) -> str:
    """Return the name of a generated owner."""
    return f"owner-{number}"


def _iterate_number_table_insert_statements(
    dialect: str, size: GeneratedRowCounts, now: float
) -> Iterator[tuple[str, Any]]:
    """Yield (description, SQL statement) that fill the helper table of numbers."""
    number = column("n", Integer)
    counted = text(_NUMBERS[dialect].format(last=size.task_count - 1)).columns(number).subquery()
    n = counted.c.n
    model, task = n % size.models, n // size.models + 1
    waits_for = (model % 100 == STOPPED) & (task == size.tasks - 3)
    state = case(
        # In every tenth model the last three jobs wait; some others ended badly.
        ((model % 10 == WAITING) & (task > size.tasks - 3), "queued"),
        (waits_for, "succeeded"),
        (n % 97 == 1, "failed"),
        (n % 389 == 2, "rejected"),
        (n % 397 == 3, "cancelled"),
        else_="succeeded",
    )
    standing = case(
        (state == "queued", None),
        (state != "succeeded", state),
        (waits_for, "held"),
        (n % 503 == 5, "skipped"),
        ((model % 50 == PINNED) & (task == size.tasks), "rolled_back"),
        else_="learned",
    )
    columns = [n.label("n"), model.label("model"), task.label("number"), state.label("state")]
    drawn = select(*columns, standing.label("standing")).subquery().c
    so_far = func.sum(case((drawn.state == "succeeded", 1), else_=0)).over(
        partition_by=drawn.model, order_by=drawn.number
    )
    numbered = (
        select(*drawn, case((drawn.state == "succeeded", so_far)).label("version")).subquery().c
    )
    published = numbered.standing.in_(OF_PUBLISHED)
    of_model, by_task, before = numbered.model, numbered.number, (None, -1)
    parent = func.max(case((published, numbered.version))).over(
        partition_by=of_model, order_by=by_task, rows=before
    )
    taught = func.aggregate_strings(case((published, cast(by_task, Text))), ",").over(
        partition_by=of_model, order_by=by_task, rows=before
    )
    at = now - (size.task_count - numbered.n) * SECONDS_APART
    yield "(series)", DDL("DROP TABLE IF EXISTS bench_series")
    yield "(series)", CreateTable(SERIES)
    values = {**numbered, "parent": func.coalesce(parent, 0), "taught": taught, "at": at}
    names = [one.name for one in S]
    yield "(series)", insert(SERIES).from_select(names, select(*(values[name] for name in names)))


def build_insert_from_select(
    table: Any, source: Any, where: Any, **columns: Any
) -> tuple[str, Any]:
    """Build the SQL statement that fills a table with a row for each number."""
    query = select(*(value.label(name) for name, value in columns.items()))
    if isinstance(source, Table | Join):
        query = query.select_from(source)
    if where is not None:
        query = query.where(where)
    return table.__tablename__, insert(table).from_select(
        list(columns), query, include_defaults=False
    )


def build_owner_number_sql(model: Any, size: GeneratedRowCounts) -> Any:
    """Return the SQL expression for the number of a model's owner."""
    return case((model < FIRST_OWNERS_MODELS, 0), else_=model % size.owners)


def build_concatenation_sql(prefix: str, value: Any) -> Any:
    """Return the SQL expression that concatenates a prefix and a value."""
    return literal(prefix, String()) + cast(value, String)


def build_generated_row_id_sql(prefix: str, number: Any) -> Any:
    """Return the SQL expression for the id of a row, as `make_generated_row_id` computes it."""
    return literal(f"{prefix}_" + "0" * 15, String()) + func.substr(
        cast(literal(_DIGITS, BigInteger()) + number, String), 2
    )


def build_generated_owner_id_sql(number: Any) -> Any:
    """Return the SQL expression for the id of an owner, by its number."""
    return build_generated_row_id_sql("own", number)


def build_digest_sql(kind: str, number: Any) -> Any:
    """Return the SQL expression for a made-up SHA-256 by kind and number."""
    return literal(kind * 52, String()) + cast(literal(_DIGITS, BigInteger()) + number, String)


def build_json_sql(value: Any) -> Any:
    """Return the SQL expression for a constant JSON value."""
    return literal(value, JSON())
