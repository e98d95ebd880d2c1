"""The service in its large size.

An API process and Celery workers run over PostgreSQL, Redis and S3. They are started by hand like
the README's commands. Each process has its own data directory and log, so that tests can disturb
one and inspect the others.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psutil
import sqlalchemy

from tests.rest import Rest
from tools import service

T = TypeVar("T")
WORKERS = ("one", "two")
BIN = Path(sys.executable).parent


def build_api_command(port: int) -> list[str]:
    """Return the README's command for an API process, on the loopback address."""
    command = [
        str(BIN / "uvicorn"),
        "--factory",
        "perennial_service.asgi:create_app",
        "--port",
        str(port),
    ]
    return [*command, "--http", "perennial_service.asgi:Connection", "--no-server-header"]


def build_worker_command(name: str) -> list[str]:
    """Return the README's command for a Celery worker, with a name of its own."""
    command = [
        str(BIN / "celery"),
        "-A",
        "perennial_service.celery_app",
        "worker",
        "-P",
        "solo",
        "-n",
        f"{name}@%h",
    ]
    return [*command, "--without-gossip", "--without-mingle"]


@dataclass
class LargeSize:
    """Running processes by name (`api` and those of `WORKERS`), and their output.

    Args:
        folder: contains a folder for each process.
        environment: the settings that all of them share.
    """

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=service.find_free_port)
    processes: dict[str, psutil.Popen] = field(default_factory=dict)

    def migrate(self) -> None:
        """Bring the database and the bucket up to date, as an operator does first."""
        self._run([str(BIN / "alembic"), "upgrade", "head"], "migrate")

    def start_api(self, **environment: str) -> Rest:
        """Start the API process, wait until it is ready, and return a client with the admin key."""
        self._start("api", build_api_command(self.port), environment)
        self.until(self._ready, service.START_S)
        return Rest(self.url, (self.data("api") / "admin-key").read_text().strip())

    def start_worker(self, name: str) -> psutil.Popen:
        """Start a Celery worker."""
        return self._start(name, build_worker_command(name), {})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def data(self, name: str) -> Path:
        """Return the data directory of a process."""
        return self.folder / name

    def log(self, name: str) -> str:
        """Return the log that a process has written so far."""
        return (self.data(name) / "log").read_text(errors="replace")

    def worker_of(self, job: str) -> str | None:
        """Return the name of the worker that holds a job now."""
        holder = self.rows("SELECT worker FROM jobs WHERE id = :job", job=job)[0][0]
        for name in WORKERS:
            if (
                name in self.processes
                and holder is not None
                and f"-{self.processes[name].pid}-" in holder
            ):
                return name
        return None

    def rows(self, query: str, **values: Any) -> list[Any]:
        """Return the rows that a query of the database gives."""
        engine = sqlalchemy.create_engine(self.environment["PERENNIAL_DATABASE_URL"])
        try:
            with engine.connect() as connection:
                return list(connection.execute(sqlalchemy.text(query), values))
        finally:
            engine.dispose()

    def until(self, condition: Callable[[], T], seconds: float = 60.0) -> T:
        """Wait until `condition()` is true, and return its value.

        On failure, the error has the ends of all logs.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"Not within {seconds:g} s.\n{self.logs()}")

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"── {name}\n{self.log(name)[-3000:]}" for name in self.processes)

    def stop(self, name: str) -> float:
        """Stop a process in order, and return the number of seconds that this took."""
        process, begin = self.processes.pop(name), time.monotonic()
        end_process(process)
        return time.monotonic() - begin

    def close(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            end_process(process)

    def _ready(self) -> bool:
        assert self.processes["api"].poll() is None, self.log("api")[-4000:]
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False  # not listening yet

    def _environment(self, name: str, more: Mapping[str, str]) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            **more,
            "PERENNIAL_DATA_DIR": str(self.data(name)),
        }

    def _run(self, command: Sequence[str], name: str) -> None:
        subprocess.run(command, cwd=service.ROOT, env=self._environment(name, {}), check=True)

    def _start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> psutil.Popen:
        self.data(name).mkdir(exist_ok=True)
        service.link_shared_test_catalogue(self.data(name))
        with (self.data(name) / "log").open("ab") as log:
            process = psutil.Popen(
                command,
                cwd=service.ROOT,
                env=self._environment(name, environment),
                stdout=log,
                stderr=log,
            )
        self.processes[name] = process
        return process


def end_process(process: psutil.Popen) -> None:
    """Ask a process to end and wait for it; kill it after a minute."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(60)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()
        raise


@contextmanager
def run_large_size(
    folder: Path,
    database: str,
    broker: str,
    s3: Any,
    *,
    workers: Sequence[str] = WORKERS,
    **environment: str,
) -> Iterator[tuple[LargeSize, Rest]]:
    """Run the whole service with some workers.

    Yield it with a client that has its admin key.
    """
    common = {
        **s3.environment(),
        "PERENNIAL_DATABASE_URL": database,
        "PERENNIAL_BROKER_URL": broker,
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_CHORES_S": "1",
        **environment,
    }
    large = LargeSize(folder, common)
    try:
        large.migrate()
        for name in workers:
            large.start_worker(name)
        yield large, large.start_api()
    finally:
        large.close()
