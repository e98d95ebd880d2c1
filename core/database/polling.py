"""Frequent reads, without an ORM and without a thread: a job, its events, a key, a session, the
version that a prediction needs.

`SqlitePollingReader` and `core.database.polling_postgresql` run the queries. SQLite has
one read-only connection on the event loop itself, since a read takes some ten microseconds. A read
without a response in time raises `Unavailable`.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy.engine import make_url

from core.contract.error import JobError
from core.contract.reports.report import BatchCheck, ExportReport
from core.contract.responses.event import EventData, EventType
from core.contract.responses.job import Progress
from core.contract.responses.owner_event import OWNER_EVENT_TYPES, OwnerEventData, OwnerEventType
from core.contract.responses.recipe import RecipeOut
from core.database import sqlite_damage
from core.database.states import UNFINISHED
from core.errors import DatabaseCorrupt, Unavailable
from core.ids import is_id

TIMEOUT_S = 5.0
CONNECTIONS = 4
JOBS_REMEMBERED, JOB_CHARS = 1000, 50_000
"""Most jobs of SQLite cached in decoded form, and the longest JSON in characters that is cached."""

# One statement for the response and its ETag, since clients poll it all the time.
_JOB = (
    "SELECT j.id, j.owner_id, j.model_id, j.task_id, j.task_number, j.state, j.revision, "
    "j.attempt, j.progress, j.error, j.version, j.recipe, j.retry_of, j.warnings, j.created_at, "
    "j.started_at, j.finished_at, j.kind, CASE WHEN j.finished_at IS NOT NULL THEN j.report END,"
    " (SELECT v.status FROM versions v WHERE v.job_id = j.id),"
    " CASE WHEN j.state = 'queued' AND NOT j.again AND j.place IS NOT NULL THEN"
    " (SELECT t.number FROM tasks t WHERE t.model_id = j.model_id AND {stops} ORDER BY t.number "
    "LIMIT 1) END, f.state, f.id, f.revision, f.progress, f.error,"
    " CASE WHEN j.state = 'queued' AND (j.device = 'cuda' OR j.resume_on = 'cuda') THEN j.gpus "
    "END, j.resume_on, CASE WHEN j.state = 'queued' AND (j.device = 'cuda' OR j.resume_on = "
    "'cuda') THEN (SELECT max(w.seen_at) FROM workers w"
    " WHERE w.device = 'cuda' AND w.problem IS NULL AND w.gpus >= j.gpus) END"
    " FROM jobs j"
    " LEFT JOIN models m ON m.id = j.model_id AND j.state = 'queued' AND j.place IS NOT NULL"
    " LEFT JOIN jobs f ON f.id = m.base_job"
    " WHERE j.id = {mark}"
)
_JOB_JSON = (
    8,
    9,
    11,
    13,
    18,
    24,
    25,
)  # columns of JSON: progress, error, recipe, warnings, report; progress and error of the base
_UNFINISHED = ", ".join(repr(str(state)) for state in sorted(UNFINISHED))
_STOP = (
    "SELECT t.standing,"  # noqa: S608 - constants
    " (SELECT max(v.number) FROM versions v WHERE v.model_id = t.model_id AND v.task_number = "
    "t.number), EXISTS (SELECT 1 FROM jobs j WHERE j.model_id = t.model_id AND j.task_number = "
    "t.number AND j.state IN (" + _UNFINISHED + "))"
    " FROM tasks t WHERE t.model_id = {mark} AND t.number = {mark} AND {stops}"
)
_EVENTS = (
    "SELECT id, type, data, at FROM events WHERE job_id = {} AND id > {}{} ORDER BY id LIMIT {}"
)
_OWNER_EVENTS_OF_A_TYPE = {
    "?": "{about}type = {mark} AND id > {mark} ORDER BY id LIMIT {mark}",
    # PostgreSQL would walk through all events in the order of their ids, expecting many of the
    # type. Only the index of types has this order, and `>=` makes the planner expect as many rows
    # as there are.
    "%s": "{about}(type, id) >= ({mark}, {mark}) AND type <= {mark} ORDER BY type, id LIMIT {mark}",
}
"""Query for the events of one type after an id, by the placeholder of the database."""
_NEWEST_OWNER_EVENT_OF_A_TYPE = "SELECT max(id) AS id FROM owner_events WHERE {about}type = {mark}"
_KEY = (
    "SELECT k.id, k.owner_id, k.name, k.prefix, k.hash, k.scope, k.expires_at, k.revoked_at, "
    "k.last_used_at, p.model_id, m.name, p.alias"
    " FROM keys k LEFT JOIN predict_keys p ON p.key_id = k.id LEFT JOIN models m ON m.id = "
    "p.model_id WHERE k.prefix = {}"
)
_SESSION = (
    "SELECT k.id, k.owner_id, k.scope, k.expires_at, k.revoked_at, s.seen_at, s.expires_at, "
    "k.name, o.name FROM sessions s JOIN keys k ON k.id = s.key_id JOIN owners o ON o.id = "
    "k.owner_id WHERE s.hash = {}"
)

# Nothing is found where a prediction needs further look-ups: if an object is damaged, or if the
# model promises confident predictions. Damage is rare, so one question about any object saves a
# question about each part.
_VERSION_TO_PREDICT = (
    "SELECT v.id, m.scenario FROM models m JOIN versions v ON v.model_id = m.id"
    " WHERE m.{key} = {mark} AND m.owner_id = {mark} AND v.number = {number}"
    " AND m.deleted_at IS NULL AND m.base_job IS NULL AND m.answers IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM damage)"
)
_NEWEST_NUMBER = (
    "(SELECT max(p.number) FROM versions p WHERE p.model_id = m.id AND p.status = 'published')"
)
_NUMBER_OF_ALIAS = "(SELECT a.version FROM aliases a WHERE a.model_id = m.id AND a.name = {mark})"


@dataclass(frozen=True, slots=True)
class PolledVersionRow:
    """Id of a version that can predict without further look-ups, and its model's scenario."""

    id: str
    scenario: str


