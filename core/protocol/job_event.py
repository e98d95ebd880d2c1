"""What a job process says while it runs: JSON lines, each with its kind as `event`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, TypeAdapter

from core.protocol.data_report import DataReport
from core.protocol.document import Document, Number


class _Event(Document):
    """`event` is the kind; each kind gives it a value."""

    event: str

    def to_json(self) -> dict[str, Any]:
        return {"event": self.event, **self.content()}

    def content(self) -> dict[str, Any]:
        """What it says beside its kind, as the job's events show it."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"event"})


class PhaseEvent(_Event):
    """A phase begins: inspect, measure, train, consolidate, evaluate."""

    event: Literal["phase"] = "phase"
    phase: str


class ProgressEvent(_Event):
    """How far a phase is: epoch (from 1) of `epochs`, step of `total_steps`, images so far, mean loss since
    the last."""

    event: Literal["progress"] = "progress"
    phase: str
    epoch: int | None = None
    epochs: int | None = None
    step: int
    total_steps: int
    images: int
    loss: Number | None = None


class MetricEvent(_Event):
    """A number that was measured; `data` says of what. Null where it is not known."""

    event: Literal["metric"] = "metric"
    name: str
    step: int | None = None
    value: Number | None = None
    data: JsonValue = None


class LogEvent(_Event):
    """A sentence for a person; level info or warning."""

    event: Literal["log"] = "log"
    level: str
    message: str


class DataEvent(_Event):
    """What was found in the images of the batch, before they are learned."""

    event: Literal["data"] = "data"
    report: DataReport


class SnapshotEvent(_Event):
    """A snapshot folder is whole, and where in the run it was taken.

    cost_s: seconds for which training waited for it.
    """

    event: Literal["snapshot"] = "snapshot"
    path: Path
    stage: int
    epoch: int
    step: int
    cost_s: float = 0.0


class BestEvent(_Event):
    """There is a better validated state than before: of step `step`."""

    event: Literal["best"] = "best"
    step: int


class AnytimeEvent(_Event):
    """The folder of the best validated state is whole."""

    event: Literal["anytime"] = "anytime"
    path: Path


class AliveEvent(_Event):
    """Nothing new, after work that takes long."""

    event: Literal["alive"] = "alive"


class StoppedEvent(_Event):
    """The run ends as asked, after its snapshot."""

    event: Literal["stopped"] = "stopped"


class DoneEvent(_Event):
    """The result folder is whole."""

    event: Literal["done"] = "done"
    path: Path


class ErrorEvent(_Event):
    """The run failed; kind data, data-held, memory, disk, device, non-finite, export or code.

    peak_bytes, free_bytes: of a run that ran out of memory, the most that it held and what was free at its end.
    """

    event: Literal["error"] = "error"
    kind: str
    message: str
    traceback: str = ""
    peak_bytes: int | None = None
    free_bytes: int | None = None


LastEvent = DoneEvent | StoppedEvent | ErrorEvent
"""After it nothing comes."""
RecordedEvent = PhaseEvent | ProgressEvent | MetricEvent | LogEvent | DataEvent
"""What becomes a row of the job's events; what was found in the images, part of its task's report."""
JobEvent = RecordedEvent | SnapshotEvent | BestEvent | AnytimeEvent | AliveEvent | LastEvent

_EVENTS: TypeAdapter[JobEvent] = TypeAdapter(Annotated[JobEvent, Field(discriminator="event")])


def event_of(line: bytes) -> JobEvent:
    """The event of a JSON line.

    Raises:
        pydantic.ValidationError: it is none.
    """
    return _EVENTS.validate_json(line)
