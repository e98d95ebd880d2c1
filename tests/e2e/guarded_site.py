"""The service at its large size, with canaries as the passwords of database and broker."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import large_size
import postgresql
import psycopg
import redis
import redis_server
import sqlalchemy
from large_size import LargeSize
from sqlalchemy.engine import make_url

from tests.rest import Rest

PREFIX = "journeys"
"""The prefix of the service's objects in the bucket that all tests share."""
SETTINGS = {
    "PERENNIAL_CHORES_S": "1",
    "PERENNIAL_SNAPSHOT_S": "0.5",
    "PERENNIAL_MAX_REQUESTS_PER_S": "1000",
}


@dataclass
class Site:
    """A service at its large size and the servers that it uses.

    Attributes:
        client: has the admin key.
        broker: may be frozen, but not restarted: it would lose its password.
        passwords: canaries by name.
        points: the folder in which points of `core/failpoints.py` are armed.
    """

    large: LargeSize
    client: Rest
    broker: redis_server.RedisServer
    passwords: dict[str, str]
    points: Path

    def end_lease(self, job: str) -> None:
        """Expire the lease of a job, as time does a minute after its worker has died."""
        engine = sqlalchemy.create_engine(self.large.environment["PERENNIAL_DATABASE_URL"])
        with engine.begin() as connection:
            connection.execute(
                sqlalchemy.text("UPDATE jobs SET lease_until = 0 WHERE id = :job"), {"job": job}
            )
        engine.dispose()


def make_canary(name: str) -> str:
    """Make a secret that no other text contains."""
    return f"Canary{name}{secrets.token_hex(8)}"


@contextmanager
def run_guarded_site(folder: Path, s3: Any) -> Iterator[Site]:
    """Start the service with one worker; stop it and remove its data afterwards.

    A worker takes seconds to import its modules: the few tests that need a second one start it
    themselves.
    """
    passwords = {name: make_canary(name) for name in ("Database", "Redis")}
    with ExitStack() as stack:
        broker = redis_server.RedisServer()
        stack.callback(broker.close)
        broker.start()
        with redis.Redis.from_url(broker.url) as admin:
            admin.config_set("requirepass", passwords["Redis"])
        url = broker.url.replace("redis://", f"redis://:{passwords['Redis']}@")
        database = stack.enter_context(_make_database(passwords["Database"]))
        points = folder / "points"
        points.mkdir()
        store = s3.url(s3.bucket, PREFIX)
        settings = {**SETTINGS, "PERENNIAL_STORE_URL": store, "PERENNIAL_KILL_POINTS": str(points)}
        only = large_size.WORKERS[:1]
        running = large_size.run_large_size(folder, database, url, s3, workers=only, **settings)
        large, client = stack.enter_context(running)
        yield Site(large, client, broker, passwords, points)


@contextmanager
def _make_database(password: str) -> Iterator[str]:
    """Make a database that belongs to a role with this password, and drop both afterwards."""
    url, role = make_url(postgresql.create_database()), f"canary_{secrets.token_hex(4)}"
    server = (
        postgresql.get_server_url()
        .set(drivername="postgresql")
        .render_as_string(hide_password=False)
    )
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
        connection.execute(f'ALTER DATABASE "{url.database}" OWNER TO {role}'.encode())
        try:
            yield url.set(username=role, password=password).render_as_string(hide_password=False)
        finally:
            postgresql.drop_database(url.render_as_string(hide_password=False))
            connection.execute(f"DROP ROLE {role}".encode())
