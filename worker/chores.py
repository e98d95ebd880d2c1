"""What every worker does beside its job, in a thread: safe in all workers at once.

Takes back jobs whose lease ran out, rings again for jobs that wait and nobody rang for in 5 s, sweeps
what nobody needs any more, and touches `worker-alive` in the data directory: the age of that file is the
worker's health check, since a Celery worker that runs a job answers no ping.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.errors import PerennialError

log = structlog.get_logger(__name__)

ALIVE = "worker-alive"
SWEEP_S = 60.0
"""Sweeping lists objects of the store, so it is rarer than the other chores."""
CLOSE_S = 10.0
"""A long sweep may be cut short: each of its steps can be repeated."""


class Chores:
    """The chores thread of one worker.

    Args:
        data_dir: where the file `worker-alive` is touched.
        period_s: seconds between rounds.
        rounds: done every round, in order; each by its name in the log.
        sweeps: done at most every `SWEEP_S` seconds.
    """

    def __init__(
        self,
        data_dir: Path,
        period_s: float,
        rounds: dict[str, Callable[[], object]],
        sweeps: dict[str, Callable[[], object]],
    ) -> None:
        self._alive = data_dir / ALIVE
        self._period_s = period_s
        self._rounds = rounds
        self._sweeps = sweeps
        self._swept_at = -SWEEP_S
        self._failing: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def start(self) -> None:
        """Start the thread; the first round is at once."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after its present round."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def round(self) -> None:
        """Do everything that is due once."""
        now = time.monotonic()
        due = dict(self._rounds)
        if now - self._swept_at >= max(SWEEP_S, self._period_s):
            self._swept_at = now
            due |= self._sweeps
        for name, chore in due.items():
            self._do(name, chore)
        try:
            self._alive.touch()
        except OSError as error:
            log.warning("cannot touch the health file", error=str(error))

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