@dataclass(frozen=True, slots=True)
class PolledJobRow:
    """A job as read for polling clients; `revision`, `outcome`, `stop_task` and `base` make its
    ETag.

    Attributes:
        outcome: status of the version that it made.
        stop_task: the task that its lineage waits for, while the job is queued.
        base, base_job: state and id of the job that fetches the weights of its model's base, while
            it waits for them; the other `base_` fields describe the same job.
        wants_gpus: CUDA devices that it needs, while it is queued and cannot run without them.
        device_seen: time of the last report of a worker with so many devices.
    """

    id: str
    owner_id: str
    model_id: str
    task_id: str | None
    task_number: int | None
    state: str
    revision: int
    attempt: int
    progress: Progress
    error: JobError | None
    version: int | None
    recipe: RecipeOut
    retry_of: str | None
    warnings: list[str]
    created_at: float
    started_at: float | None
    finished_at: float | None
    kind: str
    report: BatchCheck | ExportReport | None
    outcome: str | None
    stop_task: int | None
    base: str | None
    base_job: str | None
    base_revision: int | None
    base_progress: dict[str, Any] | None
    base_error: JobError | None
    wants_gpus: int | None
    resume_on: str | None
    device_seen: float | None


@dataclass(frozen=True, slots=True)
class PolledJobEventRow:
    """One event of a job, as read for polling clients."""

    id: int
    type: EventType
    data: EventData
    at: float


@dataclass(frozen=True, slots=True)
class PolledOwnerEventRow:
    """One event of an owner's models, as read for polling clients."""

    id: int
    type: OwnerEventType
    model_id: str
    job_id: str | None
    data: OwnerEventData
    at: float


@dataclass(frozen=True, slots=True)
class OwnerEventFilter:
    """Filter for owner events: those of one model, else of one owner, else of everybody."""

    owner_id: str | None = None
    model_id: str | None = None

    def build_condition(self, mark: str) -> tuple[str, tuple[str, ...]]:
        """Return the SQL condition that selects the filtered owner events, and its values."""
        if self.model_id is not None:
            return f"model_id = {mark} AND ", (self.model_id,)
        return ("", ()) if self.owner_id is None else (f"owner_id = {mark} AND ", (self.owner_id,))


