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


class ModelPatch(Body):
    """Changes for later tasks: merge patches (RFC 7396) of recipe and gate; null resets."""

    recipe: RecipeIn | None = None
    gate: GateIn | None = None


class GateOut(Shape):
    """The gate."""

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None


class ModelOut(Shape):
    """A model; `recipe` is shown resolved."""

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
    aliases: dict[str, int]
    created_at: str
    warnings: list[str]


class ModelPage(Shape):
    """A page of models."""

    items: list[ModelOut]
    next_cursor: str | None
