"""Running and reporting of a job process: events as JSON lines on a pipe, the outcome last."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable

from core.learn.control import EXIT_ORPHANED
from core.learn.data_report import DataHeld
from core.learn.failures import kind_of, measure_memory
from core.learn.onnx.graph import ExportFailed
from core.protocol.job_event import ErrorEvent, JobEvent

Emit = Callable[[JobEvent], None]
EXIT_ERROR = 1


def run_with_events(out_fd: int, before: Emit, work: Callable[[Emit], None]) -> int:
    """Run `work` with events to `out_fd`, and return the exit status.

    Every failure becomes an `error` event, see `failures.kind_of`. `before` receives each event
    first.
    """
    with os.fdopen(out_fd, "w", buffering=1, encoding="utf-8") as out:

        def emit(event: JobEvent) -> None:
            before(event)
            out.write(json.dumps(event.to_json(), allow_nan=False) + "\n")
            out.flush()

        try:
            work(emit)
        except BrokenPipeError:
            # The worker is gone, so no process could receive an error event.
            os._exit(EXIT_ORPHANED)
        except Exception as error:  # noqa: BLE001 - reported: the worker decides by the kind
            message = (
                str(error)
                if isinstance(error, ExportFailed | DataHeld)
                else f"{type(error).__name__}: {error}"
            )
            trace = "".join(traceback.format_exception(error))
            emit(_build_error_event(kind_of(error), message, trace))
            return EXIT_ERROR
    return 0


def _build_error_event(kind: str, message: str, trace: str) -> ErrorEvent:
    """Return the last event of a failed run; with memory figures if it ran out of memory."""
    if kind != "memory":
        return ErrorEvent(kind=kind, message=message, traceback=trace)
    figures = measure_memory()
    return ErrorEvent(
        kind=kind,
        message=message,
        traceback=trace,
        peak_bytes=figures.peak,
        free_bytes=figures.free,
    )
