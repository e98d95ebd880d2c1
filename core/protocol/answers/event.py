"""What a job said while it ran: its events, its log, and its measurements."""

from typing import Literal

from typing_extensions import TypedDict

from core.protocol.error import JobError

EventType = Literal["state", "progress", "metric", "log", "snapshot"]


class StateData(TypedDict, total=False):
    """A change of state, with what is known of it.

    `attempt`: which one began; `reason`: why it was given back, lost or stopped; `strikes`: attempts that
    were lost since the last snapshot; `error`: why the job ended; `version`, `outcome`, `warnings`: what it
    made; `retry_of`: the job that it follows.
    """

    state: str
    attempt: int
    reason: str
    strikes: int
    error: JobError
    version: int
    outcome: str
    warnings: list[str]
    retry_of: str


class ProgressData(TypedDict, total=False):
    """How far a phase is. `images`: so far; `loss`: mean since the last report.

    `done`: share of the whole job, 0 to 1; `left_s`: seconds that it is expected to take from then on, null: not known.
    Of several reports that were written at once the last one has the two.
    """

    phase: str
    epoch: int
    step: int | None
    total_steps: int
    images: int
    loss: float | None
    done: float
    left_s: float | None


class LogData(TypedDict):
    """A line of the log. `level`: info, warning or error."""

    level: str
    message: str


class SnapshotData(TypedDict):
    """Where the run was when its snapshot was stored."""

    stage: int | None
    epoch: int | None
    step: int | None


class GridPoint(TypedDict):
    """A weight of the trained network in a merge, and the validation accuracy with it."""

    weight: float
    accuracy: float


class Measured(TypedDict, total=False):
    """What was counted beside the number of a measurement; which of it is there depends on its name.

    `result`: right answers of a version (base, parent, new) on a task, by class [correct, total]; `accuracy_change`:
    images that the parent answered right and the new version does not, and the other way round; `knn_probe`,
    `baseline_ncm`, `baseline_lda`: right answers of the features; `loss_rise`: what a task was forecast to
    lose, and its mean loss before and after; `predicted_loss_rise`: the rise that was measured; `adp`: the
    state that was the best validated by this step; `rollback`: the mean over layers; `merge_weight`: what
    else was tried.
    """

    version: str
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]
    regressed: int
    improved: int
    predicted: float | None
    before: float | None
    after: float | None
    measured: float | None
    step: int
    best_step: int
    validation: float
    accuracy: dict[str, float]
    mean: float
    grid: list[GridPoint]


class _Metric(TypedDict):
    name: str
    value: float | None


class MetricData(_Metric, total=False):
    """A measurement while learning: a number, what was counted beside it, or both."""

    step: int | None
    data: Measured | None


EventData = StateData | ProgressData | MetricData | LogData | SnapshotData


class EventOut(TypedDict):
    """One event; ids rise. What `data` holds depends on `type`."""

    id: int
    type: EventType
    at: str
    data: EventData


class EventPage(TypedDict):
    """A page of events."""

    items: list[EventOut]
    next_cursor: str | None


class LogLine(TypedDict):
    """One line of a job's log."""

    id: int
    at: str
    level: str
    message: str


class LogPage(TypedDict):
    """A page of a job's log."""

    items: list[LogLine]
    next_cursor: str | None


class Point(TypedDict):
    """One measurement while learning: a number, or structured data."""

    id: int
    at: str
    name: str
    step: int | None
    value: float | None
    data: Measured | None


class PointPage(TypedDict):
    """A page of a job's measurements; loss among them."""

    items: list[Point]
    next_cursor: str | None
