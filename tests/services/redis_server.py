"""A Redis server of the test session's own, on a free port, with nothing on disk."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import processes

ADVICE = (
    "Install redis-server (tests then start their own), start one"
    " (`docker compose -f tests/services/docker-compose.yml up -d`), or set "
    "PERENNIAL_TEST_REDIS_URL."
)


def get_shared_url() -> str:
    """Return the server to use when there is no `redis-server` to start."""
    return os.environ.get("PERENNIAL_TEST_REDIS_URL", "redis://127.0.0.1:6379/15")


def can_start_server() -> bool:
    """Tell whether tests can start a server of their own."""
    return shutil.which("redis-server") is not None


def explain_absence() -> str | None:
    """Return why no Redis can be used, or None."""
    if can_start_server():
        return None
    parts = urlsplit(get_shared_url())
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379), 1.0).close()
    except OSError as error:
        return f"no redis-server on the path, and {parts.hostname}:{parts.port or 6379}: {error}"
    return None


class RedisServer:
    """A server that tests may stop, freeze and start again on the same port."""

    def __init__(self) -> None:
        if not can_start_server():
            raise processes.ServiceMissing(f"There is no redis-server on the path. {ADVICE}")
        self.port = processes.find_free_ports(1)[0]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = Path(tempfile.mkdtemp(prefix="perennial-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it listens."""
        log = self._folder / "log"
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = processes.start_process(
            ["redis-server", *options, "--dir", self._folder], log
        )
        processes.wait_for_port(self._process, self.port, log)

    def stop(self) -> None:
        """Kill it: connections are refused until `start`, and what it held is lost."""
        if self._process is not None:
            processes.stop_process(self._process)
            self._process = None

    def freeze(self) -> None:
        """Accept connections and stay silent."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop and leave nothing."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
