"""Recurring work of every worker beside its job, in threads; safe in all workers at once.

The chores take back jobs whose lease ran out, and notify workers again of jobs that have waited 5 s
without a notification. They also touch `worker-alive` in the data directory. The age of that file
is the worker's health check, since a Celery worker that runs a job does not answer a ping. A worker
whose device is lost writes the reason into `device-lost-HOST` instead. Sweeps may take long and
have a thread of their own: they remove what is no longer needed, and measure the usage of owners.
The scrub, which hashes all stored objects, has its own thread too, and so have deliveries to
webhooks (`core.webhooks.deliver`).
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
"""Beginning of the name of the file that explains why the worker of a host is not healthy.

`deploy/health.py` reads it.
"""
SWEEP_S = 60.0
"""Seconds between sweeps; sweeping lists objects of the store, so it is rarer than other chores."""
CLOSE_S = 5.0
"""Seconds to wait for a chore at the end.

A long sweep may be cut short, since each of its steps can be repeated.
"""


def get_lost_device_report_file(data_dir: Path, worker: str) -> Path:
    """Return the path of the file by which a worker reports that its device is lost.

    Several workers may share host and data directory. Names of hosts have no underscore, so the
    files of one host can be told from those of another.
    """
    return data_dir / f"{LOST}{socket.gethostname()}_{worker.rpartition('-')[2]}"


class PeriodicChores:
    """A background thread that calls maintenance functions of a worker again and again.

    Args:
        name: name of the thread.
        period_s: seconds between rounds.
        chores: functions called in every round, in order, by their names in the log.
    """

    def __init__(self, name: str, period_s: float, chores: dict[str, Callable[[], object]]) -> None:
        self._period_s = period_s
        self._chores = chores
        self._failing: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run_chore_rounds, name=name, daemon=True)

    def start_chores_thread(self) -> None:
        """Start the maintenance thread; the first round begins at once."""
        self._thread.start()

    def stop_starting_chores(self) -> None:
        """Begin no further maintenance function; the one in progress goes on."""
        self._end.set()

    def wait_within_chore(self, seconds: float) -> bool:
        """Wait inside a long maintenance function; return True if the worker is ending."""
        return self._end.wait(seconds)

    def end_chores_thread(self) -> None:
        """End the maintenance thread after the function in progress."""
        self.stop_starting_chores()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def run_chores_once(self) -> None:
        """Call each maintenance function of the worker once."""
        for name, chore in self._chores.items():
            if self._end.is_set():
                return
            self._run_chore_logging_errors(name, chore)

    def _run_chore_logging_errors(self, name: str, chore: Callable[[], object]) -> None:
        """Call a maintenance function, and log errors so that the thread continues."""
        try:
            chore()
        except (SQLAlchemyError, PerennialError, OSError) as error:
            if name not in self._failing:  # once per outage, not once per round
                log.warning("chore failed", chore=name, error=str(error).partition("\n")[0])
            self._failing.add(name)
        # A mistake in one chore must not end the thread, or no job would be reaped any more.
        except Exception:
            log.exception("chore failed", chore=name)
        else:
            if name in self._failing:
                log.info("chore works again", chore=name)
            self._failing.discard(name)

    def _run_chore_rounds(self) -> None:
        while not self._end.is_set():
            self.run_chores_once()
            self._end.wait(self._period_s)
