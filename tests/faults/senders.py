"""A service of either size, and machines that send batches to it with the command line.

In the large size two API processes and two workers share PostgreSQL, Redis and S3, and machines
send to different API processes. In the small size an API process and a worker share a folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from running_site import API, ROOT, WORKERS, Site

PATIENCE_S = 300
OTHER_API = "api-2"


@dataclass
class Story:
    """A service that runs, its admin key, and machines that send to it: each has a home of
    its own.
    """

    site: Site
    key: str
    folder: Path
    sent: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def workers(self) -> tuple[str, ...]:
        return WORKERS if self.site.large else WORKERS[:1]

    @property
    def apis(self) -> tuple[str, ...]:
        return (API, *self.site.other_apis)

    def port(self, machine: str) -> int:
        """The port of the API process that a machine sends to: the first for a, the next for b."""
        ports = [self.site.port_of(name) for name in self.apis]
        return ports[(ord(machine[0]) - ord("a")) % len(ports)]

    def start(self) -> None:
        """Start all processes, and wait until each API process answers."""
        for name in (*self.apis, *self.workers):
            self.site.start(name)
        self.until(self.is_ready)

    def command(
        self, *words: str, machine: str = "a", port: int | None = None
    ) -> subprocess.Popen[str]:
        """Begin a command of the client on a machine."""
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        own = {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home),
            "PERENNIAL_URL": f"http://127.0.0.1:{port or self.port(machine)}",
            "PERENNIAL_API_KEY": self.key,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "perennial", *words],
            cwd=ROOT, env={**os.environ, **own}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.sent.append(process)
        return process

    def run(self, *words: str, **options: Any) -> tuple[int, str]:
        """Run a command to its end; return its exit status and all that it printed."""
        process = self.command(*words, **options)
        out, told = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out + told

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.get(f"{self.site.url}/v1{path}", headers=headers, timeout=60).json()

    def count_tasks(self, model: str) -> int:
        return len(self.get(f"/models/{model}/tasks?limit=100")["items"])

    def has_task(self, model: str) -> bool:
        return self.count_tasks(model) > 0

    def wait_for_tasks(self, model: str, number: int) -> None:
        """Wait until a model has so many tasks."""
        self.until(lambda: self.count_tasks(model) >= number)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """No job begins in the block: the workers are away."""
        for name in self.workers:
            self.site.processes[name].terminate()
        for name in self.workers:
            self.site.processes[name].wait(PATIENCE_S)
        try:
            yield
        finally:
            for name in self.workers:
                self.site.start(name)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a service that does not answer meets none."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._meets(condition):
            assert time.monotonic() < deadline, (self.site.folder / f"{API}.log").read_text()[
                -3000:
            ]
            time.sleep(0.05)

    @staticmethod
    def _meets(condition: Callable[[], bool]) -> bool:
        with suppress(httpx2.TransportError):
            return condition()
        return False

    def arm(self, point: str) -> None:
        (self.site.points / point).write_text("")

    def revive(self) -> None:
        """Start again what has died, and wait until it answers."""
        self.site.revive()
        self.until(self.is_ready)

    def is_ready(self) -> bool:
        """Return True when each API process answers."""
        ports = [self.site.port_of(name) for name in self.apis]
        return all(
            httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
            for port in ports
        )

    def until_dead(self, *names: str) -> None:
        """Wait until one of some processes has died."""
        self.until(lambda: any(self.site.processes[name].poll() is not None for name in names))


@dataclass
class Sent:
    """A model, and one batch of it in three containers."""

    model: str
    zipped: str
    tarred: str
    folder: str
