"""Running and reporting of a job process: events as JSON lines on a pipe, the outcome last.

Between other events, `ThrottledAliveEventEmitter` gives signs of life.
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable

from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_event import (
    AliveEvent,
    JobEvent,
    JobFailedEvent,
    MetricEvent,
    StoppedEvent,
)
from core.learning.data.dataset import DataError
from core.learning.export.graph import ExportFailed
from core.learning.reports.data_report import BatchHeldSignal
from core.learning.training.control import EXIT_ORPHANED
from core.learning.training.failures import classify_job_error, measure_peak_and_free_memory
from core.learning.training.loop import NonFiniteTrainingError

ERRORS_FOR_PEOPLE = (BatchHeldSignal, DataError, ExportFailed, NonFiniteTrainingError)
"""Errors whose text is a sentence for a person: shown without the name of the class."""
Emit = Callable[[JobEvent], None]
EXIT_ERROR = 1
METRICS_PERIOD_S = 0.5
"""Seconds within which metrics and signs of life are sent together."""
PULSE_PERIOD_S = 5.0
"""Seconds between two signs; PERENNIAL_STALL_S is a hundred times as long."""


def run_job_and_write_events(out_fd: int, before: Emit, work: Callable[[Emit], None]) -> int:
    """Run a job process's `work`, write its events to `out_fd`, and return the exit status.

    Every failure becomes an `error` event, see `failures.classify_job_error`. `before` receives
    each event first.
    """
    flushed_at = 0.0
    with os.fdopen(out_fd, "w", encoding="utf-8") as out:

        def emit(event: JobEvent) -> None:
            nonlocal flushed_at
            before(event)
            # NaN is no JSON: an event with one must fail here, where its cause is known.
            out.write(json.dumps(event.to_json(), allow_nan=False) + "\n")
            # The worker reads events while the job runs. Metrics and signs of life come by the
            # hundred, one for each task, and would wake it each time.
            now, waits = time.monotonic(), isinstance(event, MetricEvent | AliveEvent)
            if not waits or now - flushed_at > METRICS_PERIOD_S:
                out.flush()
                flushed_at = now

        try:
            work(emit)
        except BrokenPipeError:
            # The worker is gone, so no process could receive an error event.
            os._exit(EXIT_ORPHANED)
        except Exception as error:  # noqa: BLE001 - reported: the worker decides by the kind
            message = (
                str(error)
                if isinstance(error, ERRORS_FOR_PEOPLE)
                else f"{type(error).__name__}: {error}"
            )
            trace = "".join(traceback.format_exception(error))
            emit(_build_error_event(classify_job_error(error), message, trace))
            return EXIT_ERROR
    return 0


def _build_error_event(kind: str, message: str, trace: str) -> JobFailedEvent:
    """Build the error event of a failed run; with memory figures if it ran out of memory."""
    if kind != "memory":
        return JobFailedEvent(kind=kind, message=message, traceback=trace)
    figures = measure_peak_and_free_memory()
    return JobFailedEvent(
        kind=kind,
        message=message,
        traceback=trace,
        peak_bytes=figures.peak,
        free_bytes=figures.free,
    )


def start_exit_on_stop_request_listener(control_fd: int, out_fd: int) -> None:
    """End the process at once when a stop is requested or the control pipe closes.

    For work without a partial result that is worth saving.
    """

    def listen_for_stop_signal() -> None:
        while request := os.read(control_fd, 64):
            if JobControlRequest.STOP.value.encode() in request:
                # Written past the stream's buffer, which the other thread may hold.
                os.write(out_fd, json.dumps(StoppedEvent().to_json()).encode() + b"\n")
                os._exit(0)
        os._exit(EXIT_ORPHANED)

    # A daemon thread does not hold up the exit of the process.
    threading.Thread(target=listen_for_stop_signal, name="control", daemon=True).start()


class ThrottledAliveEventEmitter:
    """Emits an `alive` event when called, at most once in `PULSE_PERIOD_S` seconds.

    Calls in between are cheap, so it can be called in every round of a loop.

    Args:
        emit: receives the event.
    """

    def __init__(self, emit: Callable[[JobEvent], None]) -> None:
        self._emit = emit
        # The first call reports at once: a long loop may follow a long silence.
        self._next_at = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + PULSE_PERIOD_S
            self._emit(AliveEvent())
