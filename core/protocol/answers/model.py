"""Models."""

from typing import Literal

from typing_extensions import TypedDict

from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.answers.attention import AttentionOut
from core.protocol.answers.recipe import RecipeOut
from core.protocol.answers.sure import AnswersSetting
from core.protocol.base import ModelBase
from core.protocol.gate import GateOut

Scenario = Literal["data", "task", "class"]
ModelState = Literal["ready", "fetching"]


class ModelOut(TypedDict):
    """A model; `recipe` is shown resolved.

    Look at `attention` first: what waits for a person is there. The next task starts from version `line_head`, which
    `production` names while `production_follows`; after a rollback it does not until it is told to. `aliases`: their
    versions by name. `base`: `random`, `pretrained`, `perennial/…` (a base of the package), the id of an
    upload, or a version.

    `answers`: what is promised of sure answers; null: none is called sure or not.

    `rebased_from`: the id of the model that it was made from, to move that one to another base (`GET …/rebase`).

    `state`: ready, or fetching while the weights of its base are not there: `job` brings them, tasks wait,
    and `production`, `latest` and `line_head` are null. `job` is null once they are there.
    """

    id: str
    name: str
    state: ModelState
    job: str | None
    scenario: Scenario
    architecture: ArchitectureChoice
    image: ImageOut
    base: ModelBase
    classes: list[str] | None
    recipe: RecipeOut
    gate: GateOut
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
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
    """The newest job of a model. `at`: when it ended; of one that is not over when it began, else when it was made."""

    id: str
    state: str
    at: str


class ModelSummary(TypedDict):
    """What a list shows of a model at a glance.

    `production`: number of the version in production, whose ACC and forgetting (`GET …/metrics` defines them) and bytes
    these are; null or 0: there is none, or it was not measured. `acc_line`: ACC of the published ones of the newest 24
    versions, oldest first. `versions` counts version 0 too, and held ones.
    """

    production: int | None
    versions: int
    tasks: int
    acc: float | None
    forgetting: float | None
    last_job: LastJob | None
    bytes: int
    acc_line: list[float]


class ListedModel(ModelOut):
    """A model in a list. `summary`: null where it is not asked for."""

    summary: ModelSummary | None


class ModelPage(TypedDict):
    """A page of models."""

    items: list[ListedModel]
    next_cursor: str | None
