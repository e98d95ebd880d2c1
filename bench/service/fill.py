"""Fills a database with many models, tasks, jobs, versions and what hangs on them, in minutes.

Each table is one `INSERT … SELECT` over a series of numbers, on both databases. Row n is task n //
models + 1 of model n % models, so that the rows of one model lie far apart, as they do after years
of service. Most jobs have succeeded; a few failed, were rejected or cancelled; the last ones of
every tenth model wait in the queue, and every tenth of those waits for a held version
(`series.STOPPED`). In every fiftieth model production was put back by one version
(`series.PINNED`). Half of the models share the backbone of an uploaded base: five blobs that a
tenth of all parts name each.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    JSON,
    Text,
    case,
    cast,
    func,
    literal,
    select,
)

from bench.service.series import (
    BASES,
    HELD,
    KEPT_TASKS,
    PUBLISHED,
    SECONDS_APART,
    SERIES,
    STOPS,
    GeneratedRowCounts,
    S,
    _iterate_number_table_insert_statements,
    build_concatenation_sql,
    build_digest_sql,
    build_generated_owner_id_sql,
    build_generated_row_id_sql,
    build_insert_from_select,
    build_json_sql,
    build_owner_number_sql,
)
from core.database.session import Database
from core.database.tables import (
    AccessKey,
    Alias,
    AliasMove,
    AuditEntry,
    ExportedDownload,
    Job,
    Model,
    Owner,
    OwnerEvent,
    StoredJobEvent,
    Task,
    Version,
    VersionMeasurement,
    VersionPart,
    VersionTaskResult,
)

DAYS = 7.0
RECIPE = {
    "method": {"name": "der++", "buffer": 200, "alpha": 0.1, "beta": 0.5},
    "optimizer": {"name": "sgd", "lr": 0.03, "head_lr": None, "momentum": 0.9,
                  "weight_decay": 0.0, "clip": None},
    "depth": 5, "head": {"init": "zero"}, "epochs": 10, "batch_size": 32, "sampler": "shuffled",
    "augment": "auto",
    "validation": 0.0, "train_ce": "auto", "seed": 0, "preset": None,
}  # fmt: skip
ENDS = ("succeeded", "failed", "rejected", "cancelled")
CLASSES = {"cat": 500, "dog": 500}
REPORT = {"rejected": [], "ignored": 0, "duplicates": 0, "notes": []}
GATE = {"passed": True, "checks": []}
FAILED_GATE = {
    "passed": False, "checks": [{"name": "max_forgetting", "limit": 0.1, "value": 0.4, "passed": False}]
}  # fmt: skip
MANIFEST = {
    "format": 1, "scenario": "class", "architecture": {"name": "small-cnn"}, "classes": ["cat", "dog"],
    "heads": [],
    "image": {"size": 32, "channels": 3}, "network": {"family": "plain"}, "recipe": RECIPE, "threads": 1,
    "update_norm": None, "drift": None,
    "environment": {"torch": "2.13.0", "cpu_capability": "AVX2", "threads": 1, "device": "cpu"},
}  # fmt: skip


MEASURED = (
    ("update_norm", 1.2, {"backbone": 1.2, "head": 0.8, "relative": 0.1}), ("drift", 2.5, None),
    ("row", 0.83, {"last": 0.83, "forgetting": 0.01}),
)  # fmt: skip
"""Name, value and detail of each version's measurements."""


def fill_database_with_generated_rows(
    db: Database, size: GeneratedRowCounts, *, quiet: bool = False
) -> None:
    """Fill a database with generated owners, models, tasks, jobs and versions.

    Foreign keys are not checked meanwhile (PostgreSQL: the user must be a superuser).
    """
    with db.engine.connect() as connection:
        driver: Any = (
            connection.connection.driver_connection
        )  # a pragma does nothing inside a transaction
        for setting in _QUICK[db.dialect]:
            driver.execute(setting)
        driver.commit()
        now = time.time()
        for name, statement in _iterate_insert_statements(db.dialect, size, now):
            began = time.monotonic()
            row_count = connection.execute(statement).rowcount
            connection.commit()
            if not quiet:
                print(
                    f"  {name:<12} {max(row_count, 0):>10,} rows {time.monotonic() - began:6.1f} s",
                    flush=True,
                )
        SERIES.drop(connection)
        connection.commit()
    update_table_statistics(db)