def build_owner_events_query(
    mark: str,
    about: OwnerEventFilter,
    after_id: int,
    limit: int,
    types: Sequence[str] | None = None,
) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL statement that reads an owner's events after an id, with its values.

    Each type is read by itself, in the order of an index, so that a rare type is found without a
    scan.
    """
    condition, condition_values = about.build_condition(mark)
    # Each type once: UNION ALL would return the events of a repeated one twice.
    types = tuple(dict.fromkeys(types or OWNER_EVENT_TYPES))
    where = _OWNER_EVENTS_OF_A_TYPE[mark].format(about=condition, mark=mark)
    columns = "id, type, model_id, job_id, data, at"
    part = f"SELECT * FROM (SELECT {columns} FROM owner_events WHERE {where}) of_type"  # noqa: S608
    query = f"{' UNION ALL '.join([part] * len(types))} ORDER BY id LIMIT {mark}"
    after = (
        (lambda type_: (type_, after_id))
        if mark == "?"
        else (lambda type_: (type_, after_id + 1, type_))
    )
    return query, (
        *(value for type_ in types for value in (*condition_values, *after(type_), limit)),
        limit,
    )


def build_newest_owner_event_query(
    mark: str, about: OwnerEventFilter
) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL statement that reads the id of the newest owner event, with its values."""
    condition, condition_values = about.build_condition(mark)
    part = _NEWEST_OWNER_EVENT_OF_A_TYPE.format(about=condition, mark=mark)
    query = f"SELECT max(id) FROM ({' UNION ALL '.join([part] * len(OWNER_EVENT_TYPES))}) newest"  # noqa: S608
    return query, tuple(
        value for type_ in OWNER_EVENT_TYPES for value in (*condition_values, type_)
    )


@dataclass(frozen=True, slots=True)
class PolledKeyRow:
    """Columns that checking an access key needs; for the scope predict also its model and alias."""

    id: str
    owner_id: str
    name: str
    prefix: str
    hash: str
    scope: str
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    model_id: str | None
    model_name: str | None
    alias: str | None


@dataclass(frozen=True, slots=True)
class PolledBrowserSessionRow:
    """Columns that checking a browser session needs: its key, last use and end, with the names of
    key and owner.
    """

    key_id: str
    owner_id: str
    scope: str
    key_expires_at: float | None
    key_revoked_at: float | None
    seen_at: float
    expires_at: float
    key_name: str
    owner_name: str


