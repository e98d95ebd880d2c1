"""Keeps the lease of one job alive from a thread of its own, and hears what is asked of the job.

A beat every sixth of the lease. Each also returns the job's state, which is how a cancel or a pause
reaches the worker; in between the state is read every second, which costs one indexed read. A database
that does not answer does not end the work: nobody else can claim the job meanwhile either, and every
write is fenced. Only the answer "not yours" does.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.db.states import State
from core.errors import PerennialError

log = structlog.get_logger(__name__)

BEATS_PER_LEASE = 6
LOOK_S = 1.0


class Heartbeat:
    """A context manager: beats while its block runs.

    Args:
        beat: extends the lease; returns the job's state, or None when the lease is lost.
        look: reads the state without extending; None when lost.
        lease_s: seconds that one beat is good for.
    """

    def __init__(
        self, beat: Callable[[], State | None], look: Callable[[], State | None], lease_s: float
    ) -> None:
        self._beat = beat
        self._look = look
        self._every_s = lease_s / BEATS_PER_LEASE
        self._look_s = min(LOOK_S, self._every_s)
        self._end = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._state: State | None = State.RUNNING
        self._failing = False

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._wake.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        """Whether another worker may own the job: write nothing more."""
        return self._state is None

    @property
    def state(self) -> State | None:
        """The job's state at the last answer; None when the lease is lost."""
        return self._state

    @property
    def asked(self) -> State | None:
        """CANCELLING or PAUSING when somebody asked for it, else None."""
        return self._state if self._state in (State.CANCELLING, State.PAUSING) else None

    def wake(self) -> None:
        """Look now: somebody rang."""
        self._wake.set()

    def _run(self) -> None:
        next_beat = time.monotonic()  # the first at once: preparing may already have taken a while
        while not self._end.is_set() and self._state is not None:
            now = time.monotonic()
            if now >= next_beat or self._failing:  # after an outage the lease may have run out already
                next_beat = now + self._every_s
                self._ask(self._beat)
            else:
                self._ask(self._look)
            self._wake.wait(min(self._look_s, max(0.0, next_beat - time.monotonic())))
            if not self._end.is_set():
                self._wake.clear()

    def _ask(self, question: Callable[[], State | None]) -> None:
        try:
            self._state = question()
        except (SQLAlchemyError, PerennialError, OSError) as error:
            if not self._failing:
                log.warning("heartbeat not answered", error=type(error).__name__)
            self._failing = True
            return
        if self._failing:
            log.info("heartbeat answered again")
        self._failing = False  # None is no news of its own: so ends every job that was just published
