"""Renewal of a job's lease from a thread of its own, and detection of requests to stop the job.

A beat comes every sixth of the lease. Each also returns the job's state, by which a cancellation or
a pause reaches the worker; in between, the state is read every second, which costs one indexed
read. If the database does not respond, work continues: no other worker can claim the job meanwhile,
and every write is fenced. Only the response that the lease is lost ends it.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.database.states import JobState
from core.errors import PerennialError

log = structlog.get_logger(__name__)

# `worker.reaper` relies on this: a beat is at most a sixth of a lease old.
BEATS_PER_LEASE = 6
LOOK_S = 1.0


class LeaseHeartbeat:
    """Context manager whose thread extends the lease on a job and reads the job's state.

    Args:
        beat: function that extends the lease, and returns the job's state, or None if the lease is
            lost.
        look: function that reads the state without extending the lease; None if it is lost.
        lease_s: seconds by which one beat extends the lease.
    """

    def __init__(
        self,
        beat: Callable[[], JobState | None],
        look: Callable[[], JobState | None],
        lease_s: float,
    ) -> None:
        self._beat = beat
        self._look = look
        self._every_s = lease_s / BEATS_PER_LEASE
        self._look_s = min(LOOK_S, self._every_s)
        self._end = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_lease_until_stopped, name="heartbeat", daemon=True
        )
        self._state: JobState | None = JobState.RUNNING
        self._failing = False

    def __enter__(self) -> "LeaseHeartbeat":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        # Otherwise, the end of each job would wait for the thread's pause.
        self._wake.set()
        self._thread.join()

    @property
    def is_lease_lost(self) -> bool:
        """True if the lease on the job is lost: another worker may own it, so nothing may be
        written.
        """
        return self._state is None

    @property
    def job_state(self) -> JobState | None:
        """State of the job when it was last read; None if the lease is lost."""
        return self._state

    @property
    def requested_state(self) -> JobState | None:
        """CANCELLING or PAUSING if a person requested that the job stops, else None."""
        return self._state if self._state in (JobState.CANCELLING, JobState.PAUSING) else None

    def wake_to_read_job_state(self) -> None:
        """Have the heartbeat thread read the job's state now."""
        self._wake.set()

    def _renew_lease_until_stopped(self) -> None:
        # the first at once, since preparing may already have taken a while
        next_beat = time.monotonic()
        while not self._end.is_set() and self._state is not None:
            now = time.monotonic()
            # after an outage, the lease may have run out already
            if now >= next_beat or self._failing:
                next_beat = now + self._every_s
                self._update_job_state(self._beat)
            else:
                self._update_job_state(self._look)
            self._wake.wait(min(self._look_s, max(0.0, next_beat - time.monotonic())))
            if not self._end.is_set():
                self._wake.clear()

    def _update_job_state(self, question: Callable[[], JobState | None]) -> None:
        try:
            self._state = question()
        # No answer is not a lost lease: the work goes on, and the fence guards every write.
        except (SQLAlchemyError, PerennialError, OSError) as error:
            if not self._failing:
                log.warning("heartbeat not answered", error=type(error).__name__)
            self._failing = True
            return
        if self._failing:
            log.info("heartbeat answered again")
        # None is not logged, since every job that was just published ends this way
        self._failing = False
