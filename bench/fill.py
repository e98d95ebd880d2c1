"""Fills a database with many models, tasks, jobs, versions and what hangs on them, in minutes.

Each table is one `INSERT … SELECT` over a series of numbers, on both databases. Row n is task n // models + 1 of
model n % models, so that the rows of one model lie far apart, as they do after years of service. Most jobs have
succeeded; a few failed, were rejected or cancelled; the last ones of every tenth model wait in the queue, and every
tenth of those waits for a held version (`STOPPED`). In every fiftieth model production was put back by one version
(`PINNED`). Half of the models share the backbone of an uploaded base: five blobs that a tenth of all parts name each.
"""

import json
import time
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

from core.db.session import Database
from core.db.tables import (
    Alias,
    AliasMove,
    Audit,
    Event,
    Export,
    Job,
    Key,
    Measurement,
    Model,
    Owner,
    Part,
    Result,
    Task,
    Version,
)

FIRST_OWNERS_MODELS = 60
"""The first owner has the first models, so that its pages are as full in a small database as in a large one."""
BASES = 5
SECONDS_APART = 30.0
WAITING, STOPPED, PINNED = 7, 7, 9
"""Models n with n % 10 = 7 have waiting jobs; with n % 100 = 7 these wait for a person; with n % 50 = 9 production is pinned."""
KEPT_TASKS = 4
"""The last tasks of each model have their training part."""
DAYS = 7.0
RECIPE = {
    "method": {"name": "der++", "buffer": 200, "alpha": 0.1, "beta": 0.5},
    "optimizer": {"name": "sgd", "lr": 0.03, "head_lr": None, "momentum": 0.9, "weight_decay": 0.0, "clip": None},
    "depth": 5, "head": {"init": "zero"}, "epochs": 10, "batch_size": 32, "sampler": "shuffled", "augment": "auto",
    "validation": 0.0, "train_ce": "auto", "seed": 0, "preset": None,
}  # fmt: skip
_DIGITS = 100_000_000_000
ENDS = ("succeeded", "failed", "rejected", "cancelled")
CLASSES = {"cat": 500, "dog": 500}
REPORT = {"rejected": [], "ignored": 0, "duplicates": 0, "notes": []}
GATE = {"passed": True, "checks": []}
FAILED_GATE = {
    "passed": False, "checks": [{"name": "max_forgetting", "limit": 0.1, "value": 0.4, "passed": False}]
}  # fmt: skip
MANIFEST = {
    "format": 1, "scenario": "class", "architecture": {"name": "small-cnn"}, "classes": ["cat", "dog"], "heads": [],
    "image": {"size": 32, "channels": 3}, "network": {"family": "plain"}, "recipe": RECIPE, "threads": 1,
    "update_norm": None, "drift": None,
    "environment": {"torch": "2.13.0", "cpu_capability": "AVX2", "threads": 1, "device": "cpu"},
}  # fmt: skip


MEASURED = (
    ("update_norm", 1.2, {"backbone": 1.2, "head": 0.8, "relative": 0.1}), ("drift", 2.5, None),
    ("row", 0.83, {"last": 0.83, "forgetting": 0.01}),
)  # fmt: skip
"""Name, value and detail of each version's measurements."""


@dataclass(frozen=True)
class Size:
    """How much to make: models, tasks of each, owners, models with a whole accuracy matrix, keys."""

    models: int
    tasks: int = 103
    owners: int = 20
    measured: int = 100
    keys: int = 100

    @property
    def rows(self) -> int:
        return self.models * self.tasks


SMALL = Size(FIRST_OWNERS_MODELS, measured=10)
"""So few models that every first page is just full: what "an empty database" can be compared by."""
MILLION = Size(10_000)

