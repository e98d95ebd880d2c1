"""Databases on a running PostgreSQL server, dropped after a test; and servers for fault tests."""

import getpass
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import processes
import psutil
import psycopg
from sqlalchemy.engine import URL, make_url

DEFAULT_URL = "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
ADVICE = (
    "Start PostgreSQL 15 or later (`docker compose -f tests/services/docker-compose.yml up -d`), "
    "or set PERENNIAL_TEST_DATABASE_URL to a server whose user may create databases."
)


def get_server_url() -> URL:
    """Return the server for test databases: PERENNIAL_TEST_DATABASE_URL, else the local one."""
    return make_url(os.environ.get("PERENNIAL_TEST_DATABASE_URL", DEFAULT_URL))


def _connect_to_server(limit_s: int = 60) -> "psycopg.Connection[tuple[object, ...]]":
    url = get_server_url().set(drivername="postgresql")
    return psycopg.connect(
        url.render_as_string(hide_password=False), autocommit=True, connect_timeout=limit_s
    )


def explain_absence() -> str | None:
    """Return why the server cannot be used, or None."""
    try:
        with _connect_to_server(limit_s=2):  # before tests that would be left out without it
            return None
    except psycopg.Error as error:
        return str(error).strip().splitlines()[0]


def create_database(template: str = "template1") -> str:
    """Make a database and return its SQLAlchemy URL (with the password, if there is one)."""
    name = f"perennial_test_{secrets.token_hex(6)}"
    try:
        with _connect_to_server() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
            # No test outlives the server, so no commit needs to wait for its disk.
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    except psycopg.OperationalError as error:
        raise processes.ServiceMissing(f"PostgreSQL does not answer: {error}\n{ADVICE}") from error
    return get_server_url().set(database=name).render_as_string(hide_password=False)


def drop_database(url: str) -> None:
    """Drop a database, even if clients are still connected to it."""
    with _connect_to_server() as connection:
        connection.execute(
            f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)'.encode()
        )


def get_database_name(url: str) -> str:
    """Return the name of the database in a URL of `create_database`."""
    return make_url(url).database or ""


class Cluster:
    """A server with one database, which can be stopped, frozen and started again.

    If root runs it, it belongs to the user postgres.

    Args:
        parent: folder in which its own folder is made.
    """

    def __init__(self, parent: Path) -> None:
        self._bin = _find_programs()
        self.port = processes.find_free_ports(1)[0]
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"
        self.folder = Path(tempfile.mkdtemp(prefix="perennial-postgresql-", dir=parent))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        options = ["-U", "postgres", "--auth=trust", "--no-sync", "--wal-segsize=1"]
        self._run("initdb", *options)
        settings = {
            "port": self.port,
            "unix_socket_directories": f"'{self.folder}'",
            "max_wal_size": "16MB",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write("\n".join([*lines, "listen_addresses = '127.0.0.1'", ""]))

    def start(self) -> None:
        """Start the server unless it runs, and wait until it answers."""
        if not self.running():
            self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: `immediate` as in a crash, `fast` with connections closed in order."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def empty(self) -> None:
        """Drop all tables."""
        plain = (
            make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        )
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")

    def freeze(self) -> None:
        """Suspend all processes: the kernel accepts connections, but no answer comes."""
        for process in self._processes():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the processes after `freeze`."""
        for process in self._processes():
            process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the server and remove all data."""
        self.thaw()
        if self.running():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def running(self) -> bool:
        """Return whether the server's main process is alive."""
        return bool(self._processes())

    def _processes(self) -> list[psutil.Process]:
        with suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            first = psutil.Process(
                int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
            )
            return [first, *first.children(recursive=True)]
        return []

    def _run(self, program: str, *arguments: str) -> None:
        as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*as_user, str(self._bin / program), "-D", str(self.folder / "data"), *arguments]
        # Its output must be a file: the server inherits it, and a pipe would never end.
        with (self.folder / f"{program}.log").open("ab") as log:
            done = subprocess.run(command, cwd=self.folder, stdout=log, stderr=log, check=False)
        if done.returncode:
            told = (self.folder / f"{program}.log").read_text(errors="replace")[-1000:]
            raise processes.ServiceMissing(f"{program} failed for {getpass.getuser()}: {told}")


def _find_programs() -> Path:
    """Return the folder of the newest installed `initdb`."""
    found = shutil.which("initdb")
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[4])
    )
    if found is None and not folders:
        raise processes.ServiceMissing(
            "There is no initdb on the path or under /usr/lib/postgresql: install PostgreSQL."
        )
    return Path(found).parent if found else folders[-1].parent
