"""A snapshot of a running job: what its JSON file says, and how the job's row names it and the best state so far."""

from pydantic import Field, JsonValue

from core.protocol.document import Document, Number
from core.protocol.figures import Checkpoint
from core.protocol.job_result import MeasuredCell
from core.protocol.recipe import Recipe


class Position(Document):
    """Where a run is. `batch`: batches done in this epoch; `step`: optimizer steps done in this task."""

    stage: int
    epoch: int
    batch: int
    step: int
    images: int


class BestState(Document):
    """The best validated state: right answers, and when it was; -1 before the first."""

    correct: int
    step: int
    epoch: int


class ValidationState(Document):
    """What validation goes on from besides the best state's tensors."""

    best: BestState
    curve: list[Checkpoint]


class LossState(Document):
    """The sum of losses since the last report, and of how many steps."""

    sum: Number
    steps: int


class LoopState(Document):
    """What the training loop goes on from besides tensors; `state`: the method's JSON by type of part."""

    position: Position
    state: dict[str, dict[str, JsonValue]]
    validation: ValidationState
    loss: LossState


class SnapshotDocument(LoopState):
    """`snapshot.json`: whose snapshot it is, the loop's state, and what was said until then. `number`: from 1
    in a run. devices: kinds of devices that the run was trained on so far, in order; empty in older snapshots."""

    task: int
    number: int
    recipe: Recipe
    results: list[MeasuredCell]
    warnings: list[str]
    devices: list[str] = Field(default_factory=list)


class StoredState(Document):
    """A state of a job in the store: `key` is the prefix of its files, `files` has [sha256, bytes] by name.

    fence, number: of the attempt that stored it, and which of its states it is. origin: what made it
    (`core.work.snapshots`).
    """

    key: str
    files: dict[str, tuple[str, int]]
    fence: int
    number: int
    origin: str | None = None

    @property
    def keys(self) -> list[str]:
        """The store keys of its files."""
        return [self.key + name for name in self.files]


class StoredSnapshot(StoredState):
    """`Job.snapshot`; stage, epoch and step say where in the run it was taken."""

    stage: int | None = None
    epoch: int | None = None
    step: int | None = None


class StoredAnytime(StoredState):
    """`Job.anytime`: the best validated state so far; of step `step`, with `correct` right answers."""

    step: int
    correct: int