class PollingQueryReader(Protocol):
    """Base class that runs polling queries on one database system; `mark` is its placeholder for
    values.
    """

    mark: str
    stops: str

    async def fetch_rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run an SQL statement and return all rows. Raises Unavailable."""

    async def close(self) -> None:
        """Close the database connections of the reader."""

    def decode_json(self, value: Any) -> Any:
        """Decode the value of a JSON column as the database driver returned it."""


class PollingDatabaseReads:
    """Fast read-only database queries for clients that poll, in one event loop.

    Args:
        url: the database's URL, as `core.database.session.Database` takes it.
        connections: maximum number of PostgreSQL connections.
        timeout_s: longest wait for a response, in seconds.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, timeout_s: float = TIMEOUT_S
    ) -> None:
        parsed = make_url(url)
        self._reader: PollingQueryReader
        if parsed.get_backend_name() == "sqlite":
            self._reader = SqlitePollingReader(str(parsed.database))
        else:
            # imported here, since SQLite needs no psycopg
            from core.database.polling_postgresql import PostgresqlPollingReader

            # psycopg does not know the driver's name that SQLAlchemy has in the URL.
            dsn = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
            self._reader = PostgresqlPollingReader(dsn, connections, timeout_s)
        self._mark = self._reader.mark
        self._job_query = _JOB.format(mark=self._mark, stops=self._reader.stops)
        self._jobs: dict[str, tuple[tuple[Any, ...], PolledJobRow]] = {}
        """Job id → the row as it was read, and its decoded form."""

    async def close(self) -> None:
        """Close the database connections for polling queries."""
        await self._reader.close()

    async def find_job(self, job_id: str) -> PolledJobRow | None:
        """Read a job of any owner by its id; None if there is none. Raises Unavailable."""
        rows = await self._reader.fetch_rows(self._job_query, (job_id,))
        if not rows:
            return None
        row = rows[0]
        remembered = self._jobs.get(job_id)
        # Comparing the row is cheaper than decoding its JSON, and most polls find it unchanged.
        if remembered is not None and remembered[0] == row:
            return remembered[1]
        loads = self._reader.decode_json
        values = list(row)
        for column in _JOB_JSON:
            values[column] = loads(values[column])
        job = PolledJobRow(*values)
        texts = [row[column] for column in _JOB_JSON if row[column] is not None]
        # Only SQLite returns JSON as text; psycopg has decoded it already.
        if all(isinstance(text, str) for text in texts) and sum(map(len, texts)) <= JOB_CHARS:
            # Emptied at once: the jobs that are polled now fill it again.
            if len(self._jobs) >= JOBS_REMEMBERED:
                self._jobs.clear()
            self._jobs[job_id] = row, job
        return job

    async def read_task_state_if_stopping_lineage(
        self, model_id: str, task: int
    ) -> tuple[str, int | None, bool] | None:
        """Return a task's standing, newest version and relearning state, if it stops its model's
        lineage.

        None if the task no longer stops its lineage. Raises Unavailable.
        """
        rows = await self._reader.fetch_rows(
            _STOP.format(mark=self._mark, stops=self._reader.stops), (model_id, task)
        )
        return (rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None

    async def list_job_events(
        self, job_id: str, after_id: int, limit: int, types: Sequence[str] | None = None
    ) -> list[PolledJobEventRow]:
        """Return at most `limit` events of a job with an id above `after_id`, in order; `types`
        None: of every type.

        Raises:
            Unavailable: the database does not answer.
        """
        among = f" AND type IN ({', '.join([self._mark] * len(types))})" if types else ""
        query = _EVENTS.format(self._mark, self._mark, among, self._mark)
        rows = await self._reader.fetch_rows(query, (job_id, after_id, *(types or ()), limit))
        return [
            PolledJobEventRow(row[0], row[1], self._reader.decode_json(row[2]), row[3])
            for row in rows
        ]

    async def read_owner_events(
        self, about: OwnerEventFilter, after_id: int, limit: int, types: Sequence[str] | None = None
    ) -> list[PolledOwnerEventRow]:
        """Return at most `limit` events of an owner with an id above `after_id`; `types` None: of
        every type.

        Raises:
            Unavailable: the database does not answer.
        """
        query, values = build_owner_events_query(self._mark, about, after_id, limit, types)
        rows = await self._reader.fetch_rows(query, values)
        loads = self._reader.decode_json
        return [
            PolledOwnerEventRow(id_, type_, model, job, loads(data), at)
            for id_, type_, model, job, data, at in rows
        ]

    async def read_newest_owner_event_id(self, about: OwnerEventFilter) -> int:
        """Return the id of the newest event of an owner; 0 if there is none. Raises Unavailable."""
        rows = await self._reader.fetch_rows(*build_newest_owner_event_query(self._mark, about))
        return rows[0][0] or 0

    async def find_version_to_predict(
        self, owner_id: str, model: str, version: int | str | None
    ) -> PolledVersionRow | None:
        """Find a version of the owner's own model that can predict without further look-ups.

        Return None if there is none, if any stored object is damaged, or if the model promises
        confident predictions. Raises Unavailable.

        Args:
            model: id or name of the model.
            version: number or alias of the version; None: the newest published one.
        """
        number = _NUMBER_OF_ALIAS if isinstance(version, str) else self._mark
        query = _VERSION_TO_PREDICT.format(
            key="id" if is_id(model, "mdl") else "name",
            number=_NEWEST_NUMBER if version is None else number.format(mark=self._mark),
            mark=self._mark,
        )
        named = () if version is None else (version,)
        rows = await self._reader.fetch_rows(query, (model, owner_id, *named))
        return PolledVersionRow(*rows[0]) if rows else None

    async def find_key_by_prefix(self, prefix: str) -> PolledKeyRow | None:
        """Read the access key with a public prefix; None if there is none. Raises Unavailable."""
        rows = await self._reader.fetch_rows(_KEY.format(self._mark), (prefix,))
        return PolledKeyRow(*rows[0]) if rows else None

    async def find_session(self, digest: str) -> PolledBrowserSessionRow | None:
        """Read the browser session whose token has a given SHA-256; None if there is none. Raises
        Unavailable.
        """
        rows = await self._reader.fetch_rows(_SESSION.format(self._mark), (digest,))
        return PolledBrowserSessionRow(*rows[0]) if rows else None


# in WAL mode, readers do not wait for writers; only the last step of a checkpoint can block
_BUSY_MS = 250


class SqlitePollingReader:
    """Polling queries on SQLite through one read-only connection, which keeps statements prepared."""

    mark = "?"
    stops = "t.stops = 1"  # in the same form as in the partial index

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def fetch_rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run an SQL statement on SQLite and return all rows.

        Raises:
            DatabaseCorrupt: the file is damaged.
            Unavailable: the database does not respond.
        """
        try:
            if self._connection is None:
                self._connection = self._open_connection()
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            # The next read opens another connection, in case the error is that of this one.
            await self.close()
            if sqlite_damage.is_sqlite_damage_error(error):
                raise DatabaseCorrupt(sqlite_damage.DAMAGED) from error
            raise Unavailable("The database does not answer.", retry_after_s=1) from error

    def _open_connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON")
        return connection

    async def close(self) -> None:
        """Close the SQLite connection; the next read opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def decode_json(self, value: str | None) -> Any:
        """Decode the value of a JSON column, which SQLite returns as text."""
        return None if value is None else json.loads(value)
