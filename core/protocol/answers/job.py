"""Jobs."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.protocol.answers.recipe import RecipeOut
from core.protocol.error import JobError
from core.protocol.report import BatchCheck, ExportReport


class Progress(TypedDict):
    """Where a job is; null: not known yet.

    `done`: share of the whole job, 0 to 1, which never falls while it is learned; `left_s`: seconds that the whole
    job is expected to take from then on; `eta_s`: seconds left of the phase. `step` and `total_steps` are of the phase.
    """

    done: NotRequired[float | None]
    left_s: NotRequired[float | None]
    phase: str | None
    epoch: int | None
    step: int | None
    total_steps: int | None
    images_per_s: float | None
    eta_s: float | None


class WaitingFor(TypedDict):
    """What keeps the job: a task that stops the line of its model (`kind`: held, failed or rejected), the model's
    base, whose weights are not there yet (base), or a CUDA device, which no worker has that reports (device); the two
    without version and task.

    `job`: the one that brings the weights of the base; `done`: how far it is, 0 to 1; `failed`: whether it failed or
    was cancelled, so that nothing goes on before a person acts.
    """

    kind: str
    version: int | None
    task: int | None
    detail: str
    job: NotRequired[str | None]
    failed: NotRequired[bool]
    done: NotRequired[float | None]


class JobOut(TypedDict):
    """A piece of long work. Of the kind `learn`: of learning one task; `validate`: a batch that is only
    checked; `fetch`: weights that a model begins with.

    `task`: null where no task is learned; `report`: what a check found, once the job is over;
    `outcome`: whether its version was published or is held; `waiting_for`: what keeps a queued job from its turn;
    `warnings`: tasks that its version will lack, a head that answers worse than its features could, and what
    to do.
    """

    id: str
    kind: str
    model: str
    task: int | None
    state: str
    is_terminal: bool
    attempt: int
    progress: Progress
    error: JobError | None
    version: int | None
    outcome: str | None
    waiting_for: WaitingFor | None
    warnings: list[str]
    recipe: RecipeOut
    retry_of: str | None
    report: BatchCheck | ExportReport | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class JobPage(TypedDict):
    """A page of jobs, newest first."""

    items: list[JobOut]
    next_cursor: str | None
