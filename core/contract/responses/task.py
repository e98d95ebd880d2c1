"""Tasks: the batches of a model."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.contract.reports.report import BatchReport, Repeats
from core.contract.responses.job import JobOut
from core.contract.responses.recipe import RecipeOut


class TaskOut(TypedDict):
    """A task: one uploaded batch of a model, with its state and accuracy.

    - `accuracy_now`: accuracy of the newest published version; null if not measured on it.
    - `standing`: queued, running, held, learned, rolled_back, skipped, discarded, rejected, failed
      or cancelled.
    - `training_data_until`: time when its training images are deleted; null: not decided, or
      deleted (`can_relearn` says which).
    - `classes`: number of images of each label.
    """

    id: str
    number: int
    name: str | None
    sha256: str
    bytes: int
    classes: dict[str, int]
    n_train: int | None
    n_held_out: int | None
    report: BatchReport
    job: str | None
    state: str | None
    standing: str
    training_data_until: str | None
    can_relearn: bool
    recipe: RecipeOut | None
    version: int | None
    accuracy_when_learned: float | None
    accuracy_now: float | None
    data_deleted_at: str | None
    created_at: str
    warnings: list[str]


class TaskPage(TypedDict):
    """A page of a model's tasks, in order."""

    items: list[TaskOut]
    next_cursor: str | None


class Accepted(TypedDict):
    """Response to an accepted batch: its task, and the job that learns it.

    - `repeats`: set if the model has a task with the same content. Then `task` is that task, and
      `job` learns or has learned it. Nothing was added, except for a held task that is retried with
      another recipe.
    - `expected_s`: expected duration of the job in seconds once it begins. It is based on the
      model's earlier jobs, else on one core by its base; null: nothing was measured.
    """

    task: TaskOut
    job: JobOut
    expected_s: NotRequired[float | None]
    repeats: NotRequired[Repeats]
