"""What every worker does beside its job, in threads: safe in all workers at once.

The chores: take back jobs whose lease ran out, ring again for jobs that wait and nobody rang for in 5 s, and touch
`worker-alive` in the data directory: the age of that file is the worker's health check, since a Celery worker that
runs a job answers no ping. A worker whose device is lost writes the reason into `device-lost-HOST` instead. The sweeps,
which may take long and so have a thread of their own: remove what nobody needs any more, and measure what owners have.
The scrub, which hashes all that is stored, has one too, and so have deliveries to webhooks (`core.work.deliver`).
"""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.errors import PerennialError

log = structlog.get_logger(__name__)

ALIVE = "worker-alive"
LOST = "device-lost-"
"""Begins the name of the file that says why the worker of a host is not healthy; `deploy/health.py` reads it."""
SWEEP_S = 60.0
"""Sweeping lists objects of the store, so it is rarer than the other chores."""
CLOSE_S = 5.0
"""A long sweep may be cut short: each of its steps can be repeated."""


def lost_file(data_dir: Path, worker: str) -> Path:
    """Return the file that says that the device of this worker is lost; several may share host and data directory.

    Names of hosts have no underscore, so that the files of one are told from those of another.
    """
    return data_dir / f"{LOST}{socket.gethostname()}_{worker.rpartition('-')[2]}"


class Chores:
    """A thread that does some chores again and again.

    Args:
        name: of the thread.
        period_s: seconds between rounds.
        chores: done in every round, in order; each by its name in the log.
    """

    def __init__(self, name: str, period_s: float, chores: dict[str, Callable[[], object]]) -> None:
        self._period_s = period_s
        self._chores = chores
        self._failing: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first round is at once."""
        self._thread.start()

    def end(self) -> None:
        """Begin no other chore."""
        self._end.set()

    def pause(self, seconds: float) -> bool:
        """Wait inside a chore that takes long; True: it is to end."""
        return self._end.wait(seconds)

    def close(self) -> None:
        """End the thread after its present chore."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def round(self) -> None:
        """Do everything once."""
        for name, chore in self._chores.items():
            if self._end.is_set():
                return
            self._do(name, chore)

    def _do(self, name: str, chore: Callable[[], object]) -> None:
        try:
            chore()
        except (SQLAlchemyError, PerennialError, OSError) as error:
            if name not in self._failing:  # once per outage, not once per round
                log.warning("chore failed", chore=name, error=str(error).partition("\n")[0])
            self._failing.add(name)
        except Exception:
            log.exception("chore failed", chore=name)
        else:
            if name in self._failing:
                log.info("chore works again", chore=name)
            self._failing.discard(name)

    def _run(self) -> None:
        while not self._end.is_set():
            self.round()
            self._end.wait(self._period_s)
