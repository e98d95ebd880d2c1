"""Recipe of a task: method, optimizer, depth, head initialisation, and their numbers.

These types validate the values of a complete recipe, as the job process gets it; their JSON Schemas
check requests. `core/recipe` completes a recipe and refuses what a method does not accept.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.learning.data.augment import Augment
from core.learning.precision import Precision

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Strength = Annotated[float, Field(ge=0, le=1e36)]
"""Strength of a penalty on weights; twice the largest value still fits float32."""
Share = Annotated[float, Field(ge=0, le=1)]
StartingPoint = Literal["update_start", "pretrained"]
"""Version that weights are compared with: the one that the task starts from, or version 0."""


class StrictRecipeModel(BaseModel):
    """Base model of recipes: frozen, and refuses unknown fields, other types and infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def is_head_parameter(parameter: str) -> bool:
    """Return True if a parameter, by its name, belongs to a head.

    All others compute the features.
    """
    return parameter.startswith(("head.", "heads."))


class OlorRecipe(StrictRecipeModel):
    """Recipe settings of the OLOR optimizer, which pulls weights back towards an anchor after each
    step.

    The share is `iota1` in the backbone's first layer, `iota2` in the last, and between them a
    power law with exponent `gamma`; all are scaled by the current rate over the peak rate.
    `iota_total` is the sum of the first layer's shares over all steps of the task, which then
    decides `iota1`. `granularity`: a layer is a block, or a single tensor as in the authors' code.
    `anchor`: the version that the task starts from, or version 0. `anchor_old_head_rows`: head rows
    of earlier classes move back by `iota1` too.
    """

    iota1: Share = 0.01
    iota2: Share = 0.0
    gamma: NotNegative = 2.0
    iota_total: NotNegative | None = None
    granularity: Literal["block", "tensor"] = "block"
    anchor: StartingPoint = "update_start"
    anchor_old_head_rows: bool = False


class OptimizerRecipe(StrictRecipeModel):
    """Optimizer settings of a recipe. `lr` is the peak rate; `head_lr` null means the same for the
    head. `clip` bounds the gradient's norm.

    `momentum` and `dampening` are SGD's (Adam's betas are 0.9, 0.999): v ← momentum · v + (1 -
    dampening) · gradient from v = 0 on. Without momentum there is no dampening either.
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

    def get_peak_learning_rate(self, parameter: str) -> float:
        """Return the peak learning rate of a network parameter, by its name."""
        return (self.head_lr or self.lr) if is_head_parameter(parameter) else self.lr


class HeadRecipe(StrictRecipeModel):
    """Recipe settings of the head: initialisation of the rows of new classes."""

    init: Literal["zero", "default"] = "zero"


class RebalanceRecipe(StrictRecipeModel):
    """Recipe settings of rebalancing: after training, train the head alone on balanced classes.

    `epochs`: passes, each of as many steps as an epoch of the task. `lr`: the peak rate; null: the
    head's.
    """

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    lr: Positive | None = None


class MergeRecipe(StrictRecipeModel):
    """Recipe settings of weight merging: average trained weights with those of the starting
    version.

    `weight`: a of θ = (1 - a) θ_start + a θ_trained. `within`: the smallest a of 0, 0.1, … 1 whose
    validation accuracy is at most so far below the best. Exactly one of the two is given.
    """

    weight: Share | None = None
    within: Share | None = None

    @model_validator(mode="after")
    def _require_one_merge_rule(self) -> MergeRecipe:
        if (self.weight is None) == (self.within is None):
            raise ValueError("merge needs weight or within, not both")
        return self


class ResourcesRecipe(StrictRecipeModel):
    """Recipe settings of a job's placement: any worker, a CPU, or a worker with `gpus` CUDA
    devices.

    `resume`: "same" continues an interrupted job only on the kind of device that it was begun on,
    since another one computes other bits; "any" continues it anywhere, and the manifest names both.
    """

    device: Literal["any", "cpu", "cuda"] = "any"
    gpus: Annotated[int, Field(ge=1, le=64)] = 1
    resume: Literal["same", "any"] = "same"


class Recipe(StrictRecipeModel):
    """A complete training recipe. `method` is {"name": …, its hyper-parameters …}.

    Fields that a patch leaves open get the method's defaults, and `depth` the greatest that the
    method accepts. `validation` is the share of the training part that is held back to choose the
    state to deploy, after each epoch. `anytime` validates often from the first step on and measures
    the Anytime Deployment Performance. `features` "cached": where the backbone does not move, its
    features are computed once. `data_report`: response to doubts about the batch's images: none,
    warnings, or a rejected job.
        It
    changes nothing of what is learned. `precision`: the number format of forward passes in
    training; "auto" is float32 on a CPU and bfloat16 on CUDA. `deterministic`: on CUDA, only
    kernels that give the same bits each time. `balanced_batches`: every class of the task has its
    share of every batch, and replayed images are stored and drawn evenly over classes. `resources`:
    where the job may run. `shards`: slices of each batch, whose gradients are added in their order;
    a host with several devices computes them side by side, in the same bits as one.
    """

    preset: str | None = None
    method: dict[str, Any] = {"name": "der++"}
    optimizer: OptimizerRecipe = OptimizerRecipe()
    depth: Annotated[int, Field(ge=1, le=5)] = 5
    head: HeadRecipe = HeadRecipe()
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    sampler: Literal["shuffled", "stratified"] = "shuffled"
    balanced_batches: bool = False
    augment: Augment = "auto"
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    anytime: bool = False
    train_ce: Literal["auto", "masked", "global"] = "auto"
    features: Literal["computed", "cached"] = "computed"
    merge: MergeRecipe | None = None
    rebalance: RebalanceRecipe | None = None
    data_report: Literal["off", "warn", "hold"] = "warn"
    precision: Precision = "auto"
    deterministic: bool = True
    resources: ResourcesRecipe = ResourcesRecipe()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    shards: Annotated[int, Field(ge=1, le=8)] = 1

    @property
    def batch_order(self) -> Literal["shuffled", "stratified"]:
        """Order of images in batches: stratified if batches are balanced, else the recipe's
        `sampler`.
        """
        return "stratified" if self.balanced_batches else self.sampler

    def get_hyper_parameters(self) -> dict[str, object]:
        """Return the hyper-parameters of the recipe's method, without its name."""
        return {name: value for name, value in self.method.items() if name != "name"}
