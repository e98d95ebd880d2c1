"""Failpoints of a job process, by the events that it reports: tests of crashes end it there."""

from core.failpoints import fail_device, hit
from core.protocol.job_event import JobEvent, PhaseEvent

FAILPOINTS = {
    "train": "job-train",
    "check": "export-written",
    "snapshot": "job-snapshot",
    "consolidate": "job-consolidate",
    "evaluate": "job-evaluate",
    "done": "job-done",
}
"""Phase or event of a job to the point that it reaches just before it tells so."""


def die_if_armed(event: JobEvent) -> None:
    """The learning code knows no failpoints: its events are told at the same places."""
    point = FAILPOINTS.get(event.phase if isinstance(event, PhaseEvent) else event.event)
    if point is not None:
        hit(point)
    if point == "job-train":
        fail_device()
