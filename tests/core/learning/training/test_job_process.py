"""Reports of a job process: its last event says how it ended, and a sentence for a person stays
one.
"""

import json
import os

import pytest

from core.contract.jobs.job_event import JobEvent, PhaseEvent
from core.learning.export.graph import ExportFailed
from core.learning.training.job_process import EXIT_ERROR, Emit, run_job_and_write_events


def run_and_read_lines(
    error: Exception | None,
) -> tuple[int, list[dict[str, object]], list[JobEvent]]:
    """Return the exit status, the lines of the pipe, and what was seen before each."""
    seen: list[JobEvent] = []

    def emit_phase_then_raise(emit: Emit) -> None:
        emit(PhaseEvent(phase="export"))
        if error is not None:
            raise error

    reads, writes = os.pipe()
    status = run_job_and_write_events(writes, seen.append, emit_phase_then_raise)
    with os.fdopen(reads) as lines:
        return status, [json.loads(line) for line in lines], seen


def test_work_that_ends_well_tells_its_events_alone() -> None:
    status, lines, seen = run_and_read_lines(None)
    assert (status, lines) == (0, [{"event": "phase", "phase": "export"}])
    assert seen == [PhaseEvent(phase="export")]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ExportFailed("The graph answers otherwise"), "export", "The graph answers otherwise"),
        (ValueError("no such head"), "code", "ValueError: no such head"),
        (MemoryError("1 GB"), "memory", "MemoryError: 1 GB"),
    ],
)
def test_a_failure_is_the_last_event_with_its_kind(
    error: Exception, kind: str, message: str
) -> None:
    status, lines, _ = run_and_read_lines(error)
    assert status == EXIT_ERROR
    assert (lines[-1]["event"], lines[-1]["kind"], lines[-1]["message"]) == ("error", kind, message)
