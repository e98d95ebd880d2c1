"""Signs of life of a job process, between its other events."""

from __future__ import annotations

import time
from collections.abc import Callable

from core.protocol.job_event import AliveEvent, JobEvent

PERIOD_S = 5.0
"""Seconds between two signs; PERENNIAL_STALL_S is a hundred times as long."""


class Pulse:
    """Emits an `alive` event when called, at most once in `PERIOD_S` seconds.

    Calls in between are cheap, so it can be called in every round of a loop.

    Args:
        emit: receives the event.
    """

    def __init__(self, emit: Callable[[JobEvent], None]) -> None:
        self._emit = emit
        self._next_at = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + PERIOD_S
            self._emit(AliveEvent())
