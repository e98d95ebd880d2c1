"""Models."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.base import ModelBase
from core.contract.gate import GateOut
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.contract.responses.attention import AttentionOut
from core.contract.responses.recipe import RecipeOut
from core.contract.responses.versions.sure import AnswersSetting

Scenario = Literal["data", "task", "class"]
ModelState = Literal["ready", "fetching"]


class ModelOut(TypedDict):
    """A model with its settings; `recipe` is complete.

    Look at `attention` first: it lists what waits for a person. The next task starts from version
    `line_head`. `production` names that version while `production_follows`; after a rollback it
    does not, until it is set to follow again.

    - `problem`: what it predicts for an image; fixed at creation.
    - `aliases`: versions by name.
    - `base`: `random`, `pretrained`, `perennial/…` (a packaged base), the id of an upload, or a
      version.
    - `answers`: promise for sure answers; null: no answer is marked as sure or unsure.
    - `rebased_from`: id of the model that it was made from, to move that one to another base (`GET
      …/rebase`).
    - `state`: ready, or fetching while the weights of its base are missing. While fetching, `job`
      fetches them, tasks wait, and `production`, `latest` and `line_head` are null. `job` is null
      otherwise.
    """

    id: str
    name: str
    state: ModelState
    job: str | None
    scenario: Scenario
    problem: str
    architecture: ArchitectureChoice
    image: ImageOut
    base: ModelBase
    classes: list[str] | None
    recipe: RecipeOut
    gate: GateOut
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
    selection: bool
    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool
    aliases: dict[str, int | None]
    line_head: int | None
    production_follows: bool
    attention: list[AttentionOut]
    description: str | None
    tags: list[str]
    rebased_from: str | None
    created_at: str
    warnings: list[str]


class LastJob(TypedDict):
    """The newest job of a model, in short.

    `at`: time when it ended; if it has not, when it began, and before that when it was created.
    """

    id: str
    state: str
    at: str


class ModelSummary(TypedDict):
    """Overview of a model in a list: production version, accuracy and newest job.

    - `production`: number of the version in production; null: none. `acc`, `forgetting` (`GET
      …/metrics` defines them) and `bytes` refer to it; null or 0: not measured.
    - `images`: number of held-out images that `acc` rests on; null: not measured, or not stored by
      the release that published the version.
    - `acc_line`: ACC of the published versions among the newest 24, oldest first.
    - `versions`: number of versions, including version 0 and held ones.
    """

    production: int | None
    versions: int
    tasks: int
    acc: float | None
    images: int | None
    forgetting: float | None
    last_job: LastJob | None
    bytes: int
    acc_line: list[float]


class ListedModel(ModelOut):
    """A model in a list. `summary`: null if it was not requested."""

    summary: ModelSummary | None


class ModelPage(TypedDict):
    """A page of models."""

    items: list[ListedModel]
    next_cursor: str | None
