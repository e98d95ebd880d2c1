"""Failpoints of a job process, by the events that it reports; crash tests end it there."""

from core.contract.jobs.job_event import JobEvent, PhaseEvent
from core.failpoints import hit_failpoint, raise_device_error_in_test

FAILPOINTS = {
    "train": "job-train",
    "check": "export-written",
    "snapshot": "job-snapshot",
    "consolidate": "job-consolidate",
    "evaluate": "job-evaluate",
    "done": "job-done",
}
"""Failpoint that a job reaches just before it reports a phase or an event."""


def hit_event_failpoint(event: JobEvent) -> None:
    """Trigger the failpoint (crash for a test) of a job's event, if it is armed.

    The learning code itself knows no failpoints.
    """
    point = FAILPOINTS.get(event.phase if isinstance(event, PhaseEvent) else event.event)
    if point is not None:
        hit_failpoint(point)
    if point == "job-train":
        raise_device_error_in_test()
