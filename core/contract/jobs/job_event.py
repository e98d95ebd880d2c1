"""Messages of a running job process: JSON lines, each with its kind as `event`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter

from core.contract.document import Document, Number
from core.contract.reports.data_report import DataReport


class _JobProcessEvent(Document):
    """Base class of the events that a job process prints. `event` is the kind, which each subclass
    defines.
    """

    event: str

    def to_json(self) -> dict[str, Any]:
        # The kind is a default, which `exclude_unset` would leave out.
        return {"event": self.event, **self.dump_without_event_kind()}

    def dump_without_event_kind(self) -> dict[str, Any]:
        """Return a job event's fields except its kind, as they are stored."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"event"})


class PhaseEvent(_JobProcessEvent):
    """Event: a phase of the job begins (inspect, measure, train, consolidate or evaluate)."""

    event: Literal["phase"] = "phase"
    phase: str


class ProgressEvent(_JobProcessEvent):
    """Event: progress within the job's phase, in images and steps.

    Attributes:
        phase: the phase.
        epoch: number from 1, of `epochs`.
        step: step, of `total_steps`.
        images: images so far.
        loss: mean loss since the last report.
    """

    event: Literal["progress"] = "progress"
    phase: str
    epoch: int | None = None
    epochs: int | None = None
    step: int
    total_steps: int
    images: int
    loss: Number | None = None


class MetricEvent(_JobProcessEvent):
    """Event: a measured number, or None if it is not known; `data` describes its subject."""

    event: Literal["metric"] = "metric"
    name: str
    step: int | None = None
    value: Number | None = None
    data: JsonValue = None

    def dump_without_event_kind(self) -> dict[str, Any]:
        # All fields are JSON as they are. pydantic would look for the type of each value in `data`,
        # and a version of many tasks has three metrics for each.
        content = {**self.get_explicitly_set_field_values(), **self.get_unknown_fields()}
        return {name: value for name, value in content.items() if name != "event"}


class LogEvent(_JobProcessEvent):
    """Event: a sentence for the job's log; `level` is info or warning."""

    event: Literal["log"] = "log"
    level: str
    message: str


class DataReportEvent(_JobProcessEvent):
    """Event: findings about the images of the batch, before they are learned."""

    event: Literal["data"] = "data"
    report: DataReport


class SnapshotEvent(_JobProcessEvent):
    """Event: a snapshot folder is complete; with the position in the run where it was taken.

    Attributes:
        path: the folder.
        stage, epoch, step: the position.
        cost_s: seconds for which training waited for the snapshot.
    """

    event: Literal["snapshot"] = "snapshot"
    path: Path
    stage: int
    epoch: int
    step: int
    cost_s: float = 0.0


class BestStateFoundEvent(_JobProcessEvent):
    """Event: validation found a new best state, after `step` steps."""

    event: Literal["best"] = "best"
    step: int


class BestStateFolderReadyEvent(_JobProcessEvent):
    """Event: the folder with the best validated state is complete."""

    event: Literal["anytime"] = "anytime"
    path: Path


class AliveEvent(_JobProcessEvent):
    """Event: the job process is alive during long work, without news."""

    event: Literal["alive"] = "alive"


class StoppedEvent(_JobProcessEvent):
    """Event: the run has stopped as requested, after its snapshot."""

    event: Literal["stopped"] = "stopped"


class DoneEvent(_JobProcessEvent):
    """Event: the job's result folder is complete."""

    event: Literal["done"] = "done"
    path: Path


class JobFailedEvent(_JobProcessEvent):
    """Event: the run has failed, and why.

    Attributes:
        kind: data, data-held, memory, disk, device, non-finite, export or code.
        message: the error message.
        traceback: the traceback, or "".
        peak_bytes: most memory that the run used, if it ran out of memory.
        free_bytes: memory that was free at that time.
    """

    event: Literal["error"] = "error"
    kind: str
    message: str
    traceback: str = ""
    peak_bytes: int | None = None
    free_bytes: int | None = None


LastEvent = DoneEvent | StoppedEvent | JobFailedEvent
"""The last event of a run."""
RecordedEvent = PhaseEvent | ProgressEvent | MetricEvent | LogEvent | DataReportEvent
"""Events that become rows of the job's events. `DataReportEvent` becomes part of its task's report."""
JobEvent = (
    RecordedEvent
    | SnapshotEvent
    | BestStateFoundEvent
    | BestStateFolderReadyEvent
    | AliveEvent
    | LastEvent
)

_EVENTS: TypeAdapter[JobEvent] = TypeAdapter(Annotated[JobEvent, Field(discriminator="event")])


def parse_job_event_line(line: bytes) -> JobEvent:
    """Parse a JSON line that a job process printed to an event.

    Raises:
        pydantic.ValidationError: the line is not an event.
    """
    return _EVENTS.validate_json(line)
