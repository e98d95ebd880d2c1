"""Shapes of models."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from api.schemas.common import Body, Json, Shape
from core.ids import NAME_PATTERN

Scenario = Literal["data", "task", "class"]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
Rate = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class VersionRef(Body):
    """Another model's version as a base."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    version: Annotated[int, Field(ge=0, lt=2**31)]


class ImageIn(Body):
    """Images are decoded to `size` × `size` pixels with 1 (grey) or 3 (RGB) channels."""

    size: Annotated[int, Field(ge=8, le=1024)] = 32
    channels: Literal[1, 3] = 3


class GateIn(Body):
    """What a version must show before `production` moves to it; null: not asked.

    `max_predicted_loss_rise`: of the earlier tasks' mean loss, as the method's forecast says before anything is
    measured, in units of its loss (dlcft); a version without a forecast passes.
    """

    max_forgetting: Rate | None = None
    min_new_task: Rate | None = None
    min_acc: Rate | None = None
    max_predicted_loss_rise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


RecipeIn = Annotated[
    Json,
    Field(description="A recipe patch; GET /v1/methods has the schemas. A string for method is its name."),
]


OnEvent = Literal["stop", "continue"]
OnHeld = Annotated[
    OnEvent,
    Field(
        description="After a held version: later batches wait until a person settles it (stop), or its task is skipped"
    ),
]
OnRejected = Annotated[
    OnEvent,
    Field(description="After a rejected batch: later ones wait until a person discards it (stop), or go on"),
]
OnFailed = Annotated[
    OnEvent,
    Field(
        description="After a failed job: later ones wait until it is retried or discarded (stop), or go on"
    ),
]
Days = Annotated[
    float,
    Field(
        ge=0,
        le=3650,
        allow_inf_nan=False,
        description="Days for which training images are kept after a publish, so that a task can be learned again; "
        "0: not at all",
    ),
]
MayLose = Annotated[
    bool, Field(description="Whether a version that lacks what the model has learned may pass its gate")
]


class ModelIn(Body):
    """A new model; only `name` and `scenario` are required."""

    name: Name
    scenario: Scenario
    architecture: Annotated[str, StringConstraints(max_length=63)] | Json = "small-cnn"
    image: ImageIn = ImageIn()
    base: Annotated[str, StringConstraints(max_length=40)] | VersionRef = "random"
    classes: Annotated[list[Label], Field(min_length=1, max_length=10_000)] | None = None
    recipe: RecipeIn = Field(default_factory=dict)
    gate: GateIn = GateIn()
    keep_training_data: bool = False
    held_out: Literal["keep", "counts"] = "keep"
    on_held: OnHeld = "stop"
    on_rejected: OnRejected = "continue"
    on_failed: OnFailed = "continue"
    training_data_days: Days = 7.0
    allow_lost_classes: MayLose = False


class ModelPatch(Body):
    """Changes: recipe and gate (merge patches, RFC 7396) for later tasks and retries, the rest from now on; null resets."""

    recipe: RecipeIn | None = None
    gate: GateIn | None = None
    on_held: OnHeld | None = None
    on_rejected: OnRejected | None = None
    on_failed: OnFailed | None = None
    training_data_days: Days | None = None
    allow_lost_classes: MayLose | None = None


class ActionOut(Shape):
    """A request that settles something; `…` in its body is for a person to fill in."""

    title: str
    method: str
    path: str
    body: Json | None


class AttentionOut(Shape):
    """What in a model waits for a person, in a sentence (`detail`) and the requests that settle it (one of `actions`).

    `kind`: held, rolled_back, rejected or failed.

    `version` is the held one, or of a task that was rolled back the one that knew it; `training_data_until`: the day on
    which it can no longer be learned again.
    """

    kind: str
    version: int | None
    task: int
    since: str | None
    training_data_until: str | None
    detail: str
    actions: list[ActionOut]


class GateOut(Shape):
    """The gate."""

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None


class ModelOut(Shape):
    """A model; `recipe` is shown resolved.

    Look at `attention` first: what waits for a person is there. The next task starts from version `line_head`, which
    `production` names while `production_follows`; after a rollback it does not until it is told to.
    """

    id: str
    name: str
    scenario: Scenario
    architecture: Json
    image: Json
    base: Any
    classes: list[str] | None
    recipe: Json
    gate: GateOut
    keep_training_data: bool
    held_out: str
    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool
    aliases: dict[str, int]
    line_head: int
    production_follows: bool
    attention: list[AttentionOut]
    created_at: str
    warnings: list[str]


class ModelPage(Shape):
    """A page of models."""

    items: list[ModelOut]
    next_cursor: str | None