_QUICK = {
    "sqlite": ("PRAGMA foreign_keys=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-400000"),
    "postgresql": (
        "SET session_replication_role='replica'",
        "SET synchronous_commit='off'",
        "SET statement_timeout=0",
    ),
}


def update_table_statistics(db: Database) -> None:
    """Update PostgreSQL's table statistics (SQLite runs without them), and close the database."""
    if db.dialect == "postgresql":
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("SET statement_timeout=0")
            connection.exec_driver_sql("VACUUM (ANALYZE)")
    db.close()


def _iterate_insert_statements(
    dialect: str, size: GeneratedRowCounts, now: float
) -> Iterator[tuple[str, Any]]:
    """Yield (table, SQL statement) that fill all tables, in order."""
    yield from _iterate_number_table_insert_statements(dialect, size, now)
    yield from _iterate_owner_key_model_inserts(size, now)
    yield from _iterate_task_and_job_inserts(size, now)
    yield from _iterate_version_and_accuracy_inserts(size, now, dialect)


def _iterate_owner_key_model_inserts(
    size: GeneratedRowCounts, now: float
) -> Iterator[tuple[str, Any]]:
    """Yield SQL statements that insert owners, keys and models."""
    at = literal(now - size.task_count * SECONDS_APART)
    yield build_insert_from_select(
        Owner, SERIES, S.n < size.owners,
        id=build_generated_owner_id_sql(S.n), name=build_concatenation_sql("owner-", S.n),
        overtook=literal(False), created_at=at,
    )  # fmt: skip
    yield build_insert_from_select(
        AccessKey, SERIES, S.n < size.keys,
        id=build_generated_row_id_sql("key", S.n), owner_id=build_generated_owner_id_sql(S.n % size.owners),
        name=literal("a key"),
        prefix=build_concatenation_sql("b", S.n),
        hash=literal("0" * 64), scope=literal("write"), created_at=S.at,
    )  # fmt: skip
    newest = (
        select(
            S.model,
            func.coalesce(func.max(S.version), 0).label("version"),
            func.coalesce(func.max(case((PUBLISHED, S.version))), 0).label("latest"),
            func.coalesce(func.max(case((S.standing == "learned", S.version))), 0).label("head"),
        )
        .group_by(S.model)
        .subquery()
        .c
    )
    yield build_insert_from_select(
        Model, newest, None,
        id=build_generated_row_id_sql("mdl", newest.model),
        owner_id=build_generated_owner_id_sql(build_owner_number_sql(newest.model, size)),
        name=build_concatenation_sql("model-", newest.model), scenario=literal("class"),
        architecture=build_json_sql({"name": "small-cnn"}),
        image=build_json_sql({"size": 32, "channels": 3}), base=build_json_sql("random"),
        recipe=build_json_sql({"method": "der++"}),
        gate=build_json_sql({}), keep_training_data=literal(False),
        held_out=literal("keep"), warnings=build_json_sql([]),
        training_data_days=literal(DAYS), on_held=literal("stop"), on_rejected=literal("continue"),
        on_failed=literal("continue"), allow_lost_classes=literal(False), head=newest.head,
        production_follows=newest.head == newest.latest,
        fence=literal(size.tasks), next_task=literal(size.tasks + 1), next_place=literal(size.tasks + 1),
        next_version=newest.version + 1, created_at=at,
    )  # fmt: skip
    for name, version in (("latest", newest.latest), ("production", newest.head)):
        yield build_insert_from_select(
            Alias, newest, None,
            model_id=build_generated_row_id_sql("mdl", newest.model), name=literal(name), version=version,
            updated_at=literal(now),
        )  # fmt: skip


