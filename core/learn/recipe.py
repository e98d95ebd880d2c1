"""How a task is learned: method × optimizer × depth × head init, and the numbers around them.

The words that methods are written in, and a recipe as the job process sees it: complete. Who completes one from
what a person wrote, and refuses what a method does not accept, is `core/recipe`; the types here validate values, and
their JSON Schemas are what a person's patch is checked against.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.learn.augment import Augment

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Strength = Annotated[float, Field(ge=0, le=1e36)]
"""Of a penalty on weights: what float32 holds, also when doubled."""
Share = Annotated[float, Field(ge=0, le=1)]
StartingPoint = Literal["update_start", "pretrained"]
"""The version that the task starts from, or version 0."""


class Strict(BaseModel):
    """Frozen; unknown fields, coerced types and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def is_head(parameter: str) -> bool:
    """Whether a parameter of a network, by its name, is a head's; all others make the features."""
    return parameter.startswith(("head.", "heads."))


class OlorRecipe(Strict):
    """After each step, a share of the way back to the weights that the run started from.

    The backbone's first layer goes back by `iota1` of its distance, the last by `iota2`, those between by a power
    law with exponent `gamma`; all by less where the rate is below its peak. `granularity`: layers are blocks, or
    single tensors as in the authors' code. `anchor`: the version that the task starts from, or version 0.
    `anchor_old_head_rows`: rows of the head that were there before go back by `iota1` too.
    """

    iota1: Share = 0.01
    iota2: Share = 0.0
    gamma: NotNegative = 2.0
    granularity: Literal["block", "tensor"] = "block"
    anchor: StartingPoint = "update_start"
    anchor_old_head_rows: bool = False


class OptimizerRecipe(Strict):
    """`lr` is the peak rate; `head_lr` null means the same for the head. `clip` bounds the gradient's norm.

    `momentum` and `dampening` are SGD's (Adam's betas are 0.9, 0.999): v ← momentum · v + (1 - dampening) · gradient
    from v = 0 on. Without momentum there is no dampening either.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.03
    head_lr: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    dampening: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    clip: Positive | None = None
    carry_state: bool = False
    olor: OlorRecipe | None = None

    def rate_of(self, parameter: str) -> float:
        """The peak rate of a parameter of the network, by its name."""
        return (self.head_lr or self.lr) if is_head(parameter) else self.lr


class HeadRecipe(Strict):
    """How rows of new classes start."""

    init: Literal["zero", "default"] = "zero"


class Recipe(Strict):
    """A complete recipe. `method` is {"name": …, its hyper-parameters …}.

    A patch that leaves something open gets the method's advice, and as `depth` the greatest that it accepts.
    `validation` is the share of the training part that is held back to choose the state to deploy, after each epoch;
    with `anytime` often from the first step on, with the Anytime Deployment Performance measured beside it.
    """

    preset: str | None = None
    method: dict[str, Any] = {"name": "der++"}
    optimizer: OptimizerRecipe = OptimizerRecipe()
    depth: Annotated[int, Field(ge=1, le=5)] = 5
    head: HeadRecipe = HeadRecipe()
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    sampler: Literal["shuffled", "stratified"] = "shuffled"
    augment: Augment = "auto"
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    anytime: bool = False
    train_ce: Literal["auto", "masked", "global"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