_series = Table(
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
S = _series.c
_HELD = ["held", "skipped"]
"""Standings of tasks whose versions are held; below: of those whose versions are published."""
_OF_PUBLISHED = ["learned", "rolled_back"]
_PUBLISHED = S.standing.in_(_OF_PUBLISHED)
_STOPS = case((S.standing == "held", literal(True)), else_=literal(False))
_NUMBERS = {
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s",
    "postgresql": "SELECT n FROM generate_series(0, {last}) AS s(n)",
}


def fill(db: Database, size: Size, *, quiet: bool = False) -> None:
    """Add the rows to a database that has the present schema; `id_of` and `owner_of` name them.

    Foreign keys are not checked meanwhile (PostgreSQL: the user must be a superuser).
    """
    with db.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection  # a pragma does nothing inside a transaction
        for setting in _QUICK[db.dialect]:
            driver.execute(setting)
        driver.commit()
        now = time.time()
        for name, statement in _statements(db.dialect, size, now):
            began = time.monotonic()
            made = connection.execute(statement).rowcount
            connection.commit()
            if not quiet:
                print(f"  {name:<12} {max(made, 0):>10,} rows {time.monotonic() - began:6.1f} s", flush=True)
        _series.drop(connection)
        connection.commit()
    analyse(db)


_QUICK = {
    "sqlite": ("PRAGMA foreign_keys=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-400000"),
    "postgresql": (
        "SET session_replication_role='replica'",
        "SET synchronous_commit='off'",
        "SET statement_timeout=0",
    ),
}


def analyse(db: Database) -> None:
    """Let the database count, as PostgreSQL's autovacuum does by itself; SQLite plans without counts in service."""
    if db.dialect == "postgresql":
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("SET statement_timeout=0")
            connection.exec_driver_sql("VACUUM (ANALYZE)")
    db.close()


def id_of(prefix: str, n: int) -> str:
    """The id of row n: `mdl_…` of model n, `tsk_…` and `job_…` of task n // models + 1 of model n % models."""
    return f"{prefix}_{n:026d}"


def digest(kind: str, n: int) -> str:
    """The sha256 that row n names: `b` of its training part, `c` held out, `d` a shared backbone, `e` its own, `f` head."""
    return kind * 52 + str(_DIGITS + n)


def owner_name(number: int) -> str:
    """The name of an owner; the first one has the first models."""
    return f"owner-{number}"


def _statements(dialect: str, size: Size, now: float) -> Iterator[tuple[str, Any]]:
    """(table, what to execute), in order."""
    number = column("n", Integer)
    counted = text(_NUMBERS[dialect].format(last=size.rows - 1)).columns(number).subquery()
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
    numbered = select(*drawn, case((drawn.state == "succeeded", so_far)).label("version")).subquery().c
    published = numbered.standing.in_(_OF_PUBLISHED)
    before = {"partition_by": numbered.model, "order_by": numbered.number, "rows": (None, -1)}
    parent = func.max(case((published, numbered.version))).over(**before)
    taught = func.aggregate_strings(case((published, cast(numbered.number, Text))), ",").over(**before)
    at = now - (size.rows - numbered.n) * SECONDS_APART
    yield "(series)", DDL("DROP TABLE IF EXISTS bench_series")
    yield "(series)", CreateTable(_series)
    values = {**numbered, "parent": func.coalesce(parent, 0), "taught": taught, "at": at}
    names = [one.name for one in S]
    yield "(series)", insert(_series).from_select(names, select(*(values[name] for name in names)))
    yield from _people(size, now)
    yield from _work(size, now)
    yield from _learned(size, now, dialect)


def _people(size: Size, now: float) -> Iterator[tuple[str, Any]]:
    """Owners, keys and models."""
    at = literal(now - size.rows * SECONDS_APART)
    yield _filled(
        Owner, _series, S.n < size.owners,
        id=_owner_id(S.n), name=_text("owner-", S.n), overtook=literal(False), created_at=at,
    )  # fmt: skip
    yield _filled(
        Key, _series, S.n < size.keys,
        id=_id("key", S.n), owner_id=_owner_id(S.n % size.owners), name=literal("a key"), prefix=_text("b", S.n),
        hash=literal("0" * 64), scope=literal("write"), created_at=S.at,
    )  # fmt: skip
    newest = (
        select(
            S.model,
            func.coalesce(func.max(S.version), 0).label("version"),
            func.coalesce(func.max(case((_PUBLISHED, S.version))), 0).label("latest"),
            func.coalesce(func.max(case((S.standing == "learned", S.version))), 0).label("head"),
        )
        .group_by(S.model)
        .subquery()
        .c
    )
    yield _filled(
        Model, newest, None,
        id=_id("mdl", newest.model), owner_id=_owner_id(_owner(newest.model, size)),
        name=_text("model-", newest.model), scenario=literal("class"), architecture=_json({"name": "small-cnn"}),
        image=_json({"size": 32, "channels": 3}), base=_json("random"), recipe=_json({"method": "der++"}),
        gate=_json({}), keep_training_data=literal(False), held_out=literal("keep"), warnings=_json([]),
        training_data_days=literal(DAYS), on_held=literal("stop"), on_rejected=literal("continue"),
        on_failed=literal("continue"), allow_lost_classes=literal(False), head=newest.head,
        production_follows=newest.head == newest.latest,
        fence=literal(size.tasks), next_task=literal(size.tasks + 1), next_place=literal(size.tasks + 1),
        next_version=newest.version + 1, created_at=at,
    )  # fmt: skip
    for name, version in (("latest", newest.latest), ("production", newest.head)):
        yield _filled(
            Alias, newest, None,
            model_id=_id("mdl", newest.model), name=literal(name), version=version, updated_at=literal(now),
        )  # fmt: skip


def _work(size: Size, now: float) -> Iterator[tuple[str, Any]]:
    """Tasks, jobs, their events and what the audit trail says of them."""
    waits, done = S.state == "queued", S.state == "succeeded"
    owner = _owner_id(_owner(S.model, size))
    kept = S.number > size.tasks - KEPT_TASKS
    settled = S.standing.in_(["learned", "rolled_back", "skipped"])
    yield _filled(
        Task, _series, None,
        id=_id("tsk", S.n), model_id=_id("mdl", S.model), number=S.number, name=_text("week ", S.number),
        sha256=_digest("a", S.n), bytes=literal(800_000), archive_key=case((waits, literal("archives/") + _id("tsk", S.n))),
        media_type=literal("zip"), classes=_json(CLASSES), n_train=case((~waits, 850)),
        n_held_out=case((~waits, 150)), report=_json(REPORT), train_sha256=case((~waits, _digest("b", S.n))),
        held_out_sha256=case((~waits, _digest("c", S.n))), train_deleted_at=case((~waits & ~kept, S.at + 20.0)),
        train_until=case((settled & kept, now + DAYS * 86_400.0), (settled, S.at + 20.0)), standing=S.standing,
        standing_at=case((~waits, S.at + 20.0)), stops=_STOPS, warnings=_json([]), created_at=S.at,
    )  # fmt: skip
    yield _filled(
        Job, _series, None,
        id=_id("job", S.n), model_id=_id("mdl", S.model), owner_id=owner, task_id=_id("tsk", S.n),
        task_number=S.number, place=S.number, again=literal(False), warnings=_json([]), state=S.state, revision=case((waits, 1), else_=5),
        recipe_override=_json({}), recipe=_json(RECIPE), gate=_json({}), attempt=case((waits, 0), else_=1),
        strikes=literal(0), kind=literal("learn"), progress=_json({"phase": "publish", "step": 270, "total_steps": 270}),
        error=case((S.state == "failed", _json({"kind": "code", "code": "job-code", "detail": "boom"}))),
        version=S.version, rung_at=case((waits, S.at)), created_at=S.at, started_at=case((~waits, S.at + 1.0)),
        finished_at=case((~waits, S.at + 20.0)),
    )  # fmt: skip
    ended = case(*((S.state == state, _json({"state": state})) for state in ENDS))
    for place, data in enumerate((_json({"state": "queued"}), _json({"state": "running"}), ended)):
        yield _filled(
            Event, _series, None if place == 0 else ~waits,
            job_id=_id("job", S.n), type=literal("state"), data=data, at=S.at + place * 10.0,
        )  # fmt: skip
    for action, key, where in (
        ("task.submit", literal("key_" + "0" * 26), None),
        ("version.publish", None, done),
    ):
        yield _filled(
            Audit, _series, where,
            at=S.at, owner_id=owner, actor=case((literal(where is None), key)), action=literal(action),
            object=_id("tsk", S.n), data=_json({"number": 1}),
        )  # fmt: skip


def _learned(size: Size, now: float, dialect: str) -> Iterator[tuple[str, Any]]:
    """Versions, their parts and exports, moves of aliases, and the accuracy matrices of some models."""
    done = S.version.is_not(None)
    model = _id("mdl", S.model)
    yield _filled(
        Version, _series, S.number == 1,
        id=literal("ver_1") + func.substr(_id("mdl", S.model), 6), model_id=model, number=literal(0),
        status=literal("published"), gate=_json(GATE), manifest=_json({**MANIFEST, "classes": [], "tasks": []}), bytes=literal(0),
        bytes_new=literal(0), warnings=_json([]), created_at=S.at,
    )  # fmt: skip
    held = S.standing.in_(_HELD)
    yield _filled(
        Version, _series, done,
        id=_id("ver", S.n), model_id=model, number=S.version, parent=S.parent, task_number=S.number,
        job_id=_id("job", S.n), status=case((held, "held"), else_="published"),
        gate=case((held, _json(FAILED_GATE)), else_=_json(GATE)), warnings=_json([]), manifest=_manifest(dialect),
        bytes=literal(988_212), bytes_new=literal(12_044), created_at=S.at + 20.0,
    )  # fmt: skip
    shared = case((S.model % 2 == 0, _digest("d", S.model % BASES)), else_=_digest("e", S.n))
    for place, (name, digest, size_) in enumerate(
        (("backbone", shared, 976_168), ("head", _digest("f", S.n), 12_044))
    ):
        yield _filled(
            Part, _series, done,
            version_id=_id("ver", S.n), name=literal(name), position=literal(place), type=literal(name),
            sha256=digest, bytes=literal(size_),
        )  # fmt: skip
    for name in ("latest", "production"):
        yield _filled(
            AliasMove, _series, _PUBLISHED,
            model_id=model, alias=literal(name), version=S.version, previous=S.parent,
            cause=literal("publish"), at=S.at + 20.0,
        )  # fmt: skip
    yield _filled(
        AliasMove, _series, S.standing == "rolled_back",
        model_id=model, alias=literal("production"), version=S.parent, previous=S.version,
        cause=literal("rollback"), at=S.at + 25.0,
    )  # fmt: skip
    other = _series.alias()
    yield _filled(
        Result, _series.join(other, other.c.model == S.model),
        (S.model < size.measured) & done & other.c.version.is_not(None) & (other.c.version <= S.version),
        model_id=model, version=S.version, task=other.c.number, correct=100 + (S.version + other.c.number) % 50,
        total=literal(150), per_class=_json({"cat": [60, 75], "dog": [55, 75]}),
        best=case((other.c.version < S.version, literal(149 / 150))),
    )  # fmt: skip
    for name, value, detail in MEASURED:
        yield _filled(
            Measurement, _series, done,
            model_id=model, version=S.version, name=literal(name), task=literal(0), value=literal(value),
            **({} if detail is None else {"detail": _json(detail)}),
        )  # fmt: skip
    yield _filled(
        Export, _series, done & (S.n % 50 == 0),
        version_id=_id("ver", S.n), format=literal("safetensors"), sha256=_digest("9", S.n), bytes=literal(990_000),
        created_at=literal(now),
    )  # fmt: skip


def _manifest(dialect: str) -> Any:
    """A version's manifest with the tasks that it was taught."""
    start = json.dumps(MANIFEST).removesuffix("}") + ', "tasks": ['
    written = literal(start, Text()) + func.coalesce(S.taught + ",", "") + cast(S.number, Text) + "]}"
    return cast(written, JSON) if dialect == "postgresql" else written  # for SQLite JSON is text


def _filled(table: Any, source: Any, where: Any, **columns: Any) -> tuple[str, Any]:
    query = select(*(value.label(name) for name, value in columns.items()))
    if isinstance(source, Table | Join):
        query = query.select_from(source)
    if where is not None:
        query = query.where(where)
    return table.__tablename__, insert(table).from_select(list(columns), query, include_defaults=False)


def _owner(model: Any, size: Size) -> Any:
    return case((model < FIRST_OWNERS_MODELS, 0), else_=model % size.owners)


def _text(prefix: str, value: Any) -> Any:
    return literal(prefix, String()) + cast(value, String)


def _id(prefix: str, number: Any) -> Any:
    return literal(f"{prefix}_" + "0" * 15, String()) + func.substr(
        cast(literal(_DIGITS, BigInteger()) + number, String), 2
    )


def _owner_id(number: Any) -> Any:
    return _id("own", number)


def _digest(kind: str, number: Any) -> Any:
    """Sixty-four hexadecimal characters that differ by kind and number."""
    return literal(kind * 52, String()) + cast(literal(_DIGITS, BigInteger()) + number, String)


def _json(value: Any) -> Any:
    return literal(value, JSON())
