"""Records of a running job: its events, its log, and its measurements."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.error import JobError

EventType = Literal["state", "progress", "metric", "log", "snapshot"]


class StateData(TypedDict, total=False):
    """Data of a job event: the job's new state, with details.

    `attempt`: the attempt that began; `reason`: why it was given back, lost or stopped; `strikes`:
    attempts lost since the last snapshot; `error`: why the job ended; `version`, `outcome`,
    `warnings`: its results; `retry_of`: the job that it follows.
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
    """Data of a job event: progress of a phase. `images`: so far; `loss`: mean since the last
    report.

    `done`: share of the whole job, 0 to 1; `left_s`: seconds that it is expected to take from then
    on, null: not known. Of several reports written at once, only the last one has these two.
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
    """Data of a job event: a line of the job's log. `level`: info, warning or error."""

    level: str
    message: str


class SnapshotData(TypedDict):
    """Data of a job event: the position of the run when its snapshot was stored."""

    stage: int | None
    epoch: int | None
    step: int | None


class GridPoint(TypedDict):
    """A tried merge of old and new weights: the share of the new ones, and the validation accuracy."""

    weight: float
    accuracy: float


class Measured(TypedDict, total=False):
    """Counts behind a measured number; which fields are present depends on the number's name.

    `result`: correct predictions of a version (base, parent, new) on a task, by class [correct,
    total]; `accuracy_change`: images that the parent gets right and the new version does not, and
    vice versa; `knn_probe`, `baseline_ncm`, `baseline_lda`: correct predictions of the features;
    `loss_rise`: the forecast loss of a task, and its mean loss before and after;
    `predicted_loss_rise`: the measured rise; `adp`: the best validated state by this step;
    `rollback`: the mean over layers; `merge_weight`: the other weights that were tried.
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


class _MetricEventFields(TypedDict):
    name: str
    value: float | None


class MetricData(_MetricEventFields, total=False):
    """Data of a job event: a measurement during the job, as a number, its counts, or both."""

    step: int | None
    data: Measured | None


EventData = StateData | ProgressData | MetricData | LogData | SnapshotData


class EventOut(TypedDict):
    """One event of a job; ids rise. The content of `data` depends on `type`."""

    id: int
    type: EventType
    at: str
    data: EventData


class EventPage(TypedDict):
    """A page of a job's events."""

    items: list[EventOut]
    next_cursor: str | None


class LogLine(TypedDict):
    """One line of a job's log, with its time and level."""

    id: int
    at: str
    level: str
    message: str


class LogPage(TypedDict):
    """A page of a job's log."""

    items: list[LogLine]
    next_cursor: str | None


class Point(TypedDict):
    """One measurement on a job's curves: a number, or structured data."""

    id: int
    at: str
    name: str
    step: int | None
    value: float | None
    data: Measured | None


class PointPage(TypedDict):
    """A page of a job's measurements (points of curves), including the loss."""

    items: list[Point]
    next_cursor: str | None