def _iterate_task_and_job_inserts(
    size: GeneratedRowCounts, now: float
) -> Iterator[tuple[str, Any]]:
    """Yield SQL statements that insert tasks, jobs, events and audit entries."""
    waits, done = S.state == "queued", S.state == "succeeded"
    owner = build_generated_owner_id_sql(build_owner_number_sql(S.model, size))
    is_retained = S.number > size.tasks - KEPT_TASKS
    settled = S.standing.in_(["learned", "rolled_back", "skipped"])
    yield build_insert_from_select(
        Task, SERIES, None,
        id=build_generated_row_id_sql("tsk", S.n), model_id=build_generated_row_id_sql("mdl", S.model), number=S.number,
        name=build_concatenation_sql("week ", S.number),
        sha256=build_digest_sql("a", S.n), bytes=literal(800_000),
        archive_key=case((waits, literal("archives/") + build_generated_row_id_sql("tsk", S.n))),
        media_type=literal("zip"), classes=build_json_sql(CLASSES), n_train=case((~waits, 850)),
        n_held_out=case((~waits, 150)), report=build_json_sql(REPORT),
        train_sha256=case((~waits, build_digest_sql("b", S.n))),
        held_out_sha256=case((~waits, build_digest_sql("c", S.n))),
        traces_sha256=case((~waits, build_digest_sql("f", S.n))), traces_bytes=case((~waits, 24_000)),
        features_sha256=case((~waits, build_digest_sql("6", S.n))), features_bytes=case((~waits, 60_000)),
        train_deleted_at=case((~waits & ~is_retained, S.at + 20.0)),
        train_until=case((settled & is_retained, now + DAYS * 86_400.0), (settled, S.at + 20.0)),
        standing=S.standing,
        standing_at=case((~waits, S.at + 20.0)), stops=STOPS, warnings=build_json_sql([]), created_at=S.at,
    )  # fmt: skip
    yield build_insert_from_select(
        Job, SERIES, None,
        id=build_generated_row_id_sql("job", S.n), model_id=build_generated_row_id_sql("mdl", S.model),
        owner_id=owner, task_id=build_generated_row_id_sql("tsk", S.n),
        task_number=S.number, place=S.number, again=literal(False),
        warnings=build_json_sql([]), state=S.state,
        revision=case((waits, 1), else_=5),
        recipe_override=build_json_sql({}), recipe=build_json_sql(RECIPE), gate=build_json_sql({}),
        attempt=case((waits, 0), else_=1),
        strikes=literal(0), kind=literal("learn"),
        progress=build_json_sql({"phase": "publish", "step": 270, "total_steps": 270}),
        error=case((S.state == "failed", build_json_sql({"kind": "code", "code": "job-code", "detail": "boom"}))),
        version=S.version, rung_at=case((waits, S.at)), created_at=S.at,
        started_at=case((~waits, S.at + 1.0)),
        finished_at=case((~waits, S.at + 20.0)),
    )  # fmt: skip
    ended = case(*((S.state == state, build_json_sql({"state": state})) for state in ENDS))
    for position, data in enumerate(
        (build_json_sql({"state": "queued"}), build_json_sql({"state": "running"}), ended)
    ):
        yield build_insert_from_select(
            StoredJobEvent, SERIES, None if position == 0 else ~waits,
            job_id=build_generated_row_id_sql("job", S.n), type=literal("state"), data=data, at=S.at + position * 10.0,
        )  # fmt: skip
    yield build_insert_from_select(
        OwnerEvent, SERIES, None,
        owner_id=owner, model_id=build_generated_row_id_sql("mdl", S.model),
        job_id=build_generated_row_id_sql("job", S.n), type=literal("job"),
        data=build_json_sql({"state": "queued", "kind": "learn", "task": 1, "version": None, "outcome": None}),
        at=S.at,
    )  # fmt: skip
    yield build_insert_from_select(
        OwnerEvent, SERIES, PUBLISHED,
        owner_id=owner, model_id=build_generated_row_id_sql("mdl", S.model), type=literal("alias"),
        data=build_json_sql({"alias": "latest", "version": 1, "previous": 0, "cause": "publish"}),
        at=S.at + 20.0,
    )  # fmt: skip
    for action, key, where in (
        ("task.submit", literal("key_" + "0" * 26), None),
        ("version.publish", None, done),
    ):
        yield build_insert_from_select(
            AuditEntry, SERIES, where,
            at=S.at, owner_id=owner, actor=case((literal(where is None), key)), action=literal(action),
            object=build_generated_row_id_sql("tsk", S.n), data=build_json_sql({"number": 1}),
            model_id=build_generated_row_id_sql("mdl", S.model),
        )  # fmt: skip


