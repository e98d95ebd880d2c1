"""Reads stay flat: as many statements with many rows as with few, and none that walks through a
large table.

The statements are those that the use-cases send, caught at the engine and explained on both
databases. On PostgreSQL sequential scans are switched off for the question, so that small tables do
not hide a missing index.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, text

from bench.service.fill import fill_database_with_generated_rows
from bench.service.series import PINNED, STOPPED, GeneratedRowCounts, make_generated_row_id
from core.bases import bases
from core.database import polling
from core.database.kinds import JobKind
from core.database.polling import SqlitePollingReader
from core.database.polling_postgresql import PostgresqlPollingReader
from core.database.session import Database
from core.jobs import job_progress, jobs, queue
from core.keys import keys
from core.lineage import lineage as model_line
from core.lineage.accuracy_row import find_best_earlier_accuracies
from core.lineage.batch_outlook import describe_next_task_outlook
from core.lineage.coverage import list_taught_tasks
from core.lineage.judgement import judge_version_by_gate
from core.models import models
from core.requests import audit
from core.requests.actor import Actor, find_model
from core.retention import archives, references
from core.scheduling import claim
from core.settings import Settings
from core.tasks import submission, tasks
from core.upkeep import sweep, task_files
from core.uploads import upload_removal
from core.usage import usage_lists
from core.usage.usage_sums import measure_and_store_owner_usage
from core.versions import aliases, class_changes, history, metrics, versions
from core.versions.versions import find_version

FEW, MANY = (
    GeneratedRowCounts(60, 5, owners=3, measured=3, keys=3),
    GeneratedRowCounts(70, 12, owners=3, measured=12, keys=60),
)
LARGE = (
    *(
        "tasks",
        "jobs",
        "versions",
        "parts",
        "events",
        "owner_events",
        "audit",
        "alias_moves",
        "results",
    ),
    "measurements",
)
SMALL_INDEXES = (
    "ix_jobs_unfinished",
    "uq_jobs_model_id_leased",
    "ix_jobs_archive_key",
    "ix_jobs_archives",
    "ix_jobs_snapshot",
    "ix_tasks_waiting",
    "ix_tasks_train",
    "ix_tasks_selection",
    "ix_tasks_data_deleted",
    "ix_tasks_stops",
)
"""Of the few jobs that are not over, uploads of such jobs, batches that are not learned, tasks
without data and tasks that stop a line: to read one whole is no walk."""
CATALOGUE: Any = {
    "methods": {"der++": {"defaults": {}}},
    "recipe": {"defaults": {"method": {"name": "der++"}}, "olor": {}},
    "optimizers": {},
    "presets": {"from-random": {}},
}
OWNER, ADMIN = (
    Actor(make_generated_row_id("own", 0), None, "write"),
    Actor(make_generated_row_id("own", 1), None, "admin"),
)
MODEL = make_generated_row_id("mdl", 0)
STOPPED_MODEL, PINNED_MODEL = (
    make_generated_row_id("mdl", STOPPED),
    make_generated_row_id("mdl", PINNED),
)
EMPTY: Any = SimpleNamespace(list=lambda _prefix: [])
"""A store in which nothing is found."""

IN_ORDER = {"all jobs", "audit", "audit, newest first"}
"""Pages of a whole table, in the order of its primary key and cut off by LIMIT: these may begin to
walk.
"""


ABOUT = {
    "an owner": polling.OwnerEventFilter(owner_id=make_generated_row_id("own", 0)),
    "a model": polling.OwnerEventFilter(model_id=MODEL),
    "everybody": polling.OwnerEventFilter(),
}
HOT: dict[str, tuple[str, tuple[Any, ...]]] = {
    "job": (polling._JOB, (make_generated_row_id("job", STOPPED),)),
    "what it waits for": (polling._STOP, (STOPPED_MODEL, 2)),
    "events": (polling._EVENTS, (make_generated_row_id("job", 0), 0, 10)),
    "key": (polling._KEY, ("b1",)),
    "session": (polling._SESSION, ("0" * 64,)),
    **{
        f"a version to predict by {key} and {named}": (
            polling._VERSION_TO_PREDICT.replace("{key}", key).replace("{number}", number),
            (MODEL if key == "id" else "model-0", OWNER.owner_id, *version),
        )
        for key in ("id", "name")
        for named, number, version in (
            ("number", "{mark}", (1,)),
            ("alias", polling._NUMBER_OF_ALIAS, ("production",)),
            ("as the newest", polling._NEWEST_NUMBER, ()),
        )
    },
}
"""The statements of `core.database.polling`, with values."""

Reads = dict[str, Callable[[Database], object]]
READS: Reads = {
    "jobs": lambda db: jobs.list_jobs(db, OWNER, limit=20, cursor=None),
    "jobs by state": lambda db: jobs.list_jobs(
        db, OWNER, jobs.JobFilter("failed"), limit=5, cursor=None
    ),
    "jobs by kind": lambda db: list_jobs_of_a_rare_kind(db, OWNER),
    "jobs by kind and state": lambda db: list_jobs_of_a_rare_kind(db, OWNER, "failed"),
    "all jobs by kind": lambda db: list_jobs_of_a_rare_kind(db, ADMIN),
    "jobs of a model": lambda db: jobs.list_jobs(
        db, OWNER, jobs.JobFilter(model="model-0"), limit=5, cursor=None
    ),
    "jobs of a model by state": lambda db: jobs.list_jobs(
        db, OWNER, jobs.JobFilter("failed", "model-0"), limit=5, cursor=None
    ),
    "jobs that wait for a person": lambda db: list_waiting_jobs(db),
    "all jobs": lambda db: jobs.list_jobs(db, ADMIN, limit=5, cursor=None),
    "all jobs by state": lambda db: jobs.list_jobs(
        db, ADMIN, jobs.JobFilter("failed"), limit=5, cursor=None
    ),
    "open jobs": lambda db: submission.require_batch_room_and_detect_former_names(
        db, OWNER, MODEL, max_open_jobs=1000, max_bytes=1 << 50, length=1
    ),
    "models": lambda db: list_models_with_attention(db),
    "models with summaries": lambda db: list_models_with_summary(db),
    "models by a text in their name": lambda db: models.list_models(
        db, CATALOGUE, OWNER, 5, None, models.ModelListQuery(q="L-1")
    ),
    "a model with a held version": lambda db: read_model_with_attention(db, STOPPED_MODEL, "held"),
    "a model that was rolled back": lambda db: read_model_with_attention(
        db, PINNED_MODEL, "rolled_back"
    ),
    "what a batch will meet": lambda db: [
        describe_next_task(db, name) for name in (MODEL, STOPPED_MODEL, PINNED_MODEL)
    ],
    "a model by name": lambda db: read_aliases(db, OWNER),
    "a model by name, for an administrator": lambda db: read_aliases(db, ADMIN),
    "tasks": lambda db: tasks.list_tasks(db, OWNER, MODEL, 3, None),
    "a task": lambda db: tasks.read_task(db, OWNER, MODEL, 2),
    "versions": lambda db: versions.list_versions(db, OWNER, MODEL, limit=3, cursor=None),
    "a version": lambda db: versions.get_version(db, OWNER, MODEL, "latest"),
    "files": lambda db: versions.list_version_files(db, OWNER, MODEL, "1", limit=50, cursor=None),
    "history": lambda db: aliases.list_alias_moves(
        db, OWNER, MODEL, "production", limit=3, cursor=None
    ),
    "matrix": lambda db: metrics.read_model_accuracy_metrics(db, OWNER, MODEL, version="latest"),
    "a window of the matrix": lambda db: metrics.read_model_accuracy_metrics(
        db, OWNER, MODEL, version="latest", window=metrics.MatrixWindow((2, 4), (1, 3))
    ),
    "a window of versions": lambda db: history.read_version_history(
        db, OWNER, MODEL, last=3, size=3
    ),
    "what an update did to classes": lambda db: class_changes.compare_class_accuracies_with_parent(
        db, OWNER, MODEL, 3
    ),
    "what a job said": lambda db: job_progress.read_job_page_data(
        db, OWNER, make_generated_row_id("job", 0)
    ),
    "verdict": lambda db: judge_latest_version(db),
    "best accuracies": lambda db: find_best_accuracies(db),
    "keys": lambda db: keys.list_keys(db, ADMIN, limit=3, cursor=None),
    "audit": lambda db: audit.list_audit(db, ADMIN, limit=3, cursor=None),
    "audit, newest first": lambda db: list_audit_page(db, newest_first=True),
    "audit of a model": lambda db: list_audit_page(db, model="model-0"),
    "audit of an action": lambda db: list_audit_page(db, action="model.create"),
    "audit since a time": lambda db: list_audit_page(db, since=4e9, newest_first=True),
    "results": lambda db: versions.list_version_task_results(
        db, OWNER, MODEL, "1", limit=3, cursor=None
    ),
    "bases": lambda db: bases.list_bases(db, OWNER, limit=3, cursor=None),
    "usage": lambda db: usage_lists.list_usage_by_model(db, ADMIN, limit=3, cursor=None),
    "usage of owners": lambda db: usage_lists.list_usage_by_owner(db, ADMIN, limit=3, cursor=None),
    "digests in use": lambda db: find_digests_in_use(db),
    "claim": lambda db: claim.complete_pause_or_cancellation(db, claim.claim_job(db, "one", 60.0)),  # type: ignore[arg-type]
    "reap": lambda db: claim.take_back_jobs_with_expired_lease(db),
    "ring": lambda db: sweep.find_long_waiting_claimable_jobs(db),
    "uploads to sweep": lambda db: upload_removal.delete_archives_of_finished_jobs(db, EMPTY),
    "archives in use": lambda db: find_archives_in_use(db),
    "states to sweep": lambda db: sweep._delete_unneeded_job_snapshots(
        db, EMPTY, Settings(), "snapshot", "snapshots/"
    ),
    "memories to sweep": lambda db: sweep._delete_replay_of_tasks_with_deleted_data(db, EMPTY),
    "deleted models to sweep": lambda db: sweep._delete_deleted_models_data(db, EMPTY),
    "files to sweep": lambda db: task_files.select_tasks_with_expirable_files(db),
}


def list_audit_page(db: Database, **wanted: Any) -> object:
    found = audit.list_audit(db, ADMIN, limit=3, cursor=None, wanted=audit.AuditQuery(**wanted))
    assert bool(found["items"]) == (wanted.keys() <= {"newest_first", "model"})
    return found


def list_jobs_of_a_rare_kind(db: Database, actor: Actor, state: str | None = None) -> object:
    """List jobs of a kind that few jobs have."""
    return jobs.list_jobs(
        db, actor, jobs.JobFilter(state, kind=JobKind.VALIDATE), limit=5, cursor=None
    )


def read_aliases(db: Database, actor: Actor) -> object:
    with db.read() as session:
        row = find_model(session, actor, "model-0")
        return models.read_alias_targets(session, [row.id])


def find_archives_in_use(db: Database) -> object:
    with db.read() as session:
        archives.find_archives_still_in_use(
            session,
            [
                "archives/" + make_generated_row_id("tsk", 0),
                "archives/" + make_generated_row_id("job", 0),
            ],
        )
        archives.list_next_archives_in_use(session, "", "archives/", 5)
        return archives.find_archive_digest(session, "archives/" + make_generated_row_id("job", 0))


def list_waiting_jobs(db: Database) -> object:
    page = jobs.list_jobs(db, OWNER, jobs.JobFilter("queued", STOPPED_MODEL), limit=3, cursor=None)
    assert [job["waiting_for"]["kind"] for job in page["items"]] == ["held"] * 3
    return page


def list_models_with_attention(db: Database) -> object:
    page = models.list_models(db, CATALOGUE, OWNER, 10, None)
    kinds = {entry["kind"] for model in page["items"] for entry in model["attention"]}
    assert kinds >= {"held", "rolled_back", "failed"}
    return page


def list_models_with_summary(db: Database) -> object:
    page = models.list_models(db, CATALOGUE, OWNER, 10, None, models.ModelListQuery(summary=True))
    told = [model["summary"] for model in page["items"]]
    assert all(one and one["production"] and one["last_job"] and one["acc"] for one in told)
    return page


def read_model_with_attention(db: Database, model: str, kind: str) -> object:
    answer = models.read_model(db, CATALOGUE, OWNER, model)
    assert kind in {entry["kind"] for entry in answer["attention"]}
    return answer


def describe_next_task(db: Database, model: str) -> object:
    with db.read() as session:
        row = find_model(session, OWNER, model)
        return describe_next_task_outlook(
            session, row, model_line.find_version_next_task_starts_from(session, row)
        )


def find_digests_in_use(db: Database) -> object:
    with db.read() as session:
        return references.find_digests_still_in_use(session, ["0" * 64, "d" * 52 + "100000000000"])


def judge_latest_version(db: Database) -> object:
    with db.read() as session:
        model = find_model(session, OWNER, MODEL)
        return judge_version_by_gate(session, model, find_version(session, model, "latest"))


def find_best_accuracies(db: Database) -> object:
    with db.read() as session:
        version = find_version(session, find_model(session, OWNER, MODEL), "latest")
        return find_best_earlier_accuracies(session, version, list_taught_tasks(version.manifest))


@pytest.fixture(scope="module")
def filled(new_database: Callable[[], Database]) -> list[Database]:
    """A database with few rows and one with many."""
    made = []
    for size in (FEW, MANY):
        db = new_database()
        fill_database_with_generated_rows(db, size, quiet=True)
        for owner in range(size.owners):
            measure_and_store_owner_usage(db, make_generated_row_id("own", owner))
        made.append(db)
    return made


@pytest.mark.parametrize("name", READS)
def test_a_read_sends_as_many_statements_with_many_rows_as_with_few(
    filled: list[Database], name: str
) -> None:
    few, many = (len(record_statements(db, READS[name])) for db in filled)
    assert few == many > 0


@pytest.mark.parametrize("name", READS)
def test_a_read_walks_through_no_large_table(filled: list[Database], name: str) -> None:
    _, many = filled
    for statement, values in record_statements(many, READS[name]):
        if statement.startswith(("SELECT", "WITH")):
            found = find_unbounded_reads(explain_statement(many, statement, values))
            allowed = name in IN_ORDER and "LIMIT" in statement and len(found) == 1
            assert found == [] or allowed, (found, statement)


def test_a_claim_sorts_nothing_and_sees_stopped_lines_in_their_own_index(
    filled: list[Database],
) -> None:
    _, many = filled
    asked = [
        ask
        for ask in record_statements(many, READS["claim"])
        if "stops" in ask[0] and "jobs.owner_id" in ask[0]
    ]
    assert len(asked) == 2, "whose turn it is, and his job with its row held"
    for place, (statement, values) in enumerate(asked):
        lines = explain_statement(many, statement, values)
        assert any("ix_tasks_stops" in line for line in lines), lines
        # With or without the kind, as the statistics have it: both give an owner's queue in its
        # order.
        assert place or any("ix_jobs_owner_id_state_" in line for line in lines), lines
        assert not any("TEMP B-TREE" in line or "Sort Key" in line for line in lines), lines


def test_the_figures_of_monitoring_count_the_past_once(filled: list[Database]) -> None:
    _, many = filled
    queue._past.clear()
    first, second = (
        record_statements(many, queue.read_queue_and_service_metrics),
        record_statements(many, queue.read_queue_and_service_metrics),
    )
    assert len(second) < len(first)
    for statement, values in second:
        assert find_unbounded_reads(explain_statement(many, statement, values)) == [], statement


@pytest.mark.parametrize("name", HOT)
def test_a_hot_read_walks_through_no_large_table(filled: list[Database], name: str) -> None:
    _, many = filled
    reader: Any = SqlitePollingReader if many.dialect == "sqlite" else PostgresqlPollingReader
    statement, values = HOT[name]
    filled_in = statement.format(
        reader.mark, reader.mark, "", reader.mark, mark=reader.mark, stops=reader.stops
    )
    found = explain_statement(many, filled_in, values)
    assert find_unbounded_reads(found) == [], found


@pytest.mark.parametrize("types", [None, ("alias",), ("job", "version")])
@pytest.mark.parametrize("whose", ABOUT)
def test_events_of_an_owner_are_read_in_the_order_of_an_index(
    filled: list[Database], whose: str, types: tuple[str, ...] | None
) -> None:
    _, many = filled
    mark = (SqlitePollingReader if many.dialect == "sqlite" else PostgresqlPollingReader).mark
    for statement, values in (
        polling.build_owner_events_query(mark, ABOUT[whose], 0, 10, types),
        polling.build_newest_owner_event_query(mark, ABOUT[whose]),
    ):
        lines = explain_statement(many, statement, values)
        assert find_unbounded_reads(lines) == [], lines
        # PostgreSQL takes the primary key where it expects most rows to be asked for.
        if many.dialect == "sqlite":
            found = [line for line in lines if "owner_events" in line]
            assert found and all("_type_id (" in line and "type=?" in line for line in found), found


def test_a_job_that_waits_names_what_it_waits_for_in_two_reads(filled: list[Database]) -> None:
    async def read_stopped_job(db: Database, size: GeneratedRowCounts) -> None:
        reads = polling.PollingDatabaseReads(db.url)
        job = await reads.find_job(
            make_generated_row_id("job", STOPPED + (size.tasks - 1) * size.models)
        )
        assert job is not None and (job.state, job.stop_task) == ("queued", size.tasks - 3)
        stop = await reads.read_task_state_if_stopping_lineage(job.model_id, size.tasks - 3)
        assert stop is not None and stop[0] == "held" and stop[1] is not None
        await reads.close()

    for db, size in zip(filled, (FEW, MANY), strict=True):
        asyncio.run(read_stopped_job(db, size))


def test_a_summary_reads_few_cells_of_the_matrix_and_each_by_an_index_of_its_own(
    filled: list[Database],
) -> None:
    _, many = filled
    lines = [
        line
        for statement, values in record_statements(many, READS["matrix"])
        if statement.startswith("SELECT")
        for line in explain_statement(many, statement, values)
    ]
    for index in ("ix_results_first", "ix_measurements_all_tasks"):
        assert any(index in line for line in lines), (index, lines)


def test_walking_through_a_large_table_is_noticed(filled: list[Database]) -> None:
    _, many = filled
    assert (
        find_unbounded_reads(explain_statement(many, "SELECT id FROM jobs WHERE worker = 'x'", ()))
        != []
    )


def record_statements(db: Database, read: Callable[[Database], object]) -> list[tuple[str, Any]]:
    """Return the statements that a use case sends, with their values."""
    seen: list[tuple[str, Any]] = []

    def record_statement(
        _connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, _many: bool
    ) -> None:
        seen.append((statement, values))

    event.listen(db.engine, "before_cursor_execute", record_statement)
    try:
        read(db)
    finally:
        event.remove(db.engine, "before_cursor_execute", record_statement)
    return seen


def explain_statement(db: Database, statement: str, values: Any) -> list[str]:
    """Return the lines of the database's query plan."""
    with db.engine.connect() as connection:
        if db.dialect == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            return [str(row[3]) for row in rows]
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        return [str(row[0]) for row in connection.exec_driver_sql(f"EXPLAIN {statement}", values)]


def find_unbounded_reads(lines: list[str]) -> list[str]:
    """Return the steps that read a large table, or an index of it, without bounds."""
    found = []
    for place, line in enumerate(lines):
        words = line.split()
        small = any(name in line for name in SMALL_INDEXES)
        if line.startswith("SCAN ") and words[1] in LARGE and not small:
            found.append(line)
        if "ix_versions_status" in line:  # nearly all are published
            found.append(line)
        if "Seq Scan on" in line and any(f"Seq Scan on {name} " in line for name in LARGE):
            found.append(line)
        if "Index" in line and "Scan" in line and any(f" on {name} " in line for name in LARGE):
            below = lines[place + 1] if place + 1 < len(lines) else ""
            if "Index Cond" not in below and not small:
                found.append(line)
    return found
