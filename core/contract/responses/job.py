"""Jobs, and the trials of a job."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.contract.error import JobError
from core.contract.jobs.trial import Choose, Source
from core.contract.patch import RecipePatch
from core.contract.reports.report import BatchCheck, ExportReport
from core.contract.responses.recipe import RecipeOut


class Progress(TypedDict):
    """Progress of a running job; null: not known yet.

    `done`: share of the whole job, 0 to 1, which never falls while it is learned; `left_s`: seconds
    that the whole job is expected to take from then on; `eta_s`: seconds left of the phase. `step`
    and `total_steps` are of the phase.
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
    """Reason why a queued job does not start yet.

    `kind`: held, failed or rejected, for a task that stops the model's lineage; base, for weights
    of the model's base that are not there yet; device, for a CUDA device that no reporting worker
    has. The last two have no version and task.

    `job`: the one that fetches the weights of the base; `done`: its progress, 0 to 1; `failed`: it
    failed or was cancelled, so that nothing continues before a person acts.
    """

    kind: str
    version: int | None
    task: int | None
    detail: str
    job: NotRequired[str | None]
    failed: NotRequired[bool]
    done: NotRequired[float | None]


class JobOut(TypedDict):
    """A job: `learn` learns a task, `validate` only checks a batch, `fetch` downloads a model's
    initial weights.

    `task`: null if no task is learned; `report`: the findings of a check, once the job is over;
    `outcome`: published or held, for its version; `waiting_for`: the reason why a queued job waits;
    `warnings`: tasks that its version will lack, a head that predicts worse than its features
    could, and what to do.
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


class TrialScoreOut(TypedDict):
    """Score by which the trials of a batch are compared; `images`: number of images that it rests
    on.
    """

    source: Source
    value: float
    standard_error: float
    images: int


class TrialOut(TypedDict):
    """A trial: one of several recipes that a job learns a batch with; figures are null until it is
    measured.

    `held_out`: number of held-out images that `acc` rests on; `images`: training images that its
    version keeps.
    """

    trial: int
    recipe: RecipePatch
    reason: str
    state: str
    score: TrialScoreOut | None
    passes_gate: bool | None
    accuracy: dict[str, float | None]
    acc: float | None
    held_out: int | None
    forgetting: float | None
    forecast: float | None
    seconds: float | None
    bytes: int | None
    images: int | None
    error: JobError | None
    why_lost: str | None


class TrialsOut(TypedDict):
    """All trials of a job: the recipes that it compares for one batch.

    `chosen`: the one whose version is published; `until`: time at which the best is chosen;
    `max_seconds`: seconds of the job after which no further one begins.
    """

    job: str
    choose: Choose
    state: str
    source: Source
    chosen: int | None
    best: int | None
    until: str | None
    max_seconds: float | None
    items: list[TrialOut]