def _iterate_version_and_accuracy_inserts(
    size: GeneratedRowCounts, now: float, dialect: str
) -> Iterator[tuple[str, Any]]:
    """Yield SQL statements that insert versions, parts, exports, alias moves and accuracies."""
    done = S.version.is_not(None)
    model = build_generated_row_id_sql("mdl", S.model)
    yield build_insert_from_select(
        Version, SERIES, S.number == 1,
        id=literal("ver_1") + func.substr(build_generated_row_id_sql("mdl", S.model), 6),
        model_id=model, number=literal(0),
        status=literal("published"), gate=build_json_sql(GATE),
        manifest=build_json_sql({**MANIFEST, "classes": [], "tasks": []}), bytes=literal(0),
        bytes_new=literal(0), warnings=build_json_sql([]), created_at=S.at,
    )  # fmt: skip
    is_held = S.standing.in_(HELD)
    yield build_insert_from_select(
        Version, SERIES, done,
        id=build_generated_row_id_sql("ver", S.n), model_id=model, number=S.version,
        parent=S.parent, task_number=S.number,
        job_id=build_generated_row_id_sql("job", S.n), status=case((is_held, "held"), else_="published"),
        gate=case((is_held, build_json_sql(FAILED_GATE)),
        else_=build_json_sql(GATE)), warnings=build_json_sql([]),
        manifest=_build_manifest_expression(dialect),
        bytes=literal(988_212), bytes_new=literal(12_044), created_at=S.at + 20.0,
    )  # fmt: skip
    shared = case(
        (S.model % 2 == 0, build_digest_sql("d", S.model % BASES)), else_=build_digest_sql("e", S.n)
    )
    for position, (name, digest, size_) in enumerate(
        (("backbone", shared, 976_168), ("head", build_digest_sql("f", S.n), 12_044))
    ):
        yield build_insert_from_select(
            VersionPart, SERIES, done,
            version_id=build_generated_row_id_sql("ver", S.n), name=literal(name),
            position=literal(position), type=literal(name),
            sha256=digest, bytes=literal(size_),
        )  # fmt: skip
    for name in ("latest", "production"):
        yield build_insert_from_select(
            AliasMove, SERIES, PUBLISHED,
            model_id=model, alias=literal(name), version=S.version, previous=S.parent,
            cause=literal("publish"), at=S.at + 20.0,
        )  # fmt: skip
    yield build_insert_from_select(
        AliasMove, SERIES, S.standing == "rolled_back",
        model_id=model, alias=literal("production"), version=S.parent, previous=S.version,
        cause=literal("rollback"), at=S.at + 25.0,
    )  # fmt: skip
    other = SERIES.alias()
    yield build_insert_from_select(
        VersionTaskResult, SERIES.join(other, other.c.model == S.model),
        (S.model < size.measured) & done & other.c.version.is_not(None) & (other.c.version <= S.version),
        model_id=model, version=S.version, task=other.c.number,
        correct=100 + (S.version + other.c.number) % 50,
        total=literal(150), per_class=build_json_sql({"cat": [60, 75], "dog": [55, 75]}),
        best=case((other.c.version < S.version, literal(149 / 150))),
        answers=build_digest_sql("9", S.n * 1000 + other.c.number), answers_bytes=literal(1_044),
    )  # fmt: skip
    for name, value, detail in MEASURED:
        yield build_insert_from_select(
            VersionMeasurement, SERIES, done,
            model_id=model, version=S.version, name=literal(name), task=literal(0), value=literal(value),
            **({} if detail is None else {"detail": build_json_sql(detail)}),
        )  # fmt: skip
    yield build_insert_from_select(
        ExportedDownload, SERIES, done & (S.n % 50 == 0),
        version_id=build_generated_row_id_sql("ver", S.n), format=literal("safetensors"),
        sha256=build_digest_sql("9", S.n),
        bytes=literal(990_000),
        created_at=literal(now),
    )  # fmt: skip


def _build_manifest_expression(dialect: str) -> Any:
    """Return an SQL expression for a generated version's manifest."""
    start = json.dumps(MANIFEST).removesuffix("}") + ', "tasks": ['
    written = (
        literal(start, Text()) + func.coalesce(S.taught + ",", "") + cast(S.number, Text) + "]}"
    )
    return cast(written, JSON) if dialect == "postgresql" else written  # for SQLite JSON is text
