"""A database and the API process on it: benchmarks ask a small one and a full one in turns."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil
import psycopg
from sqlalchemy.engine import make_url

from bench.service.fill import fill_database_with_generated_rows
from bench.service.million_files import store_real_files_for_reads
from bench.service.series import GeneratedRowCounts, make_generated_row_id, make_owner_name
from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.keys import keys
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import open_object_store
from tools import service


@dataclass
class DatabaseWithApi:
    """A filled database with an API process on it, to compare with another one."""

    size: GeneratedRowCounts
    settings: Settings
    url: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    process: int = 0

    def count_cpu_seconds(self) -> float:
        """Return the CPU seconds of the API process and of PostgreSQL's processes for it."""
        pids = [self.process]
        if self.settings.database_url:
            db = Database(self.settings.database_url, pool=1)
            with db.read() as session:
                query = (
                    "SELECT pid FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                pids += session.connection().exec_driver_sql(query).scalars()
            db.close()
        times = [psutil.Process(pid).cpu_times() for pid in pids if psutil.pid_exists(pid)]
        return float(sum(one.user + one.system for one in times))

    def first_model_id(self) -> str:
        """Return the id of the first generated model."""
        return make_generated_row_id("mdl", 0)

    def measured_job_id(self) -> str:
        """Return the id of the job whose reading is measured."""
        return make_generated_row_id("job", 49 * self.size.models)


def create_filled_database(
    folder: Path, server: str, name: str, size: GeneratedRowCounts
) -> DatabaseWithApi:
    """Create and fill a database of a given size, on PostgreSQL or SQLite."""
    data = folder / name
    data.mkdir(parents=True, exist_ok=True)
    url = _ensure_database_and_get_url(server, f"perennial_bench_{name}") if server else ""
    settings = Settings(data_dir=data, database_url=url)
    db = Database(settings.resolved_database_url, statement_s=3600)
    upgrade_schema(db)
    with db.read() as session:
        base_count = session.connection().exec_driver_sql("SELECT count(*) FROM bases").scalar_one()
    if not base_count:
        print(f"filling {name}: {size.task_count:,} tasks")
        fill_database_with_generated_rows(db, size)
        store = open_object_store(settings)
        store.create_folder_or_bucket()
        store_real_files_for_reads(db, store, settings, size)
    side = DatabaseWithApi(size, settings)
    nobody = Actor("", None, "admin")
    for who, owner, scope in (
        ("owner", make_owner_name(0), "write"),
        ("admin", keys.ADMIN_OWNER, "admin"),
    ):
        with db.write() as session:  # the audit row of a new key needs an owner
            nobody = Actor(
                keys._find_or_add_owner(session, owner, db.now(session)).id, None, "admin"
            )
        new_key = keys.create_key(db, nobody, keys.RequestedKey("bench", scope, owner))
        side.keys[who] = str(new_key["secret"])
    db.close()
    return side


def _ensure_database_and_get_url(server: str, name: str) -> str:
    url = make_url(server)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        if not connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", (name,)
        ).fetchone():
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return url.set(database=name).render_as_string(hide_password=False)


@contextmanager
def serve_database_by_api(side: DatabaseWithApi) -> Iterator[None]:
    """Run an API process on a database within the block, without a worker."""
    port = service.find_free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "api.app:create_app",
        "--port",
        str(port),
    ]
    command += ["--http", "api.server.connection:LimitedHttpConnection", "--no-server-header"]
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": str(side.settings.data_dir),
        "PERENNIAL_DATABASE_URL": side.settings.database_url,
    }
    with (side.settings.data_dir / "api.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--no-access-log", "--log-level", "warning"],
            cwd=service.ROOT,
            env=environment,
            stderr=log,
        )
    side.url, side.process = f"http://127.0.0.1:{port}", process.pid
    try:
        _wait_until_ready(side.url, process)
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx2.get(f"{url}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"The API at {url} did not get ready.")
