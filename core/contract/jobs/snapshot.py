"""A snapshot of a running job, and the references to stored states in the job's row."""

from pydantic import Field, JsonValue

from core.contract.document import Document, Number
from core.contract.figures import AnytimeDeploymentCurvePoint
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.contract.recipe import Recipe


class TrainingPosition(Document):
    """Position in a training run: stage, epoch, batch and optimizer step.

    Attributes:
        stage: stage of the run.
        epoch: epoch of the stage.
        batch: batches done in this epoch.
        step: optimizer steps done in this task.
        images: images so far.
    """

    stage: int
    epoch: int
    batch: int
    step: int
    images: int


class BestStateScore(Document):
    """Score, step and epoch of the best validated state so far; -1 before the first validation."""

    correct: Number
    step: int
    epoch: int


class BestStateSelectionProgress(Document):
    """State of the validation to resume from, besides the tensors of the best state."""

    best: BestStateScore
    curve: list[AnytimeDeploymentCurvePoint]


class RunningLossState(Document):
    """Running sum of training losses since the last report, and its number of steps."""

    sum: Number
    steps: int


class TrainingLoopState(Document):
    """State of the training loop to resume from, besides tensors.

    Attributes:
        state: the method's JSON by type of part.
    """

    position: TrainingPosition
    state: dict[str, dict[str, JsonValue]]
    validation: BestStateSelectionProgress
    loss: RunningLossState


class SnapshotDocument(TrainingLoopState):
    """Content of a snapshot's `snapshot.json`: the task, the training loop's state, and the results
    so far.

    Attributes:
        number: number in the run, from 1.
        devices: kinds of devices that the run used so far, in order; empty in older snapshots.
    """

    task: int
    number: int
    recipe: Recipe
    results: list[MeasuredMatrixCell]
    warnings: list[str]
    devices: list[str] = Field(default_factory=list)


class StoredJobTrainingState(Document):
    """A snapshot or best state of a job, stored as files under one key prefix.

    Attributes:
        key: prefix of its files.
        files: name → [sha256, bytes].
        fence: fence of the attempt that stored it.
        number: number among the attempt's states.
        origin: digest of what the state depends on (`core.execution.snapshots`).
    """

    key: str
    files: dict[str, tuple[str, int]]
    fence: int
    number: int
    origin: str | None = None

    @property
    def store_keys(self) -> list[str]:
        """Store keys of the files of a job's snapshot or best state."""
        return [self.key + name for name in self.files]


class StoredSnapshot(StoredJobTrainingState):
    """A job's stored snapshot, as in `Job.snapshot`; `stage`, `epoch` and `step` are its position
    in the run.
    """

    stage: int | None = None
    epoch: int | None = None
    step: int | None = None


class StoredBestState(StoredJobTrainingState):
    """A job's best validated state so far, as stored in `Job.anytime`.

    Attributes:
        step: steps of training.
        correct: correct answers in the validation.
    """

    step: int
    correct: int
