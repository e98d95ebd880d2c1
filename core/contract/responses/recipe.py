"""A resolved recipe, as responses show it."""

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict


@with_config(
    ConfigDict(
        json_schema_extra={
            "additionalProperties": {
                "description": "A hyper-parameter; GET /v1/methods has the schema of each method"
            }
        }
    )
)
class MethodChoice(TypedDict):
    """A method's name, with its hyper-parameters beside it."""

    name: str


class OlorOut(TypedDict, total=False):
    """Recipe block of OLOR: after each step, weights move part of the way back to the run's initial
    weights.

    `iota_total`: the sum of the first layer's shares over a task, in place of `iota1`; null:
    `iota1` counts.
    """

    iota1: float
    iota2: float
    gamma: float
    iota_total: float | None
    granularity: str
    anchor: str
    anchor_old_head_rows: bool


class OptimizerOut(TypedDict, total=False):
    """Recipe block of the optimizer. `lr` is the peak learning rate; `head_lr` null: the same for
    the head; `clip` bounds the gradient's norm.
    """

    name: str
    lr: float
    head_lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    schedule: str
    warmup_steps: int
    clip: float | None
    carry_state: bool
    olor: OlorOut | None


class HeadInit(TypedDict, total=False):
    """Recipe block for the head: how the rows of new classes are initialised."""

    init: str


class RebalanceOut(TypedDict, total=False):
    """Recipe block: after training, the head alone learns from equally many images of each class;
    `lr` null: its rate.
    """

    epochs: int
    lr: float | None


class MergeOut(TypedDict, total=False):
    """Recipe block: after training, weights are interpolated with the initial ones, by `weight` or
    by the rule `within`; the other is null.
    """

    weight: float | None
    within: float | None


class ResourcesOut(TypedDict, total=False):
    """Recipe block: the device that a job needs (any, cpu or cuda), and its minimum number of CUDA
    devices.

    `resume`: same continues an interrupted job only on the kind of device that it was begun on; any
    continues it anywhere.
    """

    device: str
    gpus: int
    resume: str


class RecipeOut(TypedDict, total=False):
    """Recipe by which a task is learned; GET /v1/methods has the schema. An older recipe may lack
    newer fields.
    """

    preset: str | None
    method: MethodChoice
    optimizer: OptimizerOut
    depth: int
    head: HeadInit
    epochs: int
    batch_size: int
    sampler: str
    balanced_batches: bool
    augment: str
    validation: float
    anytime: bool
    train_ce: str
    features: str
    merge: MergeOut | None
    rebalance: RebalanceOut | None
    data_report: str
    precision: str
    deterministic: bool
    resources: ResourcesOut
    seed: int
    shards: int
